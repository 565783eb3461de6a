//! Two hosts in one thread, always as much work under way.

use std::cell::Cell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Barrier;
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_engine::shard::Shard;
use rnic_ipc::control::{MarkerUse, MpaOptions};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::WrOpcode;
use rnic_xsk::MemoryPort;
use userspace_net::Instant;

use crate::interleaver::Interleaver;
use crate::options::{Options, SPAN, Until};
use crate::places::{self, Place};
use crate::side::{DEPTH, MEMORY, Rings, Side, SideConfig};
use crate::timed_port::{TimedPort, look};

/// Frames on the wire each way.
const WIRE: usize = 256;
/// Polls, of a virtual microsecond each, until what was delayed has been sent.
const QUIET_AFTER: u32 = 100_000;
/// Polls with nothing to do before the time is looked at.
const IDLE_BATCH: u64 = 100;

pub struct Pair {
    a: Side<TimedPort>,
    b: Side<TimedPort>,
    link: [Rc<Cell<Duration>>; 2],
    /// What is between their ports, if those are not joined directly.
    interleaver: Option<Interleaver>,
    clock: Clock,
    first_port: u16,
    qps: Vec<(QpNum, QpNum)>,
}

enum Clock {
    Real(std::time::Instant),
    /// As much later at each look, in nanoseconds: the same work takes the same instructions.
    Virtual(Cell<u64>),
}

impl Clock {
    fn now(&self) -> Instant {
        Instant::from_nanos(match self {
            Self::Real(begin) => begin.elapsed().as_nanos() as u64 + 1,
            Self::Virtual(now) => {
                now.set(now.get() + 1000);
                now.get()
            }
        })
    }
}

#[derive(Default)]
struct Spent {
    sender: Duration,
    receiver: Duration,
}

/// The host that posts the work. A function of its own, for whoever counts its instructions.
#[inline(never)]
pub fn poll_sender(side: &mut Side<TimedPort>, now: Instant) {
    // Two functions of the same instructions would be made one.
    black_box("sender");
    side.shard.poll(now);
}

/// The other one.
#[inline(never)]
pub fn poll_receiver(side: &mut Side<TimedPort>, now: Instant) {
    black_box("receiver");
    side.shard.poll(now);
}

/// Either, when nobody is to count.
fn poll_uncounted(side: &mut Side<TimedPort>, now: Instant) {
    side.shard.poll(now);
}

type Poll = fn(&mut Side<TimedPort>, Instant);

/// The time of all threads' engines is added up.
pub fn run(options: &Options) {
    let mut hosts = [(); 2].map(|()| places::of_host(options).into_iter());
    let pairs: Vec<_> = (0..options.shards)
        .map(|_| hosts.each_mut().map(|places| places.next().unwrap()))
        .collect();
    let ready = Barrier::new(options.shards);
    let begin = std::time::Instant::now();
    let all: Vec<_> = std::thread::scope(|scope| {
        let mut pairs = pairs.into_iter();
        let first = pairs.next();
        let others: Vec<_> = pairs
            .map(|places| scope.spawn(|| run_pair(options, places, &ready, begin)))
            .collect();
        let first = first.map(|places| run_pair(options, places, &ready, begin));
        let others = others.into_iter().map(|thread| thread.join().unwrap());
        first.into_iter().chain(others).collect()
    });
    let started = all.iter().map(|one| one.started).min().unwrap();
    let ended = all.iter().map(|one| one.ended).max().unwrap();
    let done: u64 = all.iter().map(|one| one.done).sum();
    let time = |of: fn(&Spent) -> Duration| all.iter().map(|one| of(&one.spent)).sum::<Duration>();
    println!(
        "{{\"case\":\"engine\",\"bytes\":{},\"messages\":{done},\"nanoseconds\":{},\
        \"sender_nanoseconds\":{},\"receiver_nanoseconds\":{}}}",
        done * options.bytes as u64,
        (ended - started).as_nanos(),
        time(|spent| spent.sender).as_nanos(),
        time(|spent| spent.receiver).as_nanos(),
    );
}

struct Outcome {
    done: u64,
    spent: Spent,
    /// Since all began.
    started: Duration,
    ended: Duration,
}

