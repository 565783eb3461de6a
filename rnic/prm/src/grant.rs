//! What was granted, as values that only the [`Prm`](crate::Prm) makes.
//!
//! A grant that creates or removes something is given back to the `Prm` when the shard has done
//! (or could not do) it; until then the object's number is neither usable nor free.

use std::net::SocketAddr;

use rnic_ipc::control::{ListenSpec, QpAttributes, RegionSpec, Transport};
use rnic_ipc::id::{ClientId, ConnRequestId, CqId, ListenerId, QpNum, SrqId};
use rnic_proto::Stag;

macro_rules! grants {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, PartialEq, Eq)]
        #[must_use = "what was granted is to be done, and the Prm to be told how it ended"]
        pub struct $name { $(pub(crate) $field: $type,)* }

        impl $name {
            $($(#[$field_doc])* pub fn $field(&self) -> &$type { &self.$field })*
        }
    )*};
}

grants! {
    /// A new client.
    ClientGrant {
        /// Its name.
        client: ClientId,
    }
    /// A new memory region, or an STag without memory.
    RegionGrant {
        client: ClientId,
        /// Its STag, of which the key was drawn just now.
        stag: Stag,
        /// As it was asked for; `base + length` does not wrap.
        spec: RegionSpec,
    }
    /// A region that is to be revoked.
    RegionRevocation {
        stag: Stag,
    }
    /// Other rings for a completion queue.
    CqResize {
        client: ClientId,
        cq: CqId,
        /// Entries of each new ring: a power of two.
        depth: u32,
        rings: u32,
    }
    /// A new completion queue.
    CqGrant {
        client: ClientId,
        /// Its name.
        cq: CqId,
        /// Entries, a power of two.
        depth: u32,
    }
    /// A completion queue that is to go; no queue pair uses it.
    CqRemoval {
        /// Its name.
        cq: CqId,
    }
    /// A new shared receive queue.
    SrqGrant {
        client: ClientId,
        /// Its name.
        srq: SrqId,
        /// Receives that may wait.
        depth: u32,
        /// Elements that each may have.
        max_sge: u32,
    }
    /// A shared receive queue that is to go; no queue pair takes from it.
    SrqRemoval {
        /// Its name.
        srq: SrqId,
    }
    /// Leave to arm a shared receive queue's limit.
    SrqUse {
        /// Its name.
        srq: SrqId,
    }
    /// A new queue pair.
    QpGrant {
        client: ClientId,
        /// Its number.
        qp: QpNum,
        /// Checked: its PD and CQs are the client's, its depths within the limits.
        attributes: QpAttributes,
    }
    /// A queue pair that is to go.
    QpRemoval {
        /// Its number.
        qp: QpNum,
    }
    /// Leave to do something with a queue pair: query, connect, disconnect.
    QpUse {
        /// Its number.
        qp: QpNum,
    }
    /// A new listener.
    ListenGrant {
        client: ClientId,
        /// Its name.
        listener: ListenerId,
        /// As it was asked for.
        spec: ListenSpec,
    }
    /// A listener that is to go.
    ListenerRemoval {
        /// Its name.
        listener: ListenerId,
        /// What DDP goes over.
        transport: Transport,
        /// Where it listened.
        local: SocketAddr,
    }
    /// A connection request that is to be accepted with a queue pair.
    AcceptGrant {
        request: ConnRequestId,
        /// The queue pair.
        qp: QpNum,
    }
    /// A connection request that is to be rejected.
    RejectGrant {
        request: ConnRequestId,
    }
}

/// One thing to take away of a client that is gone.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "it is to be taken away"]
pub enum Step {
    /// Close a listener; requests that wait there are reset.
    Listener(ListenerRemoval),
    /// End a queue pair, with its connection.
    Qp(QpRemoval),
    /// Revoke an STag.
    Region(RegionRevocation),
    /// Remove a shared receive queue.
    Srq(SrqRemoval),
    /// Remove a completion queue.
    Cq(CqRemoval),
}

/// All that is to be taken away of a client, in order: what lets new things in, what uses others,
/// what is used.
#[derive(Debug)]
#[must_use = "the client's objects are to be taken away"]
pub struct Teardown {
    pub(crate) client: ClientId,
    pub(crate) steps: Vec<Step>,
}

impl Teardown {
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// What to do, in this order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}
