//! What goes out in bursts ([`userspace_tcp::Stack::transmit`]) is what goes out one by one, and leaves the stack as
//! that does. The same holds for what is posted in rows ([`userspace_tcp::Stack::post`]). Neither the peer nor the
//! layer above can tell.

#![allow(clippy::unwrap_used)]

mod harness;
#[path = "bursts/scenes.rs"]
mod scenes;

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use harness::{Network, Plan, Random};
use userspace_net::checksum::PartialSum;
use userspace_net::{Ecn, Endpoint, FourTuple, Instant};
use userspace_tcp::{
    BurstHead, BurstSegment, Config, CongestionControl, ConnId, ConnOptions, Event, Flags,
    IcmpError, KeepAlive, Link, Outgoing, SackBlock, Segment, SegmentId, SendCapacity, SendError,
    SeqNum, Stack, TcpHeader, Timestamps, Transmit,
};

const CONTROLS: [CongestionControl; 4] = [
    CongestionControl::Cubic,
    CongestionControl::NewReno,
    CongestionControl::Dctcp,
    CongestionControl::Bbr,
];

fn config(random: &mut Random) -> Config {
    let mut chance = |per_mille| random.chance(per_mille);
    Config {
        timestamps: chance(500),
        sack: chance(800),
        ecn: chance(500),
        pacing: chance(500),
        ..Config::default()
    }
}

/// Everything that two hosts say to each other over links of all kinds.
#[test]
fn a_transfer_by_bursts_is_the_same_to_the_last_packet() {
    for seed in 0..160 {
        let mut random = Random::new(seed);
        let config = Config {
            congestion: CONTROLS[seed as usize % 4],
            send_queue_segments: random.within(4, 300) as usize,
            receive_window: random.within(4000, 400_000) as u32,
            ..config(&mut random)
        };
        let plan = Plan {
            bytes: random.within(20_000, 400_000),
            ..Plan::default()
        };
        let mut often = |bound| random.below(2) * random.below(bound);
        let link = harness::Link {
            lose_per_mille: often(40),
            duplicate_per_mille: often(20),
            delay_per_mille: often(300),
            jitter: Duration::from_micros(often(2000)),
            delay: Duration::from_micros(often(4000)),
            split_per_mille: often(50),
            refuse_per_mille: often(50),
            hold: Duration::from_micros(often(3000)),
            mtu: 600 + often(1200) as usize,
            ..harness::Link::default()
        };
        let said = |burst| {
            let mut network = Network::one_way(config.clone(), plan.clone(), link.clone(), seed);
            network.burst = burst;
            let said = Rc::new(RefCell::new(Vec::new()));
            let log = Rc::clone(&said);
            network.filter = Box::new(move |side, header, len| {
                log.borrow_mut().push(format!("{side} {header:?} {len}"));
                true
            });
            network.open();
            let mut infos = Vec::new();
            for _ in 0..400 {
                network.run_until(network.now + Duration::from_millis(3));
                let end = &network.ends[0];
                let info = end.app.conn.and_then(|conn| end.stack.info(conn));
                infos.push(format!("{info:?} {:?}", end.stack.next_deadline()));
            }
            (said.take(), infos, network.packets)
        };
        let one_by_one = said(0);
        for burst in [1, 3, usize::MAX] {
            let by_bursts = said(burst);
            for (at, (one, other)) in one_by_one.0.iter().zip(&by_bursts.0).enumerate() {
                assert_eq!(one, other, "seed {seed}, packet {at}, bursts of {burst}");
            }
            assert!(one_by_one == by_bursts, "seed {seed}, bursts of {burst}");
        }
    }
}

/// Peers whose every header is made up.
const PEERS: u16 = 3;
const OPTIONS: ConnOptions = ConnOptions { mss: 1460 };
const IRS: SeqNum = SeqNum(u32::MAX - 20_000);

/// A stack with a connection to each of them.
struct Host {
    stack: Stack<u32>,
    now: Instant,
    conns: Vec<Conn>,
    out: Vec<(ConnId, SegmentId, u32)>,
    in_bursts: bool,
    /// Segments that went out as part of a burst.
    burst: u64,
    bursts: u64,
}

struct Conn {
    id: ConnId,
    tuple: FourTuple,
    /// The number of the first byte that it sends.
    ours: SeqNum,
    /// Bytes that were posted to it.
    posted: u32,
}

