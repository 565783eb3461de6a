//! Sleeping until there may be something to do (poll(2)).

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rnic_device::host::IcmpSocket;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::error::PipeError;

/// What to wait for besides the link.
#[derive(Debug)]
pub(super) struct Waits<'a> {
    pub(super) icmp: &'a [IcmpSocket],
    pub(super) input: Option<BorrowedFd<'a>>,
    pub(super) output: Option<BorrowedFd<'a>>,
}

/// What has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Came {
    pub(super) icmp: bool,
    pub(super) input: bool,
    pub(super) output: bool,
}

/// Waits for `ports` (frames to receive, or with `unsent` room to send), `signals`, or what
/// `waits` says; at most `patience`.
pub(super) fn wait<'a>(
    ports: impl Iterator<Item = BorrowedFd<'a>>,
    unsent: bool,
    signals: BorrowedFd<'a>,
    waits: &Waits<'a>,
    patience: Option<Duration>,
) -> Result<Came, PipeError> {
    let flags = if unsent {
        PollFlags::IN | PollFlags::OUT
    } else {
        PollFlags::IN
    };
    let mut fds = Vec::with_capacity(8);
    fds.push(PollFd::from_borrowed_fd(signals, PollFlags::IN));
    let mut add = |fd: Option<BorrowedFd<'a>>, flags| {
        fd.map(|fd| {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            fds.len() - 1
        })
    };
    let input = add(waits.input, PollFlags::IN);
    let output = add(waits.output, PollFlags::OUT);
    let icmp = fds.len()..fds.len() + waits.icmp.len();
    fds.extend(waits.icmp.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
    fds.extend(ports.map(|fd| PollFd::from_borrowed_fd(fd, flags)));
    let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => {
            return Err(PipeError::System {
                what: "waiting",
                source: errno.into(),
            });
        }
    }
    let came = |at: usize| !fds[at].revents().is_empty();
    Ok(Came {
        icmp: icmp.into_iter().any(came),
        input: input.is_some_and(came),
        output: output.is_some_and(came),
    })
}
