//! Protection domains and memory regions.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::offset_of;
use std::sync::Arc;

use rnic::{Access, MemoryRegion, ProtectionDomain};
use rustix::io::Errno;

use crate::abi::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_OPTIONAL_FIRST,
    IBV_ACCESS_OPTIONAL_LAST, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, ibv_mr, ibv_pd,
};
use crate::context::Context;
use crate::ffi::{Fail, Object, Outcome, Ptr, Shared, object};

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
            pd: ProtectionDomain::alloc(context.rnic())?,
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

/// Counts the objects that a program made with another one and has not destroyed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users(Arc<()>);

/// One of them; dropping it ends that.
#[derive(Debug)]
pub(crate) struct Use(#[expect(dead_code, reason = "what counts is that it is there")] Arc<()>);

impl Users {
    pub(crate) fn add(&self) -> Use {
        Use(self.0.clone())
    }

    /// That there is none; `what` goes into the failure.
    pub(crate) fn check_none(&self, what: &str) -> Outcome<()> {
        match Arc::strong_count(&self.0) {
            1 => Ok(()),
            _ => Err(Fail::of(Errno::BUSY, format!("{what} is still used"))),
        }
    }
}

#[repr(C)]
pub(crate) struct Mr {
    _abi: Shared<ibv_mr>,
    region: MemoryRegion,
    /// What the program asked for.
    access: c_uint,
    _use: Use,
}

object!(Mr: ibv_mr => offset_of!(Mr, _abi));

/// What a registration asks for.
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
        self.region.rkey()
    }

    pub(crate) fn rnic(&self) -> &MemoryRegion {
        &self.region
    }

    /// Memory windows may be bound to it.
    pub(crate) fn may_bind(&self) -> bool {
        self.access & IBV_ACCESS_MW_BIND != 0
    }

    pub(crate) fn register(pd: &Arc<Pd>, wanted: Registration) -> Outcome<Arc<Self>> {
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
        let Some(start) = addr.cast::<u8>().as_non_null().filter(|_| length > 0) else {
            return Err(Fail::of(Errno::INVAL, "a region without a byte"));
        };
        // SAFETY: the program's memory, which it leaves mapped until ibv_dereg_mr, as the verbs demand; no
        // Rust reference to it exists but for the time of calls that it is passed to.
        let region = unsafe { pd.pd.register_memory(start, length, granted) }?;
        let mr = ibv_mr {
            context: pd.context.abi_ptr(),
            pd: pd.abi_ptr(),
            addr,
            length,
            handle: 0,
            lkey: region.lkey(),
            rkey: region.rkey(),
        };
        Ok(Arc::new(Self {
            _abi: Shared::new(mr),
            region,
            access,
            _use: pd.users.add(),
        }))
    }
}

/// The rights that access flags ask for.
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
    Ok(Access {
        local_write,
        remote_read: flags & IBV_ACCESS_REMOTE_READ != 0,
        remote_write: flags & IBV_ACCESS_REMOTE_WRITE != 0,
        remote_atomic: flags & IBV_ACCESS_REMOTE_ATOMIC != 0,
    })
}

/// A count of elements, which must not be negative.
pub(crate) fn count(number: c_int) -> Outcome<usize> {
    usize::try_from(number).map_err(|_| Fail::of(Errno::INVAL, format!("{number} elements")))
}
