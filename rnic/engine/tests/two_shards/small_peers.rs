//! Peers whose segments or windows are small (RFC 5044 section 4.5): FPDUs are as small as what they
//! take, and a peer that takes no smallest FPDU is refused by name.

use std::time::Duration;

use rnic_ipc::control::{DisconnectReason, Event as ClientEvent, MarkerUse, MpaOptions};
use rnic_ipc::work::WrOpcode;
use userspace_tcp::Event;

use crate::hostile::accept;
use crate::impairment::Impairment;
use crate::raw::{Duel, request, write_fpdu};
use crate::side::{BASE, SideConfig, pattern};
use crate::world::World;

const SOON: Duration = Duration::from_secs(5);

/// Bytes of IPv4 and TCP headers with timestamps around a segment's.
const HEADERS: u32 = 20 + 20 + 12;
/// The FPDU of a ULPDU of 128 bytes: length, padding, CRC.
const SMALLEST: u32 = 136;

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
    assert!(message.contains("TCP segments hold 135 bytes"), "{message}");
    assert!(message.contains("needs 136"), "{message}");
}

#[test]
fn segments_that_hold_the_smallest_fpdu_are_enough() {
    let mut world = world(SideConfig::of_mtu(HEADERS + SMALLEST));
    write(&mut world, 5000);
}

/// A raw peer that offers so much has sent its MPA Request.
fn asked_by_a_peer_that_offers(window: u16) -> Duel {
    let mut duel = Duel::offering(SideConfig::default(), window);
    duel.side.listen(4, duel.now);
    duel.connect();
    duel.send(&request(0, b""), 100);
    duel
}

#[test]
fn a_peer_whose_window_takes_no_smallest_fpdu_is_refused() {
    let mut duel = asked_by_a_peer_that_offers(SMALLEST as u16 - 1);
    assert!(duel.side.take_request().is_none());
    assert!(duel.peer.events.contains(&Event::Reset));
    let mut duel = asked_by_a_peer_that_offers(SMALLEST as u16);
    assert!(duel.side.take_request().is_some());
}

/// The side under test asks a raw peer that offers so much.
fn asks_a_peer_that_offers(window: u16) -> Duel {
    let mut duel = Duel::offering(SideConfig::default(), window);
    let _ = duel.ask(MpaOptions::default(), b"");
    duel
}

/// Why the side under test did not connect.
fn why(duel: &Duel) -> Option<(DisconnectReason, String)> {
    duel.side.client_events().find_map(|event| match event {
        ClientEvent::ConnectFailed {
            reason, message, ..
        } => Some((*reason, message.clone())),
        _ => None,
    })
}

/// What a responder offers with its SYN-ACK decides.
#[test]
fn an_initiator_says_that_the_window_takes_no_smallest_fpdu() {
    let small = SMALLEST as u16 - 1;
    let duel = asks_a_peer_that_offers(small);
    let (reason, message) = why(&duel).unwrap();
    assert_eq!(reason, DisconnectReason::NotMpa, "{message}");
    assert!(message.contains("TCP window takes 135 bytes"), "{message}");
    assert!(duel.peer.received.is_empty(), "no Request went out");
    assert_eq!(
        duel.peer.conn, None,
        "it was reset before it was established"
    );

    let mut duel = asks_a_peer_that_offers(SMALLEST as u16);
    assert_eq!(why(&duel), None);
    duel.send(b"MPA ID Rep Frame\x50\x02\x00\x04\x80\x10\x80\x10", 1448);
    assert_eq!(why(&duel), None);
    assert!(
        duel.side
            .client_events()
            .any(|event| matches!(event, ClientEvent::Established { .. }))
    );
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
