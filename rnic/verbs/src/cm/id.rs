//! Identifiers: what a program connects, listens and is told by.
//!
//! Locks are taken in this order: a session's table of identifiers, an identifier's state, a channel's
//! queue.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rnic::{ConnectionRequest, Listener, QpNum};

use crate::abi::{
    IBV_QPS_INIT, IBV_QPT_RC, RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_PS_TCP, ibv_qp_init_attr,
    rdma_cm_event, rdma_cm_id, rdma_event_channel,
};
use crate::cm::addr::to_storage;
use crate::cm::channel::EventChannel;
use crate::cm::event::{Details, Event};
use crate::cm::identifiers::Identifiers;
use crate::cm::ports::Held;
use crate::ffi::{Fail, Object, Outcome, Ptr, Shared, field, object, zeroable};
use crate::lock;
use crate::pd::Pd;
use crate::qp::{Qp, Qps};
use crate::session::Session;
use crate::shared::shared;

zeroable!(rdma_cm_id);

#[repr(C)]
pub(crate) struct CmId {
    pub(crate) abi: Shared<rdma_cm_id>,
    pub(crate) unacknowledged: crate::queue::Unacknowledged,
    /// Peers' requests to it that wait on its channel.
    pub(crate) requests: AtomicU32,
    /// An event that ended the connection was taken off the channel.
    pub(crate) end_told: AtomicBool,
    /// Has no channel of the program's: calls wait for their events.
    waits: AtomicBool,
    state: Mutex<State>,
}

object!(CmId: rdma_cm_id => offset_of!(CmId, abi));

/// What is known of an identifier.
pub(crate) struct State {
    pub(crate) channel: Arc<EventChannel>,
    /// Of the device that it is bound to.
    pub(crate) session: Option<Arc<Session>>,
    /// What it was bound to; port 0 before a connection chooses one.
    pub(crate) local: Option<SocketAddr>,
    /// Keeps the port of `local`, if the host chose it, until somebody listens or connects there.
    pub(crate) reserved: Option<OwnedFd>,
    /// Keeps the port of `local` from other identifiers.
    pub(crate) held: Option<Held>,
    /// Others that say the same may be bound to its port.
    pub(crate) reuse: bool,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) routed: bool,
    /// That of `rdma_create_qp`. The program may have put another into `id->qp` since.
    made_qp: Weak<Qp>,
    /// The program was notified of a connection, and not of its end.
    pub(crate) connected: bool,
    /// The last one that it began.
    pub(crate) connection: Option<Connection>,
    /// A peer's that waits for an answer.
    pub(crate) request: Option<ConnectionRequest>,
    pub(crate) listeners: Vec<(Arc<Session>, Listener)>,
    /// How many requests may wait on the channel.
    pub(crate) backlog: u32,
    /// What queue pairs of a listening endpoint's requests are made with.
    pub(crate) endpoint: Option<(Option<Arc<Pd>>, ibv_qp_init_attr)>,
    /// IPv6 wildcards listen at IPv4 addresses too.
    pub(crate) only_own_family: bool,
    /// The program gave it back.
    destroyed: bool,
}

/// A connection that an identifier began.
pub(crate) struct Connection {
    /// Under its number the identifier is in its session's table.
    pub(crate) num: QpNum,
    /// The identifier's own, or one that the program named by its number.
    pub(crate) qp: Weak<Qp>,
    /// The program was notified of its end, or will be.
    pub(crate) ended: bool,
}

impl CmId {
    pub(crate) fn create(
        channel: Ptr<rdma_event_channel>,
        context: Ptr<c_void>,
        port_space: c_int,
    ) -> Outcome<Arc<Self>> {
        if port_space != RDMA_PS_TCP {
            return Err(Fail::unsupported(format!(
                "port space {port_space:#x}: iWARP has RDMA_PS_TCP only"
            )));
        }
        Self::made(channel, context)
    }

