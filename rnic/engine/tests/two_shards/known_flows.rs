//! Which flows the shard says it knows: those whose peer has shown that it has its address, until they
//! are over. Before that an incoming one is half-open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rnic_engine::command::Command;
use rnic_engine::shard::{FlowSink, FlowState};
use rnic_ipc::control::{MpaOptions, QpState};
use userspace_net::FourTuple;

use crate::impairment::Impairment;
use crate::side::Side;
use crate::world::World;

/// The state of each flow that was entered and not left.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<HashMap<FourTuple, FlowState>>>);

impl Told {
    pub fn by(side: &mut Side) -> Self {
        let told = Self::default();
        side.shard.set_flow_sink(Box::new(told.clone()));
        told
    }

    pub fn count(&self) -> usize {
        self.of(FlowState::Known)
    }

    fn of(&self, state: FlowState) -> usize {
        let flows = self.0.lock().unwrap();
        flows.values().filter(|is| **is == state).count()
    }
}

impl FlowSink for Told {
    fn enter(&mut self, tuple: &FourTuple, state: FlowState) {
        let before = self.0.lock().unwrap().insert(*tuple, state);
        assert_eq!(before, None, "{tuple:?}");
    }

    fn remove(&mut self, tuple: &FourTuple, state: FlowState) {
        let before = self.0.lock().unwrap().remove(tuple);
        assert_eq!(before, Some(state), "{tuple:?}");
    }
}

#[test]
fn a_flow_is_known_from_its_beginning_here_or_its_handshake_there_to_its_end() {
    let mut world = World::new(1, Impairment::NONE);
    let (a, b) = (Told::by(&mut world.a), Told::by(&mut world.b));
    world.b.listen(8, world.now);
    world.start_connect(MpaOptions::default(), &[]);
    // Its SYN-ACK is awaited.
    assert_eq!((a.count(), b.count()), (1, 0));
    let mut was_half_open = false;
    while world.b.counter("passive_opens") == 0 {
        assert_eq!(b.count(), 0, "a SYN alone makes no flow known");
        was_half_open |= b.of(FlowState::HalfOpen) == 1;
        world.step();
    }
    assert!(was_half_open);
    assert_eq!((a.count(), b.count()), (1, 1));
    assert_eq!(b.of(FlowState::HalfOpen), 0);

    let mut world = World::new(2, Impairment::NONE);
    let (a, b) = (Told::by(&mut world.a), Told::by(&mut world.b));
    for known in 1..=3 {
        world.connect();
        assert_eq!((a.count(), b.count()), (known, known));
    }
    let (qp, _) = world.connect();
    let state = QpState::Closing;
    let closing = Command::ModifyQp { qp, state };
    world.a.shard.execute(closing, world.now).unwrap();
    world.run_for(Duration::from_secs(1));
    assert_eq!(b.count(), 3);
    // Behind TIME-WAIT.
    world.run_for(Duration::from_secs(120));
    assert_eq!((a.count(), b.count()), (3, 3));
}
