//! What a layer above does with one connection: it sends a stream, checks the peer's, and closes.

use std::time::Duration;

use userspace_net::{Instant, checksum};
use userspace_tcp::{ConnId, Event, Info, Outgoing, Received, SoftError, Stack, StreamOffset};

use super::pattern::pattern;
use super::{Buf, Buffers, BytePlan, ByteStream, Random, Seen};

#[derive(Debug, Clone)]
pub struct Plan {
    /// Bytes to send.
    pub bytes: u64,
    /// Close only when the peer has.
    pub close_after_peer: bool,
    /// Largest segment asked for (0: as large as they may be).
    pub segment_max: u64,
    /// In how many of 1000 wake-ups the reader reads nothing, and for how long it sleeps then.
    pub lazy_per_mille: u64,
    pub lazy_for: Duration,
    /// Bytes consumed between two sleeps, at most (0: as many as there are).
    pub sip: u64,
    /// Queue more than there is room for.
    pub greedy: bool,
    /// Bytes are written and read as a byte stream.
    pub stream: Option<BytePlan>,
    /// In how many of 1000 writes the writer sleeps, and for how long.
    pub pause_per_mille: u64,
    pub pause_for: Duration,
    /// In how many of 1000 writes what is queued is called urgent.
    pub urgent_per_mille: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            bytes: 100_000,
            close_after_peer: false,
            segment_max: 0,
            lazy_per_mille: 0,
            lazy_for: Duration::ZERO,
            sip: 0,
            greedy: false,
            stream: None,
            pause_per_mille: 0,
            pause_for: Duration::ZERO,
            urgent_per_mille: 0,
        }
    }
}

pub struct Application {
    /// The streams that it sends and expects.
    pub voice: u64,
    pub ear: u64,
    pub plan: Plan,
    pub conn: Option<ConnId>,
    pub events: Vec<Event>,
    pub established: bool,
    pub peer_closed: bool,
    pub over: bool,
    pub closed: bool,
    pub sent: u64,
    pub seen: Seen,
    pub in_order_to: StreamOffset,
    pub consumed: StreamOffset,
    pub asleep_until: Option<Instant>,
    /// The writer sleeps.
    pub pausing_until: Option<Instant>,
    pub last_info: Option<Info>,
    stream: Option<ByteStream>,
}

impl Application {
    pub fn new(voice: u64, ear: u64, plan: Plan) -> Self {
        Self {
            voice,
            ear,
            plan,
            conn: None,
            events: Vec::new(),
            established: false,
            peer_closed: false,
            over: false,
            closed: false,
            sent: 0,
            seen: Seen::default(),
            in_order_to: 0,
            consumed: 0,
            asleep_until: None,
            pausing_until: None,
            last_info: None,
            stream: None,
        }
    }

    pub fn on_event(&mut self, event: Event) {
        assert!(
            !self.over || event == Event::TimeWaitOver,
            "{event:?} after the end"
        );
        self.events.push(event);
        match event {
            Event::Incoming { .. } | Event::Established => {
                assert!(!self.established, "established twice");
                self.established = true;
            }
            Event::PeerClosed => {
                assert!(!self.peer_closed, "closed twice");
                self.peer_closed = true;
            }
            Event::Closed | Event::Reset | Event::Refused | Event::TimedOut => self.over = true,
            Event::TimeWaitOver => assert!(self.over),
            Event::MssChanged { mss } => assert!(mss > 0),
            Event::Urgent | Event::WindowTooSmall => {}
            Event::SoftError(SoftError::Unreachable { .. } | SoftError::NoAnswer) => {}
        }
    }

    /// Takes what a segment brought.
    pub fn take(
        &mut self,
        stack: &Stack<Buf>,
        buffers: &mut Buffers,
        received: &Received,
        payload: &[u8],
    ) {
        if received.new.is_empty() {
            return;
        }
        assert_eq!(received.conn, self.conn);
        let window = window(stack);
        for range in received.new.iter() {
            let (start, len) = (range.offset, u64::from(range.len));
            assert!(len > 0, "an empty range");
            assert!(
                start + len <= self.consumed + window as u64,
                "bytes up to {} are beyond the window",
                start + len
            );
            self.seen.add(start, start + len);
            let brought = &payload[range.skip as usize..][..range.len as usize];
            let expected = pattern(self.ear, start, len);
            assert!(brought == expected, "bytes {start} + {len} are wrong");
        }
        assert!(received.in_order_to >= self.in_order_to, "went back");
        self.in_order_to = received.in_order_to;
        assert_eq!(self.in_order_to, self.seen.first_gap(), "what is in order");
        if self.plan.stream.is_some() {
            let stream = self.stream(stack);
            stream.arrived(buffers, payload, received);
        }
    }

    /// Lets the application read, write and close.
    pub fn run(
        &mut self,
        now: Instant,
        stack: &mut Stack<Buf>,
        buffers: &mut Buffers,
        random: &mut Random,
    ) {
        if self.over {
            self.read_the_rest(buffers, random);
        }
        let Some(conn) = self.conn.filter(|_| self.established && !self.over) else {
            return;
        };
        self.last_info = stack.info(conn);
        self.read(now, conn, stack, buffers, random);
        self.write(now, conn, stack, buffers, random);
        let may_close = !self.plan.close_after_peer || self.peer_closed;
        if self.sent == self.plan.bytes && may_close && !self.closed {
            self.closed = true;
            match &mut self.stream {
                Some(stream) => stream.writer.close(stack, now, buffers),
                None => assert!(stack.close(conn)),
            }
        }
    }

