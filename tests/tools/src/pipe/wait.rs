//! Sleeping until there may be something to do (poll(2)).

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rnic_host::IcmpSocket;
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

/// Waits for `ports` (frames to receive, or with `unsent` room to send), `signals`, or what
/// `waits` says; at most `patience`. Says whether there are ICMP errors.
pub(super) fn wait<'a>(
    ports: impl Iterator<Item = BorrowedFd<'a>>,
    unsent: bool,
    signals: BorrowedFd<'a>,
    waits: &Waits<'a>,
    patience: Option<Duration>,
) -> Result<bool, PipeError> {
    let flags = if unsent {
        PollFlags::IN | PollFlags::OUT
    } else {
        PollFlags::IN
    };
    let mut fds = Vec::with_capacity(8);
    fds.push(PollFd::from_borrowed_fd(signals, PollFlags::IN));
    let input = waits.input.map(|fd| (fd, PollFlags::IN));
    let output = waits.output.map(|fd| (fd, PollFlags::OUT));
    for (fd, flags) in input.into_iter().chain(output) {
        fds.push(PollFd::from_borrowed_fd(fd, flags));
    }
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
    Ok(fds[icmp].iter().any(|fd| !fd.revents().is_empty()))
}
