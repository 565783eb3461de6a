//! A peer that speaks TCP well and says whatever the test wants: every octet that it sends is
//! chosen, and every cut between segments.

use std::collections::BTreeMap;
use std::time::Duration;

use rnic_net::{Path, Payload};
use rnic_proto::mpa::fpdu::{self, Layout};
use rnic_proto::mpa::marker::Markers;
use userspace_tcp::{
    Config, ConnId, ConnOptions, Ecn, Event, FourTuple, Instant, Outgoing, Segment, Stack,
    TcpHeader, Transmit, checksum,
};

use crate::side::{Side, SideConfig};

pub struct Duel {
    pub side: Side,
    pub stack: Stack<Vec<u8>>,
    pub conn: Option<ConnId>,
    pub now: Instant,
    pub events: Vec<Event>,
    /// What the shard sent, in order.
    pub received: Vec<u8>,
    parked: BTreeMap<u64, Vec<u8>>,
}

const OPTIONS: ConnOptions = ConnOptions { mss: 1460 };
/// Our path as seen by the side under test, exchanged.
const PATH: Path = Path {
    src_mac: [2, 0, 0, 0, 0, 9],
    dst_mac: [2, 0, 0, 0, 0, 2],
    vlan: None,
    mtu: 1500,
};
pub const PEER: &str = "198.18.0.9:5000";

impl Duel {
    pub fn new(config: SideConfig) -> Self {
        let now = Instant::from_nanos(1_000_000);
        Self {
            side: Side::new(2, "198.18.0.2:7174".parse().unwrap(), config),
            stack: Stack::new(Config::default(), [3; 16], now),
            conn: None,
            now,
            events: Vec::new(),
            received: Vec::new(),
            parked: BTreeMap::new(),
        }
    }

    /// The way from the side under test to us.
    pub fn path() -> Path {
        Path {
            src_mac: PATH.dst_mac,
            dst_mac: PATH.src_mac,
            ..PATH
        }
    }

    /// The TCP connection to the side's listener, established.
    pub fn connect(&mut self) {
        let peer: std::net::SocketAddr = PEER.parse().unwrap();
        let tuple = FourTuple::new(peer, self.side.address);
        self.conn = Some(self.stack.connect(self.now, tuple, OPTIONS).unwrap());
        self.pump();
        assert!(
            self.events.contains(&Event::Established),
            "{:?}",
            self.events
        );
    }

    /// Sends octets in segments of at most `size`.
    pub fn send(&mut self, octets: &[u8], size: usize) {
        for part in octets.chunks(size) {
            self.send_segment(part);
            if self
                .stack
                .info(self.conn.unwrap())
                .is_some_and(|i| i.queued_segments > 100)
            {
                self.pump();
            }
        }
        self.pump();
    }

    fn send_segment(&mut self, part: &[u8]) {
        let outgoing = Outgoing {
            buf: part.to_vec(),
            len: part.len() as u32,
            payload_sum: checksum::sum(part),
        };
        let _ = self.stack.send(self.conn.unwrap(), self.now, outgoing);
    }

    /// Sends octets with every second segment before the one before it.
    pub fn send_swapped(&mut self, octets: &[u8], size: usize) {
        for pair in octets.chunks(2 * size) {
            for part in pair.chunks(size) {
                self.send_segment(part);
            }
            let mut frames = self.frames();
            frames.reverse();
            self.give(&frames);
            self.side_works();
        }
        self.pump();
    }

    /// Sends octets in segments of `size`, whatever TCP's windows say, but for the first segment,
    /// which comes back as a frame.
    pub fn send_behind_a_hole(&mut self, octets: &[u8], size: usize) -> Vec<u8> {
        let (hole, rest) = octets.split_at(size.min(octets.len()));
        self.send_segment(hole);
        let withheld = self.frames().pop().unwrap();
        let parsed = rnic_net::parse(&withheld, 1500).unwrap();
        let header = Segment::parse(&withheld[parsed.tcp.clone()])
            .unwrap()
            .header;
        let tuple = FourTuple::new(parsed.tuple.remote, parsed.tuple.local);
        for (index, part) in rest.chunks(size).enumerate() {
            let seq = header.seq.add(((index + 1) * size) as u32);
            self.give(&[frame_with(&tuple, &TcpHeader { seq, ..header }, part)]);
            self.side_works();
        }
        withheld
    }

