//! What an operator is shown of a session, held against the chunks on the link.

use std::collections::BTreeMap;
use std::time::Duration;

use rnic_engine::command::{Answer, Command};
use rnic_ipc::control::Transport;
use rnic_ipc::inspect::ConnectionInfo;
use rnic_ipc::work::WrOpcode;
use rnic_net::PathDefaults;
use userspace_net::Instant;
use userspace_sctp::chunk::Chunk;
use userspace_sctp::packet::Packet;

use crate::impairment::Impairment;
use crate::side::Side;
use crate::world::World;

/// One frame of fifty is lost.
const LOSSY: Impairment = Impairment {
    loss: 20,
    ..Impairment::NONE
};
const LEN: usize = 2_000_000;
/// User data in a packet of 1500 bytes over IPv4.
const MESSAGE_MAX: u32 = 1500 - 20 - 12 - 16;

/// A host's only connection.
fn look(side: &mut Side, now: Instant) -> ConnectionInfo {
    let command = Command::InspectConnections { after: 0 };
    match side.shard.execute(command, now) {
        Ok(Answer::Connections { mut found, .. }) => {
            assert_eq!(found.len(), 1, "{found:?}");
            found.remove(0)
        }
        other => panic!("{other:?}"),
    }
}

/// Bytes of user data in frames, each TSN once, and the DATA chunks that were there before.
fn transferred(frames: &[Vec<u8>]) -> (u64, u64) {
    let (mut by_tsn, mut again) = (BTreeMap::new(), 0);
    for frame in frames {
        let parsed = rnic_net::parse(frame, &PathDefaults::new(1500)).unwrap();
        let packet = Packet::parse(&frame[parsed.data]).unwrap();
        for chunk in packet.chunks() {
            if let Chunk::Data(data) = chunk {
                let before = by_tsn.insert(data.tsn.0, data.payload.len() as u64);
                again += u64::from(before.is_some());
            }
        }
    }
    (by_tsn.values().sum(), again)
}

#[test]
fn an_operator_sees_what_went_over_a_session() {
    for impairment in [Impairment::NONE, LOSSY] {
        let mut world = World::new(5, impairment).over_sctp();
        for link in [&mut world.a_to_b, &mut world.b_to_a] {
            link.kept = Some([Vec::new(), Vec::new()]);
        }
        let (qp_a, qp_b) = world.connect();
        let remote = world.b.stag;
        world.a.fill(0, LEN, 1);
        world.b.post_recv(qp_b, 2, 4 << 20, 64);
        let a = &mut world.a;
        a.push_work(qp_a, WrOpcode::Write, 3, 0, (remote, 0), LEN);
        a.post_work(qp_a, WrOpcode::Send, 4, 0, (remote, 0), 64);
        let arrived = world.run_until(Duration::from_secs(120), |w| {
            w.b.completion(2).is_some() && w.a.completion(4).is_some()
        });
        assert!(arrived, "{:?}", world.b.events);
        // The last chunks are acknowledged.
        world.run_for(Duration::from_secs(2));
        let now = world.now;
        let shown = [look(&mut world.a, now), look(&mut world.b, now)];
        let links = [&world.a_to_b, &world.b_to_a];
        let [(from_a, again_a), (from_b, again_b)] =
            links.map(|link| transferred(&link.kept.as_ref().unwrap()[0]));
        let [(to_b, _), (to_a, _)] = links.map(|link| transferred(&link.kept.as_ref().unwrap()[1]));
        let [a, b] = &shown;
        assert!(from_a > LEN as u64, "{from_a}");
        assert_eq!((a.bytes_out, a.bytes_in), (from_a, to_a));
        assert_eq!((b.bytes_out, b.bytes_in), (from_b, to_b));
        assert_eq!((a.retransmits, b.retransmits), (again_a, again_b));
        assert_eq!(again_a > 0, impairment.loss > 0, "{again_a}");
        for (side, one) in [&mut world.a, &mut world.b].into_iter().zip(&shown) {
            assert_eq!(one.transport, Transport::Sctp);
            assert_eq!(one.timeouts, side.counter("sctp_timeouts"));
            assert_eq!((one.mss, one.in_flight), (MESSAGE_MAX, 0));
            assert!(one.cwnd >= u64::from(MESSAGE_MAX), "{}", one.cwnd);
        }
        // Two delays of the link.
        assert!(a.rtt_us >= Some(40), "{:?}", a.rtt_us);
        assert!(a.rtt_deviation_us > 0);
        assert_eq!(b.bytes_out_of_order > 0, impairment.loss > 0);
    }
}
