//! Asking for Markers, and a peer that refuses them.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{DisconnectReason, Event, MarkerUse, MpaOptions, QpState};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::WcStatus;

use crate::impairment::Impairment;
use crate::raw::Duel;
use crate::side::{Side, SideConfig};
use crate::world::World;

const SOON: Duration = Duration::from_secs(5);
/// Where the flags of a start-up frame are, and that for Markers.
const FLAGS: usize = 16;
const M: u8 = 0x80;
/// As Linux's siw refuses: R and S, C as it was asked, and words of no depths.
const REFUSAL: &[u8] = b"MPA ID Rep Frame\x70\x02\x00\x04\x00\x00\x00\x00";
const WORD: &[u8] = b"MPA ID Rep Frame\x70\x02\x00\x06\x80\x10\x80\x10no";
const ACCEPTS: &[u8] = b"MPA ID Rep Frame\x50\x02\x00\x04\x80\x10\x80\x10";

fn mpa(markers: MarkerUse) -> MpaOptions {
    MpaOptions {
        markers,
        ..MpaOptions::default()
    }
}

/// A queue pair with a receive that has asked a raw peer, and is about to be answered.
fn asking(markers: MarkerUse) -> (Duel, QpNum) {
    let mut duel = Duel::new(SideConfig::default());
    let qp = duel.ask(mpa(markers), b"hello");
    duel.side.post_recv(qp, 1, 0, 64);
    assert!(duel.peer.received.ends_with(b"hello"));
    assert_eq!(
        duel.peer.received[FLAGS] & M != 0,
        markers != MarkerUse::Off
    );
    (duel, qp)
}

/// What its client was told, in order.
fn told(side: &Side) -> Vec<&Event> {
    side.client_events().collect()
}

#[test]
fn a_responder_that_refuses_markers_is_asked_once_more_without_them() {
    let (mut duel, qp) = asking(MarkerUse::Prefer);
    duel.send(REFUSAL, 1448);
    assert_eq!(duel.side.state(qp), QpState::Connecting);
    assert_eq!(duel.peer.received[FLAGS] & M, 0, "another request");
    assert!(duel.peer.received.ends_with(b"hello"));
    duel.send(ACCEPTS, 1448);
    match told(&duel.side)[..] {
        [Event::Established { mpa, .. }] => assert_eq!(mpa.markers, MarkerUse::Off),
        ref other => panic!("{other:?}"),
    }
    assert!(
        duel.side.completion(1).is_none(),
        "what was posted before stays posted"
    );
    assert_eq!(duel.side.counter("markers_refused"), 1);
    assert_eq!(duel.side.counter("startup_failed"), 0);
    let command = Command::Disconnect { qp, abort: true };
    duel.side.shard.execute(command, duel.now).unwrap();
    duel.pump();
    assert_eq!(duel.side.shard.levels().connections, 0);
}

/// Also when the last word of the first connection, a reset, comes late or never: then the second
/// one's SYN finds the first one, and TCP has to sort that out.
#[test]
fn the_first_connection_may_linger_at_the_peer() {
    let (mut duel, qp) = asking(MarkerUse::Prefer);
    duel.resets_to_lose = 1;
    duel.send(REFUSAL, 1448);
    duel.run_for(SOON);
    assert_eq!(duel.peer.received[FLAGS] & M, 0, "another request");
    duel.send(ACCEPTS, 1448);
    assert_eq!(duel.side.state(qp), QpState::Rts);
}

#[test]
fn a_second_rejection_is_the_last() {
    for answer in [REFUSAL, WORD] {
        let (mut duel, qp) = asking(MarkerUse::Prefer);
        duel.send(REFUSAL, 1448);
        duel.send(answer, 1448);
        match told(&duel.side)[..] {
            [Event::Rejected { .. }] => {}
            ref other => panic!("{other:?}"),
        }
        assert_eq!(duel.side.state(qp), QpState::Error);
        let flushed = duel.side.completion(1).map(|done| done.status);
        assert_eq!(flushed, Some(WcStatus::WorkRequestFlushed as u8));
    }
}

