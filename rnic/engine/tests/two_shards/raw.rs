//! A peer that speaks TCP well and says whatever the test wants: every byte that it sends is
//! chosen, and every cut between segments.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::MpaOptions;
use rnic_ipc::id::QpNum;
use rnic_net::{Path, PathDefaults, Payload};
use rnic_proto::mpa::fpdu::{self as framing, Layout};
use rnic_proto::mpa::marker::Markers;
use userspace_net::{Ecn, FourTuple, Instant, checksum};
use userspace_tcp::{
    Config, ConnId, ConnOptions, Event, Outgoing, Segment, SeqNum, Stack, TcpHeader, Transmit,
};

use crate::side::{Side, SideConfig};

/// One host that speaks TCP, with one connection.
pub struct Peer {
    pub stack: Stack<Vec<u8>>,
    pub conn: Option<ConnId>,
    pub events: Vec<Event>,
    /// What the shard sent on the connection, in order.
    pub received: Vec<u8>,
    parked: BTreeMap<u64, Vec<u8>>,
    /// Most that it says in its window field, and the end of the window that it offered last.
    offers: u16,
    edge: Option<SeqNum>,
    /// Bytes by which the shard has sent beyond it, at most.
    pub beyond: u32,
    address: SocketAddr,
    path: Path,
}

pub struct Duel {
    pub side: Side,
    pub peer: Peer,
    /// A second peer, which is not to be touched by what the first one does.
    pub innocent: Peer,
    /// Resets of the side's that are yet to be lost on their way.
    pub resets_to_lose: usize,
    pub now: Instant,
}

pub const PEER: &str = "198.18.0.9:5000";
const INNOCENT: &str = "198.18.0.10:5000";

impl Peer {
    fn new(address: &str, number: u8, mtu: u32, now: Instant) -> Self {
        let config = Config {
            mss: u16::MAX,
            ..Config::default()
        };
        Self {
            stack: Stack::new(config, [3; 16], now),
            conn: None,
            events: Vec::new(),
            received: Vec::new(),
            parked: BTreeMap::new(),
            offers: u16::MAX,
            edge: None,
            beyond: 0,
            address: address.parse().unwrap(),
            path: Path {
                src_mac: [2, 0, 0, 0, 0, number],
                dst_mac: [2, 0, 0, 0, 0, 2],
                vlan: None,
                mtu,
                hop_limit: 64,
            },
        }
    }

    fn options(&self) -> ConnOptions {
        ConnOptions {
            mss: self.path.mss(self.address.ip()),
        }
    }

    fn send_segment(&mut self, part: &[u8], now: Instant) {
        let outgoing = Outgoing {
            buf: part.to_vec(),
            len: part.len() as u32,
            payload_sum: checksum::sum(part),
        };
        let _ = self.stack.send(self.conn.unwrap(), now, outgoing);
    }

    fn is_crowded(&self) -> bool {
        let info = self.stack.info(self.conn.unwrap());
        info.is_some_and(|info| info.queued_segments > 100)
    }

    /// What its TCP sends now.
    fn frames(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(mut segment) = self.stack.poll_transmit(now) {
            let header = &mut segment.header;
            header.window = header.window.min(self.offers);
            self.edge = (self.offers < u16::MAX && header.flags.ack())
                .then(|| header.ack.add(header.window.into()));
            out.push(self.frame_of(&segment));
            if let (Some(conn), Some(payload)) = (segment.conn, segment.payload) {
                let _ = self.stack.transmitted(conn, payload.id, payload.buf);
            }
        }
        while self.stack.poll_released().is_some() {}
        out
    }

    /// Takes a segment that the shard sent.
    fn take(&mut self, tuple: FourTuple, segment: &Segment<'_>, now: Instant) {
        if let (Some(edge), false) = (self.edge, segment.payload.is_empty()) {
            let end = segment.header.seq.add(segment.payload.len() as u32);
            self.beyond = self.beyond.max(end.distance(edge).max(0).cast_unsigned());
        }
        let received = self.stack.receive(now, tuple, segment, self.options());
        while let Some((conn, event)) = self.stack.poll_event() {
            if matches!(event, Event::Incoming { .. }) {
                self.conn = Some(conn);
                self.received.clear();
                self.parked.clear();
            }
            self.events.push(event);
        }
        for range in received.new.iter() {
            let at = range.skip as usize;
            let bytes = segment.payload[at..at + range.len as usize].to_vec();
            self.parked.insert(range.offset, bytes);
        }
        while let Some(bytes) = self.parked.remove(&(self.received.len() as u64)) {
            self.received.extend_from_slice(&bytes);
        }
        if let Some(conn) = self.conn {
            self.stack.consumed(conn, self.received.len() as u64);
        }
    }

