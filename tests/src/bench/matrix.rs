//! Which cases a run has. Those that are compared with each other stand side by side, so that as
//! little as possible happens between them.

use super::kernel::Stream;
use super::many::{ManyRun, Traffic};
use super::memory::{MemoryRun, MemoryWork};
use super::perftest::PerftestRun;
use super::place::{Link, Napi, Place};
use super::raw::{Load, RawPing};
use super::rnic::{KIBI_64, MEBI, Operation, Polling, RnicRun, RnicSource};
use super::{Case, Work};

/// MTUs at which everything runs.
const MTUS: [u32; 2] = [1500, 3506];
/// An MTU whose frames need several buffers each.
const JUMBO: u32 = 9000;
/// Bytes of messages whose goodput is plotted.
const SIZES: [u32; 8] = [64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20];
const QUEUE_PAIRS: [u32; 5] = [1, 16, 100, 1000, 10_000];
/// Bytes of their messages.
const MANY_SIZE: u32 = 16_384;
/// Of ten thousand packets so many are lost.
const LOSSES: [u16; 2] = [10, 100];
const DAEMON: RnicSource = RnicSource::Daemon(Polling::Adaptive);

#[must_use]
pub fn full() -> Vec<Case> {
    let mut all = Vec::new();
    for napi in Napi::ALL {
        for mtu in MTUS.into_iter().chain([JUMBO]) {
            let place = Place::cable(mtu, napi);
            all.extend(streams(place));
            all.extend(with_markers(place));
            all.extend(rnic_sources(place));
        }
        all.extend(pings(Place::cable(1500, napi)));
    }
    for mtu in MTUS.into_iter().chain([JUMBO]) {
        all.extend(as_it_comes(mtu));
    }
    for mtu in MTUS {
        let place = inline(mtu);
        for size in SIZES {
            for rnic_source in RnicSource::BOTH {
                all.push(rdma(
                    place,
                    RnicRun::bandwidth(Operation::Write, size, rnic_source),
                ));
            }
        }
        for operation in [Operation::Send, Operation::Read] {
            for rnic_source in RnicSource::BOTH {
                all.push(rdma(
                    place,
                    RnicRun::bandwidth(operation, MEBI, rnic_source),
                ));
            }
        }
    }
    for operation in [Operation::Send, Operation::Read] {
        all.push(ping(inline(1500), operation, RnicSource::Embedded));
    }
    all.extend(sctp(inline(1500)));
    // A daemon that sleeps leaves the kernel the core on which both receive.
    for napi in [Napi::Rps, Napi::Threaded] {
        let run = RnicRun::bandwidth(
            Operation::Write,
            KIBI_64,
            RnicSource::Daemon(Polling::Event),
        );
        all.push(rdma(Place::cable(1500, napi), run));
    }
    all.extend(
        RnicSource::BOTH
            .map(|rnic_source| QUEUE_PAIRS.map(|count| many(count, rnic_source)))
            .into_iter()
            .flatten(),
    );
    all.push(idle(1000, Polling::Adaptive));
    for polling in Polling::ALL {
        all.push(ping(
            inline(1500),
            Operation::Write,
            RnicSource::Daemon(polling),
        ));
        let run = RnicRun::bandwidth(Operation::Write, KIBI_64, RnicSource::Daemon(polling));
        all.push(rdma(inline(1500), run));
        all.push(idle(1, polling));
    }
    all.extend(LOSSES.map(lossy).into_iter().flatten());
    all.extend(PerftestRun::ALL.map(perftest));
    all.extend(loopback());
    all.extend(memory());
    once_each(all)
}

/// What shows within minutes whether something has changed.
#[must_use]
pub fn quick() -> Vec<Case> {
    let mut all = Vec::new();
    for mtu in MTUS {
        all.extend(streams(inline(mtu)));
    }
    all.extend(as_it_comes(1500));
    all.extend(with_markers(inline(1500)));
    all.extend(sctp(inline(1500)));
    all.extend(rnic_sources(Place::cable(1500, Napi::Rps)));
    all.extend(pings(inline(1500)));
    for size in [64, 4096, KIBI_64] {
        let run = RnicRun::bandwidth(Operation::Write, size, RnicSource::Embedded);
        all.push(rdma(inline(1500), run));
    }
    for operation in [Operation::Send, Operation::Read] {
        let run = RnicRun::bandwidth(operation, MEBI, RnicSource::Embedded);
        all.push(rdma(inline(1500), run));
    }
    let jumbo = streams(inline(JUMBO)).into_iter();
    all.extend(jumbo.filter(|one| one.work != kernel(false)));
    all.extend(memory());
    once_each(all)
}

