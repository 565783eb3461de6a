//! One connection with a peer that does anything, a layer above that does anything, and a clock.

mod ending;

use std::net::Ipv4Addr;
use std::time::Duration;

use userspace_net::{Endpoint, FourTuple, Instant, checksum};
use userspace_tcp::{
    Config, CongestionControl, ConnId, ConnOptions, Event, Flags, IcmpError, KeepAlive, Options,
    Outgoing, Segment, SegmentId, SeqNum, Stack, TcpHeader, Transmit,
};

use super::buffer::{Buf, Buffers};
use super::ecn::EcnLaws;
use super::input::Input;
use super::model::Model;
use super::peer::{self, Draft};
use super::trace;

/// More is not looked at: an input that goes on for ever finds nothing more.
const STEPS_MAX: usize = 600;

/// Bytes of an IPv4 header.
const IPV4_HEADER: usize = 20;

static PAYLOAD: [u8; 9000] = [0x5a; 9000];

/// Runs a connection as `bytes` say, and checks all the while that the stack keeps its word.
pub fn run(bytes: &[u8]) {
    let mut world = World::new(Input::new(bytes));
    world.open();
    let mut steps = 0;
    while !world.input.is_empty() && steps < STEPS_MAX {
        world.step();
        steps += 1;
    }
    world.finish();
}

struct World<'a> {
    input: Input<'a>,
    stack: Stack<Buf>,
    buffers: Buffers,
    config: Config,
    now: Instant,
    tuple: FourTuple,
    conn: Option<ConnId>,
    model: Model,
    with_link: Vec<(ConnId, SegmentId, Buf)>,
    /// The link keeps buffers until it is told otherwise.
    keeps: bool,
    /// The link takes nothing.
    stalled: bool,
    given_up: bool,
    /// Everybody's connections.
    known: Vec<ConnId>,
    /// The largest packet that comes through, in bytes.
    path: usize,
    /// No router says so.
    silent: bool,
    /// What routers have to say.
    errors: Vec<(SeqNum, IcmpError)>,
    ecn: EcnLaws,
}

fn local() -> Endpoint {
    Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000)
}

fn remote(port: u16) -> Endpoint {
    Endpoint::new(Ipv4Addr::new(198, 18, 0, 2).into(), port)
}

fn config(input: &mut Input<'_>) -> Config {
    let choice = input.byte();
    Config {
        mss: input.pick(&[1460, 536, 8960]),
        receive_window: input.pick(&[1 << 20, 65_535, 20_000, 3000]),
        send_queue_segments: input.pick(&[64, 8, 1, 256]),
        connections: 4,
        timestamps: choice & 1 == 0,
        sack: choice & 2 == 0,
        window_scale: choice & 4 == 0,
        ecn: choice & 8 == 0,
        pacing: choice & 16 == 0,
        syn_cookies: choice & 16 == 0,
        congestion: match choice >> 5 {
            0..=2 => CongestionControl::Cubic,
            3 => CongestionControl::Bbr,
            4 | 5 => CongestionControl::NewReno,
            _ => CongestionControl::Dctcp,
        },
        ..Config::default()
    }
}

impl<'a> World<'a> {
    fn new(mut input: Input<'a>) -> Self {
        let config = config(&mut input);
        let mut model = Model::default();
        model.dctcp = config.congestion == CongestionControl::Dctcp;
        let mut stack = Stack::new(config.clone(), *b"0123456789abcdef", Instant::ZERO);
        stack.listen(local(), 2).expect("nobody listens");
        Self {
            input,
            stack,
            buffers: Buffers::default(),
            config,
            now: Instant::ZERO + Duration::from_secs(1),
            tuple: FourTuple::new(local(), remote(40_000)),
            conn: None,
            model,
            with_link: Vec::new(),
            keeps: false,
            stalled: false,
            given_up: false,
            known: Vec::new(),
            path: usize::MAX,
            silent: false,
            errors: Vec::new(),
            ecn: EcnLaws::default(),
        }
    }

    /// The handshake: by us, by the peer, or by both at once.
    fn open(&mut self) {
        self.model.irs = SeqNum(self.input.pick(&[0, 0x7fff_ff00, u32::MAX - 3000]));
        let how = self.input.byte() % 4;
        if how < 2 {
            let options = ConnOptions {
                mss: self.config.mss,
            };
            let conn = self.stack.connect(self.now, self.tuple, options);
            self.conn = Some(conn.expect("there is room"));
            self.drain();
        }
        let options = peer::syn_options(&mut self.input, &mut self.model);
        let scales = self.config.window_scale && options.window_scale.is_some();
        let mut header = self.syn(options);
        match how {
            0 => header.flags = Flags::SYN | Flags::ACK,
            // Both at once, or the peer alone.
            _ => header.flags = Flags::SYN,
        }
        header.flags |= self
            .input
            .pick(&[Flags(0), Flags::ECE, Flags::ECE | Flags::CWR, Flags(0)]);
        self.model.shift = if scales {
            window_shift(&self.config)
        } else {
            0
        };
        self.give(header, 0, userspace_net::Ecn::NotEct);
        self.drain();
        if how == 1 {
            header.flags = Flags::SYN | Flags::ACK;
            header.ack = SeqNum(self.model.sent_to);
            self.give(header, 0, userspace_net::Ecn::NotEct);
        }
        if how > 1 {
            let header = peer::sound(&self.model);
            self.give(header, 0, userspace_net::Ecn::NotEct);
        }
        self.drain();
    }