    fn frame_of(&self, segment: &Transmit<Vec<u8>>) -> Vec<u8> {
        let payload = segment.payload.as_ref().map_or(&[][..], |p| &p.buf);
        self.frame_with(&segment.tuple, &segment.header, payload)
    }

    fn frame_with(&self, tuple: &FourTuple, header: &TcpHeader, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; self.path.headers_len(tuple.remote.addr) + header.header_len()];
        let sum = checksum::sum(payload);
        let len = payload.len();
        let payload_len = Payload { len, sum };
        rnic_net::write_segment(
            &self.path,
            tuple,
            Ecn::NotEct,
            header,
            payload_len,
            &mut frame,
        )
        .unwrap();
        frame.extend_from_slice(payload);
        frame
    }
}

impl Duel {
    pub fn new(config: SideConfig) -> Self {
        let now = Instant::from_nanos(1_000_000);
        let mtu = config.shard.path_defaults.mtu;
        Self {
            side: Side::new(2, "198.18.0.2:7174".parse().unwrap(), config),
            peer: Peer::new(PEER, 9, mtu, now),
            innocent: Peer::new(INNOCENT, 10, mtu, now),
            resets_to_lose: 0,
            now,
        }
    }

    /// The same, where the peer never offers a window of more than so many bytes.
    pub fn offering(config: SideConfig, window: u16) -> Self {
        let mut duel = Self::new(config);
        let config = Config {
            window_scale: false,
            ..duel.peer.stack.config().clone()
        };
        duel.peer.stack = Stack::new(config, [3; 16], duel.now);
        duel.peer.offers = window;
        duel
    }

    /// The way from the side under test to the peer.
    pub fn path() -> Path {
        let peer = Peer::new(PEER, 9, 1500, Instant::ZERO);
        Path {
            src_mac: peer.path.dst_mac,
            dst_mac: peer.path.src_mac,
            ..peer.path
        }
    }

    /// Has the side ask the peer, which has its MPA Request then and may answer.
    pub fn ask(&mut self, mpa: MpaOptions, private_data: &[u8]) -> QpNum {
        let peer = self.peer.address;
        self.peer.stack.listen(peer.into(), 4).unwrap();
        let qp = self.side.create_qp();
        self.side
            .connect(qp, 40_000, peer, Self::path(), mpa, private_data, self.now)
            .unwrap();
        self.pump();
        qp
    }

    /// The peer's TCP connection to the side's listener, established.
    pub fn connect(&mut self) {
        connect(&mut self.peer, self.side.address, self.now);
        self.pump();
        let events = &self.peer.events;
        assert!(events.contains(&Event::Established), "{events:?}");
    }

    /// One more connection of the peer's, from there.
    pub fn connect_from(&mut self, address: &str) {
        self.peer.address = address.parse().unwrap();
        self.peer.events.clear();
        self.connect();
    }

    pub fn connect_innocent_from(&mut self, address: &str) {
        self.innocent.address = address.parse().unwrap();
        self.connect_innocent();
    }

    pub fn connect_innocent(&mut self) {
        connect(&mut self.innocent, self.side.address, self.now);
        self.pump();
        let events = &self.innocent.events;
        assert!(events.contains(&Event::Established), "{events:?}");
    }

    /// Has the side accept the request that waits by a queue pair, with the options that `agreed` makes
    /// of those that were asked for. What private data came with it.
    pub fn accept(&mut self, qp: QpNum, agreed: impl FnOnce(MpaOptions) -> MpaOptions) -> Vec<u8> {
        let (request, asked, data) = self.side.take_request().expect("a request");
        let command = Command::Accept {
            request,
            qp,
            mpa: agreed(asked),
            private_data: Vec::new(),
        };
        self.side.shard.execute(command, self.now).unwrap();
        self.pump();
        data
    }

