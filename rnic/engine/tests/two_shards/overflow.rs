//! What the overflow of one completion queue leaves alone.

use std::time::Duration;

use rnic_ipc::control::{DisconnectReason, Event, QpState};
use rnic_ipc::id::CqId;
use rnic_ipc::work::{WcStatus, WrOpcode};

use crate::impairment::Impairment;
use crate::world::World;

/// RFC 5040 section 8.1.1, RFC 5042 section 6.4.6: streams that don't use it are not affected.
#[test]
fn a_cq_that_overflows_leaves_streams_of_other_cqs_alone() {
    let mut world = World::new(1, Impairment::NONE);
    let (other, other_b) = world.connect();
    let small = CqId(2);
    world.a.add_cq(small, 8);
    let (full, _) = world.connect();
    let stag = world.b.stag;
    let to = (stag, 0);
    for id in 0..20 {
        world.a.post_work(full, WrOpcode::Write, id, 0, to, 8);
    }
    world.run_for(Duration::from_secs(1));
    let died = |e: &Event| *e == Event::CqError { cq: small };
    assert!(world.a.client_events().any(died));
    let reason = world.a.disconnected(full);
    assert_eq!(reason, Some(DisconnectReason::LocalError));
    assert_eq!(world.a.disconnected(other), None);
    assert_eq!(world.a.state(other), QpState::Rts);
    world.b.post_recv(other_b, 100, 0, 8);
    world.a.post_work(other, WrOpcode::Send, 101, 0, to, 8);
    world.run_for(Duration::from_secs(1));
    for (side, id) in [(&world.a, 101), (&world.b, 100)] {
        let done = side.completion(id).map(|done| done.status);
        assert_eq!(done, Some(WcStatus::Success as u8), "{id}");
    }
}

/// RFC 5040 section 8.1.1: all streams that use it end, those too which were at rest.
#[test]
fn a_cq_that_overflows_ends_every_stream_that_uses_it() {
    let mut world = World::new(1, Impairment::NONE);
    let small = CqId(2);
    world.a.add_cq(small, 8);
    let streams = [world.connect().0, world.connect().0, world.connect().0];
    let to = (world.b.stag, 0);
    for id in 0..20 {
        world.a.post_work(streams[1], WrOpcode::Write, id, 0, to, 8);
    }
    world.run_for(Duration::from_secs(1));
    for qp in streams {
        let reason = world.a.disconnected(qp);
        assert_eq!(reason, Some(DisconnectReason::LocalError), "{qp}");
        assert_eq!(world.a.state(qp), QpState::Error, "{qp}");
    }
}
