//! What one segment costs, in nanoseconds: received, sent, acknowledged, out of order, and to one of
//! many connections. `cargo bench -p userspace-tcp [-- NAME...]` prints a table.
//!
//! One round is a few thousand segments; the median and the least of all rounds are printed. Nothing
//! is asserted: without `--bench` (by `cargo test`) one short round runs, to see that it works.
#![allow(clippy::unwrap_used)]

mod flow;
mod measure;

use flow::{Flow, Random};
use measure::Bench;
use userspace_tcp::{Flags, Segment};

const FLOWS: [usize; 3] = [1, 1000, 100_000];

/// Segments of a round on one connection.
const ROUND: usize = 4096;

/// Frames that a poll of the link brings.
const BATCH: usize = 64;

fn main() {
    let bench = Bench::from_arguments();
    parse(&bench);
    in_order(&bench);
    out_of_order(&bench);
    send(&bench);
    pure_acks(&bench);
    selective_acks(&bench);
    lookup(&bench);
}

/// Header bytes to a value, and a value to bytes.
fn parse(bench: &Bench) {
    let flow = Flow::open();
    let header = flow.data_header(0);
    let mut bytes = vec![0; header.header_len() + 1448];
    bench.run("parse a header with timestamps", ROUND, |timer| {
        header.emit(&mut bytes);
        timer.time(|| {
            for _ in 0..ROUND {
                std::hint::black_box(Segment::parse(std::hint::black_box(&bytes)).unwrap());
            }
        });
    });
    bench.run("write a header with timestamps", ROUND, |timer| {
        timer.time(|| {
            for _ in 0..ROUND {
                std::hint::black_box(&header).emit(std::hint::black_box(&mut bytes));
            }
        });
    });
}

/// 1448 bytes in order; every second segment is answered.
fn in_order(bench: &Bench) {
    let mut flow = Flow::open();
    bench.run("receive 1448 bytes in order, ACKs out", ROUND, |timer| {
        for _ in 0..ROUND / BATCH {
            timer.time(|| {
                for _ in 0..BATCH {
                    flow.receive_next(1448);
                }
                flow.drain();
            });
        }
    });
}

/// Every second segment is missing and comes later; each is answered with SACK blocks.
fn out_of_order(bench: &Bench) {
    let mut flow = Flow::open();
    bench.run("receive out of order, SACKs out", ROUND, |timer| {
        for _ in 0..ROUND / 32 {
            timer.time(|| {
                for odd in [1_u64, 0] {
                    for i in 0..16 {
                        flow.receive_at((2 * i + odd) * 1448, 1448);
                        flow.drain();
                    }
                }
            });
            flow.consume();
        }
    });
}

/// From the layer above to the link and back.
fn send(bench: &Bench) {
    let mut flow = Flow::open();
    flow.widen(8192);
    bench.run("send 1448 bytes to the link and back", ROUND, |timer| {
        for _ in 0..ROUND / BATCH {
            timer.time(|| {
                for _ in 0..BATCH {
                    flow.send(1448);
                }
                flow.drain();
            });
            flow.acknowledge_all();
        }
    });
}

/// An ACK of two segments, with 64 or 4096 of them in flight.
fn pure_acks(bench: &Bench) {
    for in_flight in [BATCH, 4096] {
        let mut flow = Flow::open();
        flow.widen(8192);
        for _ in 0..in_flight {
            flow.send(1448);
        }
        flow.drain();
        let name = format!("take an ACK of two segments, {in_flight} in flight");
        bench.run(&name, ROUND, |timer| {
            for _ in 0..ROUND / 32 {
                timer.time(|| {
                    for _ in 0..32 {
                        flow.acknowledge(2 * 1448);
                    }
                });
                for _ in 0..64 {
                    flow.send(1448);
                }
                flow.drain();
            }
        });
    }
}

/// One hole, and one more segment above it reported by each ACK. Recovery shrinks the window: each
/// round has a connection of its own.
fn selective_acks(bench: &Bench) {
    let name = "take an ACK with a growing SACK block, 1024 in flight";
    bench.run(name, 1024, |timer| {
        let mut flow = Flow::open();
        flow.widen(2048);
        for _ in 0..1025 {
            flow.send(1448);
        }
        flow.drain();
        timer.time(|| {
            for i in 1..=1024 {
                flow.selectively_acknowledge(1448, (i + 1) * 1448);
            }
        });
    });
}

/// One connection of many, in random order: only found (a second connection between the same ends is
/// refused after that), found and its segment dropped after the first checks, or taken with bytes.
/// The segments themselves are there already, as a link would have brought them.
fn lookup(bench: &Bench) {
    for flows in FLOWS {
        if !bench.wants("connections") {
            return;
        }
        let mut all = Flow::many(flows);
        let mut random = Random::new(1);
        bench.run(
            &format!("find one of {flows} connections"),
            ROUND,
            |timer| {
                let arrivals = all.arrivals(ROUND, 0, Flags(0), &mut random);
                timer.time(|| {
                    for arrival in &arrivals {
                        all.find(arrival);
                    }
                });
            },
        );
        let name = format!("drop a segment to one of {flows} connections");
        bench.run(&name, ROUND, |timer| {
            let arrivals = all.arrivals(ROUND, 0, Flags(0), &mut random);
            timer.time(|| {
                for arrival in &arrivals {
                    all.receive(arrival);
                }
            });
            all.drain();
        });
        let name = format!("100 bytes in order to one of {flows} connections, ACKs out");
        bench.run(&name, ROUND, |timer| {
            let flags = Flags::ACK | Flags::PSH;
            let arrivals = all.arrivals(ROUND, 100, flags, &mut random);
            for batch in arrivals.chunks(BATCH) {
                timer.time(|| {
                    for arrival in batch {
                        all.receive(arrival);
                    }
                    all.drain();
                });
            }
        });
    }
}
