//! A stack with an application that sends a pattern, checks the peer's, and closes.

use std::net::Ipv4Addr;
use std::time::Duration;

use userspace_tcp::{
    Config, ConnId, ConnOptions, Event, FourTuple, Instant, Outgoing, Received, Segment, Stack,
    checksum,
};

use super::{Buffers, BytePlan, Bytes, Random};

/// What the application does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Octets to send.
    pub octets: u64,
    /// Close only when the peer has.
    pub close_after_peer: bool,
    /// Largest segment asked for (0: as large as they may be).
    pub segment_max: u64,
    /// In how many of 1000 wake-ups the reader reads nothing, and for how long it sleeps then.
    pub lazy_per_mille: u64,
    pub lazy_for: Duration,
    /// Queue more than there is room for.
    pub greedy: bool,
    /// Octets are written and read as a byte stream.
    pub bytes: Option<BytePlan>,
    /// In how many of 1000 writes of a byte stream the writer sleeps, and for how long.
    pub pause_per_mille: u64,
    pub pause_for: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            octets: 100_000,
            close_after_peer: false,
            segment_max: 0,
            lazy_per_mille: 0,
            lazy_for: Duration::ZERO,
            greedy: false,
            bytes: None,
            pause_per_mille: 0,
            pause_for: Duration::ZERO,
        }
    }
}

/// The octet at a position of the stream of side `side`.
pub fn pattern(side: usize, offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (side as u8).wrapping_mul(0x5a)
}

pub struct Endpoint {
    pub side: usize,
    pub stack: Stack<super::Buf>,
    pub buffers: Buffers,
    pub options: ConnOptions,
    pub conn: Option<ConnId>,
    pub events: Vec<Event>,
    pub plan: Plan,
    pub established: bool,
    pub peer_closed: bool,
    pub over: bool,
    pub closed: bool,
    pub sent: u64,
    pub seen: Vec<bool>,
    pub in_order_to: u64,
    pub consumed: u64,
    pub asleep_until: Option<Instant>,
    /// The writer of a byte stream sleeps.
    pub pausing_until: Option<Instant>,
    pub bytes: Option<Bytes>,
    pub last_info: Option<userspace_tcp::Info>,
}

impl Endpoint {
    pub fn new(side: usize, config: Config, plan: Plan) -> Self {
        let options = ConnOptions { mss: config.mss };
        Self {
            side,
            stack: Stack::new(config, [side as u8; 16], Instant::ZERO),
            buffers: Buffers::default(),
            options,
            conn: None,
            events: Vec::new(),
            plan,
            established: false,
            peer_closed: false,
            over: false,
            closed: false,
            sent: 0,
            seen: Vec::new(),
            in_order_to: 0,
            consumed: 0,
            asleep_until: None,
            pausing_until: None,
            bytes: None,
            last_info: None,
        }
    }

