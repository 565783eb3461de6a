//! Peers whose segments or windows are small (RFC 5044 section 4.5). FPDUs are as small as what they take. A
//! peer whose segments hold no smallest FPDU is refused by name. For a window that does not, FPDUs are cut.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{DisconnectReason, Event as ClientEvent, MarkerUse, MpaOptions};
use rnic_ipc::work::WrOpcode;
use userspace_tcp::{Flags, SeqNum};

use crate::hand::{Hand, ISS, segment};
use crate::hostile::accept;
use crate::impairment::Impairment;
use crate::random::{Random, seeds};
use crate::raw::{Duel, request, write_fpdu};
use crate::side::{BASE, SideConfig, pattern};
use crate::world::World;

const SOON: Duration = Duration::from_secs(5);

/// Bytes of IPv4 and TCP headers with timestamps around a segment's.
const HEADERS: u32 = 20 + 20 + 12;
/// The FPDU of a ULPDU of 128 bytes: length, padding, CRC, a Marker.
const SMALLEST: u32 = 140;

/// A world whose second host is changed.
fn world(b: SideConfig) -> World {
    World::with(1, Impairment::NONE, SideConfig::default(), b, false)
}

/// Why the first host's attempt to connect failed.
fn refusal(world: &mut World) -> (DisconnectReason, String) {
    world.b.listen(4, world.now);
    world.start_connect(MpaOptions::default(), b"");
    let failure = |w: &World| {
        w.a.client_events().find_map(|event| match event {
            ClientEvent::ConnectFailed {
                reason, message, ..
            } => Some((*reason, message.clone())),
            _ => None,
        })
    };
    assert!(world.run_until(SOON, |w| failure(w).is_some()));
    failure(world).unwrap()
}

/// Writes some thousands of bytes to the second host.
fn write(world: &mut World, len: usize) {
    let (qp, _) = world.connect();
    world.a.fill(0, len, 3);
    let stag = world.b.stag;
    world.a.post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), len);
    let end = pattern(len, 3)[len - 8..].to_vec();
    assert!(world.run_until(SOON, |w| w.b.read(len - 8, 8) == end));
    assert!(world.b.read(0, len) == pattern(len, 3));
}

#[test]
fn a_peer_whose_segments_hold_no_smallest_fpdu_is_refused_by_name() {
    let mut world = world(SideConfig::of_mtu(HEADERS + SMALLEST - 1));
    let (reason, message) = refusal(&mut world);
    assert_eq!(reason, DisconnectReason::NotMpa, "{message}");
    assert!(
        message.contains("MSS lets TCP segments hold 139 bytes"),
        "{message}"
    );
    assert!(message.contains("needs 140"), "{message}");
}

#[test]
fn segments_that_hold_the_smallest_fpdu_are_enough() {
    let mut world = world(SideConfig::of_mtu(HEADERS + SMALLEST));
    write(&mut world, 5000);
}

/// Before FPDUs were made for the window each waited for two window probes, and went beyond it then.
#[test]
fn fpdus_fit_a_window_that_takes_less_than_a_segment_and_never_go_beyond_it() {
    const LEN: usize = 20_000;
    for window in [SMALLEST as u16, 500, 1024, 1447] {
        let mut duel = Duel::offering(SideConfig::default(), window);
        let qp = accept(&mut duel, 100, MarkerUse::Off);
        let stag = duel.side.stag;
        // The initiator sends first (RFC 5044 section 7.1.2).
        duel.send(&write_fpdu(stag.0, BASE, b"first"), 100);
        duel.side
            .post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), LEN);
        duel.run_for(Duration::from_secs(1));
        assert_eq!(duel.peer.beyond, 0, "a window of {window}");
        let came = duel.peer.received.len();
        assert!(came > LEN, "{came} bytes with a window of {window}");
        assert_eq!(duel.side.counter("tcp_retransmits"), 0);
    }
}

/// A peer whose window is of so many bytes at most, and of some fewer most of the time: as many as `left` says.
fn takes_all_from(window: u16, len: usize, mut left: impl FnMut() -> u16) {
    let mut hand = Hand::new(SideConfig::default());
    hand.side.listen(4, hand.now);
    let peer = "198.18.0.9:5000".parse().unwrap();
    let mut says = segment(Flags::SYN, ISS, None);
    says.window = window;
    hand.says(peer, says);
    let ours = hand.sees()[0].header.seq.add(1);
    let local = hand.side.address;
    let mut next = ISS.add(1);
    let mut say = |hand: &mut Hand, ack: SeqNum, window: u16, bytes: &[u8]| {
        let mut says = segment(Flags::default(), next, Some(ack));
        says.window = window;
        hand.says_to(local, peer, says, bytes);
        next = next.add(bytes.len() as u32);
    };
    say(&mut hand, ours, window, &request(0, b""));
    assert!(hand.sees().iter().all(|seen| !seen.header.flags.rst()));
    let qp = hand.side.create_qp();
    let (request, asked, _) = hand.side.take_request().expect("a request");
    let command = Command::Accept {
        request,
        qp,
        mpa: asked,
        private_data: Vec::new(),
    };
    hand.side.shard.execute(command, hand.now).unwrap();
    let stag = hand.side.stag;
    let (mut edge, mut end) = (ours.add(window.into()), ours);
    let (mut came, mut posted) = (Vec::new(), false);
    let limit = hand.now + Duration::from_secs(3600);
    // The Reply, and the Write with its headers.
    while came.len() < 20 + len {
        let before = end;
        for seen in hand.sees_for(Duration::from_millis(1)) {
            assert!(!seen.header.flags.rst(), "a window of {window}: reset");
            if seen.payload.is_empty() {
                continue;
            }
            assert_eq!(seen.header.seq, end, "a window of {window}");
            came.extend_from_slice(&seen.payload);
            end = end.add(seen.payload.len() as u32);
            assert!(edge.distance(end) >= 0, "beyond a window of {window}");
        }
        if came.len() >= 20 && !posted {
            posted = true;
            // The initiator sends first (RFC 5044 section 7.1.2).
            say(&mut hand, end, window, &write_fpdu(stag.0, BASE, b"first"));
            hand.side
                .post_work(qp, WrOpcode::Write, 1, 0, (stag, 0), len);
        }
        // An offer stands until something comes.
        if before != end {
            let offers = window.saturating_sub(left()).max(1);
            let least = edge.distance(end).max(1) as u16;
            say(&mut hand, end, offers.max(least), b"");
            edge = end.add(offers.max(least).into());
        }
        assert!(
            hand.now < limit,
            "a window of {window}: {} bytes",
            came.len()
        );
    }
}

/// A receive buffer holds a few bytes of bookkeeping too: its window may never be as large again as it was first.
#[test]
fn a_window_that_stays_a_few_bytes_below_an_fpdu_stalls_nothing() {
    let sizes = (1..40).chain((40..=2000).step_by(97));
    for (seed, window) in seeds(1).flat_map(|seed| sizes.clone().map(move |size| (seed, size))) {
        let mut random = Random::new(seed * 10_000 + u64::from(window));
        // Within what the last offer promised.
        let len = 300 + 4 * usize::from(window);
        takes_all_from(window, len, || {
            let most = if random.chance(100) {
                window
            } else {
                window / 16 + 2
            };
            random.below(most.into()) as u16
        });
    }
}
