//! A peer that tries STags until one is valid.

use std::time::Duration;

use rnic_engine::command::Command;
use userspace_tcp::Event;

use crate::raw::{Duel, request, write_fpdu};
use crate::side::SideConfig;

const UNKNOWN: u32 = 0x1234_5678;

/// Connects, has its stream accepted, and Writes to an STag that there is not.
fn guess(duel: &mut Duel, port: u16) {
    duel.connect_from(&format!("198.18.0.9:{port}"));
    duel.send(&request(0, b""), 1448);
    let (request, mpa, _) = duel.side.take_request().expect("a request");
    let qp = duel.side.create_qp();
    let command = Command::Accept {
        request,
        qp,
        mpa,
        private_data: Vec::new(),
    };
    duel.side.shard.execute(command, duel.now).unwrap();
    duel.pump();
    duel.send(&write_fpdu(UNKNOWN, 0, &[1]), 1448);
    let command = Command::RemoveQp { qp };
    duel.side.shard.execute(command, duel.now).unwrap();
}

#[test]
fn a_peer_that_tries_stags_has_to_wait_and_no_other_does() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    for number in 0..16 {
        guess(&mut duel, 5000 + number);
        assert_eq!(duel.side.counter("stag_guesses_paused"), 0);
    }
    assert_eq!(duel.side.counter("refused_invalid_stag"), 16);
    duel.connect_from("198.18.0.9:5016");
    assert_eq!(duel.side.counter("stag_guesses_paused"), 1);
    assert!(duel.peer.events.contains(&Event::Reset));

    duel.connect_innocent();
    duel.send_innocent(&request(0, b"honest"));
    let (_, _, data) = duel.side.take_request().expect("a request");
    assert_eq!(data, b"honest");

    // After the pause it gets one more, and then has to wait for twice as long.
    duel.run_for(Duration::from_millis(110));
    guess(&mut duel, 5017);
    duel.run_for(Duration::from_millis(190));
    duel.connect_from("198.18.0.9:5018");
    assert_eq!(duel.side.counter("stag_guesses_paused"), 2);
}
