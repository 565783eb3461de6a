//! An ordinary program over the kernel's sockets: sends a stream that a seed decides, or receives
//! one and hashes it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::lab::Namespace;
use crate::pattern::Pattern;

/// SHA-256 of a stream.
pub type Digest = [u8; 32];

/// Bytes of a read or write.
const CHUNK: usize = 128 * 1024;
/// Longest silence before a transfer has failed: a few retransmission time-outs in a row.
const SILENCE: Duration = Duration::from_secs(60);

/// What Linux does by default, whatever this machine's default is.
const CONGESTION_CONTROL: &str = "cubic";

/// A stream of bytes, told by two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// What its bytes come from.
    pub seed: u64,
    pub bytes: u64,
}

impl Stream {
    /// Calls `take` with all bytes, in order, until it fails.
    ///
    /// # Errors
    ///
    /// What `take` says.
    pub fn write(self, mut take: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
        let mut pattern = Pattern::new(self.seed);
        let mut chunk = vec![0; CHUNK];
        let mut left = self.bytes;
        while left > 0 {
            let length = left.min(CHUNK as u64) as usize;
            pattern.fill(&mut chunk[..length]);
            take(&chunk[..length])?;
            left -= length as u64;
        }
        Ok(())
    }

    /// What a receiver must find.
    #[must_use]
    pub fn digest(self) -> Digest {
        let mut hash = Sha256::new();
        let hashed = self.write(|bytes| {
            hash.update(bytes);
            Ok(())
        });
        hashed.expect("hashing does not fail");
        hash.finalize().into()
    }
}

/// Reads a stream to its end; its hash and its bytes.
///
/// # Errors
///
/// What reading says.
pub fn hash(mut from: impl Read) -> std::io::Result<(Digest, u64)> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok((hash.finalize().into(), bytes)),
            length => {
                hash.update(&chunk[..length]);
                bytes += length as u64;
            }
        }
    }
}

/// Sets the kernel of a host up for a comparison: no connection learns from the one before.
pub(super) fn prepare(host: &Namespace) {
    const PATH: &str = "/proc/sys/net/ipv4/tcp_no_metrics_save";
    let written = host.in_thread(|| std::fs::write(PATH, "1"));
    written.unwrap_or_else(|error| panic!("can't write to {PATH}: {error}"));
}

/// Makes a host forget the path MTUs that it has learnt.
pub(super) fn forget(host: &Namespace) {
    for version in ["-4", "-6"] {
        host.ip(&[version, "route", "flush", "cache"]);
    }
}

/// Segments that a host's kernel found damaged, over both versions of IP.
pub(super) fn checksum_errors(host: &Namespace) -> u64 {
    let text = host.in_thread(|| {
        std::fs::read_to_string("/proc/thread-self/net/snmp")
            .expect("a kernel with TCP has its counters in /proc")
    });
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let names = lines.next().expect("names come first").split_whitespace();
    let values = lines.next().expect("values follow").split_whitespace();
    let found = names.zip(values).find(|(name, _)| *name == "InCsumErrors");
    found
        .and_then(|(_, value)| value.parse().ok())
        .expect("Linux counts checksum errors of TCP")
}

/// What a receiver has got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub digest: Digest,
    /// From the accepted connection to the end of the stream.
    pub took: Duration,
}

pub(super) struct Receiver {
    thread: JoinHandle<Received>,
}

impl Receiver {
    pub fn finish(self) -> Received {
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Listens on a host, then receives one stream in a thread.
pub(super) fn receive(host: &Namespace, at: SocketAddr, bytes: u64) -> Receiver {
    let listener = host.in_thread(|| TcpListener::bind(at).expect("a free port"));
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("the sender connects");
        let begin = Instant::now();
        patience(&stream);
        let (digest, got) = hash(&stream).expect("the kernel's stream gives bytes");
        let took = begin.elapsed();
        assert_eq!(got, bytes, "the stream ended early");
        Received { digest, took }
    });
    Receiver { thread }
}

/// Sends a stream from a host; the time from the connection to the receiver's end of stream.
pub(super) fn send(host: &Namespace, to: SocketAddr, stream: Stream) -> Duration {
    let socket = host.in_thread(|| TcpStream::connect_timeout(&to, SILENCE));
    let mut socket =
        socket.unwrap_or_else(|error| panic!("the kernel can't connect to {to}: {error}"));
    let begin = Instant::now();
    patience(&socket);
    rustix::net::sockopt::set_tcp_congestion(&socket, CONGESTION_CONTROL)
        .unwrap_or_else(|error| panic!("the kernel has no {CONGESTION_CONTROL}: {error}"));
    stream
        .write(|bytes| socket.write_all(bytes))
        .expect("the kernel's stream takes bytes");
    socket.shutdown(Shutdown::Write).expect("the stream ends");
    let more = socket.read(&mut [0]).expect("the receiver ends its stream");
    assert_eq!(more, 0, "the receiver only receives");
    begin.elapsed()
}

fn patience(socket: &TcpStream) {
    let set = socket
        .set_read_timeout(Some(SILENCE))
        .and_then(|()| socket.set_write_timeout(Some(SILENCE)));
    set.expect("a time-out above 0");
}