#[test]
fn a_rejection_with_private_data_is_the_applications() {
    let (mut duel, qp) = asking(MarkerUse::Prefer);
    duel.send(WORD, 1448);
    match told(&duel.side)[..] {
        [Event::Rejected { private_data, .. }] => assert_eq!(private_data, b"no"),
        ref other => panic!("{other:?}"),
    }
    assert_eq!(duel.side.state(qp), QpState::Error);
    assert_eq!(duel.side.counter("markers_refused"), 0);
}

#[test]
fn without_a_preference_every_rejection_is_the_last() {
    for markers in [MarkerUse::Require, MarkerUse::Off] {
        let (mut duel, qp) = asking(markers);
        duel.send(REFUSAL, 1448);
        assert!(matches!(told(&duel.side)[..], [Event::Rejected { .. }]));
        assert_eq!(duel.side.state(qp), QpState::Error);
    }
}

#[test]
fn a_peer_that_goes_away_at_the_second_request_fails_the_connect() {
    let (mut duel, qp) = asking(MarkerUse::Prefer);
    duel.send(REFUSAL, 1448);
    let second = duel.peer.conn.unwrap();
    duel.peer.stack.abort(second);
    duel.pump();
    match told(&duel.side)[..] {
        [Event::ConnectFailed { reason, .. }] => assert_eq!(*reason, DisconnectReason::Reset),
        ref other => panic!("{other:?}"),
    }
    assert_eq!(duel.side.state(qp), QpState::Error);
    assert_eq!(duel.side.shard.levels().connections, 0);
}

#[test]
fn a_client_may_give_up_at_the_second_request() {
    let (mut duel, qp) = asking(MarkerUse::Prefer);
    duel.send(REFUSAL, 1448);
    let command = Command::Disconnect { qp, abort: false };
    duel.side.shard.execute(command, duel.now).unwrap();
    assert_eq!(duel.side.state(qp), QpState::Error);
    assert_eq!(duel.side.shard.levels().connections, 0);
}

/// A responder has no second try, so it asks only an initiator of which it knows that it has Markers.
#[test]
fn a_responder_that_prefers_markers_asks_for_them_who_asks_for_them() {
    use MarkerUse::{Off, Prefer, Require};
    for (ours, theirs, agreed) in [
        (Off, Prefer, [Off, Off]),
        (Require, Prefer, [Require, Require]),
        (Prefer, Prefer, [Require, Require]),
        (Prefer, Off, [Require, Off]),
        (Off, Require, [Off, Require]),
    ] {
        let mut world = World::new(1, Impairment::NONE);
        world.connect_as(mpa(ours), mpa(theirs));
        let found = [&world.a, &world.b].map(|side| {
            let mut events = side.client_events();
            events.find_map(|event| match event {
                Event::Established { mpa, .. } => Some(mpa.markers),
                _ => None,
            })
        });
        assert_eq!(found, agreed.map(Some), "{ours:?} and {theirs:?}");
        assert_eq!(world.a.counter("markers_refused"), 0);
    }
}

/// It can't be told from a refusal of Markers: the application is asked a second time.
#[test]
fn a_rejection_without_a_word_costs_a_second_request() {
    let mut world = World::new(1, Impairment::NONE);
    world.b.listen(4, world.now);
    let qp = world.start_connect(mpa(MarkerUse::Prefer), b"please");
    let mut asked = Vec::new();
    assert!(world.run_until(SOON, |w| {
        if let Some((request, mpa, _)) = w.b.take_request() {
            asked.push(mpa.markers);
            let command = Command::Reject {
                request,
                private_data: Vec::new(),
            };
            w.b.shard.execute(command, w.now).unwrap();
        }
        !told(&w.a).is_empty()
    }));
    assert!(matches!(told(&world.a)[..], [Event::Rejected { .. }]));
    assert_eq!(asked, [MarkerUse::Require, MarkerUse::Off]);
    assert_eq!(world.a.state(qp), QpState::Error);
}
