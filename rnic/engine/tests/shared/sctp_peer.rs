//! A peer that speaks as little SCTP as will do. Each chunk that it sends is chosen by hand, and it answers what it gets
//! as far as it is told to.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use rnic_net::{Path, PathDefaults, Protocol};
use userspace_net::{Ecn, FourTuple};
use userspace_sctp::Tsn;
use userspace_sctp::chunk::{Chunk, Data, Init, Sack};
use userspace_sctp::packet::{Header, Packet, Writer, verify};
use userspace_sctp::parameter::{self, Parameter, Parameters};

/// Payload Protocol Identifiers of RFC 5043 section 5.2.
pub const SEGMENT: u32 = 16;
pub const CONTROL: u32 = 17;
/// Function codes of RFC 5043 section 5.2.2.
pub const INITIATE: u16 = 1;
pub const ACCEPT: u16 = 2;
pub const REJECT: u16 = 3;
pub const TERMINATE: u16 = 4;
/// Those of RFC 6581 section 7.
pub const ENHANCED_INITIATE: u16 = 5;
pub const ENHANCED_ACCEPT: u16 = 6;
pub const ENHANCED_REJECT: u16 = 7;
/// More than any packet of ours.
const PACKET_MAX: usize = 9000;
/// The adaptation code of DDP (RFC 5043 section 5.1).
const DDP: u32 = 1;

/// A chunk of the node's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    InitAck,
    CookieAck,
    Sack { cumulative: Tsn, window: u32 },
    Abort { cause: Option<u16> },
    Error { cause: Option<u16> },
    Shutdown,
    ShutdownAck,
    ShutdownComplete,
    Other,
}

pub struct SctpPeer {
    path: Path,
    /// Its own end is the local one, with the address that it was heard at last.
    tuple: FourTuple,
    /// All its addresses, which it lists when there is more than one.
    pub homes: Vec<IpAddr>,
    /// What comes to one of these is lost.
    pub deaf_at: Vec<IpAddr>,
    /// Frames that came, and to which hardware address, by its own.
    pub came: Vec<(IpAddr, [u8; 6])>,
    /// In the node's packets, and in its own once it is known.
    pub tag: u32,
    pub nodes_tag: u32,
    /// Of its next DATA chunk.
    pub tsn: Tsn,
    /// All of the node's chunks up to this one came, and these beyond it.
    pub cumulative: Tsn,
    ahead: BTreeSet<u32>,
    /// What it says that it has room for.
    pub window: u32,
    /// It acknowledges data, and answers heartbeats and a shutdown.
    pub answers: bool,
    /// It answers nothing to a SHUTDOWN.
    pub ignores_shutdown: bool,
    cookie: Vec<u8>,
    /// Streams that an INIT or INIT ACK of the node's offers: outbound, inbound.
    pub streams: Vec<(u16, u16)>,
    /// Chunks of the node's but for data, and its user data in the order in which it came, with PPIDs.
    pub heard: Vec<Heard>,
    pub data: Vec<(u32, Vec<u8>)>,
    /// What it answers by and by; a SACK stands behind it.
    answering: Vec<Vec<u8>>,
    owes_sack: bool,
}

impl SctpPeer {
    /// Host number `number` of the network, whose node has number `node` in its hardware address.
    pub fn new(address: &str, number: u8, to: SocketAddr, node: u8) -> Self {
        let address: SocketAddr = address.parse().unwrap();
        let mac = |number| [2, 0, 0, 0, 0, number];
        Self {
            path: Path {
                src_mac: mac(number),
                dst_mac: mac(node),
                vlan: None,
                mtu: 1500,
                hop_limit: 64,
            },
            tuple: FourTuple::new(address, to),
            homes: vec![address.ip()],
            deaf_at: Vec::new(),
            came: Vec::new(),
            tag: 0x5555_0000 | u32::from(number),
            nodes_tag: 0,
            tsn: Tsn(u32::MAX - 1),
            cumulative: Tsn(0),
            ahead: BTreeSet::new(),
            window: 100_000,
            answers: true,
            ignores_shutdown: false,
            cookie: Vec::new(),
            streams: Vec::new(),
            heard: Vec::new(),
            data: Vec::new(),
            answering: Vec::new(),
            owes_sack: false,
        }
    }

    /// It knows nothing of the association any more.
    pub fn restart(&mut self, tag: u32) {
        self.tag = tag;
        self.tsn = Tsn(tag);
        self.ahead.clear();
        self.heard.clear();
        self.data.clear();
    }

