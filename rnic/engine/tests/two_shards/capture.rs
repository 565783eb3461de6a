//! A capture is a tap: with one or without, the same code handles each segment. So the hosts call their
//! ports and look at the clock in the same order, send the same frames, and count the same. And a capture
//! shows each frame as it is on the link.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rnic_engine::capture::{Capture, SeenFrame};
use rnic_engine::command::{Answer, Command};
use rnic_ipc::capture::{Direction, Filter};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::WrOpcode;
use rnic_xsk::{Frame, FramePool, MemoryPort, Packet, Port, PortStatistics, Umem, XskError};
use userspace_net::Instant;

use crate::impairment::Impairment;
use crate::link::{Link, ROUGH};
use crate::side::{CLIENT, Side, SideConfig, pattern};
use crate::world::World;

/// What a shard does that is seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    LookAtClock,
    Receive { looks: u32, count: usize },
    Room(usize),
    Transmit { taken: bool },
    Flush,
    Unsent(usize),
    Completed { some: bool },
    Refill { free: usize },
    Sleep { free: usize },
}

thread_local! {
    /// The calls of both hosts' shards, while a test wants them.
    static CALLS: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
    /// What captures showed.
    static SHOWN: RefCell<Vec<Shown>> = const { RefCell::new(Vec::new()) };
}

fn call(call: Call) {
    CALLS.with_borrow_mut(|calls| calls.iter_mut().for_each(|calls| calls.push(call)));
}

/// The time, for a shard that looks at its clock.
pub fn looked_at_clock(now: Instant) -> Instant {
    call(Call::LookAtClock);
    now
}

/// A frame that a host's capture was shown.
struct Shown {
    host: usize,
    direction: Direction,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Sink {
    host: usize,
}

impl Capture for Sink {
    fn frame(&mut self, frame: &SeenFrame<'_>) {
        assert_eq!(frame.bytes.len(), frame.original);
        let shown = Shown {
            host: self.host,
            direction: frame.direction,
            bytes: frame.bytes.to_vec(),
        };
        SHOWN.with_borrow_mut(|all| all.push(shown));
        // A capture looks at the clock once for a batch of frames, when they have come.
        CALLS.with_borrow_mut(|calls| {
            if let Some(calls) = calls
                && frame.direction == Direction::In
                && calls.last() == Some(&Call::LookAtClock)
            {
                calls.pop();
            }
        });
    }
}

/// A port whose calls are written down.
struct Watched(MemoryPort);

impl Port for Watched {
    fn umem(&self) -> &Umem {
        self.0.umem()
    }

    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        self.receive_within(1, pool, out, max)
    }