fn header(tuple: FourTuple, flags: Flags, seq: SeqNum, ack: SeqNum) -> TcpHeader {
    TcpHeader {
        source_port: tuple.remote.port,
        destination_port: tuple.local.port,
        seq,
        ack,
        flags,
        window: 60_000,
        ..TcpHeader::default()
    }
}

impl Host {
    fn new(config: &Config, in_bursts: bool) -> Self {
        let now = Instant::from_nanos(1_000_000);
        let end = |last, port| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), port);
        let mut stack = Stack::new(config.clone(), [7; 16], now);
        stack.listen(end(1, 7000), 4).unwrap();
        let conns = (0..PEERS)
            .map(|peer| {
                let tuple = FourTuple::new(end(1, 7000), end(2, 8000 + peer));
                let mut syn = header(tuple, Flags::SYN, IRS, SeqNum(0));
                if config.ecn {
                    syn.flags |= Flags::ECE | Flags::CWR;
                }
                syn.options.sack_permitted = config.sack;
                syn.options.mss = Some(1460);
                let stamp = Timestamps { value: 9, echo: 0 };
                syn.options.timestamps = config.timestamps.then_some(stamp);
                stack.receive(now, tuple, &Segment::new(syn, &[]), OPTIONS);
                let syn_ack = stack.poll_transmit(now).unwrap().header;
                let ours = syn_ack.seq.add(1);
                let mut ack = header(tuple, Flags::ACK, IRS.add(1), ours);
                let echo = |ours: Timestamps| Timestamps {
                    value: 9,
                    echo: ours.value,
                };
                ack.options.timestamps = syn_ack.options.timestamps.map(echo);
                stack.receive(now, tuple, &Segment::new(ack, &[]), OPTIONS);
                let (id, event) = stack.poll_event().unwrap();
                assert!(matches!(event, Event::Incoming { .. }));
                Conn {
                    id,
                    tuple,
                    ours,
                    posted: 0,
                }
            })
            .collect();
        Self {
            stack,
            now,
            conns,
            out: Vec::new(),
            in_bursts,
            burst: 0,
            bursts: 0,
        }
    }

    fn post(&mut self, peer: usize, len: u32) {
        let conn = &mut self.conns[peer];
        let outgoing = Outgoing {
            buf: conn.posted,
            len,
            payload_sum: PartialSum::from_folded(len as u16),
        };
        if self.stack.send(conn.id, self.now, outgoing).is_ok() {
            conn.posted += len;
        }
    }

    /// Posts so many segments to a peer, one behind the other, most of them as large as they may be; what
    /// it is told before each.
    fn post_row(&mut self, peer: usize, count: u64, mut sizes: Random) -> String {
        let Conn { id, posted, .. } = self.conns[peer];
        let mut next = |send_capacity: SendCapacity, buf: u32| {
            let mss = send_capacity.mss.max(1) as u64;
            let len = match sizes.below(40) {
                // None, or one too many.
                0 => sizes.below(2) * (mss + 1),
                1..25 => mss,
                _ => sizes.within(1, mss),
            };
            Outgoing {
                buf,
                len: len as u32,
                payload_sum: PartialSum::from_folded(len as u16),
            }
        };
        let (mut posted, mut told) = (posted, String::new());
        let mut note = |send_capacity: SendCapacity, len: u32, sent: Result<(), SendError<u32>>| {
            told += &format!("{send_capacity:?} {len} {sent:?}\n");
            if sent.is_ok() {
                posted += len;
            }
            posted
        };
        let mut buf = self.conns[peer].posted;
        if self.in_bursts {
            self.stack.post(id, self.now, |posting| {
                for _ in 0..count {
                    let send_capacity = posting.send_capacity();
                    let outgoing = next(send_capacity, buf);
                    buf = note(send_capacity, outgoing.len, posting.send(outgoing));
                }
            });
        } else {
            for _ in 0..count {
                let send_capacity = self.stack.send_capacity(id);
                let outgoing = next(send_capacity, buf);
                let len = outgoing.len;
                buf = note(send_capacity, len, self.stack.send(id, self.now, outgoing));
            }
        }
        self.conns[peer].posted = buf;
        told
    }

    /// Sends up to `limit` segments, in bursts of up to `most`, to a link that refuses what it takes each
    /// `refuses`-th; and says all that can be seen.
    fn sends(&mut self, limit: usize, most: usize, refuses: usize) -> String {
        let mut seen = String::new();
        let most = if self.in_bursts { most } else { 1 };
        let mut sent = 0;
        while sent < limit {
            let mut link = Refusing {
                head: None,
                sent,
                refuses,
                out: &mut self.out,
                seen: &mut seen,
                refused: None,
            };
            let count = self
                .stack
                .transmit(self.now, most.min(limit - sent), &mut link);
            if count == 0 {
                break;
            }
            if link.head.is_some() {
                self.bursts += 1;
                self.burst += count as u64;
            }
            if let Some((conn, id, buf)) = link.refused {
                assert_eq!(self.stack.transmitted(conn, id, buf), None);
            }
            sent += count;
        }
        seen
    }

    fn looks(&mut self) -> String {
        let events: Vec<_> = std::iter::from_fn(|| self.stack.poll_event()).collect();
        let released: Vec<_> = std::iter::from_fn(|| self.stack.poll_released()).collect();
        let infos = self.conns.iter().map(|conn| self.stack.info(conn.id));
        let infos: Vec<_> = infos.collect();
        let next = self.stack.next_deadline();
        let outlooks = self
            .conns
            .iter()
            .map(|conn| self.stack.send_capacity(conn.id));
        let outlooks: Vec<_> = outlooks.collect();
        format!("{events:?} {released:?} {infos:?} {next:?} {outlooks:?}")
    }
}

