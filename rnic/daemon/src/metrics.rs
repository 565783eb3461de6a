//! The metrics over HTTP/1.1, for Prometheus: on a Unix socket, or on the loopback.
//!
//! One thread serves a few scrapers at a time and never waits for one of them: who is slow, says too
//! much or something else is closed, and costs nothing. The text is made at most a few times a
//! second, however often it is asked for.

mod address;
mod request;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rnic_ipc::threads;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

pub(crate) use address::MetricsAddress;
use request::Request;

/// Scrapers at a time; one more takes the place of the oldest.
const SCRAPERS: usize = 8;
/// How long one may take, from its connection to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How old the text may be.
const FRESH: Duration = Duration::from_millis(200);
/// A pause when no descriptor is left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Makes the text; none when there is nothing to tell any more.
pub(crate) type Render = Box<dyn Fn() -> Option<String> + Send>;

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
#[error("can't serve metrics at {address}: {what}: {source}: name another place with --metrics")]
pub(crate) struct MetricsError {
    address: MetricsAddress,
    what: &'static str,
    source: std::io::Error,
}

/// A running endpoint. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct MetricsEndpoint {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// A socket file to remove.
    file: Option<PathBuf>,
}

/// The place, which is ours before anybody is served.
pub(crate) struct MetricsListener {
    listener: Listener,
    address: MetricsAddress,
}

impl MetricsListener {
    /// Why the place can't be had, if it can't. No file is made.
    pub(crate) fn check(address: &MetricsAddress) -> Option<MetricsError> {
        let checked = match address {
            MetricsAddress::Unix(path) => address::check_unix(path),
            // Of a port nothing is left.
            MetricsAddress::Tcp(_) => Listener::open(address).map(drop),
        };
        Some(not_had(address, checked.err()?))
    }

    pub(crate) fn bind(address: &MetricsAddress) -> Result<Self, MetricsError> {
        let listener = Listener::open(address).map_err(|source| not_had(address, source))?;
        Ok(Self {
            listener,
            address: address.clone(),
        })
    }

    /// Serves scrapers from now on.
    pub(crate) fn start(self, render: Render) -> Result<MetricsEndpoint, MetricsError> {
        self.with_patience(render, PATIENCE)
    }

    fn with_patience(
        self,
        render: Render,
        patience: Duration,
    ) -> Result<MetricsEndpoint, MetricsError> {
        let Self { listener, address } = self;
        let failed = |what| {
            let address = address.clone();
            move |source| MetricsError {
                address,
                what,
                source,
            }
        };
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| failed("no eventfd is left")(errno.into()))?;
        let stop = Arc::new(stop);
        let mut server = Server {
            listener,
            stop: stop.clone(),
            render,
            patience,
            scrapers: VecDeque::new(),
            text: None,
        };
        let thread = Builder::new().name("rnicd-metrics".to_owned());
        let thread = threads::spawn(thread, move || server.run())
            .map_err(failed("there is no thread for it"))?;
        log::info!("metrics at {address}");
        let file = match address {
            MetricsAddress::Unix(path) => Some(path),
            MetricsAddress::Tcp(_) => None,
        };
        Ok(MetricsEndpoint {
            stop,
            thread: Some(thread),
            file,
        })
    }
}

