//! A passive connection whose peer is played by hand: every header is chosen.

use std::net::Ipv4Addr;

use userspace_net::checksum::PartialSum;
use userspace_net::{Endpoint, FourTuple, Instant};
use userspace_tcp::{
    Config, ConnId, ConnOptions, Event, Flags, Outgoing, Received, Segment, SeqNum, Stack,
    TcpHeader, Timestamps,
};

/// The peer's initial sequence number: soon, numbers begin at zero again.
const IRS: SeqNum = SeqNum(u32::MAX - 20_000);
const OPTIONS: ConnOptions = ConnOptions { mss: 1460 };

/// The connection, established.
pub struct Passive {
    pub stack: Stack<u32>,
    pub conn: ConnId,
    /// The number of the first byte that it sends.
    pub ours: SeqNum,
    pub now: Instant,
    /// Bytes that were posted to it.
    pub sent: u32,
}

pub fn tuple() -> FourTuple {
    let end = |last| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), 7000);
    FourTuple::new(end(1), end(2))
}

pub fn header(flags: Flags, seq: SeqNum, ack: SeqNum) -> TcpHeader {
    TcpHeader {
        source_port: 7000,
        destination_port: 7000,
        seq,
        ack,
        flags,
        window: 60_000,
        ..TcpHeader::default()
    }
}

/// The number of a byte that the peer sends.
pub fn peer_seq(byte: u32) -> SeqNum {
    IRS.add(1).add(byte)
}

impl Passive {
    pub fn open(timestamps: bool) -> Self {
        Self::open_as(Config {
            timestamps,
            ..Config::default()
        })
    }

    /// The peer asks for ECN and timestamps where the configuration does.
    pub fn open_as(config: Config) -> Self {
        let Config {
            timestamps, ecn, ..
        } = config;
        let now = Instant::from_nanos(1_000_000);
        let mut stack = Stack::new(config, [7; 16], now);
        stack.listen(tuple().local, 4).unwrap();
        let mut syn = header(Flags::SYN, IRS, SeqNum(0));
        if ecn {
            syn.flags |= Flags::ECE | Flags::CWR;
        }
        syn.options.sack_permitted = true;
        syn.options.timestamps = timestamps.then_some(Timestamps { value: 9, echo: 0 });
        stack.receive(now, tuple(), &Segment::new(syn, &[]), OPTIONS);
        let syn_ack = stack.poll_transmit(now).unwrap().header;
        let ours = syn_ack.seq.add(1);
        let mut ack = header(Flags::ACK, peer_seq(0), ours);
        ack.options.timestamps = syn_ack.options.timestamps.map(|ours| Timestamps {
            value: 9,
            echo: ours.value,
        });
        stack.receive(now, tuple(), &Segment::new(ack, &[]), OPTIONS);
        let (conn, event) = stack.poll_event().unwrap();
        assert!(matches!(event, Event::Incoming { .. }));
        Self {
            stack,
            conn,
            ours,
            now,
            sent: 0,
        }
    }

    /// Has it send so many bytes, if its queue takes them.
    pub fn post(&mut self, bytes: u32) {
        let outgoing = Outgoing {
            buf: self.sent,
            len: bytes,
            payload_sum: PartialSum::ZERO,
        };
        if self.stack.send(self.conn, self.now, outgoing).is_ok() {
            self.sent += bytes;
        }
    }

    pub fn receive(&mut self, segment: &Segment<'_>) -> Received {
        self.stack.receive(self.now, tuple(), segment, OPTIONS)
    }
}