fn is_refused(place: usize, refuses: usize) -> bool {
    place % refuses == refuses - 1
}

fn looks(transmit: &Transmit<u32>) -> String {
    format!("{transmit:?}\n")
}

struct Refusing<'a> {
    head: Option<(FourTuple, BurstHead)>,
    sent: usize,
    refuses: usize,
    out: &'a mut Vec<(ConnId, SegmentId, u32)>,
    seen: &'a mut String,
    /// Of what was not of a burst.
    refused: Option<(ConnId, SegmentId, u32)>,
}

impl Link<u32> for Refusing<'_> {
    fn begin(&mut self, tuple: &FourTuple, head: &BurstHead) {
        self.head = Some((*tuple, *head));
    }

    fn put(&mut self, segment: BurstSegment<u32>) -> Option<u32> {
        let (tuple, head) = self.head.unwrap();
        let (id, buf) = (segment.id, segment.buf);
        *self.seen += &looks(&segment.with(&tuple, &head));
        let refused = is_refused(self.sent, self.refuses);
        self.sent += 1;
        if refused {
            return Some(buf);
        }
        self.out.push((head.conn, id, buf));
        None
    }

    fn send(&mut self, transmit: Transmit<u32>) {
        *self.seen += &looks(&transmit);
        if let (Some(id), Some(payload)) = (transmit.conn, transmit.payload) {
            let buffer = (id, payload.id, payload.buf);
            if is_refused(self.sent, self.refuses) {
                self.refused = Some(buffer);
            } else {
                self.out.push(buffer);
            }
        }
    }
}

/// What a peer says, made up: most of it acknowledges something.
fn said(
    random: &mut Random,
    conn: &Conn,
    config: &Config,
    next: u32,
    millis: u32,
) -> Segment<'static> {
    static PAYLOAD: [u8; 1400] = [0; 1400];
    let out = u64::from(conn.posted) + 1;
    // Often all of it: then nothing is out.
    let acked = match random.chance(500) {
        true => conn.posted,
        false => random.below(out) as u32,
    };
    let seq = IRS.add(1).add(next);
    let mut header = header(conn.tuple, Flags::ACK, seq, conn.ours.add(acked));
    header.window = match random.below(12) {
        0 => random.below(4000) as u16,
        1 => random.below(1000) as u16,
        _ => 60_000 - random.below(3) as u16,
    };
    if config.ecn && random.chance(60) {
        header.flags |= Flags::ECE;
    }
    if config.sack && random.chance(250) {
        for _ in 0..=random.below(3) {
            let left = random.below(out) as u32;
            header.options.sack.push(SackBlock {
                left: conn.ours.add(left),
                right: conn.ours.add(left).add(1 + random.below(6000) as u32),
            });
        }
    }
    header.options.timestamps = config.timestamps.then(|| Timestamps {
        value: 9 + millis,
        echo: millis.wrapping_sub(random.below(3) as u32),
    });
    let len = random.below(2) * random.below(1400);
    let segment = Segment::new(header, &PAYLOAD[..len as usize]);
    match config.ecn {
        true if random.chance(150) => segment.with_ecn(Ecn::Ce),
        true => segment.with_ecn(Ecn::Ect0),
        false => segment,
    }
}

