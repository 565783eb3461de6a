//! The connections of a shard, by TCP's names.

use std::fmt;
use std::net::IpAddr;

use rnic_ipc::control::Transport;
use userspace_net::FourTuple;
use userspace_tcp::ConnId;

use super::OwnFlows;
use super::{Conn, ConnKind, Phase};

/// What the shard knows of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// A SYN-ACK waits for its answer. Anybody could have forged the SYN.
    HalfOpen,
    /// Of a connection that we open, or that is established.
    Known,
}

/// The flows whose segments the link is to bring, whatever it holds back of unknown flows. The calls come
/// from the shard's thread and are no system calls.
pub trait FlowSink: fmt::Debug + Send {
    /// The flow of a connection has this state now. One whose half-open connection TCP forgot still has that
    /// state, until another connection takes the place.
    fn enter(&mut self, tuple: &FourTuple, state: FlowState);
    /// It has this state no more. Once for each [`Self::enter`].
    fn remove(&mut self, tuple: &FourTuple, state: FlowState);
}

/// As many slots as TCP has; TCP's index names the slot, its whole name the connection.
#[derive(Debug)]
pub(crate) struct ConnTable {
    slots: Vec<Option<Conn>>,
    /// By kind.
    counts: [usize; 3],
    flows: Option<Box<dyn FlowSink>>,
    /// Where other shards of the interface look whose a segment is, if there are any.
    own: Option<OwnFlows>,
    /// Flows that had no place there.
    pub unentered: u64,
}

impl ConnTable {
    /// An empty table.
    pub fn new(capacity: usize) -> Self {
        Self {
            slots: Vec::with_capacity(capacity),
            counts: [0; 3],
            flows: None,
            own: None,
            unentered: 0,
        }
    }

    /// Sets the sink that is told which flows are known. Called before the first connection.
    pub fn set_flow_sink(&mut self, flows: Box<dyn FlowSink>) {
        self.flows = Some(flows);
    }

    /// Sets where other shards of the interface look. Called before the first connection.
    pub fn set_flow_owners(&mut self, own: OwnFlows) {
        self.own = Some(own);
    }

    /// The peer of this connection has these addresses, too.
    pub fn add_peer_addresses(&mut self, id: ConnId, others: impl Iterator<Item = IpAddr>) {
        let Some(conn) = self.slots.get_mut(id.index()).and_then(Option::as_mut) else {
            return;
        };
        if conn.id == id {
            let before: Vec<_> = conn.paths().map(|(tuple, _)| tuple).collect();
            conn.add_peer_addresses(others);
            // At no time is one of them missing.
            self.unentered += own(self.own.as_ref(), conn);
            disown(self.own.as_ref(), conn, before.into_iter());
        }
    }

    /// The peer of this connection has shown that it owns the address that its SYN came from. Before that,
    /// anybody could have forged the SYN, so the flow is half-open only.
    pub fn established(&mut self, id: ConnId) {
        let Some(conn) = self.slots.get_mut(id.index()).and_then(Option::as_mut) else {
            return;
        };
        if conn.id == id && conn.entered != Some(FlowState::Known) && conn.has_path() {
            remove(&mut self.flows, conn);
            enter(&mut self.flows, conn, FlowState::Known);
        }
    }

    /// The peer has shown that it has another address, too.
    pub fn confirmed(&mut self, id: ConnId, remote: IpAddr) {
        let slot = self.slots.get_mut(id.index()).and_then(Option::as_mut);
        if let Some(conn) =
            slot.filter(|conn| conn.id == id && conn.entered == Some(FlowState::Known))
            && let Some(flows) = &mut self.flows
            && let Some(tuple) = conn.confirm(remote)
        {
            flows.enter(&tuple, FlowState::Known);
        }
    }

    /// The flow of a connection is about to be this sibling's. Says whether others can know.
    pub fn give_flow(&self, id: ConnId, to: u8) -> bool {
        let (Some(own), Some(conn)) = (&self.own, self.get(id)) else {
            return false;
        };
        own.send_to(to, conn.transport(), &conn.tuple)
    }

    pub fn take_flow_back(&self, id: ConnId, to: u8) {
        if let (Some(own), Some(conn)) = (&self.own, self.get(id)) {
            own.keep_from(to, conn.transport(), &conn.tuple);
        }
    }