    fn syn(&self, options: Options) -> TcpHeader {
        TcpHeader {
            seq: self.model.irs,
            ack: SeqNum(self.model.sent_to),
            window: 65_535,
            options,
            ..TcpHeader::default()
        }
    }

    fn step(&mut self) {
        let input = &mut self.input;
        let model = &mut self.model;
        match input.byte() % 32 {
            0..=4 => {
                let draft = peer::data(input, model);
                self.give_draft(draft);
            }
            5..=8 => {
                let draft = peer::stray_data(input, model);
                self.give_draft(draft);
            }
            9..=11 => {
                let draft = peer::ack(input, model, false);
                self.give_draft(draft);
            }
            12..=15 => {
                let draft = peer::ack(input, model, true);
                self.give_draft(draft);
            }
            16 => {
                let draft = peer::anything(input, model);
                self.give_draft(draft);
            }
            17..=20 => self.send(),
            21 | 22 => {
                let micros = u64::from(self.input.short());
                self.pass(Duration::from_micros(micros));
            }
            23 => self.pass_to_deadline(),
            24 => {
                let seconds = u64::from(self.input.byte() % 128);
                self.pass(Duration::from_millis(seconds * 500));
            }
            25 | 26 => {
                let most = self.model.in_order - self.model.consumed;
                let some = if self.input.one_in(4) { most / 2 } else { most };
                self.consume(self.model.consumed + some);
            }
            27 => {
                let choice = self.input.byte();
                self.keeps = choice & 1 == 1;
                self.stalled = choice & 6 == 6;
                if choice & 8 == 0 {
                    self.link_returns();
                }
            }
            28 if self.input.one_in(2) => self.icmp(),
            28 => {
                self.path = self.input.pick(&[usize::MAX, 1500, 1400, 1280, 1000, 576]);
                self.silent = self.input.one_in(2);
            }
            29 => self.end_or_set_something(),
            30 => self.stranger(),
            _ => {
                let bytes = self.input.take(80);
                if let Ok(segment) = Segment::parse(bytes) {
                    self.model.odd = true;
                    self.give(segment.header, segment.payload.len(), segment.ecn);
                }
            }
        }
        self.drain();
    }

    fn give_draft(&mut self, draft: Draft) {
        self.give(draft.header, draft.len, draft.ecn);
    }

    /// The peer sends a segment.
    fn give(&mut self, mut header: TcpHeader, len: usize, ecn: userspace_net::Ecn) {
        header.source_port = self.tuple.remote.port;
        header.destination_port = self.tuple.local.port;
        let segment = Segment::new(header, &PAYLOAD[..len]).with_ecn(ecn);
        let options = ConnOptions {
            mss: self.config.mss,
        };
        trace(|| format!("{:?} <- {len} {header:?} {ecn:?}", self.now));
        let received = self.stack.receive(self.now, self.tuple, &segment, options);
        trace(|| format!("   {received:?}"));
        if self.conn.is_none() && self.model.iss.is_none() {
            self.conn = received.conn;
        }
        self.note_given(&header, len);
        let taken = !received.new.is_empty() && received.conn == self.conn;
        self.ecn.received(&header, ecn, taken);
        if received.conn.is_some() && received.conn == self.conn {
            let window = window(&self.config);
            self.model.take(&received, &segment, window);
        } else if received.conn.is_none() {
            assert!(received.new.is_empty(), "bytes of no connection");
        }
    }

    /// What the peer has said so far, if it was said in a way that counts.
    fn note_given(&mut self, header: &TcpHeader, len: usize) {
        let model = &mut self.model;
        let ahead = header.seq.0.wrapping_sub(model.peer_seq(model.peer_sent));
        let end = i64::from(ahead.cast_signed()) + len as i64;
        if end > 0 {
            let sent = model.peer_sent + end.cast_unsigned();
            // What lies beyond the window was not taken.
            model.peer_sent = sent.min(model.consumed + window(&self.config));
        }
        let acked = header.ack.0.wrapping_sub(model.acked);
        let out = model.sent_to.wrapping_sub(model.acked);
        if header.flags.ack() && acked <= out {
            model.acked = header.ack.0;
        }
    }