/// Acknowledgments of all kinds, windows that close, marks, urgent bytes, time that passes, paths that
/// become narrower, ends; several connections, and a link that takes what it likes.
#[test]
fn whatever_happens_rows_and_bursts_send_what_goes_out_one_by_one() {
    let (mut in_bursts, mut bursts) = (0, 0);
    let (mut retransmits, mut probes) = (0, 0);
    for seed in 0..1200_u64 {
        let mut random = Random::new(seed);
        let keepalive = random.chance(300).then_some(KeepAlive {
            idle: Duration::from_secs(1),
            interval: Duration::from_secs(1),
            probes: 3,
        });
        let config = Config {
            congestion: CONTROLS[seed as usize % 4],
            keepalive,
            ..config(&mut random)
        };
        let mut hosts = [false, true].map(|in_bursts| Host::new(&config, in_bursts));
        // The peers' bytes so far.
        let mut came = [0_u32; PEERS as usize];
        for _ in 0..100 {
            let scale = [1000, 300_000, 4_000_000, 900_000_000][random.below(4) as usize];
            let later = random.below(3) * random.below(scale);
            let peer = random.below(u64::from(PEERS)) as usize;
            let (what, posts) = (random.below(40), random.below(40));
            let sizes = random.next();
            let mut told = Vec::new();
            for host in &mut hosts {
                host.now += Duration::from_nanos(later);
                host.stack.advance(host.now);
                let mut sizes = Random::new(sizes);
                let Conn {
                    id, tuple, ours, ..
                } = host.conns[peer];
                let mut posts = posts;
                let mut said = String::new();
                while posts > 0 {
                    let peer = if sizes.chance(700) {
                        peer
                    } else {
                        sizes.below(3) as usize
                    };
                    let row = 1 + sizes.below(posts);
                    posts -= row;
                    said += &host.post_row(peer, row, Random::new(sizes.next()));
                }
                told.push(said);
                let error = IcmpError::PacketTooBig { mtu: 700 };
                match what {
                    0 => _ = host.stack.urge(id),
                    1 => _ = host.stack.link_mtu(id, host.now, 900),
                    2 | 3 => _ = host.stack.icmp(host.now, tuple, ours, error),
                    4 => _ = host.stack.close(id),
                    5 => {
                        _ = host
                            .stack
                            .set_user_timeout(id, host.now, Duration::from_secs(3))
                    }
                    6 => host.stack.consumed(id, u64::from(came[peer])),
                    _ => {}
                }
            }
            assert_eq!(told[0], told[1], "seed {seed}");
            let millis = hosts[0].now.as_millis() as u32;
            if random.chance(900) {
                let segment = said(
                    &mut random,
                    &hosts[0].conns[peer],
                    &config,
                    came[peer],
                    millis,
                );
                came[peer] += segment.payload.len() as u32;
                for host in &mut hosts {
                    let tuple = host.conns[peer].tuple;
                    host.stack.receive(host.now, tuple, &segment, OPTIONS);
                }
            }
            let limit = match random.below(4) {
                0 => 0,
                1 => random.below(40) as usize,
                _ => usize::MAX,
            };
            let most = 1 + random.below(40) as usize;
            let refuses = 1 + random.below(30) as usize * 3;
            let [one, other] = &mut hosts;
            assert_eq!(
                one.sends(limit, most, refuses),
                other.sends(limit, most, refuses),
                "seed {seed}"
            );
            assert_eq!(one.looks(), other.looks(), "seed {seed}");
            let back = random.next();
            for host in &mut hosts {
                let mut back = Random::new(back);
                let (stack, out) = (&mut host.stack, &mut host.out);
                out.retain(|(conn, segment, buf)| {
                    let keeps = back.chance(300);
                    if !keeps {
                        let _ = stack.transmitted(*conn, *segment, *buf);
                    }
                    keeps
                });
            }
        }
        let [one, other] = &hosts;
        assert_eq!(one.stack.totals(), other.stack.totals(), "seed {seed}");
        in_bursts += other.burst;
        bursts += other.bursts;
        retransmits += other.stack.totals().retransmits;
        probes += other.stack.totals().tail_probes;
    }
    let figures = format!("{in_bursts} in {bursts}, {retransmits}, {probes}");
    assert!(in_bursts > 4 * bursts && bursts > 2000, "{figures}");
    assert!(retransmits > 1000 && probes > 100, "{figures}");
}