/// One of each kind: to see whether the benchmark itself works.
#[must_use]
pub fn smoke() -> Vec<Case> {
    let place = inline(1500);
    let write = |rnic_source| {
        rdma(
            place,
            RnicRun::bandwidth(Operation::Write, KIBI_64, rnic_source),
        )
    };
    let [_, ping_over_sctp] = sctp(place);
    let mut all = vec![
        raw(place, Load::Nothing),
        Case::new(place, kernel(false)),
        Case::new(place, Work::RawPing(RawPing::AS_WRITE)),
        ping(place, Operation::Write, DAEMON),
        ping_over_sctp,
        Case::new(place, Work::KernelPing),
        many(16, DAEMON),
        perftest(PerftestRun::ALL[0]),
        raw(inline(JUMBO), Load::Nothing),
        rdma(
            Place::loopback(),
            RnicRun::bandwidth(Operation::Write, KIBI_64, DAEMON),
        ),
        ping(
            Place::loopback(),
            Operation::Write,
            RnicSource::Daemon(Polling::Spin),
        ),
    ];
    all.extend(as_it_comes(1500).into_iter().take(1));
    all.extend(RnicSource::BOTH.map(write));
    all.extend(lossy(LOSSES[1]).into_iter().take(1));
    all
}

/// A stream by all ways.
fn streams(place: Place) -> Vec<Case> {
    let write = RnicRun::bandwidth(Operation::Write, MEBI, RnicSource::Embedded);
    let mut all = vec![raw(place, Load::Nothing)];
    // Of frames in one buffer each.
    if place.mtu != JUMBO {
        all.push(raw(place, Load::Bytes));
    }
    all.extend([rdma(place, write), Case::new(place, kernel(true))]);
    // A NAPI that has a thread is GRO's.
    if place.napi != Napi::Threaded {
        all.push(Case::new(place, kernel(false)));
    }
    all
}

/// What a user finds on a veth that nobody has set: Writes beside the kernel's stream.
fn as_it_comes(mtu: u32) -> Vec<Case> {
    let place = Place::as_it_comes(mtu);
    let write = |size, rnic_source| {
        let run = RnicRun::bandwidth(Operation::Write, size, rnic_source);
        rdma(place, run)
    };
    vec![
        write(MEBI, RnicSource::Embedded),
        Case::new(place, kernel(true)),
        write(MEBI, DAEMON),
        write(KIBI_64, RnicSource::Embedded),
        ping(place, Operation::Write, RnicSource::Embedded),
    ]
}

fn with_markers(place: Place) -> Vec<Case> {
    let without = RnicRun::bandwidth(Operation::Write, MEBI, RnicSource::Embedded);
    let with = RnicRun {
        markers: true,
        ..without.clone()
    };
    [without, with].map(|run| rdma(place, run)).into()
}

/// What is compared with the same over TCP.
fn sctp(place: Place) -> [Case; 2] {
    let write = RnicRun::bandwidth(Operation::Write, MEBI, RnicSource::Embedded);
    let ping = RnicRun {
        latency: true,
        ..RnicRun::bandwidth(Operation::Write, 64, RnicSource::Embedded)
    };
    [write, ping].map(|run| rdma(place, over_sctp(run)))
}

fn over_sctp(run: RnicRun) -> RnicRun {
    RnicRun { sctp: true, ..run }
}

fn rnic_sources(place: Place) -> Vec<Case> {
    let write = |rnic_source| {
        rdma(
            place,
            RnicRun::bandwidth(Operation::Write, KIBI_64, rnic_source),
        )
    };
    RnicSource::BOTH.map(write).into()
}

