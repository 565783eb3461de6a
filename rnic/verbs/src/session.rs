//! This process's session with one device, and the thread that waits for its events.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rnic::{CqId, DeviceInfo, Error, EventSource, EventSources, ListenerId, QpNum, SrqId};
use rustix::io::Errno;

use crate::abi::{IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_event};
use crate::cm::CmId;
use crate::context::Context;
use crate::cq::Cq;
use crate::ffi::{Fail, Object, Outcome};
use crate::lock;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::rsocket::Watchers;
use crate::srq::Srq;
use crate::users::Use;

/// Stays as long as its process. When the device is gone, the next use of it begins another one.
pub(crate) struct Session {
    rnic: rnic::Context,
    interface: String,
    gone: AtomicBool,
    /// Whose connection or listener it is. An object is here before its first event can come, and the
    /// lock is held while an event is put on its queue.
    pub(crate) connections: Mutex<HashMap<QpNum, Arc<CmId>>>,
    pub(crate) listeners: Mutex<HashMap<ListenerId, Arc<CmId>>>,
    /// By the number by which a program may name one to the connection manager.
    pub(crate) qps: Mutex<HashMap<QpNum, Weak<Qp>>>,
    /// The lock is held while one of them has a share more, so that who destroys it sees none.
    pub(crate) cqs: Mutex<HashMap<CqId, Weak<Cq>>>,
    pub(crate) srqs: Mutex<HashMap<SrqId, Weak<Srq>>>,
    pub(crate) rsockets: Watchers,
    /// Contexts that programs opened.
    contexts: Mutex<Vec<Weak<Context>>>,
    /// What connection manager ids have in common. The session uses it as long as it lives, so that no
    /// program that closes what it did not open takes it from the others. The context holds its session in
    /// turn, so that neither is ever freed, also when the device is gone. Programs have pointers to both
    /// (`id->verbs`, `id->pd`, `rdma_get_devices`) without a share, and may follow them as long as they live.
    /// There is one for each time that a program comes back to a device that was gone.
    shared: OnceLock<(Arc<Context>, Arc<Pd>)>,
    shared_uses: Mutex<Vec<Use>>,
}

impl Session {
    pub(crate) fn begin(rnic: rnic::Context) -> Outcome<Arc<Self>> {
        let sources = EventSources::begin(&rnic);
        let session = Arc::new(Self {
            interface: rnic.device_info()?.interface,
            rnic,
            gone: AtomicBool::new(false),
            connections: Mutex::default(),
            listeners: Mutex::default(),
            qps: Mutex::default(),
            cqs: Mutex::default(),
            srqs: Mutex::default(),
            rsockets: Watchers::default(),
            contexts: Mutex::default(),
            shared: OnceLock::new(),
            shared_uses: Mutex::default(),
        });
        let served = session.clone();
        let thread = std::thread::Builder::new().name("rnic-verbs".to_owned());
        let thread = rnic::spawn_thread(thread, move || served.serve(&sources));
        thread.map_err(|error| Fail::of(Errno::AGAIN, format!("no thread for events: {error}")))?;
        Ok(session)
    }

    pub(crate) fn rnic(&self) -> &rnic::Context {
        &self.rnic
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// What the device is now; its addresses come and go.
    pub(crate) fn info(&self) -> Outcome<DeviceInfo> {
        Ok(self.rnic.device_info()?)
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let info = self.rnic.device_info();
        info.is_ok_and(|info| info.addresses.contains(&address))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn add_context(&self, context: &Arc<Context>) {
        let mut contexts = lock(&self.contexts);
        contexts.retain(|context| context.strong_count() > 0);
        contexts.push(Arc::downgrade(context));
    }

    /// The context of connection manager ids, and its protection domain.
    pub(crate) fn shared(self: &Arc<Self>) -> Outcome<&(Arc<Context>, Arc<Pd>)> {
        if self.shared.get().is_none() {
            let context = Context::open(self)?;
            let pd = Pd::alloc(&context)?;
            lock(&self.shared_uses).extend([context.users.add(), pd.users.add()]);
            // Another thread's may be there meanwhile; then this one is not used.
            let _ = self.shared.set((context, pd));
        }
        self.shared
            .get()
            .ok_or_else(|| Fail::of(Errno::IO, "a session without a context"))
    }

    fn serve(&self, sources: &EventSources) {
        loop {
            match sources.next(Duration::from_secs(3600)) {
                Ok(EventSource::QueuePair(num)) => self.tell_connection(num),
                Ok(EventSource::Listener(id)) => self.tell_listener(id),
                Ok(EventSource::CompletionQueue(id)) => self.tell_cq(id),
                Ok(EventSource::SharedReceiveQueue(id)) => self.tell_srq(id),
                Ok(other) => log::debug!("news of {other:?}, which this library has not"),
                Err(Error::Timeout { .. }) => {}
                Err(error) => return self.end(&error),
            }
        }
    }

    fn tell_connection(&self, num: QpNum) {
        if let Some(id) = lock(&self.connections).get(&num) {
            id.take_connection_events();
        }
        self.rsockets.tell_connection(num);
    }

    fn tell_listener(&self, listener: ListenerId) {
        if let Some(id) = lock(&self.listeners).get(&listener) {
            id.take_requests();
        }
        self.rsockets.tell_listener(listener);
    }

    fn tell_cq(&self, id: CqId) {
        let cqs = lock(&self.cqs);
        if let Some(cq) = cqs.get(&id).and_then(Weak::upgrade) {
            let event = ibv_async_event {
                element: cq.abi_ptr().addr(),
                event_type: IBV_EVENT_CQ_ERR,
            };
            cq.context().tell(event, &cq.async_unacknowledged);
        }
    }

    fn tell_srq(&self, id: SrqId) {
        let srqs = lock(&self.srqs);
        if let Some(srq) = srqs.get(&id).and_then(Weak::upgrade)
            && srq.take_limit_event()
        {
            let event = ibv_async_event {
                element: srq.abi_ptr().addr(),
                event_type: IBV_EVENT_SRQ_LIMIT_REACHED,
            };
            srq.context().tell(event, &srq.unacknowledged);
        }
    }

    /// The device is gone, and with it everything.
    fn end(&self, error: &Error) {
        log::error!("the RNIC of {} is gone: {error}", self.interface);
        self.gone.store(true, Ordering::Relaxed);
        for context in lock(&self.contexts).iter().filter_map(Weak::upgrade) {
            context.device_gone();
        }
        for id in lock(&self.connections).values() {
            id.device_gone();
        }
        for id in lock(&self.listeners).values() {
            id.device_gone();
        }
        self.rsockets.tell_all();
    }
}