    /// Sends bytes in segments of at most `size`.
    pub fn send(&mut self, bytes: &[u8], size: usize) {
        for part in bytes.chunks(size) {
            self.peer.send_segment(part, self.now);
            if self.peer.is_crowded() {
                self.pump();
            }
        }
        self.pump();
    }

    /// Sends bytes of the innocent peer, in segments of a usual size.
    pub fn send_innocent(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(1448) {
            self.innocent.send_segment(part, self.now);
        }
        self.pump();
    }

    /// Sends bytes with every second segment before the one before it.
    pub fn send_swapped(&mut self, bytes: &[u8], size: usize) {
        for pair in bytes.chunks(2 * size) {
            for part in pair.chunks(size) {
                self.peer.send_segment(part, self.now);
            }
            let mut frames = self.peer.frames(self.now);
            frames.reverse();
            self.give(&frames);
            self.side_works();
        }
        self.pump();
    }

    /// Sends bytes in segments of `size`, which come together, as frames that `change` has changed.
    pub fn send_changed(
        &mut self,
        bytes: &[u8],
        size: usize,
        change: impl FnOnce(&mut Vec<Vec<u8>>),
    ) {
        let segments: Vec<Vec<u8>> = bytes.chunks(size).map(<[u8]>::to_vec).collect();
        self.send_segments(&segments, change);
    }

    /// Sends segments, which come together, as frames that `change` has changed.
    pub fn send_segments(&mut self, segments: &[Vec<u8>], change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        for segment in segments {
            self.peer.send_segment(segment, self.now);
        }
        let mut frames = self.peer.frames(self.now);
        change(&mut frames);
        self.give(&frames);
        self.side_works();
        self.pump();
    }

    /// Sends a segment, and behind it one of which bytes are new behind those of the first, but for so
    /// many, which it has again.
    pub fn send_again_with(&mut self, first: &[u8], but: usize, new: &[u8]) {
        let mut made = Vec::new();
        for part in [first, new] {
            self.peer.send_segment(part, self.now);
        }
        while let Some(segment) = self.peer.stack.poll_transmit(self.now) {
            let (conn, payload) = (segment.conn.unwrap(), segment.payload.unwrap());
            made.push((segment.tuple, segment.header, payload.buf.clone()));
            let _ = self.peer.stack.transmitted(conn, payload.id, payload.buf);
        }
        let [(tuple, header, first), (_, _, new)] = &made[..] else {
            panic!("{} segments", made.len());
        };
        let seq = header.seq.add(but as u32);
        let both = [&first[but..], new].concat();
        let frames = [
            self.peer.frame_with(tuple, header, first),
            self.peer
                .frame_with(tuple, &TcpHeader { seq, ..*header }, &both),
        ];
        for frame in frames {
            self.give(&[frame]);
            self.side_works();
        }
        self.pump();
    }

    /// Sends bytes in segments of `size`, the first of which arrives last.
    pub fn send_first_last(&mut self, bytes: &[u8], size: usize) {
        for part in bytes.chunks(size) {
            self.peer.send_segment(part, self.now);
        }
        let mut frames = self.peer.frames(self.now);
        let first = frames.remove(0);
        self.give(&frames);
        self.side_works();
        self.give(&[first]);
        self.pump();
    }

    /// Sends bytes in segments of `size`, whatever TCP's windows say, but for the first segment,
    /// which comes back as a frame.
    pub fn send_behind_a_hole(&mut self, bytes: &[u8], size: usize) -> Vec<u8> {
        let mut frames = self.whatever_windows_say(bytes, size);
        let withheld = frames.remove(0);
        for frame in frames {
            self.give(&[frame]);
            self.side_works();
        }
        withheld
    }

    /// Sends bytes in segments of `size`, which come together, whatever TCP's windows say.
    pub fn send_beyond_the_window(&mut self, bytes: &[u8], size: usize) {
        let frames = self.whatever_windows_say(bytes, size);
        self.give(&frames);
        self.side_works();
    }

    /// Frames of bytes in segments of `size`, of which the peer's TCP knows of the first.
    fn whatever_windows_say(&mut self, bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
        let (first, rest) = bytes.split_at(size.min(bytes.len()));
        self.peer.send_segment(first, self.now);
        let mut frames = self.peer.frames(self.now);
        let first = frames.last().unwrap();
        let parsed = rnic_net::parse(first, &PathDefaults::new(1500)).unwrap();
        let header = Segment::parse(&first[parsed.data.clone()]).unwrap().header;
        let tuple = FourTuple::new(parsed.tuple.remote, parsed.tuple.local);
        for (index, part) in rest.chunks(size).enumerate() {
            let seq = header.seq.add(((index + 1) * size) as u32);
            let header = TcpHeader { seq, ..header };
            frames.push(self.peer.frame_with(&tuple, &header, part));
        }
        frames
    }