    fn send(&mut self) {
        let Some(conn) = self.conn else { return };
        for _ in 0..=(self.input.byte() % 16) {
            let mss = self.stack.mss(conn);
            let len = match self.input.byte() % 8 {
                0..=4 => mss,
                5 => 1,
                6 => self.input.below(mss + 2),
                _ => self.stack.send_room(conn).min(mss),
            };
            let buf = self.buffers.fill(Vec::new());
            let outgoing = Outgoing {
                buf,
                len: len as u32,
                payload_sum: checksum::PartialSum::ZERO,
            };
            if let Err(error) = self.stack.send(conn, self.now, outgoing) {
                self.buffers.free(error.buf);
            }
        }
        assert!(self.stack.queued_segments(conn) <= self.config.send_queue_segments);
    }

    fn consume(&mut self, to: u64) {
        if let Some(conn) = self.conn {
            self.model.consumed = to;
            self.stack.consumed(conn, to);
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        // As the layer above would: no deadline is missed.
        for _ in 0..64 {
            let Some(at) = self.stack.next_deadline().filter(|&at| at < end) else {
                break;
            };
            self.advance(at);
            self.drain();
        }
        self.advance(end);
    }

    fn pass_to_deadline(&mut self) {
        if let Some(at) = self.stack.next_deadline() {
            self.advance(at);
        }
    }

    fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
        self.stack.advance(self.now);
        if let Some(at) = self.stack.next_deadline() {
            assert!(at > self.now, "a deadline that does not go away");
        }
    }

    fn icmp(&mut self) {
        let segments = self.model.starts();
        let seq = segments.get(self.input.below(segments.len()));
        let seq = seq.map_or(self.model.acked, |segment| segment.0);
        let seq = SeqNum(self.input.near(seq));
        let error = match self.input.byte() % 4 {
            0 => IcmpError::Unreachable { hard: false },
            1 => IcmpError::Unreachable { hard: true },
            _ => IcmpError::PacketTooBig {
                mtu: self
                    .input
                    .pick(&[0, 68, 576, 1280, 1400, 1500, 9000, u32::MAX]),
            },
        };
        self.hear(seq, error);
    }

    /// A router, or somebody who pretends to be one, sends an error.
    fn hear(&mut self, seq: SeqNum, error: IcmpError) {
        trace(|| format!("{:?} <- {seq:?} {error:?}", self.now));
        let before = self.conn.and_then(|conn| self.stack.info(conn));
        let believed = self.stack.icmp(self.now, self.tuple, seq, error);
        assert!(
            !believed || self.model.was_sent(seq),
            "nothing was ever sent there"
        );
        let after = self.conn.and_then(|conn| self.stack.info(conn));
        if let (Some(before), Some(after)) = (before, after) {
            assert!(after.path_mtu <= before.path_mtu, "an error widens no path");
            let changed = after.path_mtu != before.path_mtu;
            assert!(believed || !changed, "what is not believed changes nothing");
        }
    }

    fn end_or_set_something(&mut self) {
        let Some(conn) = self.conn else { return };
        match self.input.byte() % 64 {
            0..=31 => {
                self.stack.close(conn);
            }
            32 => {
                self.stack.abort(conn);
            }
            33..=35 => {
                self.stack.unlisten(local());
            }
            36..=39 => {
                let timeout = Duration::from_secs(u64::from(self.input.byte()));
                self.stack.set_user_timeout(conn, self.now, timeout);
            }
            40..=43 => {
                let wanted = KeepAlive {
                    idle: Duration::from_secs(u64::from(self.input.byte())),
                    interval: Duration::from_secs(u64::from(self.input.byte())),
                    probes: u32::from(self.input.byte() % 4),
                };
                let wanted = Some(wanted).filter(|wanted| wanted.probes > 0);
                self.stack.set_keepalive(conn, self.now, wanted);
            }
            _ => {
                let draft = peer::fin(&mut self.input, &mut self.model);
                self.give_draft(draft);
            }
        }
    }

    /// Somebody else: opens connections, or answers what was never said.
    fn stranger(&mut self) {
        let port = 50_000 + u16::from(self.input.byte() % 8);
        let tuple = FourTuple::new(local(), remote(port));
        let mut header = TcpHeader {
            source_port: port,
            destination_port: local().port,
            seq: SeqNum(self.input.pick(&[100, 101, 102])),
            ack: SeqNum(self.input.word()),
            flags: self
                .input
                .pick(&[Flags::SYN, Flags::ACK, Flags::SYN | Flags::ACK, Flags::RST]),
            window: self.input.short(),
            ..TcpHeader::default()
        };
        if header.flags.syn() {
            header.options = peer::syn_options(&mut self.input, &mut Model::default());
        }
        let segment = Segment::new(header, &[]);
        let options = ConnOptions {
            mss: self.config.mss,
        };
        self.stack.receive(self.now, tuple, &segment, options);
    }

