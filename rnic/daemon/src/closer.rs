//! Closes clients' channels, and waits for nothing that clients left in them.
//!
//! A descriptor that a client has sent and nobody has received is closed with its channel. If it is a
//! TCP socket with `SO_LINGER`, close(2) takes as long as the client likes. The kernel makes one
//! exception: a socket that is closed because its owner exits "always lingers in the background"
//! (socket(7)). So channels are closed by threads that end: each gets a descriptor table of its own
//! (unshare(2)), receives channels into it, and exits. What would hold even that holds nothing but
//! the channels of that thread.

use std::collections::VecDeque;
use std::os::fd::{AsFd, IntoRawFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rnic_host::heap;
use rnic_host::privileges;
use rnic_ipc::transport::{Channel, TransportError};
use rustix::net::Shutdown;
use rustix::thread::{CapabilitySet, UnshareFlags};

/// The most channels that one thread closes.
const BATCH: usize = 64;
/// Bytes of such a thread's stack.
const STACK: usize = 128 << 10;
/// The most channels that wait for a thread to take those before them. Then no more clients are accepted.
const WAITING: usize = 64;
/// Before it is tried again, when there was no thread or no descriptor.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);

/// A message about a channel. Two for each: it comes, then the sender has closed its own descriptor.
/// Only then may the receiver's be the last.
const COMES: u8 = 1;
const IS_ONLY_YOURS: u8 = 2;

/// Closes channels. What it holds is bounded: a socket's buffer, and [`WAITING`].
#[derive(Debug)]
pub(crate) struct ChannelCloser {
    /// To the threads that close them.
    channels: Channel,
    /// What found no place there.
    waiting: VecDeque<Channel>,
    /// The last that came is only theirs, and they have not been told.
    untold: bool,
}

impl ChannelCloser {
    /// To be called early: the threads keep open what is open now, and nothing that is opened later.
    ///
    /// # Errors
    ///
    /// No socket pair or no thread is left, or the kernel gives none a table of its own.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (channels, leaving) = Channel::pair().map_err(std::io::Error::other)?;
        let (ready, is_ready) = channel();
        heap::start_thread("rnicd-closer", STACK, move || {
            // Its successors' tables are copies of this one, into which no channel ever comes.
            let own = own_table().and_then(|()| privileges::keep(CapabilitySet::empty()));
            let begins = own.is_ok();
            if ready.send(own).is_ok() && begins {
                dispatch(leaving);
            }
        })?;
        let own = is_ready.recv().map_err(std::io::Error::other)?;
        own?;
        Ok(Self {
            channels,
            waiting: VecDeque::with_capacity(WAITING),
            untold: false,
        })
    }

    /// Closes a channel. Never waits, for a client or for a thread; nor does the client wait until it is
    /// closed, which may take a while where there is no memory for a thread.
    pub(crate) fn close(&mut self, channel: Channel) {
        // One that hung up has no other end.
        let _ = rustix::net::shutdown(&channel, Shutdown::Both);
        self.waiting.push_back(channel);
        self.go_on();
    }

    /// Whether there are channels that wait: [`Self::go_on`] is to be called before long.
    pub(crate) fn is_behind(&self) -> bool {
        self.untold || !self.waiting.is_empty()
    }

    /// Whether as many wait as may: no more are to be accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING
    }

    /// Passes on what waits, as far as there is a place for it.
    pub(crate) fn go_on(&mut self) {
        loop {
            if self.untold {
                match self.channels.try_send(&IS_ONLY_YOURS, &[]) {
                    Err(TransportError::WouldBlock) => return,
                    Err(error) => log::error!("a client's channel stays open: {error}"),
                    Ok(()) => {}
                }
                self.untold = false;
            }
            let Some(channel) = self.waiting.pop_front() else {
                return;
            };
            match self.channels.try_send(&COMES, &[channel.as_fd()]) {
                Ok(()) => self.untold = true,
                Err(TransportError::WouldBlock) => return self.waiting.push_front(channel),
                Err(error) => {
                    log::error!("a client's channel is closed by a thread of its own: {error}");
                    // Without one it is closed here.
                    let _ = heap::start_thread("rnicd-close", STACK, move || drop(channel));
                }
            }
        }
    }
}

impl Drop for ChannelCloser {
    /// What still waits is left open, for the daemon's exit to close.
    fn drop(&mut self) {
        for channel in self.waiting.drain(..) {
            let _ = channel.into_fd().into_raw_fd();
        }
    }
}

/// Has one thread after the other close what comes.
fn dispatch(leaving: Channel) {
    let leaving = Arc::new(leaving);
    loop {
        let (taken, has_taken) = channel();
        let from = leaving.clone();
        let work = move || close_by_exit(&from, &taken);
        let closer = heap::start_thread("rnicd-close", STACK, work);
        let error = match closer.map(|_| has_taken.recv()) {
            Ok(Ok(Ok(()))) => continue,
            Ok(Ok(Err(TransportError::Closed))) => return,
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(_)) => "a thread that closes them panicked".to_owned(),
            Err(error) => error.to_string(),
        };
        log::error!("clients' channels are not closed, trying again: {error}");
        std::thread::sleep(EXHAUSTED_PAUSE);
    }
}

/// Receives channels into a table that ends with the calling thread.
fn close_by_exit(leaving: &Channel, taken: &Sender<Result<(), TransportError>>) {
    let table = own_table().map_err(|errno| TransportError::Host {
        call: "unshare",
        errno,
    });
    let outcome = table.and_then(|()| take(leaving));
    // Nobody waits any more when the daemon ends.
    let _ = taken.send(outcome);
}

/// Waits for a channel, and takes those that are there as well.
fn take(leaving: &Channel) -> Result<(), TransportError> {
    let (mut taken, mut only_ours) = (0, true);
    loop {
        let message = if taken == 0 || !only_ours {
            leaving.recv::<u8>()
        } else {
            leaving.try_recv::<u8>()
        };
        let (what, fds) = match message {
            Ok(message) => message.ok_or(TransportError::Closed)?,
            Err(TransportError::WouldBlock) => return Ok(()),
            Err(error) => return Err(error),
        };
        // Left open, for the exit to close.
        for fd in fds {
            let _ = fd.into_raw_fd();
        }
        only_ours = what == IS_ONLY_YOURS;
        taken += usize::from(what == COMES);
        if only_ours && taken >= BATCH {
            return Ok(());
        }
    }
}

/// Gives the calling thread a descriptor table of its own: a copy, which ends with it.
#[expect(
    deprecated,
    reason = "another thread's descriptors mean nothing here, and none is used"
)]
fn own_table() -> Result<(), rustix::io::Errno> {
    rustix::thread::unshare(UnshareFlags::FILES)
}

#[cfg(test)]
mod tests;
