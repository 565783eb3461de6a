//! Joins queue pairs by number (`docs/architecture/join.md`): one of both ends connects to the port at which the other
//! listens, and both say which queue pairs are meant.
//!
//! A thread of the device's connects, accepts and tries again, so that a client's request to join waits for no peer.

use std::iter::repeat_with;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rnic_engine::command::{Command, JoinEvent};
use rnic_host::ports::LocalPort;
use rnic_ipc::control::{
    ConnectSpec, JOIN_PORT, JOIN_SLOTS, JoinEnd, JoinNumbers, JoinSpec, ListenSpec, Refusal,
    RefusalCode, Transport,
};
use rnic_ipc::id::{ClientId, ConnRequestId, ListenerId, QpNum};
use rnic_ipc::threads;

use super::core::Core;
use crate::interface::paths::PathToPeer;
use crate::joins::{Hello, Join, Message, OWNER, State, Verdict};
use crate::refuse;
use crate::runtime::{To, log_refusal};

/// Requests that may wait at a listener: more than are kept, so that one that is too many is answered.
const BACKLOG: u32 = 128;

impl Core {
    /// How the numbers by which peers name queue pairs follow from theirs.
    pub(crate) fn join_numbers(&self) -> Result<JoinNumbers, Refusal> {
        if let Some(numbers) = self.joins.numbers.get() {
            return Ok(*numbers);
        }
        let mut key = [0; 8];
        getrandom::fill(&mut key)
            .map_err(|error| refuse::host("random bytes for numbers", error))?;
        let numbers = JoinNumbers {
            slot: self.free_join_slot(),
            key: u64::from_ne_bytes(key),
        };
        Ok(*self.joins.numbers.get_or_init(|| numbers))
    }

    /// The first of the ports for joins that nobody has at this device's addresses. The first of all if there is none: then
    /// joins will say so.
    fn free_join_slot(&self) -> u8 {
        let addresses = self.interface.interface_addresses().unwrap_or_default();
        let is_free = |slot: u8, address: IpAddr| {
            let local = SocketAddr::new(address, JOIN_PORT + u16::from(slot));
            let at = LocalPort::new(self.interface.transport(Transport::Tcp), local);
            let scope = self.interface.home(address);
            scope.is_ok_and(|scope| self.interface.ports.is_free(at, scope))
        };
        let mut slots = 0..JOIN_SLOTS;
        let free = slots.find(|slot| addresses.iter().all(|address| is_free(*slot, *address)));
        free.unwrap_or(0)
    }

    /// Joins an idle queue pair of a client; the address and port at which requests to join come.
    pub(crate) fn join(
        &self,
        client: ClientId,
        qp: QpNum,
        spec: &JoinSpec,
    ) -> Result<SocketAddr, Refusal> {
        let join = self.checked_join(client, qp, spec)?;
        let local = join.local.port();
        let mut state = self.joins.lock();
        if state.table.contains(qp) {
            return Err(refuse::refusal(
                RefusalCode::WrongState,
                &format!("queue pair {qp} is joined already: reset it first"),
            ));
        }
        let reply = join.answer().encode().into_boxed_slice();
        self.set_joined(qp, Some(reply))?;
        if let Err(refusal) = self.listen_for_joins(&mut state, local) {
            log_refusal("a queue pair", self.set_joined(qp, None));
            return Err(refusal);
        }
        state.table.add(qp, join, Instant::now());
        drop(state);
        self.joins.send(Message::Added);
        Ok(local)
    }

    fn checked_join(&self, client: ClientId, qp: QpNum, spec: &JoinSpec) -> Result<Join, Refusal> {
        let malformed = |what: String| Err(refuse::refusal(RefusalCode::Malformed, &what));
        let JoinSpec { local, remote, mpa } = *spec;
        let Some(number) = self.join_numbers()?.number(qp) else {
            return malformed(format!(
                "queue pair {qp} can't be joined: its number is too large for 20 bits"
            ));
        };
        let JoinEnd { address, .. } = remote;
        if remote.number >> 24 != 0 || address.is_unspecified() || address.is_multicast() {
            return malformed(format!(
                "queue pair {:#x} of {address} asked: name a unicast address, and a number of 24 bits",
                remote.number
            ));
        }
        if local.is_ipv4() != address.is_ipv4() {
            return malformed(format!(
                "a join of {local} to {address} asked: use two addresses of one family"
            ));
        }
        let local = JoinEnd {
            address: local,
            number,
        };
        if local == remote {
            return malformed(format!(
                "queue pair {qp} can't be joined to itself: this RNIC has no way for that"
            ));
        }
        // Refused at once, whichever side connects.
        self.is_resolved(client, address, Some(local.address), Duration::ZERO)?;
        Ok(Join {
            client,
            local,
            remote,
            mpa,
        })
    }

