//! Shared receive queues.

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::{Arc, Mutex, Weak};

use rnic::{EventSource, SharedReceiveQueue, SrqConfig, SrqId};

use crate::abi::{
    IBV_EVENT_SRQ_LIMIT_REACHED, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_async_event, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr,
};
use crate::context::Context;
use crate::device::refused_size;
use crate::ffi::{Fail, Object, Outcome, Ptr, Shared, object, zeroable};
use crate::lock;
use crate::pd::Pd;
use crate::queue::Unacknowledged;
use crate::session::Part;
use crate::users::{Use, Users};

zeroable!(ibv_srq);

#[repr(C)]
pub(crate) struct Srq {
    _abi: Shared<ibv_srq>,
    srq: SharedReceiveQueue,
    attr: Mutex<ibv_srq_attr>,
    pd: Arc<Pd>,
    _use: Use,
    pub(crate) users: Users,
    pub(crate) unacknowledged: Arc<Unacknowledged>,
}

object!(Srq: ibv_srq => offset_of!(Srq, _abi));

impl Srq {
    /// Makes one, and tells in `init.attr` what it has.
    pub(crate) fn create(pd: &Arc<Pd>, init: &mut ibv_srq_init_attr) -> Outcome<Arc<Self>> {
        init.attr.max_wr = init.attr.max_wr.max(1);
        init.attr.max_sge = init.attr.max_sge.max(1);
        let srq = pd
            .rnic()
            .create_srq(
                SrqConfig::default()
                    .depth(init.attr.max_wr)
                    .max_sge(init.attr.max_sge),
            )
            .map_err(|error| {
                let (depth, sges) = (init.attr.max_wr, init.attr.max_sge);
                refused_size(pd.context().session(), error, |info| {
                    depth > info.max_queue_depth || sges > info.max_sge
                })
            })?;
        let abi = Shared::zeroed(|abi: &mut ibv_srq| {
            abi.context = pd.context().abi_ptr();
            abi.srq_context = init.srq_context;
            abi.pd = pd.abi_ptr();
            abi.handle = srq.id().0;
        });
        let id = srq.id();
        let made = Arc::new(Self {
            _abi: abi,
            srq,
            attr: Mutex::new(ibv_srq_attr {
                srq_limit: 0,
                ..init.attr
            }),
            pd: pd.clone(),
            _use: pd.users.add(),
            users: Users::default(),
            unacknowledged: Arc::default(),
        });
        lock(&pd.context().session().part::<Srqs>().0).insert(id, Arc::downgrade(&made));
        Ok(made)
    }

    pub(crate) fn destroy(srq: Ptr<ibv_srq>) -> Outcome<()> {
        srq.object::<Self>()?
            .users
            .check_none("the shared receive queue")?;
        let taken = srq.take_back::<Self>()?;
        // The lock is held while the session's thread tells something of it.
        lock(&taken.context().session().part::<Srqs>().0).remove(&taken.srq.id());
        taken.context().forget(srq.addr(), &taken.unacknowledged);
        Ok(())
    }

    pub(crate) fn rnic(&self) -> &SharedReceiveQueue {
        &self.srq
    }

    fn context(&self) -> &Arc<Context> {
        self.pd.context()
    }

    pub(crate) fn query(&self) -> ibv_srq_attr {
        *lock(&self.attr)
    }

    pub(crate) fn modify(&self, wanted: &ibv_srq_attr, mask: c_int) -> Outcome<()> {
        if mask & IBV_SRQ_MAX_WR != 0 && wanted.max_wr != lock(&self.attr).max_wr {
            return Err(Fail::unsupported(
                "a shared receive queue's depth does not change: make it deep enough",
            ));
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            self.srq.arm_limit(wanted.srq_limit)?;
            lock(&self.attr).srq_limit = wanted.srq_limit;
        }
        Ok(())
    }

    /// Whether the limit was reached, which disarms it.
    fn take_limit_event(&self) -> bool {
        let told = self.srq.take_limit_event().unwrap_or(false);
        if told {
            lock(&self.attr).srq_limit = 0;
        }
        told
    }
}

/// Those of a session. The lock is held while one of them has a share more, so that who destroys it sees none.
#[derive(Default)]
struct Srqs(Mutex<HashMap<SrqId, Weak<Srq>>>);

impl Part for Srqs {
    fn tell(&self, source: EventSource) {
        let EventSource::SharedReceiveQueue(id) = source else {
            return;
        };
        let srqs = lock(&self.0);
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
}