fn not_had(address: &MetricsAddress, source: std::io::Error) -> MetricsError {
    MetricsError {
        address: address.clone(),
        what: "it can't be had",
        source,
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        // A full counter is as good as one more.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            log::error!("the thread for metrics panicked");
        }
        if let Some(path) = &self.file {
            // Somebody may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where scrapers come in.
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Listener {
    fn open(address: &MetricsAddress) -> std::io::Result<Self> {
        Ok(match address {
            MetricsAddress::Unix(path) => {
                let listener = address::bind_unix(path)?;
                listener.set_nonblocking(true)?;
                Self::Unix(listener)
            }
            MetricsAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Self::Tcp(listener)
            }
        })
    }

    fn accept(&self) -> std::io::Result<Stream> {
        Ok(match self {
            Self::Unix(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nonblocking(true)?;
                Stream::Unix(stream)
            }
            Self::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nonblocking(true)?;
                Stream::Tcp(stream)
            }
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Stream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }
}

struct Scraper {
    stream: Stream,
    deadline: Instant,
    stage: Stage,
}

enum Stage {
    Asking(Request),
    /// The answer, and how much of it is written.
    Answered(Arc<[u8]>, usize),
}

/// Whether a scraper stays.
#[derive(PartialEq, Eq)]
enum Next {
    Wait,
    Close,
}

struct Server {
    listener: Listener,
    stop: Arc<OwnedFd>,
    render: Render,
    patience: Duration,
    /// The oldest first; at most [`SCRAPERS`].
    scrapers: VecDeque<Scraper>,
    /// The answer as it was made last.
    text: Option<(Instant, Arc<[u8]>)>,
}

impl Server {
    fn run(&mut self) {
        loop {
            let now = Instant::now();
            self.scrapers.retain(|scraper| scraper.deadline > now);
            let nearest = self.scrapers.iter().map(|scraper| scraper.deadline).min();
            let wait = nearest.map(|deadline| deadline - now);
            let ready = {
                let mut fds = vec![
                    PollFd::new(&*self.stop, PollFlags::IN),
                    PollFd::new(&self.listener, PollFlags::IN),
                ];
                fds.extend(self.scrapers.iter().map(|scraper| {
                    let wanted = match scraper.stage {
                        Stage::Asking(_) => PollFlags::IN,
                        Stage::Answered(..) => PollFlags::OUT,
                    };
                    PollFd::new(&scraper.stream, wanted)
                }));
                let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
                if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
                    // EINTR: the next turn finds what there is.
                    continue;
                }
                let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
                fds.iter().map(ready).collect::<Vec<_>>()
            };
            if ready.first() == Some(&true) {
                return;
            }
            let mut turns = ready.iter().skip(2);
            let mut scrapers = std::mem::take(&mut self.scrapers);
            scrapers.retain_mut(|scraper| {
                turns.next() != Some(&true) || self.turn(scraper) == Next::Wait
            });
            self.scrapers = scrapers;
            if ready.get(1) == Some(&true) {
                self.accept();
            }
        }
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok(stream) => {
                if self.scrapers.len() == SCRAPERS {
                    self.scrapers.pop_front();
                }
                self.scrapers.push_back(Scraper {
                    stream,
                    deadline: Instant::now() + self.patience,
                    stage: Stage::Asking(Request::default()),
                });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                log::debug!("a scraper can't be accepted: {error}");
                std::thread::sleep(EXHAUSTED_PAUSE);
            }
        }
    }

    /// Reads or writes what is possible without waiting: once, so that nobody keeps the others.
    fn turn(&mut self, scraper: &mut Scraper) -> Next {
        if let Stage::Asking(request) = &mut scraper.stage {
            let mut bytes = [0; 1024];
            match scraper.stream.read(&mut bytes) {
                Ok(0) => return Next::Close,
                Ok(count) => {
                    let Some(asked) = request.take(bytes.get(..count).unwrap_or(&[])) else {
                        return Next::Wait;
                    };
                    scraper.stage = Stage::Answered(self.answer(asked), 0);
                }
                Err(error) => return next(&error),
            }
        }
        let Stage::Answered(answer, written) = &mut scraper.stage else {
            return Next::Wait;
        };
        match scraper.stream.write(answer.get(*written..).unwrap_or(&[])) {
            Ok(0) => Next::Close,
            Ok(count) => {
                *written += count;
                if *written < answer.len() {
                    Next::Wait
                } else {
                    Next::Close
                }
            }
            Err(error) => next(&error),
        }
    }

    fn answer(&mut self, asked: request::Asked) -> Arc<[u8]> {
        match asked {
            request::Asked::Metrics => {}
            other => return other.refusal().into(),
        }
        let now = Instant::now();
        if let Some((made, text)) = &self.text
            && now.saturating_duration_since(*made) < FRESH
        {
            return text.clone();
        }
        let Some(text) = (self.render)() else {
            return request::Asked::refused("503 Service Unavailable", "The RNIC has ended.")
                .into();
        };
        let text: Arc<[u8]> = request::found(&text).into();
        self.text = Some((now, text.clone()));
        text
    }
}

fn next(error: &std::io::Error) -> Next {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Next::Wait,
        _ => Next::Close,
    }
}

#[cfg(test)]
mod tests;