    /// Gives the side a frame, and lets both work.
    pub fn send_frame(&mut self, frame: Vec<u8>) {
        self.give(&[frame]);
        self.pump();
    }

    /// One more connection of the peer's, from there, that may not come about; whether it did.
    pub fn try_connect_from(&mut self, address: &str) -> bool {
        self.begin_from(address);
        self.pump();
        self.peer.events.contains(&Event::Established)
    }

    /// Its SYN alone is in the side's ring.
    pub fn begin_from(&mut self, address: &str) {
        self.peer.address = address.parse().unwrap();
        self.peer.events.clear();
        connect(&mut self.peer, self.side.address, self.now);
        let syn = self.peer.frames(self.now);
        self.give(&syn);
    }

    /// The side works and the peer takes what it sends; what the peer answers is kept back.
    pub fn keep_answer_back(&mut self) -> Vec<Vec<u8>> {
        self.side_works();
        self.peer.frames(self.now)
    }

    /// Lets the side poll once, with a SYN of the peer's in its ring: how often it looks at the clock.
    pub fn looks_at_the_clock_for_a_syn(&mut self) -> u32 {
        self.begin_from(PEER);
        let (looks, now) = (Cell::new(0), self.now);
        self.side.shard.poll_by(|| {
            looks.set(looks.get() + 1);
            now
        });
        looks.get()
    }

    /// All work until nothing is left to do now.
    pub fn pump(&mut self) {
        loop {
            let mut frames = self.peer.frames(self.now);
            frames.extend(self.innocent.frames(self.now));
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
            let moments = [
                self.peer.stack.next_deadline(),
                self.innocent.stack.next_deadline(),
                self.side.shard.next_deadline(),
            ];
            let next = moments.into_iter().flatten().min().unwrap_or(end);
            self.now = next.max(self.now + Duration::from_nanos(1)).min(end);
            self.peer.stack.advance(self.now);
            self.innocent.stack.advance(self.now);
            self.pump();
        }
    }

    fn give(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            assert!(self.side.wire.as_ref().unwrap().push(frame));
        }
    }

    fn side_works(&mut self) -> bool {
        let mut worked = self.side.shard.poll(self.now);
        self.side.collect();
        let mut frame = Vec::new();
        while self.side.wire.as_ref().unwrap().take(&mut frame) {
            worked = true;
            let parsed = rnic_net::parse(&frame, &PathDefaults::new(1500)).unwrap();
            let segment = Segment::parse(&frame[parsed.data.clone()]).unwrap();
            if self.resets_to_lose > 0 && segment.header.flags.rst() {
                self.resets_to_lose -= 1;
                continue;
            }
            let to_innocent = parsed.tuple.local == self.innocent.address.into();
            let peer = match to_innocent {
                true => &mut self.innocent,
                false => &mut self.peer,
            };
            peer.take(parsed.tuple, &segment, self.now);
        }
        worked
    }
}

fn connect(peer: &mut Peer, to: SocketAddr, now: Instant) {
    let tuple = FourTuple::new(peer.address, to);
    peer.conn = Some(peer.stack.connect(now, tuple, peer.options()).unwrap());
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
    fpdu(&ulpdu)
}

/// The FPDU around a ULPDU, without Markers.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    fpdu_at(ulpdu, Markers::Off, 0)
}

/// The FPDU around a ULPDU at this place of its direction's stream.
pub fn fpdu_at(ulpdu: &[u8], markers: Markers, at: u64) -> Vec<u8> {
    let layout = Layout::new(markers, at, ulpdu.len());
    let mut out = vec![0; layout.len()];
    let mut rest = ulpdu;
    for span in layout.ulpdu(0, ulpdu.len()) {
        let (part, behind) = rest.split_at(span.len());
        out[span].copy_from_slice(part);
        rest = behind;
    }
    let len = framing::finish(&mut out, &layout, true);
    assert_eq!(len, out.len());
    out
}