    /// Whether a connection with this flow is on its way from another shard.
    pub fn expects(&self, transport: Transport, tuple: &FourTuple) -> bool {
        let own = self.own.as_ref();
        own.is_some_and(|own| own.expects(transport, tuple))
    }

    /// It has come, or does not come.
    pub fn stop_expecting(&self, transport: Transport, tuple: &FourTuple) {
        if let Some(own) = &self.own {
            own.stop_expecting(transport, tuple);
        }
    }

    pub fn count(&self, kind: ConnKind) -> usize {
        self.counts[kind as usize]
    }

    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        self.slots
            .get(id.index())?
            .as_ref()
            .filter(|conn| conn.id == id)
    }

    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.slots
            .get_mut(id.index())?
            .as_mut()
            .filter(|conn| conn.id == id)
    }

    /// How many places there are, used or not.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// The connection at this place, whatever its name.
    pub fn at(&self, place: usize) -> Option<&Conn> {
        self.slots.get(place)?.as_ref()
    }

    /// The memory of a place, for who fetches it ahead of its use.
    pub fn memory_at(&self, place: usize) -> Option<&impl Sized> {
        self.slots.get(place)
    }

    /// Adds a connection. TCP drops half-open connections without an event; one that it dropped in the same
    /// slot is returned.
    pub fn insert(&mut self, mut conn: Conn) -> Option<Conn> {
        let index = conn.id.index();
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        if conn.has_path() {
            let state = match conn.phase {
                Phase::HalfOpen => FlowState::HalfOpen,
                _ => FlowState::Known,
            };
            enter(&mut self.flows, &mut conn, state);
        }
        self.counts[conn.kind as usize] += 1;
        self.unentered += own(self.own.as_ref(), &conn);
        let before = self.slots[index].replace(conn);
        if let Some(before) = &before {
            self.counts[before.kind as usize] -= 1;
            remove(&mut self.flows, before);
            disown_all(self.own.as_ref(), before);
        }
        before
    }

    pub fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().flatten()
    }

    /// Learns again what the headers of all connections' segments are like.
    pub fn forget_predictions(&mut self) {
        let conns = self.slots.iter_mut().flatten();
        let predictions = conns.filter_map(|conn| conn.prediction.as_deref_mut());
        predictions.for_each(super::Prediction::forget);
    }

    /// The names of the connections for which this holds.
    pub fn ids_where(&self, holds: impl Fn(&Conn) -> bool) -> Vec<ConnId> {
        self.iter()
            .filter(|conn| holds(conn))
            .map(|conn| conn.id)
            .collect()
    }

    /// Takes a connection out.
    pub fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let slot = self.slots.get_mut(id.index())?;
        let conn = slot.take_if(|conn| conn.id == id)?;
        self.counts[conn.kind as usize] -= 1;
        remove(&mut self.flows, &conn);
        disown_all(self.own.as_ref(), &conn);
        Some(conn)
    }
}

fn enter(flows: &mut Option<Box<dyn FlowSink>>, conn: &mut Conn, state: FlowState) {
    if let Some(flows) = flows {
        flows.enter(&conn.tuple, state);
        conn.entered = Some(state);
    }
}

fn remove(flows: &mut Option<Box<dyn FlowSink>>, conn: &Conn) {
    if let Some(flows) = flows
        && let Some(state) = conn.entered
    {
        flows.remove(&conn.tuple, state);
        let confirmed = conn.confirmed();
        confirmed.for_each(|tuple| flows.remove(&tuple, FlowState::Known));
    }
}

/// Enters a connection's flows for other shards; says how many had no place.
fn own(own: Option<&OwnFlows>, conn: &Conn) -> u64 {
    let (Some(own), true) = (own, conn.has_path()) else {
        return 0;
    };
    let enter = |(tuple, _)| u64::from(!own.enter(conn.transport(), &tuple));
    conn.paths().map(enter).sum()
}

/// These flows are a connection's no more.
fn disown(own: Option<&OwnFlows>, conn: &Conn, flows: impl Iterator<Item = FourTuple>) {
    if let Some(own) = own.filter(|_| conn.has_path()) {
        flows.for_each(|tuple| own.remove(conn.transport(), &tuple));
    }
}

fn disown_all(own: Option<&OwnFlows>, conn: &Conn) {
    disown(own, conn, conn.paths().map(|(tuple, _)| tuple));
}
