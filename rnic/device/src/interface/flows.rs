//! What the shard tells the steering program of its flows.

use std::net::IpAddr;

use rnic_engine::shard;
use rnic_steering::{FlowState, KnownFlows};
use userspace_net::FourTuple;

/// The steering program's table, in the shard's hands.
#[derive(Debug)]
pub(crate) struct Flows(pub KnownFlows);

impl shard::FlowSink for Flows {
    fn enter(&mut self, tuple: &FourTuple, state: shard::FlowState) {
        let (local, remote) = ends(tuple);
        self.0.enter(local, remote, of(state));
    }

    fn remove(&mut self, tuple: &FourTuple, state: shard::FlowState) {
        let (local, remote) = ends(tuple);
        self.0.leave(local, remote, of(state));
    }
}

fn ends(tuple: &FourTuple) -> ((IpAddr, u16), (IpAddr, u16)) {
    let FourTuple { local, remote } = tuple;
    ((local.addr, local.port), (remote.addr, remote.port))
}

fn of(state: shard::FlowState) -> FlowState {
    match state {
        shard::FlowState::HalfOpen => FlowState::HalfOpen,
        shard::FlowState::Known => FlowState::Known,
    }
}
