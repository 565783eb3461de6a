//! A stack with one connection, and a peer whose segments are written by hand. Sequence numbers are
//! relative: 0 is the SYN of whoever sends it.

use std::net::Ipv4Addr;
use std::time::Duration;

use userspace_net::{Ecn, Endpoint, FourTuple, Instant, checksum};
use userspace_tcp::{
    Config, ConnId, ConnOptions, Event, Flags, IcmpError, Options, Outgoing, Payload, Received,
    SackBlock, Segment, SendRefusal, SeqNum, Stack, TcpHeader, Timestamps, Transmit,
};

pub const MS: Duration = Duration::from_millis(1);
pub const SEC: Duration = Duration::from_secs(1);
pub const ACK: Flags = Flags::ACK;
pub const OPTIONS: ConnOptions = ConnOptions { mss: 1460 };
/// The peer's initial sequence number: near the wrap.
pub const IRS: SeqNum = SeqNum(u32::MAX - 1000);
pub const PEER_WINDOW: u16 = 60_000;

pub fn local() -> Endpoint {
    Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), 7000)
}

pub fn remote() -> Endpoint {
    Endpoint::new(Ipv4Addr::new(198, 18, 0, 2).into(), 40_000)
}

/// Without options, so that numbers are round.
pub fn plain() -> Config {
    Config {
        timestamps: false,
        sack: false,
        window_scale: false,
        ..Config::default()
    }
}

pub struct Script {
    pub stack: Stack<u32>,
    pub now: Instant,
    pub conn: Option<ConnId>,
    pub tuple: FourTuple,
    /// Our initial sequence number, once a SYN of ours was seen.
    pub iss: SeqNum,
    pub with_link: Vec<(ConnId, Payload<u32>)>,
    pub keep_with_link: bool,
    pub next_buf: u32,
    /// The ECN field of the peer's packets.
    pub peer_ecn: Ecn,
}

/// What came out of the stack, with relative numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Out {
    pub flags: Flags,
    pub seq: i64,
    pub ack: i64,
    pub len: u32,
    pub window: u16,
    pub urgent: u16,
    pub options: Options,
    pub buf: Option<u32>,
    pub ecn: Ecn,
    pub fragment_to: Option<u32>,
}

impl Script {
    pub fn new(config: Config) -> Self {
        let now = Instant::ZERO + SEC;
        Self {
            stack: Stack::new(config, *b"0123456789abcdef", now),
            now,
            conn: None,
            tuple: FourTuple::new(local(), remote()),
            iss: SeqNum(0),
            with_link: Vec::new(),
            keep_with_link: false,
            next_buf: 0,
            peer_ecn: Ecn::NotEct,
        }
    }

    /// An established connection that was opened by us.
    pub fn active(config: Config) -> Self {
        Self::distant(config, Duration::ZERO)
    }

    /// The same, with a peer that is a round trip of `rtt` away.
    pub fn distant(config: Config, rtt: Duration) -> Self {
        let mut script = Self::new(config);
        script.connect();
        let syn = script.one();
        script.wait(rtt);
        let options = Options {
            timestamps: syn.options.timestamps.map(answer),
            ..syn.options
        };
        script.give_options(Flags::SYN | ACK, 0, 1, 0, options);
        assert_eq!(script.events(), [Event::Established]);
        let ack = script.one();
        assert_eq!((ack.flags, ack.seq, ack.ack), (ACK, 1, 1));
        script
    }

    /// An established connection that was opened by the peer, without any option but the MSS.
    pub fn passive(config: Config) -> Self {
        let mut script = Self::new(config);
        script.stack.listen(local(), 10).unwrap();
        let options = Options {
            mss: Some(1460),
            ..Options::default()
        };
        script.give_options(Flags::SYN, 0, 0, 0, options);
        let syn_ack = script.one();
        assert_eq!((syn_ack.flags, syn_ack.ack), (Flags::SYN | ACK, 1));
        script.give(ACK, 1, 1, 0);
        let events = script.events();
        assert!(matches!(events[..], [Event::Incoming { .. }]), "{events:?}");
        script
    }

    pub fn connect(&mut self) {
        let conn = self.stack.connect(self.now, self.tuple, OPTIONS).unwrap();
        self.conn = Some(conn);
    }

    pub fn conn(&self) -> ConnId {
        self.conn.unwrap()
    }

    /// Time passes.
    pub fn wait(&mut self, duration: Duration) {
        self.now += duration;
        self.stack.advance(self.now);
    }

    /// Time passes to the next deadline; how long that took.
    pub fn wait_for_timer(&mut self) -> Duration {
        let start = self.now;
        for _ in 0..10 {
            let at = self.stack.next_deadline().expect("a timer runs");
            self.now = self.now.max(at);
            self.stack.advance(self.now);
            if self.stack.next_deadline() != Some(at) {
                break;
            }
        }
        self.now.saturating_duration_since(start)
    }

    /// Everything that wants to go out.
    pub fn out(&mut self) -> Vec<Out> {
        let mut all = Vec::new();
        while let Some(out) = self.next_out() {
            all.push(out);
        }
        all
    }

