//! ICMP errors about our segments (RFC 9293 section 3.9.2.2): from the kernel's copies to the shard.
//!
//! Anybody can send them at any rate. Those that name no claimed port never come here (the filter in
//! `rnic-steering`). The rest are read at a bounded rate, and the kernel drops what a socket's queue has no room
//! for. Whether one is believed, TCP decides.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rnic_ipc::threads;
use rnic_net::{IcmpReport, parse_icmp, parse_icmpv6};
use rnic_steering::{IpVersion, Steering, SteeringError};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::interface::Interface;
use super::privileges;
use super::sockets::steering_error;
use crate::HostError;

/// Messages of each version read in one go ...
const BATCH: usize = 16;
/// ... with at least this pause before the next: 6400 a second at most.
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes of a message that are read: more than any router quotes (RFC 1812 section 4.3.2.3: 576,
/// RFC 4443 section 2.4: 1280).
const MESSAGE_MAX: usize = 2048;

/// A filtered raw socket: the errors about what is claimed, of one version of IP.
#[derive(Debug)]
pub struct IcmpSocket {
    version: IpVersion,
    socket: OwnedFd,
}

impl IcmpSocket {
    /// Sockets of both versions for what `steering` claims now and later.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn open_both(
        interface: &Interface,
        steering: &mut Steering,
    ) -> Result<Vec<Self>, HostError> {
        let mut sockets = Vec::new();
        for version in [IpVersion::V4, IpVersion::V6] {
            match steering.icmp_errors(version) {
                Ok(socket) => sockets.push(Self { version, socket }),
                // A kernel without IPv6 has no ICMPv6 either.
                Err(SteeringError::Kernel { cause, .. })
                    if cause.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {}
                Err(error) => return Err(steering_error(interface, error)),
            }
        }
        Ok(sockets)
    }

    /// Reads the messages that wait, up to 16; `None` for one that is damaged or no error about a
    /// segment after all. Anybody can send them at any rate: leave a pause of some milliseconds
    /// until the next look.
    pub fn read(&self, mut take: impl FnMut(Option<IcmpReport>)) {
        let mut buffer = [0; MESSAGE_MAX];
        for _ in 0..BATCH {
            let message = match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((len, _)) => buffer.get(..len).unwrap_or(&[]),
                Err(_) => return,
            };
            take(match self.version {
                IpVersion::V4 => parse_icmp(message),
                IpVersion::V6 => parse_icmpv6(message),
            });
        }
    }
}

impl AsFd for IcmpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// How many ICMP messages were read, used and dropped.
#[derive(Debug, Default)]
pub struct IcmpCounts {
    pub received: AtomicU64,
    /// Of these, damaged, or no error about a segment after all.
    pub unusable: AtomicU64,
    /// Not given to the shard because it was busy.
    pub lost: AtomicU64,
}

/// The thread that reads them. It ends with [`IcmpReader::stop`].
#[derive(Debug)]
pub struct IcmpReader {
    stop: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl IcmpReader {
    /// Starts the thread. `deliver` takes what the sockets brought, and says whether it could.
    pub fn start(
        sockets: Vec<IcmpSocket>,
        counts: Arc<IcmpCounts>,
        deliver: impl FnMut(Vec<IcmpReport>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(stop);
        let worker = Worker {
            sockets,
            stop: stop.clone(),
            counts,
            deliver,
        };
        let thread = Builder::new().name("rnic-icmp".to_owned());
        let thread = threads::spawn(thread, move || worker.run())?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread.
    pub fn stop(self) {
        // A full counter stops it as well.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if self.thread.join().is_err() {
            log::error!("the thread for ICMP errors panicked");
        }
    }
}

struct Worker<D> {
    sockets: Vec<IcmpSocket>,
    stop: Arc<OwnedFd>,
    counts: Arc<IcmpCounts>,
    deliver: D,
}

impl<D: FnMut(Vec<IcmpReport>) -> bool> Worker<D> {
    fn run(mut self) {
        privileges::renounce("rnic-icmp");
        while self.wait(None) {
            let mut reports = Vec::new();
            for socket in &self.sockets {
                socket.read(|report| {
                    self.counts.received.fetch_add(1, Ordering::Relaxed);
                    match report {
                        Some(report) => reports.push(report),
                        None => {
                            self.counts.unusable.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            let count = reports.len() as u64;
            if count > 0 && !(self.deliver)(reports) {
                self.counts.lost.fetch_add(count, Ordering::Relaxed);
            }
            if !self.pause() {
                return;
            }
        }
    }

    /// Waits for a message; false when it is time to end.
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut fds = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        if timeout.is_none() {
            let sockets = self.sockets.iter();
            fds.extend(sockets.map(|it| PollFd::new(it, PollFlags::IN)));
        }
        let timeout = timeout.and_then(|timeout| timeout.try_into().ok());
        // EINTR: a look at the sockets finds nothing, and does no harm.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        fds.first().is_none_or(|stop| stop.revents().is_empty())
    }

    /// Lets what is to come wait; false when it is time to end.
    fn pause(&self) -> bool {
        self.wait(Some(PAUSE))
    }
}

#[cfg(test)]
mod tests;