/// One shard of each host.
fn run_pair(
    options: &Options,
    places: [Place; 2],
    ready: &Barrier,
    begin: std::time::Instant,
) -> Outcome {
    let mut pair = Pair::new(options, places);
    pair.work(options, Until::Done(options.warm_up), [poll_uncounted; 2]);
    for spent in &pair.link {
        spent.set(Duration::ZERO);
    }
    ready.wait();
    let started = begin.elapsed();
    let (done, mut spent) = pair.work(options, options.until, [poll_sender, poll_receiver]);
    let ended = begin.elapsed();
    if let Some(interleaver) = &pair.interleaver {
        interleaver.assert_took_turns();
    }
    let [link_a, link_b] = [0, 1].map(|of| pair.link[of].get());
    spent.sender = spent.sender.saturating_sub(link_a);
    spent.receiver = spent.receiver.saturating_sub(link_b);
    Outcome {
        done,
        spent,
        started,
        ended,
    }
}

/// Polls of hosts that are connected and have nothing to do: each counts as a message.
pub fn run_idle(options: &Options) {
    let places = [(); 2].map(|()| places::of_host(options).remove(0));
    let mut pair = Pair::new(options, places);
    pair.work(options, Until::Done(options.warm_up), [poll_uncounted; 2]);
    for _ in 0..QUIET_AFTER {
        let now = pair.now();
        poll_uncounted(&mut pair.a, now);
        poll_uncounted(&mut pair.b, now);
    }
    let start = std::time::Instant::now();
    let (mut spent, mut polls) = (Spent::default(), 0);
    let over = |polls| match options.until {
        Until::Lasted(time) => start.elapsed() >= time,
        Until::Done(count) => polls >= count,
    };
    while !over(polls) {
        for _ in 0..IDLE_BATCH {
            let now = pair.now();
            let begin = std::time::Instant::now();
            poll_sender(&mut pair.a, now);
            let middle = std::time::Instant::now();
            poll_receiver(&mut pair.b, now);
            spent.sender += middle - begin;
            spent.receiver += middle.elapsed();
        }
        polls += IDLE_BATCH;
    }
    println!(
        "{{\"case\":\"idle\",\"bytes\":0,\"messages\":{polls},\"nanoseconds\":{},\
        \"sender_nanoseconds\":{},\"receiver_nanoseconds\":{}}}",
        start.elapsed().as_nanos(),
        spent.sender.as_nanos(),
        spent.receiver.as_nanos(),
    );
}

/// Work requests under way on each queue pair.
fn depth(options: &Options) -> u64 {
    options.in_flight.min(u64::from(DEPTH))
}

/// Room for all that may be under way.
fn rings_for(options: &Options) -> Rings {
    let Rings {
        doorbells,
        completions,
    } = Rings::default();
    let queue_pairs = options.queue_pairs as u64;
    let places = |least: u32, wanted: u64| least.max(wanted as u32).next_power_of_two();
    Rings {
        doorbells: places(doorbells, queue_pairs),
        completions: places(completions, queue_pairs * depth(options)),
    }
}