    pub fn address(&self) -> SocketAddr {
        self.tuple.local.into()
    }

    pub fn way_to_it(&self) -> Path {
        Path {
            src_mac: self.path.dst_mac,
            dst_mac: self.path.src_mac,
            ..self.path
        }
    }

    /// What comes from this port of the node's is for it.
    pub fn listen_for(&mut self, node: IpAddr, port: u16) {
        self.tuple = FourTuple::new(self.address(), SocketAddr::new(node, port));
    }

    /// From another port of its host.
    pub fn move_to(&mut self, port: u16) {
        self.tuple.local.port = port;
    }

    /// Whether a frame between these ends is for it.
    pub fn is_at(&self, tuple: &FourTuple) -> bool {
        let at = |home: &IpAddr| {
            let mut own = self.tuple;
            own.local.addr = *home;
            own == *tuple
        };
        self.homes.iter().any(at)
    }

    /// It sends from this address, until it is heard at another.
    pub fn send_from(&mut self, home: IpAddr) {
        self.tuple.local.addr = home;
    }

    /// A frame with these chunks.
    pub fn packet(&self, chunks: &[Chunk<'_>]) -> Vec<u8> {
        self.packet_with(self.nodes_tag, chunks)
    }

    pub fn packet_with(&self, tag: u32, chunks: &[Chunk<'_>]) -> Vec<u8> {
        let mut packet = vec![0; PACKET_MAX];
        let header = Header {
            source: self.tuple.local.port,
            destination: self.tuple.remote.port,
            tag,
        };
        let mut writer = Writer::new(&mut packet, header).unwrap();
        chunks.iter().for_each(|chunk| writer.chunk(chunk).unwrap());
        let len = writer.finish();
        packet.truncate(len);
        self.frame(&packet)
    }

    pub fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let remote = self.tuple.remote.addr;
        let mut frame = vec![0; self.path.headers_len(remote)];
        let ends = (self.tuple.local.addr, remote);
        let what = (Protocol::Sctp, packet.len());
        rnic_net::emit(&self.path, ends, what, Ecn::NotEct, &mut frame).unwrap();
        frame.extend_from_slice(packet);
        frame
    }

    pub fn init(&self) -> Vec<u8> {
        let parameters = self.parameters(&[Parameter::Adaptation(DDP)]);
        self.packet_with(0, &[Chunk::Init(self.offer(&parameters))])
    }

    /// The answer to the node's INIT.
    fn init_ack(&self) -> Vec<u8> {
        let parameters = self.parameters(&[
            Parameter::Adaptation(DDP),
            Parameter::StateCookie(b"a cookie"),
        ]);
        self.packet(&[Chunk::InitAck(self.offer(&parameters))])
    }

    /// These, and those of its addresses if it has several.
    fn parameters(&self, all: &[Parameter<'_>]) -> Vec<u8> {
        let homes = self.homes.iter().filter(|_| self.homes.len() > 1);
        let homes = homes.map(|home| Parameter::Address(*home));
        let all: Vec<_> = homes.chain(all.iter().copied()).collect();
        parameters(&all)
    }

    fn offer<'a>(&self, parameters: &'a [u8]) -> Init<'a> {
        Init {
            tag: self.tag,
            window: self.window,
            outbound_streams: 32,
            inbound_streams: 32,
            initial_tsn: self.tsn,
            parameters: Parameters::new(parameters),
        }
    }