    fn receive_within(
        &mut self,
        looks: u32,
        pool: &mut FramePool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> usize {
        let count = self.0.receive_within(looks, pool, out, max);
        call(Call::Receive { looks, count });
        count
    }

    fn transmit_room(&mut self) -> usize {
        let room = self.0.transmit_room();
        call(Call::Room(room));
        room
    }

    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame> {
        let taken = self.0.transmit(frame, cookie);
        let seen = taken.is_ok();
        call(Call::Transmit { taken: seen });
        taken
    }

    fn flush(&mut self) -> Result<(), XskError> {
        call(Call::Flush);
        self.0.flush()
    }

    fn unsent(&mut self) -> usize {
        let unsent = self.0.unsent();
        call(Call::Unsent(unsent));
        unsent
    }

    fn copy_transmitted(&self, index: usize, pool: &mut FramePool) -> Option<Frame> {
        self.0.copy_transmitted(index, pool)
    }

    fn completed(&mut self) -> Option<(Frame, u64)> {
        let completed = self.0.completed();
        let some = completed.is_some();
        call(Call::Completed { some });
        completed
    }

    fn refill(&mut self, pool: &mut FramePool) {
        let free = pool.available();
        call(Call::Refill { free });
        self.0.refill(pool);
    }

    fn prepare_sleep(&mut self, pool: &mut FramePool) {
        let free = pool.available();
        call(Call::Sleep { free });
        self.0.prepare_sleep(pool);
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.poll_fd()
    }

    fn frame_capacity(&self) -> usize {
        self.0.frame_capacity()
    }

    fn statistics(&self) -> PortStatistics {
        self.0.statistics()
    }
}

/// What two hosts do, and over what.
struct Exchange {
    mtu: u32,
    markers: bool,
    impairment: Impairment,
    /// Packets that are larger arrive in fragments.
    fragment_to: Option<u32>,
    work: fn(&mut World<Watched>, (QpNum, QpNum)),
}

const PLAIN: Exchange = Exchange {
    mtu: 1500,
    markers: false,
    impairment: Impairment::NONE,
    fragment_to: None,
    work: bulk_writes,
};

/// What can be seen of two hosts.
struct Outcome {
    calls: Vec<Call>,
    /// Of all frames and their times, each way.
    digests: [u64; 2],
    counters: [Vec<(String, u64)>; 2],
}

const PATIENCE: Duration = Duration::from_secs(600);

/// Messages of `a`'s, all posted together, until all are there.
fn bulk(world: &mut World<Watched>, (a, b): (QpNum, QpNum), opcode: WrOpcode, len: usize) {
    const COUNT: u64 = 24;
    let (reads, stag) = (opcode == WrOpcode::Read, world.b.stag);
    let (source, sink) = (0, 4 << 20);
    for side in [&world.a, &world.b] {
        side.fill(source, len, 7);
    }
    for id in 0..COUNT {
        world.b.post_recv(b, id, sink, len);
        let (local, remote) = match reads {
            true => (sink, source),
            false => (source, sink),
        };
        let remote = (stag, remote);
        world.a.post_work(a, opcode, id, local, remote, len);
    }
    let done = |w: &mut World<Watched>| w.a.completions.len() as u64 == COUNT;
    assert!(world.run_until(PATIENCE, done), "{:?}", world.a.events);
    // Sends complete before they have arrived.
    world.run_for(Duration::from_secs(2));
    let side = if reads { &world.a } else { &world.b };
    assert!(side.read(sink, len) == pattern(len, 7));
}

fn bulk_writes(world: &mut World<Watched>, qps: (QpNum, QpNum)) {
    bulk(world, qps, WrOpcode::Write, 300_000);
}

fn bulk_sends(world: &mut World<Watched>, qps: (QpNum, QpNum)) {
    bulk(world, qps, WrOpcode::Send, 40_000);
}

fn small_sends(world: &mut World<Watched>, qps: (QpNum, QpNum)) {
    bulk(world, qps, WrOpcode::Send, 100);
}

fn bulk_reads(world: &mut World<Watched>, qps: (QpNum, QpNum)) {
    bulk(world, qps, WrOpcode::Read, 300_000);
}

/// Messages that come alone, and are each answered by one: more than make headers known.
fn ping_pong(
    world: &mut World<Watched>,
    (qp_a, qp_b): (QpNum, QpNum),
    opcode: WrOpcode,
    at_once: bool,
) {
    const LEN: usize = 64;
    for round in 0..60 {
        let (stag_a, stag_b) = (world.a.stag, world.b.stag);
        let now = world.now;
        let (from, to, qp, peer, stag) = match round % 2 {
            0 => (&mut world.a, &mut world.b, qp_a, qp_b, stag_b),
            _ => (&mut world.b, &mut world.a, qp_b, qp_a, stag_a),
        };
        from.fill(0, LEN, round);
        to.post_recv(peer, round, LEN, LEN);
        from.push_work(qp, opcode, round, 0, (stag, LEN), LEN);
        let clock = || looked_at_clock(now);
        if !at_once || !from.shard.transmit_posted(CLIENT, qp, clock) {
            from.ring(qp);
        }
        let there = |w: &mut World<Watched>| {
            let to = if round % 2 == 0 { &w.b } else { &w.a };
            to.read(LEN, LEN) == pattern(LEN, round)
        };
        assert!(world.run_until(PATIENCE, there), "round {round}");
        // Some answers come before an acknowledgment is due, some after.
        world.run_for(Duration::from_millis(if round % 7 == 0 { 300 } else { 1 }));
    }
}

fn single_writes(world: &mut World<Watched>, qps: (QpNum, QpNum)) {
    ping_pong(world, qps, WrOpcode::Write, false);
}

fn single_writes_at_once(world: &mut World<Watched>, qps: (QpNum, QpNum)) {
    ping_pong(world, qps, WrOpcode::Write, true);
}

fn single_sends(world: &mut World<Watched>, qps: (QpNum, QpNum)) {
    ping_pong(world, qps, WrOpcode::Send, false);
}

fn counters(side: &mut Side<Watched>) -> Vec<(String, u64)> {
    match side.shard.execute(Command::QueryCounters, Instant::ZERO) {
        Ok(Answer::Counters(all)) => all,
        other => panic!("{other:?}"),
    }
}

fn capture(side: &mut Side<Watched>, host: usize) {
    let command = Command::AddCapture {
        number: 1,
        filter: Filter::default(),
        sink: Box::new(Sink { host }),
    };
    side.shard.execute(command, Instant::ZERO).unwrap();
}

/// The result of an exchange, with captures of all frames of both hosts or without.
fn outcome(exchange: &Exchange, captured: bool) -> Outcome {
    let config = || SideConfig::of_mtu(exchange.mtu);
    let (a, b) = (config(), config());
    let mut world = World::through(5, exchange.impairment, a, b, false, Watched);
    world.markers = [exchange.markers; 2];
    for link in [&mut world.a_to_b, &mut world.b_to_a] {
        link.fragment_to = exchange.fragment_to;
        link.kept = Some([Vec::new(), Vec::new()]);
    }
    if captured {
        capture(&mut world.a, 0);
        capture(&mut world.b, 1);
    }
    SHOWN.take();
    CALLS.set(Some(Vec::new()));
    let qps = world.connect();
    (exchange.work)(&mut world, qps);
    world.run_for(Duration::from_secs(2));
    let calls = CALLS.take().unwrap();
    world.assert_no_frame_lost();
    if captured {
        assert_shown(&mut world.a_to_b, [0, 1]);
        assert_shown(&mut world.b_to_a, [1, 0]);
    }
    Outcome {
        calls,
        digests: [world.a_to_b.digest, world.b_to_a.digest],
        counters: [counters(&mut world.a), counters(&mut world.b)],
    }
}

/// Each frame was shown by the host that sent it and by the one that received it, in order, as it is.
fn assert_shown(link: &mut Link, [from, to]: [usize; 2]) {
    let [sent, received] = link.kept.take().unwrap();
    let shown = |of, wanted| -> Vec<Vec<u8>> {
        let mine = |shown: &&Shown| shown.host == of && shown.direction == wanted;
        let bytes = |shown: &Shown| shown.bytes.clone();
        SHOWN.with_borrow(|all| all.iter().filter(mine).map(bytes).collect())
    };
    assert!(sent.len() > 5, "{}", sent.len());
    assert!(shown(from, Direction::Out) == sent, "what was sent");
    assert!(shown(to, Direction::In) == received, "what was received");
}

#[track_caller]
fn assert_the_same_with_a_capture(exchange: &Exchange) {
    let without = outcome(exchange, false);
    let with = outcome(exchange, true);
    let both = with.calls.iter().zip(&without.calls);
    if let Some(at) = both.clone().position(|(with, without)| with != without) {
        let near = at.saturating_sub(8)..at + 4;
        panic!(
            "call {at}: with {:?}, without {:?}",
            &with.calls[near.clone()],
            &without.calls[near]
        );
    }
    assert_eq!(with.calls.len(), without.calls.len());
    assert_eq!(with.digests, without.digests);
    assert_eq!(with.counters, without.counters);
}

#[test]
fn a_capture_does_not_change_how_bulk_data_is_handled() {
    for work in [bulk_writes, bulk_sends, small_sends, bulk_reads] {
        for markers in [false, true] {
            assert_the_same_with_a_capture(&Exchange {
                markers,
                work,
                ..PLAIN
            });
        }
    }
}

#[test]
fn a_capture_does_not_change_how_single_messages_are_handled() {
    for work in [single_writes, single_writes_at_once, single_sends] {
        assert_the_same_with_a_capture(&Exchange { work, ..PLAIN });
    }
}

#[test]
fn a_capture_does_not_change_what_loss_and_reordering_bring() {
    for work in [bulk_writes, bulk_sends, bulk_reads, single_writes] {
        let impairment = ROUGH;
        assert_the_same_with_a_capture(&Exchange {
            impairment,
            work,
            ..PLAIN
        });
    }
}

#[test]
fn a_capture_does_not_change_how_packets_in_several_buffers_are_handled() {
    for work in [bulk_writes, bulk_sends, bulk_reads] {
        assert_the_same_with_a_capture(&Exchange {
            mtu: 9000,
            work,
            ..PLAIN
        });
    }
}

/// Of a packet that came in fragments a capture shows the fragments, as they came.
#[test]
fn a_capture_shows_fragments_as_they_come() {
    for work in [bulk_writes, single_writes] {
        assert_the_same_with_a_capture(&Exchange {
            fragment_to: Some(900),
            work,
            ..PLAIN
        });
    }
}
