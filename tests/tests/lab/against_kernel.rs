//! Our TCP and the kernel's, either way, over bad links: every byte arrives as it was sent, and
//! ours does not fall far behind. How fast it is in release builds, `scripts/tcp-table` tells.

use rnic_tests::kernel_comparison::cell::Cell;
use rnic_tests::kernel_comparison::table::mbit;
use rnic_tests::kernel_comparison::{Endpoints, Outcome, TestBed};
use rnic_tests::lab::Family;
use rnic_tests::linksim::count;

/// Bytes of each transfer: some thousands of segments.
const BYTES: u64 = 8 << 20;
/// And on a link on which the kernel does not reach ten megabits a second.
const FEW_BYTES: u64 = 2 << 20;
/// What ours must reach of the kernel's goodput: programs without optimization on a busy machine
/// have a hard time.
const LEAST: f64 = 0.2;
/// Of so many transfers the best counts: a short one is a matter of luck.
const ATTEMPTS: usize = 3;

/// Both roles of ours and the kernel's own over both versions of IP; streams are compared within.
fn compare(name: &str, mut look: impl FnMut(Endpoints, &Outcome)) {
    let cell = Cell::named(name).expect("there is such a link");
    let bytes = if name == "loss-5" { FEW_BYTES } else { BYTES };
    let mut test_bed = TestBed::new(name);
    for family in Family::ALL {
        let mut kernel = None;
        for endpoints in Endpoints::ALL {
            let keeps_up = (0..ATTEMPTS).any(|_| {
                let outcome = test_bed.run(&cell, endpoints, family, bytes, 7);
                look(endpoints, &outcome);
                let took = outcome
                    .received
                    .or(outcome.sent)
                    .expect("one end is the kernel's");
                let goodput = mbit(bytes, took);
                println!("{name} {family:?} {endpoints:?}: {goodput:.1} Mbit/s");
                let least = LEAST * *kernel.get_or_insert(goodput);
                if goodput <= least {
                    println!("not even {least:.1} Mbit/s: {:?}", outcome.ours);
                }
                goodput > least
            });
            assert!(keeps_up, "{endpoints:?} over {family:?} is too slow");
        }
    }
}

/// What the link counted of packets with payload and of those without.
fn both(outcome: &Outcome, name: &str) -> u64 {
    count(&outcome.link, &format!("to_right.{name}"))
        + count(&outcome.link, &format!("to_left.{name}"))
}

#[test]
fn a_clean_link() {
    compare("clean", |_, outcome| assert_eq!(both(outcome, "lost"), 0));
}

#[test]
fn a_link_that_loses_one_of_a_thousand() {
    compare("loss-0.1", |_, outcome| assert!(both(outcome, "lost") > 0));
}

#[test]
fn a_link_that_loses_one_of_a_hundred() {
    compare("loss-1", |_, outcome| assert!(both(outcome, "lost") > 20));
}

#[test]
fn a_link_that_loses_one_of_twenty() {
    compare("loss-5", |_, outcome| assert!(both(outcome, "lost") > 50));
}

#[test]
fn a_link_that_reorders() {
    compare("reorder", |_, outcome| {
        assert!(both(outcome, "reordered") > 20, "{}", outcome.link);
    });
}

#[test]
fn a_link_that_duplicates() {
    compare("duplicate", |_, outcome| {
        assert!(both(outcome, "duplicated") > 50, "{}", outcome.link);
    });
}

#[test]
fn a_link_that_damages_packets_and_checksums_that_find_every_one() {
    compare("corrupt", |endpoints, outcome| {
        let damaged = count(&outcome.link, "to_right.corrupted");
        assert!(damaged > 5, "{}", outcome.link);
        let found = match &outcome.ours {
            Some(ours) if endpoints == Endpoints::OursReceives => count(ours, "link.bad_checksums"),
            _ => outcome.kernel_checksum_errors,
        };
        // The kernel counts those apart whose IP header was hit, and a packet that got another
        // address or protocol is not looked at at all.
        assert!(
            found > damaged / 2 && found <= damaged,
            "{endpoints:?}: {found} found of {damaged} damaged"
        );
    });
}

#[test]
fn a_link_whose_mtu_shrinks_in_mid_stream() {
    compare("mtu", |_, outcome| {
        assert_eq!(both(outcome, "changes"), 1);
        assert!(both(outcome, "icmp_sent") > 0, "{}", outcome.link);
    });
}

#[test]
fn a_link_whose_mtu_shrinks_in_mid_stream_and_nobody_is_told() {
    let cell = Cell::SILENT;
    let mut test_bed = TestBed::new(cell.name);
    for family in Family::ALL {
        let outcome = test_bed.run(&cell, Endpoints::OursSends, family, BYTES, 7);
        assert_eq!(both(&outcome, "changes"), 1);
        assert!(both(&outcome, "too_big") > 0, "{}", outcome.link);
        assert_eq!(both(&outcome, "icmp_sent"), 0, "{}", outcome.link);
        let goodput = mbit(BYTES, outcome.received.expect("the kernel receives"));
        println!("{} {family:?}: {goodput:.1} Mbit/s", cell.name);
    }
}

#[test]
fn a_link_with_a_delay() {
    compare("delay", |_, _| {});
}

#[test]
fn a_link_with_a_little_of_everything() {
    compare("mixed", |_, outcome| {
        assert!(both(outcome, "resegmented") > 10, "{}", outcome.link);
    });
}
