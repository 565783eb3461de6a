//! Memory windows: STags for part of a region and one queue pair's peer, which work requests bind and
//! invalidate.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_ipc::control::{Access, Request, Response};
use rnic_ipc::work::Sge;

use crate::error::Error;
use crate::link::unexpected;
use crate::memory::{MemoryRegion, ProtectionDomain, RemoteMemory};
use crate::work::WorkRequest;

/// The bits of an STag that are its key.
const KEY: u32 = 0xff;

/// A memory window of type 2B: bound by work of a queue pair, it gives that queue pair's peer, and no
/// other, rights to part of a region. The peer may invalidate it by a Send, the queue pair by a Local
/// Invalidate; then it can be bound again, under another key. It goes when it is dropped, and stops
/// giving rights when its queue pair's connection ends, or its queue pair or its region goes.
#[derive(Debug)]
pub struct MemoryWindow {
    pd: ProtectionDomain,
    /// The STag that it came with.
    name: u32,
    /// The STag with the key that it was last given.
    stag: AtomicU32,
}

impl MemoryWindow {
    /// Makes one, not bound.
    pub fn alloc(pd: &ProtectionDomain) -> Result<Self, Error> {
        match pd
            .context()
            .request(&Request::AllocWindow { pd: pd.id() }, &[])?
        {
            (Response::Region { stag }, _) => Ok(Self {
                pd: pd.clone(),
                name: stag,
                stag: AtomicU32::new(stag),
            }),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// The STag that the last [`Self::bind`] gave it.
    pub fn stag(&self) -> u32 {
        self.stag.load(Ordering::Relaxed)
    }

    /// The work that binds it to `range` of a region of its protection domain, and what to tell the
    /// peer when that work has completed. Of `access` the peer's rights count; rights to write need
    /// a region that may be written locally.
    ///
    /// # Errors
    /// [`Error::Range`]. That it is bound already, or that the region is of another protection
    /// domain, is told by the work's completion.
    pub fn bind(
        &self,
        wr_id: u64,
        region: &MemoryRegion,
        range: Range<usize>,
        access: Access,
    ) -> Result<(WorkRequest<'static>, RemoteMemory), Error> {
        let part = region.remote(range)?;
        let stag = self.next_stag();
        let element = Sge {
            addr: part.addr,
            length: 0,
            lkey: part.stag,
        };
        let work = WorkRequest::bind_window(wr_id, stag, &element, part.len, access);
        Ok((work, RemoteMemory { stag, ..part }))
    }

    /// Its STag with another key than the last one, which nobody can know before.
    fn next_stag(&self) -> u32 {
        use std::hash::{BuildHasher, RandomState};

        // Keyed by the kernel's random numbers, anew in each process and for each state.
        let random = RandomState::new().hash_one(self.name);
        let last = self.stag();
        let step = 1 + (random % u64::from(KEY)) as u32;
        let stag = last & !KEY | last.wrapping_add(step) & KEY;
        self.stag.store(stag, Ordering::Relaxed);
        stag
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let request = Request::DeregisterMemory { stag: self.name };
        self.pd.context().give_back(&request);
    }
}