    fn link_returns(&mut self) {
        for (conn, id, buf) in std::mem::take(&mut self.with_link) {
            if let Some(buf) = self.stack.transmitted(conn, id, buf) {
                self.buffers.free(buf);
            }
        }
    }

    /// Events, buffers, and what wants to go out.
    fn drain(&mut self) {
        let mut events = 0;
        while let Some((conn, event)) = self.stack.poll_event() {
            events += 1;
            trace(|| format!("{conn:?} {event:?}"));
            assert!(events <= 32, "events without end");
            self.on_event(conn, event);
        }
        if !self.stalled {
            self.transmit();
        }
        if !self.keeps {
            self.link_returns();
        }
        for (seq, error) in std::mem::take(&mut self.errors) {
            self.hear(seq, error);
        }
        while let Some(buf) = self.stack.poll_released() {
            self.buffers.free(buf);
        }
        self.model.forget_acked();
        self.check_timer();
    }

    /// What is out, or waits for a window, has a deadline.
    fn check_timer(&self) {
        let Some(info) = self.conn.and_then(|conn| self.stack.info(conn)) else {
            return;
        };
        if info.queued_segments > 0 && self.with_link.is_empty() && !self.stalled {
            assert!(self.stack.next_deadline().is_some(), "no timer: {info:?}");
        }
    }

    fn on_event(&mut self, conn: ConnId, event: Event) {
        if matches!(event, Event::Incoming { .. }) {
            self.known.push(conn);
        }
        if Some(conn) != self.conn {
            return;
        }
        if matches!(event, Event::TimedOut | Event::Reset | Event::Refused) {
            self.given_up = true;
        }
    }

    fn transmit(&mut self) {
        // Each segment of the queue, each answer, resets, SYNs: not more than that at one time.
        let most = 2 * self.config.send_queue_segments + 300;
        for count in 0.. {
            let Some(transmit) = self.stack.poll_transmit(self.now) else {
                return;
            };
            assert!(count < most, "segments without end");
            self.put_on_link(transmit);
        }
    }

    fn put_on_link(&mut self, transmit: Transmit<Buf>) {
        let header = transmit.header;
        trace(|| format!("{:?} -> {transmit:?}", self.now));
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        let again = Segment::parse(&bytes).expect("what we send can be read");
        assert_eq!(again.header, header);
        let payload = transmit
            .payload
            .as_ref()
            .map(|payload| (payload.id, payload.len));
        let len = payload.map_or(0, |(_, len)| len) as usize;
        let size = IPV4_HEADER + header.header_len() + len;
        let arrives = transmit.fragment_to.map_or(size, |most| most as usize) <= self.path;
        let opens = self.conn.is_none() && header.flags.syn() && transmit.tuple == self.tuple;
        if opens {
            self.conn = transmit.conn;
        }
        if transmit.conn.is_some() && transmit.conn == self.conn {
            self.check_size(&transmit, size);
            let info = self.conn.and_then(|conn| self.stack.info(conn));
            let agreed = info.is_some_and(|info| info.ecn);
            self.ecn.sent(&transmit, agreed, self.model.dctcp);
            self.model.sent(&header, payload, arrives);
            if !arrives && !self.silent {
                let mtu = self.path as u32;
                self.errors
                    .push((header.seq, IcmpError::PacketTooBig { mtu }));
            }
        }
        if let (Some(conn), Some(payload)) = (transmit.conn, transmit.payload) {
            self.with_link.push((conn, payload.id, payload.buf));
        }
    }

    /// A packet is no larger than its link takes; fragments are for what has become too large.
    fn check_size(&self, transmit: &Transmit<Buf>, size: usize) {
        let room = IPV4_HEADER + 20 + usize::from(self.config.mss);
        assert!(size <= room, "longer than a packet");
        let info = self.conn.and_then(|conn| self.stack.info(conn));
        let believed = info.map_or(usize::MAX, |info| info.path_mtu as usize);
        match transmit.fragment_to.map(|most| most as usize) {
            Some(most) => {
                assert!((68..size).contains(&most), "fragments of {most} for {size}");
                assert!(transmit.payload.is_some(), "fragments of nothing");
            }
            None => {
                let again = transmit.payload.as_ref().is_some_and(|p| p.retransmission);
                assert!(!again || size <= believed, "{size} again, {believed} pass");
            }
        }
    }
}

/// The receive window: two segments at least.
fn window(config: &Config) -> u64 {
    u64::from(config.receive_window.max(2 * u32::from(config.mss)))
}

/// The shift that we announce for it.
fn window_shift(config: &Config) -> u8 {
    let fits = |shift: &u8| window(config) >> shift <= 65_535;
    (0..14).find(fits).unwrap_or(14)
}
