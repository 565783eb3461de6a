//! What a stack takes of memory: at most 2 KiB for an idle established connection, all tables
//! included; nothing at all in steady state; a bounded amount in a flood of SYNs.
#![allow(clippy::unwrap_used)]

mod meter;
mod pair;

use std::time::Duration;

use meter::Meter;
use pair::Pair;
use userspace_tcp::Config;

const CONNECTIONS: usize = 10_000;

/// Bytes for each idle connection.
const EACH: isize = 2048;

fn config() -> Config {
    Config {
        connections: CONNECTIONS,
        ..Config::default()
    }
}

/// Each of the two stacks, everything that it allocated and has not freed.
fn assert_small(pair: &Pair) {
    for meter in &pair.meters {
        let each = meter.bytes / CONNECTIONS as isize;
        println!("{each} bytes for each connection");
        assert!(each <= EACH, "{each} bytes for each connection");
    }
}

#[test]
fn an_idle_connection_that_was_never_used_takes_at_most_2_kib() {
    let mut pair = Pair::new(config());
    pair.open(CONNECTIONS);
    assert_small(&pair);
}

#[test]
fn an_idle_connection_takes_at_most_2_kib_after_all_were_busy_one_after_another() {
    let mut pair = Pair::new(config());
    pair.open(CONNECTIONS);
    for conn in 0..CONNECTIONS {
        pair.transfer(&[conn], 10);
    }
    assert_small(&pair);
}

#[test]
fn an_idle_connection_takes_at_most_2_kib_after_all_were_busy_at_once() {
    let mut pair = Pair::new(config());
    pair.open(CONNECTIONS);
    let all: Vec<usize> = (0..CONNECTIONS).collect();
    for _ in 0..3 {
        pair.transfer(&all, 4);
    }
    assert_small(&pair);
}

#[test]
fn a_transfer_with_losses_in_steady_state_allocates_nothing() {
    let mut pair = Pair::new(config());
    pair.open(100);
    let conns: Vec<usize> = (0..100).collect();
    // As many have holes at once as never again.
    pair.lose_one_in = 10;
    for _ in 0..3 {
        pair.transfer(&conns, 60);
    }
    pair.lose_one_in = 100;
    let before = pair.meters.each_ref().map(|meter| meter.allocations);
    for _ in 0..10 {
        pair.transfer(&conns, 60);
    }
    let after = pair.meters.each_ref().map(|meter| meter.allocations);
    assert_eq!(before, after);
    assert!(pair.retransmits() > 100);
}

#[test]
fn connections_that_come_and_go_take_no_more_than_those_that_stay() {
    let mut pair = Pair::new(Config {
        connections: 100,
        time_wait: Duration::from_millis(1),
        ..Config::default()
    });
    pair.churn(100);
    let before = pair.meters.each_ref().map(|meter| meter.bytes);
    for _ in 0..20 {
        pair.churn(100);
    }
    let after = pair.meters.each_ref().map(|meter| meter.bytes);
    assert_eq!(before, after);
}

#[test]
fn a_flood_of_syns_takes_no_more_than_the_backlog() {
    let mut pair = Pair::new(config());
    let before = pair.meters[1].bytes;
    for source in 0..100_000 {
        pair.stray_syn(source);
    }
    let Meter { bytes, .. } = pair.meters[1];
    let most = (pair::BACKLOG + 64) as isize * EACH;
    assert!(bytes - before < most, "{} bytes", bytes - before);
}