    /// A queue pair is joined no more, if it was: it goes, or its client ends its connection. One that is connected keeps
    /// its connection.
    pub(crate) fn leave_join(&self, qp: QpNum) {
        let mut state = self.joins.lock();
        let connected = state.table.is_connected(qp);
        let Some(join) = state.table.remove(qp) else {
            return;
        };
        if !connected {
            log_refusal("a queue pair", self.set_joined(qp, None));
        }
        let local = join.local;
        if !state.table.has_any_at(local.address) {
            self.unlisten_for_joins(&mut state, local);
        }
    }

    fn set_joined(&self, qp: QpNum, reply: Option<Box<[u8]>>) -> Result<(), Refusal> {
        let set = Command::SetJoined { qp, reply };
        self.shards.run(To::Qp(qp), set).map(|_| ())
    }

    fn listen_for_joins(&self, state: &mut State, local: SocketAddr) -> Result<(), Refusal> {
        if state.listeners.contains_key(&local.ip()) {
            return Ok(());
        }
        let scope = self.interface.home(local.ip())?;
        let at = LocalPort::new(self.interface.transport(Transport::Tcp), local);
        let reserved = self.interface.ports.listen(at, scope)?;
        // Those of the PRM begin at the other end.
        let listener = ListenerId(u32::MAX - state.listened);
        let spec = ListenSpec {
            local,
            backlog: BACKLOG,
            transport: self.interface.transport(Transport::Tcp),
        };
        let rules = self.lock_peer_rules();
        let peers = self.listener_rules(&rules, OWNER, local);
        let listen = || Command::Listen {
            client: OWNER,
            listener,
            spec,
            peers: peers.clone(),
        };
        let listened = self
            .shards
            .all_or_none(repeat_with(listen), || Command::Unlisten { listener });
        self.finish_reservation(reserved, listened.map(|stamps| ((), stamps)))?;
        state.listened = state.listened.wrapping_add(1) % (u32::MAX / 2);
        state.listeners.insert(local.ip(), listener);
        Ok(())
    }

    fn unlisten_for_joins(&self, state: &mut State, local: JoinEnd) {
        let Some(listener) = state.listeners.remove(&local.address) else {
            return;
        };
        let unlistened = self.shards.all_do(|| Command::Unlisten { listener });
        log_refusal("a listener for joins", unlistened);
        let at = LocalPort::new(self.interface.transport(Transport::Tcp), local.port());
        self.interface.ports.unlistened(at);
    }

    /// The listeners for joins get the PRM's rules for peers again.
    pub(crate) fn apply_join_rules(&self) {
        let state = self.joins.lock();
        let slot = self.joins.numbers.get().map_or(0, |numbers| numbers.slot);
        let rules = self.lock_peer_rules();
        for (address, listener) in &state.listeners {
            let local = SocketAddr::new(*address, JOIN_PORT + u16::from(slot));
            let (listener, peers) = (*listener, self.listener_rules(&rules, OWNER, local));
            let set = self.shards.all_do(|| Command::SetPeerRules {
                listener,
                peers: peers.clone(),
            });
            log_refusal("the rules for the peers of joins", set);
        }
    }

    /// Starts the thread that connects and accepts what is joined.
    pub(crate) fn start_joiner(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let core = self.clone();
        let thread = Builder::new().name("rnic-join".to_owned());
        threads::spawn(thread, move || core.run_joins())
    }

    fn run_joins(&self) {
        let messages = self.joins.messages();
        loop {
            let deadline = self.joins.lock().table.deadline();
            let message = match deadline {
                Some(deadline) => messages.recv_deadline(deadline).ok(),
                None => messages.recv().ok(),
            };
            match message {
                Some(Message::Stop) => return,
                Some(message) => self.join_message(message),
                None => {}
            }
            self.run_due_joins(Instant::now());
        }
    }