impl Pair {
    fn new(options: &Options, [place_a, place_b]: [Place; 2]) -> Self {
        let first_port = place_a.first_port;
        let (umem_a, umem_b) = (place_a.umem.clone(), place_b.umem.clone());
        let (port_a, port_b, interleaver) = match options.interleave {
            Some(segments) => {
                let umems = [&umem_a, &umem_b];
                let (a, b, between) =
                    Interleaver::new(umems, WIRE, segments, first_port, options.queue_pairs);
                (a, b, Some(between))
            }
            None => {
                let (a, b) = MemoryPort::pair(&umem_a, &umem_b, WIRE);
                (a, b, None)
            }
        };
        let rings = rings_for(options);
        let mut link = Vec::new();
        let mut host = |number: u8, port: MemoryPort, place: Place| {
            let frames = place.pool.free_chunks();
            let mut config = SideConfig::default().shard;
            config.tcp.timestamps = false;
            if let Some(window) = options.window {
                config.tcp.receive_window = window;
            }
            config.path_defaults = rnic_net::PathDefaults::new(options.mtu);
            config.limits.connections = options.queue_pairs + 64;
            config.limits.queue_pairs = options.queue_pairs + 16;
            let (port, spent) = TimedPort::new(port);
            link.push(spent);
            let mut shard = Shard::new(config, place.pool, vec![port], Instant::ZERO);
            if let Some(siblings) = place.siblings {
                shard.join(siblings);
            }
            let address = format!("198.18.0.{number}:7174").parse().unwrap();
            let mut side = Side::over(number, address, shard, None, frames, rings);
            side.mtu = options.mtu;
            side.depth = depth(options) as u32;
            side
        };
        let (a, b) = (host(1, port_a, place_a), host(2, port_b, place_b));
        let mut pair = Self {
            a,
            b,
            link: [Rc::clone(&link[0]), Rc::clone(&link[1])],
            interleaver,
            clock: match options.until {
                Until::Lasted(_) => Clock::Real(std::time::Instant::now()),
                Until::Done(_) => Clock::Virtual(Cell::new(0)),
            },
            first_port,
            qps: Vec::new(),
        };
        let now = pair.now();
        pair.b.listen(64, now);
        let mpa = MpaOptions {
            markers: MarkerUse::of_flag(options.markers),
            crc: options.crc,
            ..MpaOptions::default()
        };
        for number in 0..options.queue_pairs {
            pair.connect(number, mpa);
        }
        // What lies there does not matter, but that it is there already.
        for side in [&pair.a, &pair.b] {
            side.memory.write(0, &vec![0x5a; MEMORY]).unwrap();
        }
        pair
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn carry_out(&mut self) {
        if let Some(interleaver) = &mut self.interleaver {
            interleaver.carry_out();
        }
    }

    fn carry_back(&mut self) {
        if let Some(interleaver) = &mut self.interleaver {
            interleaver.carry_back();
        }
    }

    fn connect(&mut self, number: usize, mpa: MpaOptions) {
        let (qp_a, qp_b) = (self.a.create_qp(), self.b.create_qp());
        let path = self.a.path_to(&self.b);
        let port = self.first_port + number as u16;
        let (remote, now) = (self.b.address, self.now());
        self.a
            .connect(qp_a, port, remote, path, mpa, b"", now)
            .unwrap();
        let (mut established, mut accepted) = (false, false);
        while !established || !accepted {
            let now = self.now();
            poll_uncounted(&mut self.a, now);
            self.carry_out();
            poll_uncounted(&mut self.b, now);
            self.carry_back();
            self.a.collect();
            self.b.collect();
            if let Some((request, _, _)) = self.b.take_request() {
                let command = Command::Accept {
                    request,
                    qp: qp_b,
                    mpa,
                    private_data: Vec::new(),
                };
                self.b.shard.execute(command, now).unwrap();
                accepted = true;
            }
            established |= self.a.is_established(qp_a);
        }
        self.a.events.clear();
        self.b.events.clear();
        self.qps.push((qp_a, qp_b));
    }

    /// Works until as much is done; how many messages that was, and the time of both engines.
    fn work(
        &mut self,
        options: &Options,
        until: Until,
        [poll_a, poll_b]: [Poll; 2],
    ) -> (u64, Spent) {
        let in_flight = depth(options);
        let places = (SPAN / options.bytes.max(1)).max(1) as u64;
        let start = std::time::Instant::now();
        let (mut spent, mut done, look) = (Spent::default(), 0, look());
        let mut posted = vec![0; self.qps.len()];
        // Whose next work request may be posted: one entry for each.
        let mut free: VecDeque<usize> = (0..self.qps.len())
            .flat_map(|of| (0..in_flight).map(move |_| of))
            .collect();
        let mut total = 0;
        loop {
            let most = match until {
                Until::Lasted(time) if start.elapsed() < time => u64::MAX,
                Until::Lasted(_) => 0,
                Until::Done(count) => count,
            };
            if total >= most && total == done {
                return (done, spent);
            }
            while total < most
                && let Some(of) = free.pop_front()
            {
                let (qp_a, qp_b) = self.qps[of];
                let at = (posted[of] % places) as usize * options.bytes;
                if options.operation == WrOpcode::Send {
                    self.b.post_recv(qp_b, of as u64, at, options.bytes);
                }
                let remote = (self.b.stag, at);
                let bytes = options.bytes;
                self.a
                    .post_work(qp_a, options.operation, of as u64, at, remote, bytes);
                posted[of] += 1;
                total += 1;
            }
            for _ in 0..4 {
                let begin = std::time::Instant::now();
                let now = self.now();
                poll_a(&mut self.a, now);
                // A look at the clock is no work of the engine's.
                spent.sender += begin.elapsed().saturating_sub(look);
                self.carry_out();
                let begin = std::time::Instant::now();
                poll_b(&mut self.b, now);
                spent.receiver += begin.elapsed().saturating_sub(look);
                self.carry_back();
            }
            self.a.collect();
            self.b.collect();
            // A Send is done when its receive is free for another one.
            let told = match options.operation {
                WrOpcode::Send => [&mut self.b, &mut self.a],
                _ => [&mut self.a, &mut self.b],
            };
            for completion in told.iter().flat_map(|side| &side.completions) {
                assert_eq!(completion.status, 0, "{completion:?}");
            }
            for completion in &told[0].completions {
                free.push_back(completion.wr_id as usize);
                done += 1;
            }
            told.into_iter().for_each(|side| side.completions.clear());
            assert!(self.a.events.is_empty() && self.b.events.is_empty());
        }
    }
}
