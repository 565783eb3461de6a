//! Protection domains and memory regions.

use std::ffi::{c_uint, c_void};
use std::mem::offset_of;
use std::sync::{Arc, Mutex};

use rnic::{Access, MemoryRegion, ProtectionDomain};
use rustix::io::Errno;

use crate::abi::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_OPTIONAL_FIRST,
    IBV_ACCESS_OPTIONAL_LAST, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd,
};
use crate::context::Context;
use crate::ffi::{Fail, Object, Outcome, Ptr, Shared, field, object};
use crate::lock;
use crate::users::{Use, Users};

#[repr(C)]
pub(crate) struct Pd {
    _abi: Shared<ibv_pd>,
    pd: ProtectionDomain,
    context: Arc<Context>,
    pub(crate) users: Users,
}

object!(Pd: ibv_pd => offset_of!(Pd, _abi));

impl Pd {
    pub(crate) fn alloc(context: &Arc<Context>) -> Outcome<Arc<Self>> {
        Ok(Arc::new(Self {
            _abi: Shared::new(ibv_pd {
                context: context.abi_ptr(),
                handle: 0,
            }),
            pd: context.rnic().alloc_pd()?,
            context: context.clone(),
            users: Users::default(),
        }))
    }

    pub(crate) fn rnic(&self) -> &ProtectionDomain {
        &self.pd
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Gives it back, if nothing uses it.
    pub(crate) fn dealloc(pd: Ptr<ibv_pd>) -> Outcome<()> {
        pd.object::<Self>()?
            .users
            .check_none("the protection domain")?;
        drop(pd.take_back::<Self>()?);
        Ok(())
    }
}

#[repr(C)]
pub(crate) struct Mr {
    abi: Shared<ibv_mr>,
    registered: Mutex<Arc<Registered>>,
}

object!(Mr: ibv_mr => offset_of!(Mr, abi));

/// What it stands for, until it is registered again.
pub(crate) struct Registered {
    pub(crate) region: MemoryRegion,
    wanted: Registration,
    pd: Arc<Pd>,
    _use: Use,
}

impl Registered {
    /// Memory windows may be bound to it.
    pub(crate) fn may_bind(&self) -> bool {
        self.wanted.access & IBV_ACCESS_MW_BIND != 0
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Registration {
    pub(crate) addr: Ptr<c_void>,
    pub(crate) length: usize,
    /// The address by which work requests and peers name the first byte.
    pub(crate) iova: u64,
    pub(crate) access: c_uint,
}

impl Mr {
    pub(crate) fn rkey(&self) -> u32 {
        self.registered().region.stag()
    }

    pub(crate) fn registered(&self) -> Arc<Registered> {
        lock(&self.registered).clone()
    }

    pub(crate) fn register(pd: &Arc<Pd>, wanted: Registration) -> Outcome<Arc<Self>> {
        let registered = Registered::new(pd, wanted)?;
        Ok(Arc::new(Self {
            abi: Shared::new(registered.as_seen()),
            registered: Mutex::new(Arc::new(registered)),
        }))
    }

    /// Registers it anew with what of this is given. The old registration ends when the new one is there, and
    /// stays when there is none.
    pub(crate) fn register_again(&self, change: Change) -> Outcome<()> {
        let before = self.registered();
        let (addr, length) = change
            .memory
            .unwrap_or((before.wanted.addr, before.wanted.length));
        let wanted = Registration {
            addr,
            length,
            iova: addr.addr() as u64,
            access: change.access.unwrap_or(before.wanted.access),
        };
        let pd = change.pd.unwrap_or_else(|| before.pd.clone());
        let registered = Registered::new(&pd, wanted)?;
        let seen = registered.as_seen();
        *lock(&self.registered) = Arc::new(registered);
        field!(self.abi, pd).set(seen.pd);
        field!(self.abi, addr).set(seen.addr);
        field!(self.abi, length).set(seen.length);
        field!(self.abi, lkey).set(seen.lkey);
        field!(self.abi, rkey).set(seen.rkey);
        Ok(())
    }
}

#[derive(Default)]
pub(crate) struct Change {
    pub(crate) memory: Option<(Ptr<c_void>, usize)>,
    pub(crate) pd: Option<Arc<Pd>>,
    pub(crate) access: Option<c_uint>,
}

impl Registered {
    fn new(pd: &Arc<Pd>, wanted: Registration) -> Outcome<Self> {
        let Registration {
            addr,
            length,
            iova,
            access,
        } = wanted;
        let granted = rights(access)?;
        if iova != addr.addr() as u64 {
            return Err(Fail::unsupported(format!(
                "memory at {:#x} under another address, {iova:#x}: register it under its own",
                addr.addr()
            )));
        }
        if length == 0 || addr.addr().checked_add(length).is_none() {
            return Err(Fail::of(
                Errno::INVAL,
                format!("a region of {length} bytes at {:#x}", addr.addr()),
            ));
        }
        let Some(start) = addr.cast::<u8>().as_non_null() else {
            return Err(Fail::of(Errno::FAULT, "a region at address 0"));
        };
        // SAFETY: the program's memory, which it leaves mapped until ibv_dereg_mr, as the verbs demand; no
        // Rust reference to it exists but for the time of calls that it is passed to.
        let region = unsafe { pd.pd.register_memory(start, length, granted) }?;
        Ok(Self {
            region,
            wanted,
            pd: pd.clone(),
            _use: pd.users.add(),
        })
    }

    /// As the program sees it.
    fn as_seen(&self) -> ibv_mr {
        ibv_mr {
            context: self.pd.context.abi_ptr(),
            pd: self.pd.abi_ptr(),
            addr: self.wanted.addr,
            length: self.wanted.length,
            handle: 0,
            lkey: self.region.stag(),
            rkey: self.region.stag(),
        }
    }
}

pub(crate) fn rights(flags: c_uint) -> Outcome<Access> {
    let known = IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC
        | IBV_ACCESS_MW_BIND
        | IBV_ACCESS_HUGETLB;
    let optional = (IBV_ACCESS_OPTIONAL_LAST << 1) - IBV_ACCESS_OPTIONAL_FIRST;
    let unknown = flags & !known & !optional;
    if unknown != 0 {
        return Err(Fail::unsupported(format!(
            "access flags {unknown:#x} (zero-based or on-demand regions) are not there"
        )));
    }
    let local_write = flags & IBV_ACCESS_LOCAL_WRITE != 0;
    let writes = flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) != 0;
    if writes && !local_write {
        return Err(Fail::of(
            Errno::INVAL,
            "remote writes or atomics without the right to write locally",
        ));
    }
    Ok(Access::LOCAL_WRITE.when(local_write) | peer_rights(flags))
}

/// What access flags let a peer do.
pub(crate) fn peer_rights(flags: c_uint) -> Access {
    Access::REMOTE_READ.when(flags & IBV_ACCESS_REMOTE_READ != 0)
        | Access::REMOTE_WRITE.when(flags & IBV_ACCESS_REMOTE_WRITE != 0)
        | Access::REMOTE_ATOMIC.when(flags & IBV_ACCESS_REMOTE_ATOMIC != 0)
}
