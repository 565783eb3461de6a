//! A peer without a TCP of its own: the test writes each of its segments, and looks at each of the shard's.

use std::net::SocketAddr;
use std::time::Duration;

use rnic_ipc::control::MpaOptions;
use rnic_ipc::id::QpNum;
use rnic_net::{Path, PathDefaults, Payload};
use userspace_net::{Ecn, FourTuple, Instant, checksum};
use userspace_tcp::{Flags, Segment, SeqNum, TcpHeader};

use crate::side::{Side, SideConfig};

/// A segment that the shard sent.
#[derive(Clone, Debug)]
pub struct Seen {
    pub tuple: FourTuple,
    pub header: TcpHeader,
    pub payload: Vec<u8>,
}

pub struct Hand {
    pub side: Side,
    pub now: Instant,
}

/// The peer's first sequence number.
pub const ISS: SeqNum = SeqNum(5_000);

impl Hand {
    pub fn new(config: SideConfig) -> Self {
        Self {
            side: Side::new(2, "198.18.0.2:7174".parse().unwrap(), config),
            now: Instant::from_nanos(1_000_000),
        }
    }

    /// The side connects from this port of its own.
    pub fn connect(&mut self, port: u16, peer: SocketAddr) -> QpNum {
        let qp = self.side.create_qp();
        let options = MpaOptions::default();
        let path = path([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 9]);
        let connected = self
            .side
            .connect(qp, port, peer, path, options, b"", self.now);
        connected.unwrap();
        qp
    }

    /// A segment from there to the side's listener.
    pub fn says(&mut self, peer: SocketAddr, header: TcpHeader) {
        let local = self.side.address;
        self.says_to(local, peer, header, b"");
    }

    /// A segment with these bytes.
    pub fn says_to(&mut self, to: SocketAddr, peer: SocketAddr, header: TcpHeader, payload: &[u8]) {
        let path = path([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 2]);
        let tuple = FourTuple::new(peer, to);
        let header = TcpHeader {
            source_port: peer.port(),
            destination_port: to.port(),
            ..header
        };
        let mut frame = vec![0; path.headers_len(to.ip()) + header.header_len()];
        let (len, sum) = (payload.len(), checksum::sum(payload));
        let payload_len = Payload { len, sum };
        rnic_net::write_segment(&path, &tuple, Ecn::NotEct, &header, payload_len, &mut frame)
            .unwrap();
        frame.extend_from_slice(payload);
        assert!(self.side.wire.as_ref().unwrap().push(&frame));
    }

    /// What the side sends now.
    pub fn sees(&mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        loop {
            let mut worked = self.side.shard.poll(self.now);
            self.side.collect();
            let mut frame = Vec::new();
            while self.side.wire.as_ref().unwrap().take(&mut frame) {
                worked = true;
                let parsed = rnic_net::parse(&frame, &PathDefaults::new(9000)).unwrap();
                let segment = Segment::parse(&frame[parsed.data.clone()]).unwrap();
                seen.push(Seen {
                    tuple: parsed.tuple,
                    header: segment.header,
                    payload: segment.payload.to_vec(),
                });
            }
            if !worked {
                return seen;
            }
        }
    }

    /// What it sends until then.
    pub fn sees_for(&mut self, time: Duration) -> Vec<Seen> {
        let end = self.now + time;
        let mut seen = self.sees();
        while self.now < end {
            let next = self.side.shard.next_deadline().unwrap_or(end);
            self.now = next.max(self.now + Duration::from_nanos(1)).min(end);
            seen.extend(self.sees());
        }
        seen
    }
}

/// A header with these flags, and the numbers that are said.
pub fn segment(flags: Flags, seq: SeqNum, ack: Option<SeqNum>) -> TcpHeader {
    TcpHeader {
        seq,
        ack: ack.unwrap_or_default(),
        flags: match ack {
            Some(_) => flags | Flags::ACK,
            None => flags,
        },
        window: u16::MAX,
        ..TcpHeader::default()
    }
}

fn path(src_mac: [u8; 6], dst_mac: [u8; 6]) -> Path {
    Path {
        src_mac,
        dst_mac,
        vlan: None,
        mtu: 1500,
        hop_limit: 64,
    }
}
