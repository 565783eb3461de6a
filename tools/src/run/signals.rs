//! Signals that `rnic-run` passes on to the program, and its program's end, as they come (signalfd(2)).

use std::io;
use std::process::Child;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, kill_process};

const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// `si_code` of a signal from the kernel itself (sigaction(2)). A terminal's Ctrl-C is one.
const SI_KERNEL: i32 = 0x80;

/// The signals, blocked for this process and for what it starts, unless that [unblocks](unblock) them.
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
}

fn all() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in PASSED_ON.into_iter().chain([Signal::SIGCHLD]) {
        signals.add(signal);
    }
    signals
}

/// Blocks them for a process that none of them is to end.
pub(super) fn block() -> io::Result<()> {
    Ok(all().thread_block()?)
}

/// Undoes it.
pub(super) fn unblock() -> io::Result<()> {
    Ok(all().thread_unblock()?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// A child changed its state.
    Child,
    /// Somebody sent this to `rnic-run`, and means the program.
    PassOn(i32),
    /// The kernel sent it to the whole process group, so that the program has it already.
    FromTerminal,
}

impl Signals {
    pub(super) fn block() -> io::Result<Self> {
        let signals = all();
        signals.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let fd = SignalFd::with_flags(&signals, flags)?;
        Ok(Self { fd })
    }

    /// Waits for the next one.
    pub(super) fn next(&self) -> io::Result<Arrived> {
        loop {
            if let Some(arrived) = self.take()? {
                return Ok(arrived);
            }
            let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn take(&self) -> io::Result<Option<Arrived>> {
        let found = self.fd.read_signal()?;
        Ok(found.map(|found| judge(found.ssi_signo, found.ssi_code)))
    }

    /// The signal that came while there was no program to pass it on to, and that would have ended it.
    pub(super) fn ended_early(&self) -> io::Result<Option<i32>> {
        while let Some(found) = self.fd.read_signal()? {
            if !matches!(judge(found.ssi_signo, found.ssi_code), Arrived::Child) {
                return Ok(Some(found.ssi_signo.cast_signed()));
            }
        }
        Ok(None)
    }
}

fn judge(signal: u32, code: i32) -> Arrived {
    let signal = signal.cast_signed();
    match code {
        _ if signal == Signal::SIGCHLD as i32 => Arrived::Child,
        SI_KERNEL => Arrived::FromTerminal,
        _ => Arrived::PassOn(signal),
    }
}

/// Sends a signal to the program. It was not waited for yet, so that its process id is its own.
pub(super) fn send(child: &Child, signal: i32) {
    let pid = Pid::from_raw(child.id().cast_signed());
    let signal = rustix::process::Signal::from_named_raw(signal);
    if let (Some(pid), Some(signal)) = (pid, signal) {
        // It fails only if the program has become another user's: then it is not ours to signal.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_terminal_sends_to_all_is_not_sent_twice() {
        let int = Signal::SIGINT as u32;
        assert_eq!(judge(int, SI_KERNEL), Arrived::FromTerminal);
        assert_eq!(judge(int, 0), Arrived::PassOn(Signal::SIGINT as i32));
        assert_eq!(judge(Signal::SIGCHLD as u32, 1), Arrived::Child);
    }
}
