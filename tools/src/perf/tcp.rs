//! A ping-pong over sockets of the kernel's TCP, both ends looking again and again without sleeping:
//! what the kernel can do at best.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::endpoint::ToolError;
use crate::report::{Latency, Samples};

/// Rounds before the first that counts.
const WARM_UP: u64 = 100;
/// How often an end that waits looks at the clock.
const CLOCK_EVERY: u32 = 4096;

/// Sends `bytes` bytes, each time when as many have come back, for so long; the time of both ways. The
/// addresses are tried in order.
pub fn ping(
    to: &[SocketAddr],
    bytes: usize,
    duration: Duration,
    patience: Duration,
) -> Result<Latency, ToolError> {
    let stream = connect(to, patience)?;
    let mut end = End::new(stream, patience)?;
    let mut message = vec![0; bytes];
    let mut samples = Samples::default();
    let mut counted = Instant::now();
    for round in 0.. {
        if round == WARM_UP {
            counted = Instant::now();
        }
        if round > WARM_UP && counted.elapsed() >= duration {
            break;
        }
        let started = Instant::now();
        end.send(&message)?;
        if !end.receive(&mut message)? {
            return Err(ToolError::Peer(
                "the other end closed the connection".into(),
            ));
        }
        if round >= WARM_UP {
            samples.record(started.elapsed());
        }
    }
    samples.latency().ok_or_else(|| {
        ToolError::Usage("no time for a single message: give a longer --duration".into())
    })
}

/// Takes one connection, and sends back each `bytes` bytes until its peer closes it. `told` hears
/// that it listens.
pub fn pong(
    at: &[SocketAddr],
    bytes: usize,
    patience: Duration,
    told: impl FnOnce(String),
) -> Result<(), ToolError> {
    let failed = |source| io(format!("listening on {at:?}"), source);
    let listener = TcpListener::bind(at).map_err(failed)?;
    told(format!(
        "listening on {}",
        listener.local_addr().map_err(failed)?
    ));
    let (stream, _) = listener.accept().map_err(failed)?;
    let mut end = End::new(stream, patience)?;
    let mut message = vec![0; bytes];
    while end.receive(&mut message)? {
        end.send(&message)?;
    }
    Ok(())
}

/// Connects to the first address where that works.
fn connect(to: &[SocketAddr], patience: Duration) -> Result<TcpStream, ToolError> {
    let mut failed = None;
    for to in to {
        match TcpStream::connect_timeout(to, patience) {
            Ok(stream) => return Ok(stream),
            Err(source) => failed = Some(io(format!("connecting to {to}"), source)),
        }
    }
    Err(failed.unwrap_or_else(|| ToolError::Usage("name somebody to connect to".into())))
}

/// A connection that never sleeps.
struct End {
    stream: TcpStream,
    patience: Duration,
}

impl End {
    fn new(stream: TcpStream, patience: Duration) -> Result<Self, ToolError> {
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_nonblocking(true))
            .map_err(|source| io("setting up the connection".into(), source))?;
        Ok(Self { stream, patience })
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), ToolError> {
        let mut waits = Waits::new(self.patience);
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => waits.again("sending", error)?,
            }
        }
        Ok(())
    }

    /// Fills `bytes`; false when the peer has closed the connection instead.
    fn receive(&mut self, bytes: &mut [u8]) -> Result<bool, ToolError> {
        let mut waits = Waits::new(self.patience);
        let mut filled = 0;
        while filled < bytes.len() {
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => return Ok(false),
                Ok(read) => filled += read,
                Err(error) => waits.again("receiving", error)?,
            }
        }
        Ok(true)
    }
}

/// How long an end has looked.
struct Waits {
    patience: Duration,
    looks: u32,
    since: Option<Instant>,
}

impl Waits {
    fn new(patience: Duration) -> Self {
        Self {
            patience,
            looks: 0,
            since: None,
        }
    }

    /// Whether to look again after this error.
    fn again(&mut self, what: &str, error: std::io::Error) -> Result<(), ToolError> {
        if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
            return Err(io(what.to_owned(), error));
        }
        self.looks += 1;
        if self.looks.is_multiple_of(CLOCK_EVERY) {
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.patience {
                return Err(io(what.to_owned(), ErrorKind::TimedOut.into()));
            }
        }
        std::hint::spin_loop();
        Ok(())
    }
}

fn io(what: String, source: std::io::Error) -> ToolError {
    ToolError::Io { what, source }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn messages_come_back_and_the_end_of_the_connection_ends_the_other() {
        let patience = Duration::from_secs(30);
        let (tell, told) = mpsc::channel();
        let server = std::thread::spawn(move || {
            let at = "127.0.0.1:0".parse().expect("an address");
            pong(&[at], 64, patience, |line| {
                tell.send(line).expect("it waits")
            })
        });
        let line = told.recv().expect("it listens");
        let at = line.trim_start_matches("listening on ").parse();
        let latency = ping(
            &[at.expect("an address")],
            64,
            Duration::from_millis(50),
            patience,
        );
        let latency = latency.expect("the other end answers");
        assert!(latency.samples > 0 && latency.min > 0.0);
        server
            .join()
            .expect("no panic")
            .expect("the end of the connection is no error");
    }
}
