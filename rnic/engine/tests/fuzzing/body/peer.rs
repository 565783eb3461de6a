//! A peer that speaks as little TCP as will do: it presents any bytes of its stream in any order,
//! and acknowledges what it gets.

use std::net::SocketAddr;

use rnic_net::{Path, PathDefaults, Payload};
use userspace_net::{Ecn, FourTuple, checksum};
use userspace_tcp::{Flags, Options, Segment, SeqNum, TcpHeader};

use super::work::Peer;

pub const PEER: &str = "198.18.0.9:5000";
/// Our path, of an interface like the node's.
const PATH: Path = Path {
    src_mac: [2, 0, 0, 0, 0, 9],
    dst_mac: [2, 0, 0, 0, 0, 0],
    vlan: None,
    mtu: 1500,
    hop_limit: 64,
};
/// The sequence number of our SYN.
const FIRST: SeqNum = SeqNum(0xffff_f000);
const MSS: u16 = 1460;

pub struct TcpPeer {
    tuple: FourTuple,
    /// What is awaited from the node, once its SYN came.
    next: Option<SeqNum>,
    /// The node has reset the connection.
    pub reset: bool,
    /// Bytes of our stream that an acknowledgment stands behind.
    pub sent: usize,
    /// Something is to be acknowledged.
    owes: bool,
}

impl TcpPeer {
    pub fn new(node: SocketAddr) -> Self {
        let peer: SocketAddr = PEER.parse().unwrap();
        Self {
            tuple: FourTuple::new(peer, node),
            next: None,
            reset: false,
            sent: 0,
            owes: false,
        }
    }

    pub fn syn(&self) -> Vec<u8> {
        let options = Options {
            mss: Some(MSS),
            ..Options::default()
        };
        self.frame(FIRST, Flags::SYN, options, &[])
    }

    pub fn is_connected(&self) -> bool {
        self.next.is_some()
    }

    /// The segment with these bytes of our stream, the first of which is number `at`.
    pub fn segment(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let seq = FIRST.add(1 + at as u32);
        self.frame(seq, Flags::ACK, Options::default(), bytes)
    }

    /// The end of our stream, at number `at`.
    pub fn fin(&self, at: usize) -> Vec<u8> {
        let flags = Flags(Flags::ACK.0 | Flags::FIN.0);
        self.frame(FIRST.add(1 + at as u32), flags, Options::default(), &[])
    }

    fn frame(&self, seq: SeqNum, flags: Flags, options: Options, payload: &[u8]) -> Vec<u8> {
        let header = TcpHeader {
            source_port: self.tuple.local.port,
            destination_port: self.tuple.remote.port,
            seq,
            ack: self.next.unwrap_or(SeqNum(0)),
            flags,
            window: u16::MAX,
            urgent: 0,
            options,
        };
        let mut frame = vec![0; PATH.headers_len(self.tuple.remote.addr) + header.header_len()];
        let (len, sum) = (payload.len(), checksum::sum(payload));
        let payload_of = Payload { len, sum };
        let not_ect = Ecn::NotEct;
        rnic_net::write_segment(&PATH, &self.tuple, not_ect, &header, payload_of, &mut frame)
            .unwrap();
        frame.extend_from_slice(payload);
        frame
    }
}

impl Peer for TcpPeer {
    fn take(&mut self, frame: &[u8]) {
        let parsed = rnic_net::parse(frame, &PathDefaults::new(1500)).unwrap();
        let segment = Segment::parse(&frame[parsed.data.clone()]).unwrap();
        let flags = segment.header.flags;
        self.reset |= flags.contains(Flags::RST);
        if flags.contains(Flags::SYN) {
            self.next = Some(segment.header.seq.add(1));
            self.owes = true;
            return;
        }
        let len = segment.payload.len() as u32 + u32::from(flags.contains(Flags::FIN));
        if self.next == Some(segment.header.seq) {
            self.next = Some(segment.header.seq.add(len));
        }
        self.owes |= len > 0;
    }

    fn answers(&mut self) -> Vec<Vec<u8>> {
        match std::mem::take(&mut self.owes) {
            true => vec![self.segment(self.sent, &[])],
            false => Vec::new(),
        }
    }
}