    pub fn addr(side: usize) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, 0, 1 + side as u8)
    }

    /// Takes the TCP octets of a packet.
    pub fn receive(&mut self, now: Instant, tuple: FourTuple, bytes: &[u8]) {
        assert!(checksum::verify(tuple.remote.addr, tuple.local.addr, bytes));
        let segment = Segment::parse(bytes).unwrap();
        let received = self.stack.receive(now, tuple, &segment, self.options);
        self.fetch_events();
        self.take(&received, segment.payload);
        if let Some(plan) = self.plan.bytes.clone()
            && let Some(conn) = self.conn.filter(|_| !received.new.is_empty())
        {
            let config = self.stack.config();
            let window = config.receive_window.max(2 * u32::from(config.mss)) as usize;
            let bytes = self
                .bytes
                .get_or_insert_with(|| Bytes::new(plan, conn, window));
            bytes.arrived(&mut self.buffers, segment.payload, &received);
        }
    }

    fn take(&mut self, received: &Received, payload: &[u8]) {
        if received.new.is_empty() {
            return;
        }
        assert_eq!(received.conn, self.conn);
        for range in received.new.iter() {
            assert!(range.len > 0);
            let octets = &payload[range.skip as usize..(range.skip + range.len) as usize];
            let end = range.offset as usize + octets.len();
            if self.seen.len() < end {
                self.seen.resize(end, false);
            }
            for (i, octet) in octets.iter().enumerate() {
                let at = range.offset + i as u64;
                assert!(!self.seen[at as usize], "octet {at} came twice");
                self.seen[at as usize] = true;
                assert_eq!(*octet, pattern(1 - self.side, at), "octet {at} is wrong");
            }
        }
        assert!(received.in_order_to >= self.in_order_to);
        let newly = self.in_order_to as usize..received.in_order_to as usize;
        assert!(self.seen[newly].iter().all(|seen| *seen));
        self.in_order_to = received.in_order_to;
        assert!(
            self.seen.get(self.in_order_to as usize) != Some(&true),
            "more is in order"
        );
    }

    pub fn fetch_events(&mut self) {
        while let Some((conn, event)) = self.stack.poll_event() {
            if self.conn.is_none() {
                self.conn = Some(conn);
            }
            assert_eq!(Some(conn), self.conn);
            assert!(
                !self.over || event == Event::TimeWaitOver,
                "{event:?} after the end"
            );
            self.events.push(event);
            match event {
                Event::Incoming { .. } | Event::Established => self.established = true,
                Event::PeerClosed => self.peer_closed = true,
                Event::Closed | Event::Reset | Event::Refused | Event::TimedOut => {
                    self.over = true;
                }
                Event::TimeWaitOver => assert!(self.over),
                Event::MssChanged { mss } => assert!(mss > 0),
                Event::Urgent | Event::SoftError(_) => {}
            }
        }
    }

    /// Lets the application read, write and close.
    pub fn run(&mut self, now: Instant, random: &mut Random) {
        while let Some(buf) = self.stack.poll_released() {
            self.buffers.free(buf);
        }
        if self.over {
            self.read_the_rest(random);
        }
        let Some(conn) = self.conn.filter(|_| self.established && !self.over) else {
            return;
        };
        self.last_info = self.stack.info(conn);
        self.read(now, conn, random);
        if self.plan.bytes.is_some() {
            self.write_bytes(now, conn, random);
        } else {
            self.write(now, conn, random);
        }
        let may_close = !self.plan.close_after_peer || self.peer_closed;
        if self.sent == self.plan.octets && may_close && !self.closed {
            self.closed = true;
            match &mut self.bytes {
                Some(bytes) => bytes.writer.close(&mut self.stack, now, &mut self.buffers),
                None => assert!(self.stack.close(conn)),
            }
        }
    }

    fn read(&mut self, now: Instant, conn: ConnId, random: &mut Random) {
        if self.asleep_until.is_some_and(|until| now < until) {
            return;
        }
        self.asleep_until = None;
        if self.consumed < self.in_order_to && random.chance(self.plan.lazy_per_mille) {
            self.asleep_until = Some(now + self.plan.lazy_for);
            return;
        }
        if self.consumed < self.in_order_to {
            self.consumed = match &mut self.bytes {
                Some(bytes) => {
                    let side = 1 - self.side;
                    let read = bytes.read(&mut self.buffers, random, |at, octet| {
                        assert_eq!(octet, pattern(side, at), "octet {at} is read wrong");
                    });
                    assert!(read > 0, "what is in order can be read");
                    self.consumed + read
                }
                None => self.in_order_to,
            };
            self.stack.consumed(conn, self.consumed);
            if self.consumed < self.in_order_to {
                self.read(now, conn, random);
            }
        }
    }

    /// What came before the end can be read behind it.
    fn read_the_rest(&mut self, random: &mut Random) {
        let side = 1 - self.side;
        let Some(bytes) = &mut self.bytes else {
            return;
        };
        while self.consumed < self.in_order_to {
            self.consumed += bytes.read(&mut self.buffers, random, |at, octet| {
                assert_eq!(octet, pattern(side, at), "octet {at} is read wrong");
            });
        }
    }

    fn write_bytes(&mut self, now: Instant, conn: ConnId, random: &mut Random) {
        let plan = self.plan.bytes.clone().unwrap();
        let config = self.stack.config();
        let window = config.receive_window.max(2 * u32::from(config.mss)) as usize;
        let bytes = self
            .bytes
            .get_or_insert_with(|| Bytes::new(plan, conn, window));
        bytes.writer.settle(&mut self.stack, now, &mut self.buffers);
        if self.pausing_until.is_some_and(|until| now < until) {
            return;
        }
        self.pausing_until = None;
        while self.sent < self.plan.octets {
            let ends = (self.sent, self.plan.octets);
            let layers = (&mut self.stack, &mut self.buffers, now);
            let taken = bytes.write(layers, random, ends, |at| pattern(self.side, at));
            self.sent += taken;
            if taken == 0 {
                break;
            }
            if random.chance(self.plan.pause_per_mille) {
                self.pausing_until = Some(now + self.plan.pause_for);
                break;
            }
        }
    }

    fn write(&mut self, now: Instant, conn: ConnId, random: &mut Random) {
        while self.sent < self.plan.octets {
            let mss = self.stack.mss(conn) as u64;
            let most = if self.plan.segment_max == 0 {
                mss
            } else {
                self.plan.segment_max.min(mss)
            };
            let len = if self.plan.segment_max == 0 {
                mss
            } else {
                random.within(1, most)
            };
            let len = len.min(self.plan.octets - self.sent);
            if !self.plan.greedy && (self.stack.send_room(conn) as u64) < len {
                return;
            }
            let octets: Vec<u8> = (self.sent..self.sent + len)
                .map(|at| pattern(self.side, at))
                .collect();
            let payload_sum = checksum::sum(&octets);
            let buf = self.buffers.fill(octets);
            let outgoing = Outgoing {
                buf,
                len: len as u32,
                payload_sum,
            };
            if let Err(error) = self.stack.send(conn, now, outgoing) {
                self.buffers.free(error.buf);
                return;
            }
            self.sent += len;
        }
    }
}
