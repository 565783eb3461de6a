//! A stack under test, and a peer whose packets a test writes.

use std::net::SocketAddr;
use std::time::Duration;

use userspace_net::Instant;
use userspace_sctp::cause::{Cause, Causes};
use userspace_sctp::chunk::{Chunk, Data, Init, Sack};
use userspace_sctp::packet::{Header, Packet, Writer, verify};
use userspace_sctp::parameter::{self, Parameter, Parameters};
use userspace_sctp::{
    AssocId, Config, Ends, Event, Info, Outgoing, Route, Stack, State, Tsn, UdpPorts,
};

/// The peer's Verification Tag and first TSN, when a test does not say otherwise.
pub const PEERS_TAG: u32 = 0x5555_0001;
pub const PEERS_TSN: Tsn = Tsn(u32::MAX - 1);
/// What the peer says it has room for.
pub const WINDOW: u32 = 100_000;
/// The longest message at an MTU of 1500.
pub const FULL: usize = 1500 - 20 - 12 - 16;
pub const COOKIE: &[u8] = b"the peer's cookie";

pub fn local() -> SocketAddr {
    "198.18.0.1:5000".parse().unwrap()
}

pub fn remote() -> SocketAddr {
    "198.18.0.2:5001".parse().unwrap()
}

pub fn ends() -> Ends {
    Ends {
        local: local(),
        remote: remote(),
    }
}

pub fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A packet of the stack's.
#[derive(Debug, Clone)]
pub struct Sent {
    pub bytes: Vec<u8>,
    pub to: SocketAddr,
    pub fragment_to: Option<usize>,
    pub udp: Option<UdpPorts>,
}

impl Sent {
    pub fn tag(&self) -> u32 {
        Packet::parse(&self.bytes).unwrap().header.tag
    }

    pub fn chunks(&self) -> Vec<Chunk<'_>> {
        verify(&self.bytes).unwrap();
        Packet::parse(&self.bytes).unwrap().chunks().collect()
    }

    pub fn only(&self) -> Chunk<'_> {
        let chunks = self.chunks();
        let [chunk] = chunks[..] else {
            panic!("{chunks:?}");
        };
        chunk
    }

    /// The INIT that it is.
    pub fn init(&self) -> Init<'_> {
        match self.only() {
            Chunk::Init(init) => init,
            other => panic!("no INIT: {other:?}"),
        }
    }

    /// The INIT ACK that it is.
    pub fn init_ack(&self) -> Init<'_> {
        match self.only() {
            Chunk::InitAck(ack) => ack,
            other => panic!("no INIT ACK: {other:?}"),
        }
    }

    /// The State Cookie of the INIT ACK that it is.
    pub fn cookie(&self) -> Vec<u8> {
        let ack = self.init_ack();
        let mut parameters = ack.parameters.iter();
        let cookie = parameters.find_map(|parameter| match parameter {
            Parameter::StateCookie(cookie) => Some(cookie.to_vec()),
            _ => None,
        });
        cookie.expect("a State Cookie")
    }

    /// The first cause of the ABORT that it has, with the T bit.
    pub fn abort(&self) -> (bool, Option<Cause<'_>>) {
        match self.chunks().last() {
            Some(Chunk::Abort { reflected, causes }) => (*reflected, causes.iter().next()),
            other => panic!("no ABORT: {other:?}"),
        }
    }

    /// Numbers of the DATA chunks, counted from `first`. All of them are unordered (RFC5043-10-1).
    pub fn data(&self, first: Tsn) -> Vec<u32> {
        let chunks = self.chunks();
        let numbers = chunks.iter().filter_map(|chunk| match chunk {
            Chunk::Data(data) => {
                assert!(data.unordered, "{data:?}");
                Some(data.tsn.since(first))
            }
            _ => None,
        });
        numbers.collect()
    }
}

pub struct Script {
    pub stack: Stack<Vec<u8>>,
    pub now: Instant,
    /// The UDP port from which the peer's packets come, if they are in UDP.
    pub udp: Option<u16>,
    /// Messages that were shown: the first byte of each.
    pub shown: Vec<u8>,
    /// Our tag and first TSN, once they were seen.
    pub tag: u32,
    pub tsn: Tsn,
}

impl Script {
    pub fn new(config: Config) -> Self {
        Self {
            stack: Stack::new(config, [9; 16], Instant::ZERO),
            now: Instant::ZERO,
            udp: None,
            shown: Vec::new(),
            tag: 0,
            tsn: Tsn(0),
        }
    }

    /// Its association is established by our INIT.
    pub fn established(config: Config) -> (Self, AssocId) {
        let mut script = Self::new(config);
        let id = script.connect();
        script.init_ack();
        script.peer(&[Chunk::CookieAck]);
        assert!(matches!(script.event(), Event::Established(_)));
        (script, id)
    }

    pub fn route(&self) -> Route {
        Route {
            ends: ends(),
            udp: self.udp,
        }
    }

    pub fn connect(&mut self) -> AssocId {
        let id = self.stack.connect(self.now, self.route()).unwrap();
        let sent = self.one();
        let init = sent.init();
        (self.tag, self.tsn) = (init.tag, init.initial_tsn);
        id
    }

    /// The peer's INIT ACK, and our COOKIE ECHO.
    pub fn init_ack(&mut self) {
        let parameters = parameters(&[Parameter::StateCookie(COOKIE)]);
        self.peer(&[Chunk::InitAck(init(&parameters))]);
        assert_eq!(self.one().only(), Chunk::CookieEcho(COOKIE));
    }

