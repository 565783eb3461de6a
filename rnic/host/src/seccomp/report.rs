//! The end of a process one of whose threads made a call that its filter does not allow: the kernel
//! sends SIGSYS instead of doing it, and what is here says so and aborts.
//!
//! Invariant of `unsafe` here: the handler calls only what signal-safety(7) allows, touches nothing
//! but its own stack, and does not return.
#![allow(unsafe_code)]

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Longer than the message.
const MESSAGE_MAX: usize = 256;

/// The beginning of `siginfo_t` as SIGSYS has it (linux/uapi/asm-generic/siginfo.h).
#[repr(C)]
struct SysInfo {
    signo: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    _pad: libc::c_int,
    call_address: *const libc::c_void,
    syscall: libc::c_int,
    arch: libc::c_uint,
}

/// Has SIGSYS end the process with a message. It does so for all threads.
pub(super) fn listen() -> io::Result<()> {
    let action = SigAction::new(
        SigHandler::SigAction(end),
        SaFlags::SA_SIGINFO,
        SigSet::empty(),
    );
    // SAFETY: the handler keeps to this module's invariant.
    unsafe { sigaction(Signal::SIGSYS, &action) }?;
    Ok(())
}

extern "C" fn end(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a siginfo_t that lives while the handler runs, which is at least as
    // long as what is read of it, and aligned alike.
    let found = unsafe { info.cast::<SysInfo>().read() };
    let mut message = Message::default();
    message.text(b"the RNIC's shard made system call ");
    message.number(found.syscall.unsigned_abs());
    message.text(b", which its seccomp filter does not allow: ending the process. `ausyscall ");
    message.number(found.syscall.unsigned_abs());
    message.text(b"` names it; --no-seccomp does without the filter\n");
    // SAFETY: these bytes are there; what becomes of them changes nothing.
    let _ = unsafe {
        libc::write(
            libc::STDERR_FILENO,
            message.bytes.as_ptr().cast(),
            message.len,
        )
    };
    // SAFETY: abort(3) may be called in a handler.
    unsafe { libc::abort() }
}

/// Text in a place of its own: a handler can't allocate.
struct Message {
    bytes: [u8; MESSAGE_MAX],
    len: usize,
}

impl Default for Message {
    fn default() -> Self {
        Self {
            bytes: [0; MESSAGE_MAX],
            len: 0,
        }
    }
}

impl Message {
    fn text(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = *byte;
                self.len += 1;
            }
        }
    }

    fn number(&mut self, mut number: u32) {
        let mut digits = [b'0'; 10];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text(&digits[first..]);
    }
}
