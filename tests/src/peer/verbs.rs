//! Verbs at the peer, order by order: the other end of `tests/interop/verbs/control.c`.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use rnic::RemoteMemory;

use crate::lab::Namespace;

/// How long an order may take; the peer gives up sooner.
const LIMIT: Duration = Duration::from_secs(60);

/// What one end says of itself when it connects, or learns of the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Inbound RDMA Reads at a time.
    pub ird: u8,
    /// Outbound RDMA Reads at a time.
    pub ord: u8,
    /// Private data, at most 255 bytes.
    pub private_data: Vec<u8>,
}

/// A completion of the peer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// From the work request.
    pub id: u64,
    /// `send`, `write`, `read` or `receive`.
    pub opcode: String,
    /// As `ibv_wc_status_str` has it, with hyphens.
    pub status: String,
    /// Bytes received, or Read.
    pub bytes: u32,
}

impl Done {
    /// A completion without an error; only receives tell their bytes.
    #[must_use]
    pub fn success(id: u64, opcode: &str, bytes: u32) -> Self {
        Self {
            id,
            opcode: opcode.into(),
            status: "success".into(),
            bytes,
        }
    }
}

/// A process at the peer that obeys; its objects go with it. Queue pairs and memories are numbered
/// below 16.
#[derive(Debug)]
pub struct Verbs {
    stream: BufReader<TcpStream>,
}

impl Verbs {
    /// A process of a `siw-verbs control` that listens there.
    #[must_use]
    pub fn new(host: &Namespace, at: SocketAddr) -> Self {
        let connect = || TcpStream::connect_timeout(&at, LIMIT).expect("siw-verbs listens");
        let stream = host.in_thread(connect);
        stream.set_nodelay(true).expect("a connected socket");
        stream
            .set_read_timeout(Some(LIMIT))
            .expect("a connected socket");
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Gives an order and takes its answer: what follows `ok`, or `failed`.
    pub fn attempt(&mut self, order: &str) -> Result<String, String> {
        self.begin(order);
        self.end(order)
    }

    /// Gives an order whose answer [`Self::end`] will take.
    pub fn begin(&mut self, order: &str) {
        let line = format!("{order}\n");
        let written = self.stream.get_mut().write_all(line.as_bytes());
        written.unwrap_or_else(|error| panic!("the peer hears no `{order}`: {error}"));
    }

    /// Takes the answer to an order.
    pub fn end(&mut self, order: &str) -> Result<String, String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        if let Err(error) = read {
            panic!("the peer does not answer to `{order}`: {error}");
        }
        match line.trim_end().split_once(' ') {
            None if line.trim_end() == "ok" => Ok(String::new()),
            Some(("ok", said)) => Ok(said.to_owned()),
            Some(("failed", why)) => Err(why.to_owned()),
            _ => panic!("the peer answers {line:?} to `{order}`"),
        }
    }

    /// Gives an order that succeeds.
    #[track_caller]
    pub fn order(&mut self, order: &str) -> String {
        self.attempt(order)
            .unwrap_or_else(|why| panic!("the peer's `{order}` failed: {why}"))
    }

    /// Registers memory with the rights `l`, `r` and `w`.
    #[track_caller]
    pub fn memory(&mut self, number: u8, bytes: usize, access: &str) -> RemoteMemory {
        let said = self.order(&format!("memory {number} {bytes} {access}"));
        let (stag, addr) = said.split_once(' ').expect("STag and address");
        RemoteMemory {
            stag: stag.parse().expect("an STag"),
            addr: addr.parse().expect("an address"),
            len: bytes as u64,
        }
    }

    /// Fills a range of a memory with the same bytes of
    /// [`Pattern::bytes`](crate::pattern::Pattern::bytes) of a seed.
    #[track_caller]
    pub fn fill(&mut self, number: u8, seed: u64, range: Range<usize>) {
        self.over(&format!("fill {number} {seed}"), range);
    }

    /// Panics unless a range of a memory holds the same bytes of a seed.
    #[track_caller]
    pub fn check(&mut self, number: u8, seed: u64, range: Range<usize>) {
        self.over(&format!("check {number} {seed}"), range);
    }

    #[track_caller]
    fn over(&mut self, order: &str, range: Range<usize>) {
        let (at, bytes) = (range.start, range.len());
        self.order(&format!("{order} {} {at} {bytes}", at + SHIFT));
    }

    /// The next completion of a queue pair.
    #[track_caller]
    pub fn done(&mut self, qp: u8) -> Done {
        let said = self.order(&format!("done {qp}"));
        let words: Vec<&str> = said.split(' ').collect();
        let [id, opcode, status, bytes] = words[..] else {
            panic!("no completion: {said}");
        };
        Done {
            id: id.parse().expect("a number"),
            opcode: opcode.into(),
            status: status.into(),
            bytes: bytes.parse().expect("a number"),
        }
    }

    /// Takes a connection request and makes the queue pair's queues.
    #[track_caller]
    pub fn request(&mut self, qp: u8) -> Said {
        let said = self.order(&format!("request {qp}"));
        self.order(&format!("queues {qp} {DEPTH} {DEPTH}"));
        Said::parse(&said)
    }

    /// Makes a queue pair that is about to connect.
    #[track_caller]
    pub fn resolve(&mut self, qp: u8, to: SocketAddr) {
        self.order(&format!("resolve {qp} {} {}", to.ip(), to.port()));
        self.order(&format!("queues {qp} {DEPTH} {DEPTH}"));
    }
}

/// The first word of [`Pattern`](crate::pattern::Pattern) is the second of the peer's.
const SHIFT: usize = 8;
/// Work that may be outstanding on each queue of the peer's.
const DEPTH: u32 = 64;

impl Said {
    /// Of the peer's answer.
    #[track_caller]
    #[must_use]
    pub fn parse(said: &str) -> Self {
        let words: Vec<&str> = said.split(' ').collect();
        let [ird, ord, private_data] = words[..] else {
            panic!("no depths and private data: {said}");
        };
        Self {
            ird: ird.parse().expect("a number"),
            ord: ord.parse().expect("a number"),
            private_data: unhex(private_data),
        }
    }

    /// As the end of an order.
    #[must_use]
    pub fn show(&self) -> String {
        format!("{} {} {}", self.ird, self.ord, hex(&self.private_data))
    }
}

/// Private data in an order.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Private data in an answer.
#[must_use]
pub fn unhex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    };
    digits
        .chunks(2)
        .map(|pair| byte(pair).expect("hexadecimal"))
        .collect()
}