    /// When it will wake up.
    pub fn wakes(&self) -> [Option<Instant>; 2] {
        [self.asleep_until, self.pausing_until]
    }

    /// What must hold after a transfer that ended well.
    pub fn assert_complete(&self, peer: &Self) {
        let events = &self.events;
        assert_eq!(
            self.in_order_to, peer.plan.bytes,
            "not all came: {events:?}"
        );
        assert_eq!(self.seen.bytes(), peer.plan.bytes, "more than there is");
        for event in [Event::PeerClosed, Event::Closed] {
            assert!(events.contains(&event), "no {event:?}: {events:?}");
        }
    }

    /// Gives up buffers that it holds. What came before can't be read any more.
    pub fn forget(&mut self, buffers: &mut Buffers) {
        if let Some(stream) = self.stream.take() {
            stream.free(buffers);
        }
    }

    fn stream(&mut self, stack: &Stack<Buf>) -> &mut ByteStream {
        let conn = self.conn.expect("there is a connection");
        let plan = self.plan.stream.as_ref().expect("it is a byte stream");
        self.stream
            .get_or_insert_with(|| ByteStream::new(plan.clone(), conn, window(stack)))
    }

    fn read(
        &mut self,
        now: Instant,
        conn: ConnId,
        stack: &mut Stack<Buf>,
        buffers: &mut Buffers,
        random: &mut Random,
    ) {
        if self.asleep_until.is_some_and(|until| now < until) {
            return;
        }
        self.asleep_until = None;
        if self.consumed < self.in_order_to && random.chance(self.plan.lazy_per_mille) {
            self.asleep_until = Some(now + self.plan.lazy_for);
            return;
        }
        let end = match self.plan.sip {
            0 => self.in_order_to,
            sip => self.in_order_to.min(self.consumed + sip),
        };
        while self.consumed < end {
            self.consumed = self.read_some(end, buffers, random);
            stack.consumed(conn, self.consumed);
        }
        if self.consumed < self.in_order_to {
            self.asleep_until = Some(now + self.plan.lazy_for);
        }
    }

    /// What came before the end can be read behind it.
    fn read_the_rest(&mut self, buffers: &mut Buffers, random: &mut Random) {
        while self.consumed < self.in_order_to {
            self.consumed = self.read_some(self.in_order_to, buffers, random);
        }
    }

    /// One read; says where it ended. A byte stream may be read a little beyond `end`.
    fn read_some(&mut self, end: u64, buffers: &mut Buffers, random: &mut Random) -> u64 {
        let Some(stream) = &mut self.stream else {
            return end;
        };
        let ear = self.ear;
        let read = stream.read(buffers, random, |at, read| {
            let expected = pattern(ear, at, read.len() as u64);
            assert!(read == expected, "bytes from {at} on are read wrong");
        });
        assert!(read > 0, "what is in order can be read");
        self.consumed + read
    }

    fn write(
        &mut self,
        now: Instant,
        conn: ConnId,
        stack: &mut Stack<Buf>,
        buffers: &mut Buffers,
        random: &mut Random,
    ) {
        if self.plan.stream.is_some() {
            let stream = self.stream(stack);
            stream.writer.settle(stack, now, buffers);
        }
        if self.pausing_until.is_some_and(|until| now < until) {
            return;
        }
        self.pausing_until = None;
        while self.sent < self.plan.bytes {
            let taken = match &mut self.stream {
                Some(stream) => {
                    let (voice, ends) = (self.voice, (self.sent, self.plan.bytes));
                    let layers = (&mut *stack, &mut *buffers, now);
                    stream.write(layers, random, ends, |at, len| pattern(voice, at, len))
                }
                None => self.post(now, conn, stack, buffers, random),
            };
            self.sent += taken;
            if taken == 0 {
                break;
            }
            if random.chance(self.plan.urgent_per_mille) {
                stack.urge(conn);
            }
            if random.chance(self.plan.pause_per_mille) {
                self.pausing_until = Some(now + self.plan.pause_for);
                break;
            }
        }
    }

    /// Posts one segment; says how many bytes it has, 0 when there is no room.
    fn post(
        &mut self,
        now: Instant,
        conn: ConnId,
        stack: &mut Stack<Buf>,
        buffers: &mut Buffers,
        random: &mut Random,
    ) -> u64 {
        let send_capacity = stack.send_capacity(conn);
        let asked = (stack.queued_segments(conn), stack.mss(conn));
        assert_eq!((send_capacity.queued, send_capacity.mss), asked);
        // One segment more may wait.
        assert!(send_capacity.room <= stack.send_room(conn));
        let mss = send_capacity.mss as u64;
        let len = match self.plan.segment_max {
            0 => mss,
            most => random.within(1, most.min(mss)),
        };
        let len = len.min(self.plan.bytes - self.sent);
        if !self.plan.greedy && (stack.send_room(conn) as u64) < len {
            return 0;
        }
        let bytes = pattern(self.voice, self.sent, len).to_vec();
        let payload_sum = checksum::sum(&bytes);
        let buf = buffers.fill(bytes);
        let outgoing = Outgoing {
            buf,
            len: len as u32,
            payload_sum,
        };
        match stack.send(conn, now, outgoing) {
            Ok(()) => len,
            Err(error) => {
                buffers.free(error.buf);
                0
            }
        }
    }
}

/// The receive window: two segments at least.
fn window(stack: &Stack<Buf>) -> usize {
    let config = stack.config();
    config.receive_window.max(2 * u32::from(config.mss)) as usize
}