    /// At most one segment.
    pub fn next_out(&mut self) -> Option<Out> {
        let Transmit {
            conn,
            tuple,
            header,
            payload,
            ecn,
            fragment_to,
        } = self.stack.poll_transmit(self.now)?;
        assert_eq!(tuple, self.tuple);
        if header.flags.syn() {
            self.iss = header.seq;
        }
        let out = Out {
            flags: header.flags,
            seq: i64::from(header.seq.distance(self.iss)),
            ack: i64::from(header.ack.distance(IRS)),
            len: payload.as_ref().map_or(0, |payload| payload.len),
            window: header.window,
            urgent: header.urgent,
            options: header.options,
            buf: payload.as_ref().map(|payload| payload.buf),
            ecn,
            fragment_to,
        };
        if let Some(payload) = payload {
            self.with_link.push((conn.unwrap(), payload));
            if !self.keep_with_link {
                assert_eq!(self.link_returns(), []);
            }
        }
        Some(out)
    }

    pub fn one(&mut self) -> Out {
        let mut all = self.out();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// The link gives back all it has; what comes straight out.
    pub fn link_returns(&mut self) -> Vec<u32> {
        let back = std::mem::take(&mut self.with_link);
        back.into_iter()
            .filter_map(|(conn, payload)| self.stack.transmitted(conn, payload.id, payload.buf))
            .collect()
    }

    pub fn released(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.stack.poll_released()).collect()
    }

    pub fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((conn, event)) = self.stack.poll_event() {
            self.conn = Some(conn);
            events.push(event);
        }
        events
    }

    /// The peer sends `len` bytes at `seq`.
    pub fn give(&mut self, flags: Flags, seq: i64, ack: i64, len: usize) -> Received {
        self.give_options(flags, seq, ack, len, Options::default())
    }

    /// The peer sends an ACK with SACK blocks.
    pub fn give_sack(&mut self, ack: i64, blocks: &[(u32, u32)]) {
        let mut options = Options::default();
        for &(left, right) in blocks {
            options.sack.push(SackBlock {
                left: self.iss.add(left),
                right: self.iss.add(right),
            });
        }
        self.give_options(ACK, 1, ack, 0, options);
    }

    pub fn give_options(
        &mut self,
        flags: Flags,
        seq: i64,
        ack: i64,
        len: usize,
        options: Options,
    ) -> Received {
        let header = self.header(flags, seq, ack, PEER_WINDOW, options);
        self.give_header(header, len)
    }

    pub fn give_window(&mut self, ack: i64, window: u16) {
        let header = self.header(ACK, 1, ack, window, Options::default());
        self.give_header(header, 0);
    }

    pub fn header(
        &self,
        flags: Flags,
        seq: i64,
        ack: i64,
        window: u16,
        options: Options,
    ) -> TcpHeader {
        TcpHeader {
            source_port: self.tuple.remote.port,
            destination_port: self.tuple.local.port,
            seq: IRS.add(seq as u32),
            ack: if flags.ack() {
                self.iss.add(ack as u32)
            } else {
                SeqNum(0)
            },
            flags,
            window,
            urgent: 0,
            options,
        }
    }

    pub fn give_header(&mut self, header: TcpHeader, len: usize) -> Received {
        let payload = vec![0; len];
        let segment = Segment::new(header, &payload).with_ecn(self.peer_ecn);
        self.stack.receive(self.now, self.tuple, &segment, OPTIONS)
    }

    /// A router has dropped the segment at `seq`: the next link takes `mtu` bytes.
    pub fn too_big(&mut self, seq: u32, mtu: u32) -> bool {
        let error = IcmpError::PacketTooBig { mtu };
        let seq = self.iss.add(seq);
        self.stack.icmp(self.now, self.tuple, seq, error)
    }

    pub fn mss(&self) -> usize {
        self.stack.mss(self.conn())
    }

    /// Queues a segment; the buffers are numbered from 0.
    pub fn send(&mut self, len: u32) -> Result<(), SendRefusal> {
        let buf = self.next_buf;
        self.next_buf += 1;
        let outgoing = Outgoing {
            buf,
            len,
            payload_sum: checksum::PartialSum::ZERO,
        };
        self.stack
            .send(self.conn(), self.now, outgoing)
            .map_err(|error| error.reason)
    }

    /// Queues and sends `count` segments of 1000 bytes.
    pub fn send_thousands(&mut self, count: usize) {
        for _ in 0..count {
            self.send(1000).unwrap();
        }
        assert_eq!(self.out().len(), count);
    }

    pub fn close(&mut self) {
        assert!(self.stack.close(self.conn()));
    }

    pub fn info(&self) -> userspace_tcp::Info {
        self.stack
            .info(self.conn())
            .expect("the connection is there")
    }

    pub fn is_gone(&self) -> bool {
        self.stack.info(self.conn()).is_none() && self.stack.next_deadline().is_none()
    }
}

pub fn answer(timestamps: Timestamps) -> Timestamps {
    Timestamps {
        value: 5000,
        echo: timestamps.value,
    }
}
