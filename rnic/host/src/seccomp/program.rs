//! Rules about system calls as a program that the kernel runs before each.
//!
//! Invariant of `unsafe` here: the program that the kernel is given is valid memory of as many
//! instructions as it says for the whole call; the kernel copies it and checks it.
#![allow(unsafe_code)]

use std::io;

use libc::{c_long, sock_filter, sock_fprog};

/// `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_AARCH64` of linux/audit.h: whose numbers the calls have.
const ARCH: Option<u32> = if cfg!(all(target_arch = "x86_64", target_pointer_width = "64")) {
    Some(0xc000_003e)
} else if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
    Some(0xc000_00b7)
} else {
    None
};

/// Where `struct seccomp_data` has the number of the call, its architecture, and its arguments. Of
/// these the lower half is looked at, which comes first on both processors.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
const ARGUMENT: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Allow(c_long),
    /// This call, unless an argument has one of these bits.
    Without {
        call: c_long,
        argument: u32,
        bits: u32,
    },
    /// This call, when an argument is this.
    With {
        call: c_long,
        argument: u32,
        value: u32,
    },
    /// Not this call, but it only fails (EPERM): libraries do without it.
    Refuse(c_long),
}

/// The program for these rules, the first rule for a call being the one that counts; none on a
/// processor that is not known.
pub(super) fn compile(rules: &[Rule]) -> Option<Vec<sock_filter>> {
    let arch = ARCH?;
    let mut program = vec![
        load(ARCHITECTURE),
        // A call of another architecture has a number that means something else.
        jump_if(libc::BPF_JEQ, arch, 1, 0),
        give(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    for rule in rules {
        program.push(load(NUMBER));
        match *rule {
            Rule::Allow(call) => program.extend([
                jump_if(libc::BPF_JEQ, call as u32, 0, 1),
                give(libc::SECCOMP_RET_ALLOW),
            ]),
            Rule::Without {
                call,
                argument,
                bits,
            } => program.extend([
                jump_if(libc::BPF_JEQ, call as u32, 0, 4),
                load(ARGUMENTS + argument * ARGUMENT),
                jump_if(libc::BPF_JSET, bits, 1, 0),
                give(libc::SECCOMP_RET_ALLOW),
                give(libc::SECCOMP_RET_TRAP),
            ]),
            Rule::With {
                call,
                argument,
                value,
            } => program.extend([
                jump_if(libc::BPF_JEQ, call as u32, 0, 4),
                load(ARGUMENTS + argument * ARGUMENT),
                jump_if(libc::BPF_JEQ, value, 0, 1),
                give(libc::SECCOMP_RET_ALLOW),
                give(libc::SECCOMP_RET_TRAP),
            ]),
            Rule::Refuse(call) => program.extend([
                jump_if(libc::BPF_JEQ, call as u32, 0, 1),
                give(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            ]),
        }
    }
    program.push(give(libc::SECCOMP_RET_TRAP));
    Some(program)
}

/// Gives the program to the kernel, for the calling thread.
pub(super) fn install(program: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = sock_fprog {
        len,
        // The kernel only reads it.
        filter: program.as_ptr().cast_mut(),
    };
    // No flags: without TSYNC it is this thread's.
    let flags: libc::c_ulong = 0;
    // SAFETY: `filter` names `len` instructions that live until after the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::c_ulong::from(libc::SECCOMP_SET_MODE_FILTER),
            flags,
            &raw const filter,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Loads a word of `struct seccomp_data`.
fn load(at: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0)
}

/// Goes on so many instructions further, by whether the loaded word compares so.
fn jump_if(comparison: u32, value: u32, if_so: u8, otherwise: u8) -> sock_filter {
    let code = libc::BPF_JMP | comparison | libc::BPF_K;
    instruction(code, value, if_so, otherwise)
}

fn give(value: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        // All codes are of eight bits.
        code: code as u16,
        jt,
        jf,
        k,
    }
}
