//! A peer that tries STags until one is valid.

use std::net::IpAddr;
use std::time::Duration;

use rnic_engine::command::{Command, ShardEvent};
use rnic_ipc::control::{Access, MpaOptions};
use rnic_ipc::id::QpNum;
use rnic_ipc::work::{Sge, WcStatus, WrOpcode};
use rnic_proto::Stag;
use userspace_tcp::Event;

use crate::raw::{Duel, fpdu, request, write_fpdu};
use crate::side::{BASE, CLIENT, PD, SideConfig};

const UNKNOWN: u32 = 0x1234_5678;

/// Connects from this port and has its stream accepted.
fn accepted(duel: &mut Duel, port: u16) -> QpNum {
    duel.connect_from(&format!("198.18.0.9:{port}"));
    duel.send(&request(0, b""), 1448);
    let qp = duel.side.create_qp();
    duel.accept(qp, |asked| MpaOptions { ord: 1, ..asked });
    qp
}

/// Connects, has its stream accepted, and Writes to an STag that there is not.
fn guess(duel: &mut Duel, port: u16) {
    let qp = accepted(duel, port);
    duel.send(&write_fpdu(UNKNOWN, 0, &[1]), 1448);
    let command = Command::RemoveQp { qp };
    duel.side.shard.execute(command, duel.now).unwrap();
}

/// Pauses that the side told of: of whom, after how many streams, for how long, and how many were not told.
fn told(duel: &mut Duel) -> Vec<(IpAddr, u32, Duration, u64)> {
    let pause = |event: ShardEvent| match event {
        ShardEvent::GuessesPaused {
            client: CLIENT,
            remote,
            streams,
            pause,
            untold,
        } => Some((remote, streams, pause, untold)),
        _ => None,
    };
    duel.side.events.drain(..).filter_map(pause).collect()
}

#[test]
fn a_peer_that_tries_stags_has_to_wait_and_no_other_does() {
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    for number in 0..16 {
        guess(&mut duel, 5000 + number);
        assert_eq!(duel.side.counter("stag_scan_limit"), 0);
    }
    assert_eq!(duel.side.counter("refused_invalid_stag"), 16);
    let peer = "198.18.0.9".parse().unwrap();
    assert_eq!(told(&mut duel), [(peer, 16, Duration::from_millis(100), 0)]);
    duel.connect_from("198.18.0.9:5016");
    assert_eq!(duel.side.counter("stag_scan_limit"), 1);
    assert!(duel.peer.events.contains(&Event::Reset));

    duel.connect_innocent();
    duel.send_innocent(&request(0, b"honest"));
    let (_, _, data) = duel.side.take_request().expect("a request");
    assert_eq!(data, b"honest");

    // After the pause it gets one more, and then has to wait for twice as long.
    duel.run_for(Duration::from_millis(110));
    guess(&mut duel, 5017);
    assert_eq!(told(&mut duel), [(peer, 17, Duration::from_millis(200), 0)]);
    duel.run_for(Duration::from_millis(190));
    duel.connect_from("198.18.0.9:5018");
    assert_eq!(duel.side.counter("stag_scan_limit"), 2);
}

/// The sink of a Read is the local client's: who takes its registration away while the Read is
/// outstanding makes the peer's right answer one with an invalid STag.
#[test]
fn an_answer_into_a_sink_that_its_owner_took_away_is_no_guess() {
    const READ: u64 = 7;
    let sink = Stag(0x5151_0001);
    let mut duel = Duel::new(SideConfig::default());
    duel.side.listen(4, duel.now);
    for number in 0..20 {
        let qp = accepted(&mut duel, 5000 + number);
        // The initiator sends first (RFC 5044 section 7.1.2).
        duel.send(&write_fpdu(duel.side.stag.0, BASE, &[1]), 1448);
        duel.side.register(sink, PD, Access::ALL, 0, 64);
        let sge = Sge {
            addr: BASE,
            length: 64,
            lkey: sink.0,
        };
        let remote = (Stag(9), 0);
        duel.side
            .push_elements(qp, WrOpcode::Read, READ, &[sge], remote);
        duel.side.ring(qp);
        duel.pump();
        let command = Command::RemoveRegion { stag: sink };
        duel.side.shard.execute(command, duel.now).unwrap();
        // A whole Read Response: tagged, last, opcode 2.
        let mut response = vec![0xc1, 0x42];
        response.extend_from_slice(&sink.0.to_be_bytes());
        response.extend_from_slice(&BASE.to_be_bytes());
        response.extend_from_slice(&[0xee; 64]);
        duel.send(&fpdu(&response), 1448);
        let ended = duel.side.completion(READ).map(|done| done.status);
        assert_eq!(ended, Some(WcStatus::LocalProtection as u8), "{number}");
        duel.side.completions.clear();
        let command = Command::RemoveQp { qp };
        duel.side.shard.execute(command, duel.now).unwrap();
    }
    duel.connect_from("198.18.0.9:5100");
    assert_eq!(duel.side.counter("stag_scan_limit"), 0);
}