    fn join_message(&self, message: Message) {
        match message {
            Message::Requested {
                request,
                local,
                remote,
                mpa,
                hello,
            } => {
                log::debug!("{remote} asks for a join at {local}: {mpa:?}");
                self.join_requested(request, (local.ip(), remote.ip()), &hello);
            }
            Message::RequestGone(request) => self.joins.lock().table.request_gone(request),
            Message::Qp { qp, event } => match event {
                JoinEvent::Established => {
                    log::debug!("queue pair {qp} is joined");
                    self.joins.lock().table.connected(qp);
                }
                JoinEvent::Failed { message } => {
                    log::debug!("queue pair {qp} is not joined yet: {message}");
                    self.joins.lock().table.failed(qp, Instant::now());
                }
                JoinEvent::Ended => self.leave_join(qp),
            },
            Message::Added | Message::Stop => {}
        }
    }

    fn join_requested(&self, request: ConnRequestId, ends: (IpAddr, IpAddr), hello: &[u8]) {
        let Some(hello) = Hello::decode(hello) else {
            // It is of another protocol, which gets no answer of this one.
            return self.reject_join(request);
        };
        let mut state = self.joins.lock();
        match state.table.requested(request, ends, hello, Instant::now()) {
            Verdict::Accept(qp) => self.accept_join(&mut state, request, qp),
            Verdict::Keep => {}
            Verdict::Reject => self.reject_join(request),
        }
    }

    /// `state` is locked until the shard has both, so that the queue pair stays whose it is.
    fn accept_join(&self, state: &mut State, request: ConnRequestId, qp: QpNum) {
        let Some(join) = state.table.get(qp) else {
            return;
        };
        if let Err(refusal) = self.accept(request, qp, join.mpa, join.hello().encode()) {
            log::debug!("queue pair {qp} can't be joined to what {request} asks for: {refusal}");
            state.table.failed(qp, Instant::now());
        }
    }

    fn reject_join(&self, request: ConnRequestId) {
        log_refusal("a request to join", self.reject(request, Vec::new()));
    }

    fn run_due_joins(&self, now: Instant) {
        loop {
            let mut state = self.joins.lock();
            if let Some((request, qp)) = state.table.next_match() {
                self.accept_join(&mut state, request, qp);
            } else if let Some(request) = state.table.next_expired(now) {
                drop(state);
                self.reject_join(request);
            } else if let Some((qp, join)) = state.table.next_due(now) {
                drop(state);
                self.attempt_join(qp, &join);
            } else {
                return;
            }
        }
    }

    /// Connects to the peer's RNIC, if the way there is known. Else, and if it fails, there is another attempt later.
    fn attempt_join(&self, qp: QpNum, join: &Join) {
        let path = self.path_of_join(join);
        // A client that ended the join meanwhile has taken it out.
        let mut state = self.joins.lock();
        if state.table.get(qp) != Some(*join) {
            return;
        }
        let begun = path.and_then(|path| {
            let Some(path) = path else {
                return Ok(false);
            };
            let spec = ConnectSpec {
                remote: join.remote.port(),
                local: Some(join.local.address),
                local_port: 0,
                transport: self.interface.transport(Transport::Tcp),
                mpa: join.mpa,
                private_data: join.hello().encode(),
            };
            self.connect(join.client, qp, spec, path).map(|_| true)
        });
        match begun {
            Ok(true) => state.table.begun(qp),
            Ok(false) => {}
            Err(refusal) => {
                log::debug!("queue pair {qp} can't be joined now: {refusal}");
                let is_over = matches!(
                    refusal.code,
                    RefusalCode::WrongState | RefusalCode::UnknownObject
                );
                drop(state);
                if is_over {
                    self.leave_join(qp);
                }
            }
        }
    }

    /// None: the host asks for the neighbour's address.
    fn path_of_join(&self, join: &Join) -> Result<Option<PathToPeer>, Refusal> {
        let (client, remote) = (join.client, join.remote.address);
        let local = Some(join.local.address);
        match self.is_resolved(client, remote, local, Duration::ZERO)? {
            true => self
                .allowed_path(client, remote, local, Duration::ZERO)
                .map(Some),
            false => Ok(None),
        }
    }
}