    /// A packet of the peer with our tag; with none, for an INIT.
    pub fn peer(&mut self, chunks: &[Chunk<'_>]) {
        self.peer_from(remote(), chunks);
    }

    /// The same from another address of the peer.
    pub fn peer_from(&mut self, from: SocketAddr, chunks: &[Chunk<'_>]) {
        let tag = match chunks {
            [Chunk::Init(_)] => 0,
            _ => self.tag,
        };
        self.peer_with(tag, from, chunks);
    }

    pub fn peer_with(&mut self, tag: u32, from: SocketAddr, chunks: &[Chunk<'_>]) {
        let mut buffer = [0; 3000];
        let header = Header {
            source: from.port(),
            destination: local().port(),
            tag,
        };
        let mut writer = Writer::new(&mut buffer, header).unwrap();
        chunks.iter().for_each(|chunk| writer.chunk(chunk).unwrap());
        let len = writer.finish();
        let (now, shown) = (self.now, &mut self.shown);
        self.stack.receive(
            now,
            local().ip(),
            from.ip(),
            self.udp,
            &buffer[..len],
            |_, message| {
                shown.push(message.payload[0]);
            },
        );
    }

    /// A packet of the peer with these bytes behind its header.
    pub fn peer_bytes(&mut self, chunks: &[u8]) {
        let (from, to) = (remote().port(), local().port());
        let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
        bytes.extend(self.tag.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(chunks);
        let checksum = rnic_crc::append(0, &bytes);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        let (now, udp, shown) = (self.now, self.udp, &mut self.shown);
        let ends = ends();
        let (local, remote) = (ends.local.ip(), ends.remote.ip());
        self.stack
            .receive(now, local, remote, udp, &bytes, |_, message| {
                shown.push(message.payload[0]);
            });
    }

    /// The peer's SACK for the first `count` of our chunks.
    pub fn sack(&mut self, count: u32, window: u32, blocks: &[[u8; 4]]) {
        let cumulative = self.tsn.plus(count).previous();
        let sack = Sack::new(cumulative, window, blocks.as_flattened(), &[]);
        self.peer(&[Chunk::Sack(sack)]);
    }

    pub fn post(&mut self, id: AssocId, len: usize) {
        let outgoing = Outgoing {
            stream: 1,
            protocol: 16,
            buffer: vec![7; len],
        };
        self.stack.post(self.now, id, outgoing).unwrap();
    }

    pub fn post_all(&mut self, id: AssocId, count: usize, len: usize) {
        (0..count).for_each(|_| self.post(id, len));
    }

    /// Lets time pass up to the next deadline: how long that took.
    pub fn wait(&mut self) -> Duration {
        let before = self.now;
        let deadline = self.stack.next_deadline().expect("a deadline");
        self.now = deadline.max(before);
        self.stack.advance(self.now);
        self.now.saturating_duration_since(before)
    }

    pub fn wait_for(&mut self, time: Duration) {
        let to = self.now + time;
        while self.stack.next_deadline().is_some_and(|at| at <= to) {
            self.wait();
        }
        self.now = to;
    }

    /// All that goes out now.
    pub fn sent(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        let mut out = [0; 1500];
        while let Some(transmit) = self.stack.poll_transmit(self.now, &mut out) {
            let bytes = out[..transmit.len].to_vec();
            let to = transmit.ends.remote;
            all.push(Sent {
                bytes,
                to,
                fragment_to: transmit.fragment_to,
                udp: transmit.udp,
            });
        }
        all
    }

    /// The only packet that goes out now.
    pub fn one(&mut self) -> Sent {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    pub fn nothing(&mut self) {
        let sent = self.sent();
        assert!(sent.is_empty(), "{sent:?}");
    }

    /// The only event.
    pub fn event(&mut self) -> Event {
        let (_, event) = self.stack.poll_event().expect("an event");
        assert_eq!(self.stack.poll_event(), None);
        event
    }

    pub fn no_event(&mut self) {
        assert_eq!(self.stack.poll_event(), None);
    }

    pub fn info(&self, id: AssocId) -> Info {
        self.stack.info(id).expect("the association")
    }

    pub fn state(&self, id: AssocId) -> State {
        self.info(id).state
    }
}

/// The chunks of each packet that goes out now, by their numbers.
pub fn numbers(script: &mut Script) -> Vec<Vec<u32>> {
    let first = script.tsn;
    let sent = script.sent();
    sent.iter().map(|sent| sent.data(first)).collect()
}

pub fn parameters(all: &[Parameter<'_>]) -> Vec<u8> {
    let mut buffer = [0; 1900];
    let mut writer = parameter::Writer::new(&mut buffer);
    all.iter()
        .for_each(|parameter| writer.put(parameter).unwrap());
    let len = writer.finish();
    buffer[..len].to_vec()
}

pub fn init(parameters: &[u8]) -> Init<'_> {
    Init {
        tag: PEERS_TAG,
        window: WINDOW,
        outbound_streams: 10,
        inbound_streams: 5,
        initial_tsn: PEERS_TSN,
        parameters: Parameters::new(parameters),
    }
}

/// The peer's message `number`, of one byte.
pub fn data(number: u32, payload: &[u8]) -> Data<'_> {
    Data {
        tsn: PEERS_TSN.plus(number),
        stream: 1,
        sequence: 0,
        protocol: 16,
        unordered: true,
        begin: true,
        end: true,
        immediate: false,
        payload,
    }
}

pub fn causes(all: &[Cause<'_>]) -> Vec<u8> {
    let mut buffer = [0; 200];
    let mut writer = userspace_sctp::cause::Writer::new(&mut buffer);
    all.iter().for_each(|cause| writer.put(cause).unwrap());
    let len = writer.finish();
    buffer[..len].to_vec()
}

pub fn error(causes: &[u8]) -> Chunk<'_> {
    Chunk::Error(Causes::new(causes))
}
