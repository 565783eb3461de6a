//! STags for part of a region that work requests make valid and invalidate: memory windows, and fast
//! regions.

use std::ops::Range;

use rnic_ipc::control::{Access, StagKind};
use rnic_ipc::work::{Sge, WrOpcode};

use crate::error::Error;
use crate::key::Keyed;
use crate::memory::{MemoryRegion, ProtectionDomain, Registration};
use crate::remote_memory::RemoteMemory;
use crate::work::WorkRequest;

/// Whose peers a memory window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WindowType {
    /// Those of all queue pairs of its protection domain. No peer may invalidate it, and it may be
    /// bound again at any time.
    Type1,
    /// That of the queue pair that bound it. The peer may invalidate it; it has to be invalidated
    /// before it is bound again.
    Type2B,
}

/// A memory window: bound by work of a queue pair, it gives peers rights to part of a region, and
/// under another key each time. It goes when it is dropped, and stops giving rights when its region
/// goes; one of type 2B also when its queue pair's connection ends. `drop` is one request to the RNIC, and blocks until it is
/// answered.
#[derive(Debug)]
pub struct MemoryWindow {
    registration: Registration,
    window_type: WindowType,
}

impl ProtectionDomain {
    /// Makes a memory window, which is not bound.
    ///
    /// # Errors
    /// [`Error::Refused`]: the RNIC allows no more. [`Error::DaemonGone`].
    pub fn alloc_window(&self, window_type: WindowType) -> Result<MemoryWindow, Error> {
        let kind = match window_type {
            WindowType::Type1 => StagKind::WindowType1,
            WindowType::Type2B => StagKind::WindowType2B,
        };
        Ok(MemoryWindow {
            registration: self.alloc_stag(kind)?,
            window_type,
        })
    }

    /// Makes a region for fast registration, which is not registered.
    ///
    /// # Errors
    /// As for [`Self::alloc_window`].
    pub fn alloc_fast_region(&self) -> Result<FastRegion, Error> {
        Ok(FastRegion {
            registration: self.alloc_stag(StagKind::FastRegion)?,
        })
    }
}

impl MemoryWindow {
    /// Whose peers it is for.
    pub fn window_type(&self) -> WindowType {
        self.window_type
    }

    /// The STag that the last [`Self::bind`] gave it.
    pub fn stag(&self) -> u32 {
        self.registration.stag.now()
    }

    /// The work that binds it to `range` of a region of its protection domain, and what to tell the
    /// peer when that work has completed. Of `access` the peer's rights count; rights to write need
    /// a region that may be written locally.
    ///
    /// # Errors
    /// [`Error::Range`], also for no byte; [`Error::WrongPd`]. The rest ends
    /// the connection, and the work's completion tells it. A window of type 2B may be bound already, the region
    /// may not be writable locally, or the work's queue pair may be of another protection domain.
    pub fn bind(
        &self,
        wr_id: u64,
        region: &MemoryRegion,
        range: Range<usize>,
        access: Access,
    ) -> Result<(WorkRequest<'static>, RemoteMemory), Error> {
        self.bind_under(wr_id, (region, range), access, Keyed::next)
    }

    /// As [`Self::bind`], under a key of the program's choice: the last 8 bits of the STag. The RNIC
    /// refuses the one that was valid last, by the work's completion.
    pub fn bind_with_key(
        &self,
        wr_id: u64,
        region: &MemoryRegion,
        range: Range<usize>,
        access: Access,
        key: u8,
    ) -> Result<(WorkRequest<'static>, RemoteMemory), Error> {
        self.bind_under(wr_id, (region, range), access, |stag| stag.set(key))
    }

    fn bind_under(
        &self,
        wr_id: u64,
        (region, range): (&MemoryRegion, Range<usize>),
        access: Access,
        key: impl FnOnce(&Keyed) -> u32,
    ) -> Result<(WorkRequest<'static>, RemoteMemory), Error> {
        let part = self.registration.part_of(region, &range)?;
        let stag = key(&self.registration.stag);
        let work = WorkRequest::bind(WrOpcode::BindWindow, wr_id, stag, part, access);
        Ok((work, RemoteMemory { stag, ..part }))
    }

    /// The work that ends its binding: for type 1 a binding to no byte, for type 2B a Local
    /// Invalidate, which is an error when the window is not bound.
    pub fn unbind(&self, wr_id: u64) -> WorkRequest<'static> {
        let stag = self.stag();
        let nothing = RemoteMemory {
            stag: 0,
            addr: 0,
            len: 0,
        };
        match self.window_type {
            WindowType::Type1 => {
                let opcode = WrOpcode::BindWindow;
                WorkRequest::bind(opcode, wr_id, stag, nothing, Access::default())
            }
            WindowType::Type2B => WorkRequest::local_invalidate(wr_id, stag),
        }
    }
}

/// A region that is registered by work of a queue pair (fast registration) and not by a call. It is part of a
/// [`MemoryRegion`], for local work and for peers, until it is invalidated. Then it can be registered again,
/// with other bytes of any region of its protection domain and other rights. It goes when it is dropped, and
/// stops giving rights when the region goes or is invalidated. `drop` is one request to the RNIC, and blocks until it is answered.
#[derive(Debug)]
pub struct FastRegion {
    registration: Registration,
}

impl FastRegion {
    /// The STag that the last [`Self::register`] gave it.
    pub fn stag(&self) -> u32 {
        self.registration.stag.now()
    }

    /// The work that registers `range` of a region of its protection domain under this STag, with
    /// another key, and what to tell the peer when that work has completed. Rights to write need a
    /// region that may be written locally. See also [`WorkRequest::of_one_stream`].
    ///
    /// # Errors
    /// [`Error::Range`], also for no byte; [`Error::WrongPd`]. The rest ends
    /// the connection, and the work's completion tells it. The STag may be registered already, the region may not
    /// be writable locally, or the work's queue pair may be of another protection domain.
    pub fn register(
        &self,
        wr_id: u64,
        region: &MemoryRegion,
        range: Range<usize>,
        access: Access,
    ) -> Result<(WorkRequest<'static>, RemoteMemory), Error> {
        let part = self.registration.part_of(region, &range)?;
        let stag = self.registration.stag.next();
        let work = WorkRequest::bind(WrOpcode::FastRegister, wr_id, stag, part, access);
        Ok((work, RemoteMemory { stag, ..part }))
    }

    /// An element for work requests: `range` of the region that it was registered with, less than
    /// 4 GiB.
    ///
    /// # Errors
    /// [`Error::Range`]. That the range is not within the registration is reported by the work's
    /// completion, and ends the connection.
    pub fn slice(&self, region: &MemoryRegion, range: Range<usize>) -> Result<Sge, Error> {
        Ok(Sge {
            lkey: self.stag(),
            ..region.slice(range)?
        })
    }
}
