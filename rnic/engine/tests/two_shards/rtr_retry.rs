//! A responder that misses our Ready-to-Receive indication gets it again, and no other does.

use std::time::Duration;

use rnic_engine::command::Command;
use rnic_ipc::control::{DisconnectReason, MpaOptions, QpState};
use rnic_ipc::id::QpNum;

use crate::raw::{Duel, write_fpdu};
use crate::side::SideConfig;

/// The bytes of an indication: an RDMA Write of nothing.
const INDICATION: usize = 20;

/// An initiator whose peer has answered with revision 2 and RTR by Write, and the bytes that it
/// sent until then.
fn opened() -> (Duel, QpNum, usize) {
    opened_with(SideConfig::default())
}

pub fn opened_with(config: SideConfig) -> (Duel, QpNum, usize) {
    let mut duel = Duel::new(config);
    let qp = duel.ask(MpaOptions::default(), b"");
    let request = duel.peer.received.len();
    duel.send(b"MPA ID Rep Frame\x50\x02\x00\x04\x80\x10\x80\x10", 1448);
    assert!(duel.side.is_established(qp));
    (duel, qp, request)
}

#[test]
fn a_quiet_responder_gets_the_indication_three_times_more() {
    let (mut duel, _, request) = opened();
    let indication = write_fpdu(0, 0, b"");
    assert_eq!(indication.len(), INDICATION);
    for (after, count) in [(0, 1), (11, 2), (110, 3), (1100, 4), (60_000, 4)] {
        duel.run_for(Duration::from_millis(after));
        assert_eq!(duel.peer.received[request..], indication.repeat(count));
    }
}

#[test]
fn a_responder_that_was_heard_gets_the_indication_once() {
    let (mut duel, qp, request) = opened();
    duel.send(&write_fpdu(0, 0, b""), 1448);
    duel.run_for(Duration::from_secs(5));
    assert_eq!(duel.peer.received.len(), request + INDICATION);
    assert_eq!(duel.side.state(qp), QpState::Rts);
}

#[test]
fn a_quiet_responder_does_not_hold_up_the_end_of_a_connection() {
    let (mut duel, qp, _) = opened();
    let command = Command::Disconnect { qp, abort: false };
    duel.side.shard.execute(command, duel.now).unwrap();
    // The peer acknowledges our FIN and never sends its own.
    duel.run_for(Duration::from_secs(11));
    let ended = duel.side.disconnected(qp);
    assert_eq!(ended, Some(DisconnectReason::TimedOut));
    assert_eq!(duel.side.shard.levels().connections, 0);
}