    /// Gives the side a frame, and lets both work.
    pub fn send_frame(&mut self, frame: Vec<u8>) {
        self.give(&[frame]);
        self.pump();
    }

    /// Both work until nothing is left to do now.
    pub fn pump(&mut self) {
        loop {
            let frames = self.frames();
            self.give(&frames);
            if !self.side_works() && frames.is_empty() {
                return;
            }
        }
    }

    /// Lets time go on, timers included.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let moments = [self.stack.next_deadline(), self.side.shard.next_deadline()];
            let next = moments.into_iter().flatten().min().unwrap_or(end);
            self.now = next.max(self.now + Duration::from_nanos(1)).min(end);
            self.stack.advance(self.now);
            self.pump();
        }
    }

    fn give(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            assert!(self.side.wire.as_ref().unwrap().push(frame));
        }
    }

    /// What our TCP sends now.
    fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(segment) = self.stack.poll_transmit(self.now) {
            out.push(frame_of(&segment));
            if let (Some(conn), Some(payload)) = (segment.conn, segment.payload) {
                let _ = self.stack.transmitted(conn, payload.id, payload.buf);
            }
        }
        while self.stack.poll_released().is_some() {}
        out
    }

    fn side_works(&mut self) -> bool {
        let mut worked = self.side.shard.poll(self.now);
        self.side.collect();
        let mut frame = Vec::new();
        while self.side.wire.as_ref().unwrap().take(&mut frame) {
            worked = true;
            let parsed = rnic_net::parse(&frame, 1500).unwrap();
            let segment = Segment::parse(&frame[parsed.tcp.clone()]).unwrap();
            let received = self
                .stack
                .receive(self.now, parsed.tuple, &segment, OPTIONS);
            while let Some((conn, event)) = self.stack.poll_event() {
                if matches!(event, Event::Incoming { .. }) {
                    self.conn = Some(conn);
                }
                self.events.push(event);
            }
            for range in received.new.iter() {
                let at = range.skip as usize;
                let octets = segment.payload[at..at + range.len as usize].to_vec();
                self.parked.insert(range.offset, octets);
            }
            while let Some(octets) = self.parked.remove(&(self.received.len() as u64)) {
                self.received.extend_from_slice(&octets);
            }
            if let Some(conn) = self.conn {
                self.stack.consumed(conn, self.received.len() as u64);
            }
        }
        worked
    }
}

fn frame_of(segment: &Transmit<Vec<u8>>) -> Vec<u8> {
    let payload = segment.payload.as_ref().map_or(&[][..], |p| &p.buf);
    frame_with(&segment.tuple, &segment.header, payload)
}

fn frame_with(tuple: &FourTuple, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; PATH.headers_len(tuple.remote.addr) + header.header_len()];
    let sum = checksum::sum(payload);
    let len = payload.len();
    rnic_net::write_segment(
        &PATH,
        tuple,
        Ecn::NotEct,
        header,
        Payload { len, sum },
        &mut frame,
    )
    .unwrap();
    frame.extend_from_slice(payload);
    frame
}

/// An MPA Request of revision 1 with CRCs and these flags besides.
pub fn request(flags: u8, private_data: &[u8]) -> Vec<u8> {
    let mut out = b"MPA ID Req Frame".to_vec();
    out.extend_from_slice(&[0x40 | flags, 1]);
    out.extend_from_slice(&(private_data.len() as u16).to_be_bytes());
    out.extend_from_slice(private_data);
    out
}

/// The FPDU of a whole RDMA Write.
pub fn write_fpdu(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    // Tagged, last, DDP version 1; RDMAP version 1, opcode 0 (RFC 5041 section 4.1, RFC 5040 4.3).
    let mut ulpdu = vec![0xc1, 0x40];
    ulpdu.extend_from_slice(&stag.to_be_bytes());
    ulpdu.extend_from_slice(&to.to_be_bytes());
    ulpdu.extend_from_slice(payload);
    let layout = Layout::new(Markers::Off, 0, ulpdu.len());
    let mut out = vec![0; layout.len()];
    out[2..2 + ulpdu.len()].copy_from_slice(&ulpdu);
    let len = fpdu::finish(&mut out, &layout, true);
    assert_eq!(len, out.len());
    out
}