fn pings(place: Place) -> Vec<Case> {
    let mut all = vec![
        Case::new(place, Work::RawPing(RawPing::AS_WRITE)),
        ping(place, Operation::Write, RnicSource::Embedded),
        ping(place, Operation::Write, DAEMON),
        Case::new(place, Work::KernelPing),
    ];
    if place.leaves_cores_alone() {
        all.push(Case::new(place, Work::RawPing(RawPing::SHORT)));
    }
    all
}

fn ping(place: Place, operation: Operation, rnic_source: RnicSource) -> Case {
    let run = RnicRun {
        latency: true,
        ..RnicRun::bandwidth(operation, 64, rnic_source)
    };
    rdma(place, run)
}

fn many(queue_pairs: u32, rnic_source: RnicSource) -> Case {
    let traffic = Traffic::Writes(MANY_SIZE);
    let run = ManyRun {
        queue_pairs,
        traffic,
        rnic_source,
    };
    Case::new(inline(1500), Work::Many(run))
}

fn idle(queue_pairs: u32, polling: Polling) -> Case {
    let run = ManyRun {
        queue_pairs,
        traffic: Traffic::None,
        rnic_source: RnicSource::Daemon(polling),
    };
    Case::new(inline(1500), Work::Many(run))
}

fn lossy(share: u16) -> Vec<Case> {
    let place = Place {
        link: Link::Lossy(share),
        ..inline(1500)
    };
    let without = RnicRun::bandwidth(Operation::Write, MEBI, RnicSource::Embedded);
    let markers = RnicRun {
        markers: true,
        ..without.clone()
    };
    let bbr = RnicRun {
        bbr: true,
        ..markers.clone()
    };
    vec![
        rdma(place, markers),
        rdma(place, bbr),
        rdma(place, without.clone()),
        rdma(place, over_sctp(without)),
        Case::new(place, kernel(false)),
    ]
}

fn perftest(run: PerftestRun) -> Case {
    Case::new(inline(1500), Work::Perftest(run))
}

/// Both ends on one host.
fn loopback() -> Vec<Case> {
    let place = Place::loopback();
    let write = |size| rdma(place, RnicRun::bandwidth(Operation::Write, size, DAEMON));
    let round_trip = |rnic_source| ping(place, Operation::Write, rnic_source);
    vec![
        write(MEBI),
        Case::new(place, kernel(true)),
        write(KIBI_64),
        write(64),
        round_trip(RnicSource::Embedded),
        Case::new(place, Work::KernelPing),
        round_trip(DAEMON),
        round_trip(RnicSource::Daemon(Polling::Spin)),
    ]
}

fn memory() -> Vec<Case> {
    let run = |work, size, mtu| Case::alone(Work::Memory(MemoryRun { work, size, mtu }));
    vec![
        run(MemoryWork::Engine, MEBI, 1500),
        run(MemoryWork::Bare, 1460, 1500),
        run(MemoryWork::Verified, 1460, 1500),
        run(MemoryWork::Engine, MEBI, 3506),
        run(MemoryWork::Bare, 3466, 3506),
        run(MemoryWork::Verified, 3466, 3506),
        run(MemoryWork::Engine, 64, 1500),
    ]
}

fn inline(mtu: u32) -> Place {
    Place::cable(mtu, Napi::Inline)
}

fn raw(place: Place, load: Load) -> Case {
    Case::new(place, Work::RawRate(load))
}

fn rdma(place: Place, run: RnicRun) -> Case {
    Case::new(place, Work::Rnic(run))
}

fn kernel(offloads: bool) -> Work {
    Work::KernelStream(Stream { offloads })
}

/// Without those that are there already.
fn once_each(all: Vec<Case>) -> Vec<Case> {
    let mut once: Vec<Case> = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_cases_have_the_same_name_and_the_short_runs_are_part_of_the_long_one() {
        let all = full();
        for (index, one) in all.iter().enumerate() {
            assert!(
                !all[..index].iter().any(|other| other.name == one.name),
                "{}",
                one.name
            );
        }
        for one in quick().into_iter().chain(smoke()) {
            assert!(all.contains(&one), "{}", one.name);
        }
    }
}