    /// The cookie that came last, with chunks behind it.
    pub fn cookie_echo(&self, chunks: &[Chunk<'_>]) -> Vec<u8> {
        let mut all = vec![Chunk::CookieEcho(&self.cookie)];
        all.extend_from_slice(chunks);
        self.packet(&all)
    }

    pub fn next_data<'a>(&mut self, protocol: u32, payload: &'a [u8]) -> Chunk<'a> {
        let tsn = self.tsn;
        self.tsn = tsn.next();
        data(tsn, protocol, payload)
    }

    /// What it says of the node's data.
    pub fn sack(&self) -> Vec<u8> {
        self.packet(&[Chunk::Sack(Sack::new(
            self.cumulative,
            self.window,
            &[],
            &[],
        ))])
    }

    /// What it answers to all that it took.
    pub fn answers(&mut self) -> Vec<Vec<u8>> {
        if std::mem::take(&mut self.owes_sack) && self.answers {
            let sack = self.sack();
            self.answering.push(sack);
        }
        std::mem::take(&mut self.answering)
    }

    /// Takes what the node sent; not a fragment of a packet that was posted for a larger MTU.
    pub fn take(&mut self, frame: &[u8]) {
        let Ok(parsed) = rnic_net::parse(frame, &PathDefaults::new(1500)) else {
            return;
        };
        let home = parsed.tuple.local.addr;
        self.came.push((home, frame[..6].try_into().unwrap()));
        if self.deaf_at.contains(&home) {
            return;
        }
        self.send_from(home);
        let bytes = &frame[parsed.data];
        verify(bytes).unwrap();
        let packet = Packet::parse(bytes).unwrap();
        for chunk in packet.chunks() {
            self.take_chunk(&chunk);
        }
    }

    fn take_chunk(&mut self, chunk: &Chunk<'_>) {
        let heard = match chunk {
            Chunk::Data(data) => return self.take_data(data),
            Chunk::InitAck(init) => {
                self.streams
                    .push((init.outbound_streams, init.inbound_streams));
                self.nodes_tag = init.tag;
                self.cumulative = init.initial_tsn.previous();
                let cookie = init
                    .parameters
                    .iter()
                    .find_map(|parameter| match parameter {
                        Parameter::StateCookie(cookie) => Some(cookie.to_vec()),
                        _ => None,
                    });
                self.cookie = cookie.unwrap();
                Heard::InitAck
            }
            Chunk::CookieAck => Heard::CookieAck,
            Chunk::Init(init) => {
                self.streams
                    .push((init.outbound_streams, init.inbound_streams));
                self.nodes_tag = init.tag;
                self.cumulative = init.initial_tsn.previous();
                let answer = self.init_ack();
                self.answering.push(answer);
                Heard::Other
            }
            Chunk::CookieEcho(_) => {
                self.answer(Chunk::CookieAck);
                Heard::Other
            }
            Chunk::Sack(sack) => Heard::Sack {
                cumulative: sack.cumulative,
                window: sack.window,
            },
            Chunk::Heartbeat(info) => {
                self.answer(Chunk::HeartbeatAck(info));
                Heard::Other
            }
            Chunk::Abort { causes, .. } => Heard::Abort {
                cause: causes.iter().next().and_then(|cause| cause.code()),
            },
            Chunk::Error(causes) => Heard::Error {
                cause: causes.iter().next().and_then(|cause| cause.code()),
            },
            Chunk::Shutdown { .. } => {
                if !self.ignores_shutdown {
                    self.answer(Chunk::ShutdownAck);
                }
                Heard::Shutdown
            }
            Chunk::ShutdownAck => {
                self.answer(Chunk::ShutdownComplete { reflected: false });
                Heard::ShutdownAck
            }
            Chunk::ShutdownComplete { .. } => Heard::ShutdownComplete,
            _ => Heard::Other,
        };
        self.heard.push(heard);
    }

    fn answer(&mut self, chunk: Chunk<'_>) {
        if self.answers {
            let answer = self.packet(&[chunk]);
            self.answering.push(answer);
        }
    }

    fn take_data(&mut self, data: &Data<'_>) {
        self.owes_sack = true;
        let is_new = data.tsn.is_after(self.cumulative) && self.ahead.insert(data.tsn.0);
        if is_new {
            self.data.push((data.protocol, data.payload.to_vec()));
        }
        while self.ahead.remove(&self.cumulative.next().0) {
            self.cumulative = self.cumulative.next();
        }
    }
}

fn parameters(all: &[Parameter<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let mut writer = parameter::Writer::new(&mut bytes);
    all.iter().for_each(|one| writer.put(one).unwrap());
    let len = writer.finish();
    bytes.truncate(len);
    bytes
}

/// A DATA chunk with a whole message.
pub fn data(tsn: Tsn, protocol: u32, payload: &[u8]) -> Chunk<'_> {
    Chunk::Data(Data {
        tsn,
        stream: 0,
        sequence: 0,
        protocol,
        unordered: true,
        begin: true,
        end: true,
        immediate: true,
        payload,
    })
}

/// User data of a DDP Segment Chunk.
pub fn segment(ssn: u16, segment: &[u8]) -> Vec<u8> {
    [&ssn.to_be_bytes(), segment].concat()
}

/// User data of a session control message.
pub fn control(ssn: u16, function: u16, private_data: &[u8]) -> Vec<u8> {
    [
        &ssn.to_be_bytes()[..],
        &function.to_be_bytes(),
        private_data,
    ]
    .concat()
}