    fn made(channel: Ptr<rdma_event_channel>, context: Ptr<c_void>) -> Outcome<Arc<Self>> {
        let waits = channel.is_null();
        let channel = match waits {
            true => EventChannel::create()?,
            false => channel.share::<EventChannel>()?,
        };
        let abi = Shared::zeroed(|abi: &mut rdma_cm_id| {
            abi.channel = channel.abi_ptr();
            abi.context = context;
            abi.ps = RDMA_PS_TCP;
            abi.qp_type = IBV_QPT_RC;
        });
        let state = State {
            channel,
            session: None,
            local: None,
            reserved: None,
            held: None,
            reuse: false,
            remote: None,
            routed: false,
            made_qp: Weak::new(),
            connection: None,
            connected: false,
            request: None,
            listeners: Vec::new(),
            backlog: 0,
            endpoint: None,
            only_own_family: false,
            destroyed: false,
        };
        Ok(Arc::new(Self {
            abi,
            unacknowledged: crate::queue::Unacknowledged::default(),
            requests: AtomicU32::new(0),
            end_told: AtomicBool::new(false),
            waits: AtomicBool::new(waits),
            state: Mutex::new(state),
        }))
    }

    /// The identifier of a request to this one.
    pub(crate) fn child(
        &self,
        session: &Arc<Session>,
        request: ConnectionRequest,
        channel: &EventChannel,
    ) -> Outcome<Arc<Self>> {
        let channel = match self.waits() {
            true => Ptr::NULL,
            false => channel.abi_ptr(),
        };
        let child = Self::made(channel, field!(self.abi, context).get())?;
        let (local, remote) = (request.local(), request.remote());
        let mut state = child.state();
        state.request = Some(request);
        child.bind_to(&mut state, session)?;
        child.set_local(&mut state, local);
        child.set_remote(&mut state, remote);
        drop(state);
        Ok(child)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Makes it one of a device's: from here on `id->verbs` is there.
    pub(crate) fn bind_to(&self, state: &mut State, session: &Arc<Session>) -> Outcome<()> {
        let (context, pd) = shared(session)?;
        state.session = Some(session.clone());
        field!(self.abi, verbs).set(context.abi_ptr());
        field!(self.abi, port_num).set(1);
        if field!(self.abi, pd).get().is_null() {
            field!(self.abi, pd).set(pd.abi_ptr());
        }
        Ok(())
    }

    pub(crate) fn set_local(&self, state: &mut State, local: SocketAddr) {
        state.local = Some(local);
        self.show_local(local);
    }

    /// For who has the state's lock.
    pub(crate) fn show_local(&self, local: SocketAddr) {
        let (storage, _) = to_storage(local);
        let gid = crate::device::gid(local.ip()).0;
        field!(self.abi, route.addr.src_storage).set(storage);
        field!(self.abi, route.addr.sgid).set(gid);
    }

    pub(crate) fn set_remote(&self, state: &mut State, remote: SocketAddr) {
        state.remote = Some(remote);
        let (storage, _) = to_storage(remote);
        let gid = crate::device::gid(remote.ip()).0;
        field!(self.abi, route.addr.dst_storage).set(storage);
        field!(self.abi, route.addr.dgid).set(gid);
    }

    /// Puts an event on the channel, unless the program has given the identifier back.
    pub(crate) fn tell(self: &Arc<Self>, event: c_int, details: Details) {
        self.tell_event(&self.state(), Event::new(self, event, details));
    }

    pub(crate) fn tell_event(&self, state: &State, event: Arc<Event>) {
        if !state.destroyed {
            state.channel.events.push(event);
        }
    }

    pub(crate) fn device_gone(self: &Arc<Self>) {
        self.tell(RDMA_CM_EVENT_DEVICE_REMOVAL, Details::default());
    }

    /// Waits for the event that ends what the last call began, on an identifier without a channel. The event
    /// stays with the identifier until the next one.
    pub(crate) fn complete(&self, expected: c_int) -> Outcome<()> {
        if !self.waits() {
            return Ok(());
        }
        self.release_event()?;
        let channel = self.state().channel.clone();
        self.keep(channel.wait()?, expected)
    }

    /// What a caller of its own reads a count of for the event of the last call, when nobody else waits for it.
    pub(crate) fn completion_fd(&self) -> Outcome<Option<RawFd>> {
        if !self.waits() {
            return Ok(None);
        }
        self.release_event()?;
        Ok(Some(self.state().channel.events.fd()))
    }

    /// Takes up the event whose count was read; whether it was still there.
    pub(crate) fn take_completion(&self, expected: c_int) -> Outcome<bool> {
        let channel = self.state().channel.clone();
        match channel.events.take(Event::count) {
            Some(event) => self.keep(event, expected).map(|()| true),
            None => Ok(false),
        }
    }

    fn keep(&self, event: Arc<Event>, expected: c_int) -> Outcome<()> {
        let outcome = event.expect(expected);
        let delivered = event.deliver();
        field!(self.abi, event).set(delivered);
        outcome
    }

    /// Acknowledges the event of the last call that waited for one.
    pub(crate) fn release_event(&self) -> Outcome<()> {
        let event: Ptr<rdma_cm_event> = field!(self.abi, event).get();
        if event.is_null() {
            return Ok(());
        }
        field!(self.abi, event).set(Ptr::NULL);
        Event::acknowledge(event)
    }

    /// Moves it to another channel, with the events that wait. Those that the program took from the channel
    /// before are waited for: the channel may be destroyed then.
    pub(crate) fn migrate(&self, channel: Ptr<rdma_event_channel>) -> Outcome<()> {
        let waits = channel.is_null();
        let to = match waits {
            true => EventChannel::create()?,
            false => channel.share::<EventChannel>()?,
        };
        self.release_event()?;
        let mut state = self.state();
        let events = state.channel.events.take_back(|event| event.is_about(self));
        for event in events {
            to.events.push(event);
        }
        self.waits.store(waits, Ordering::Relaxed);
        field!(self.abi, channel).set(to.abi_ptr());
        state.channel = to;
        let told = self.unacknowledged.told();
        drop(state);
        self.unacknowledged.wait_for(told);
        Ok(())
    }

    pub(crate) fn destroy(id: Ptr<rdma_cm_id>) -> Outcome<()> {
        let shared = id.share::<Self>()?;
        shared.release_event()?;
        shared.leave_tables();
        let (events, listeners, request) = {
            let mut state = shared.state();
            state.destroyed = true;
            state.held = None;
            let events = state
                .channel
                .events
                .take_back(|event| event.is_about(&shared));
            (
                events,
                std::mem::take(&mut state.listeners),
                state.request.take(),
            )
        };
        // Requests that nobody answered are rejected, and peers that still come are not heard.
        drop((events, listeners, request));
        shared.unacknowledged.wait_for_all();
        drop(id.take_back::<Self>()?);
        Ok(())
    }

    /// From here on the session's thread does not know it any more.
    fn leave_tables(&self) {
        let (session, num, listeners) = {
            let state = self.state();
            let listeners = state.listeners.iter();
            let listeners: Vec<_> = listeners
                .flat_map(|(session, listener)| listener.ids().map(|id| (session.clone(), id)))
                .collect();
            let num = state.connection.as_ref().map(|connection| connection.num);
            (state.session.clone(), num, listeners)
        };
        if let (Some(session), Some(num)) = (session, num) {
            let identifiers = session.part::<Identifiers>();
            let mut connections = lock(&identifiers.connections);
            // Another identifier's may be the queue pair's next connection.
            if connections
                .get(&num)
                .is_some_and(|id| std::ptr::eq(&**id, self))
            {
                connections.remove(&num);
            }
        }
        for (session, listener) in listeners {
            lock(&session.part::<Identifiers>().listeners).remove(&listener);
        }
    }

    /// The queue pair of `id->qp`, which the program may have put there itself: one of the identifier's device,
    /// looked for by its place, since it may have been destroyed meanwhile.
    pub(crate) fn shown_qp(&self, state: &State, session: &Session) -> Option<Arc<Qp>> {
        let shown = field!(self.abi, qp).get();
        if shown.is_null() {
            return None;
        }
        let is_shown = |qp: &Arc<Qp>| qp.abi_ptr() == shown;
        let made = state.made_qp.upgrade().filter(is_shown);
        made.or_else(|| {
            let qps = session.part::<Qps>();
            let all = lock(&qps.0);
            all.values().filter_map(Weak::upgrade).find(is_shown)
        })
    }

    /// Takes up a queue pair that was made for it.
    pub(crate) fn set_qp(&self, qp: &Arc<Qp>) {
        qp.note_state(IBV_QPS_INIT);
        self.state().made_qp = Arc::downgrade(qp);
        field!(self.abi, qp).set(qp.abi_ptr());
        field!(self.abi, pd).set(field!(qp.abi, base.pd).get());
    }
}
