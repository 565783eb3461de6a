//! Protection domains and registered memory.
//!
//! A region's bytes lie in a sealed memfd that the daemon maps too; of an RNIC in this process they
//! are pages of the process, which it places data into as they are. A peer with the right to may
//! write them at any time, so no reference to them is ever given out: they are copied in and out.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rnic_adopt::Adopted;
use rnic_ipc::control::{Access, RegionSpec, Request, Response, StagKind};
use rnic_ipc::id::{PdId, QpNum};
use rnic_ipc::shm::{SharedMemory, ShmError};
use rnic_ipc::work::{Sge, WrOpcode};

use crate::context::{Context, Inner};
use crate::error::Error;
use crate::key::Keyed;
use crate::link::{borrow, unexpected};
use crate::remote_memory::RemoteMemory;
use crate::session::Session;
use crate::work::WorkRequest;

mod program;

/// A region of so many bytes is asked for before it takes pages; one request more is nothing beside them.
const ASK_FIRST: usize = 1 << 20;

/// Whether a region's bytes have pages already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    New,
    /// Some or all.
    There,
}

/// A protection domain: regions and queue pairs of different ones can't be used together
/// (RFC 5042 section 2.1). Clones name the same one. `drop` of the last is one request to the RNIC, and blocks until it is
/// answered.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<PdInner>,
}

#[derive(Debug)]
struct PdInner {
    context: Arc<Inner>,
    id: PdId,
}

impl Context {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`Error::Refused`]: the RNIC allows no more. [`Error::DaemonGone`].
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, Error> {
        let context = self.inner();
        match context.request(&Request::AllocPd, &[])? {
            (Response::Pd(id), _) => Ok(ProtectionDomain {
                inner: Arc::new(PdInner {
                    context: context.clone(),
                    id,
                }),
            }),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

impl ProtectionDomain {
    /// Makes and registers `len` bytes of zeroed memory. Of an RNIC in this process
    /// ([`Context::embedded`]) it is this process's alone: a child that is forked has a copy which the
    /// RNIC knows nothing of. Memory that other processes are to have too is [`Self::register_fd`]'s.
    pub fn register(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        self.register_new(len, access, None)
    }

    /// As [`Self::register`], of huge pages of 2 MiB, which are faster to reach where there is much of
    /// it. They are taken whole, and given back with the region.
    ///
    /// # Errors
    /// [`Error::Memory`] that says so when the host has not as many huge pages free
    /// (`vm.nr_hugepages`).
    pub fn register_huge(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        self.ask_first(len, Pages::New)?;
        match self.inner.context.session()? {
            Some(session) => {
                let memory = SharedMemory::anonymous_huge(len)?;
                self.register_local(session, memory, access, None)
            }
            None => {
                let made = SharedMemory::create_huge("rnic-region", len)?;
                self.register_made(made, access, None)
            }
        }
    }

    /// Registers `len` bytes from `offset` of a memfd, of ordinary or of huge pages, that is sealed
    /// with `F_SEAL_SHRINK` and not with `F_SEAL_SEAL`. The whole memfd is mapped in this process, once
    /// for all its regions, and the range is given its pages.
    ///
    /// Registering adds `F_SEAL_FUTURE_WRITE`: mappings of the memfd that exist go on as they are, but
    /// from then on nobody can punch holes into it, write(2) to it, or map it for writing. To register
    /// it again later, keep one region of it until then. Of huge pages the whole memfd must have its
    /// pages; this gives it those of the range.
    pub fn register_fd(
        &self,
        fd: impl AsFd,
        offset: u64,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        self.register_fd_for(fd, (offset, len), access, None)
    }

    /// Makes and registers `len` bytes of zeroed memory of this process's heap, which the RNIC reaches
    /// by a descriptor of `/proc/self/mem` instead of a mapping of its own. That is slower, there are
    /// no Atomic Operations on it, and the daemon allows few of them, or none (`remote_regions`). A fork of this
    /// process has a copy which the RNIC knows nothing of.
    ///
    /// # Errors
    /// [`Error::Refused`] with `Limit` when the daemon allows no more of them.
    pub fn register_remote(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        self.register_by_accessor(Arc::new(SharedMemory::private(len)?), access)
    }

    /// That a large region is within the limits of the RNIC and of the host, before it takes pages for
    /// its bytes.
    fn ask_first(&self, len: usize, pages: Pages) -> Result<(), Error> {
        if len < ASK_FIRST {
            return Ok(());
        }
        let (pd, length) = (self.inner.id, len as u64);
        let asked = Request::MayRegister { pd, length };
        self.inner.context.request_done(&asked)?;
        match rnic_adopt::available_memory() {
            Some(available) if pages == Pages::New && available < length => {
                Err(Error::Memory(ShmError::NoPages))
            }
            _ => Ok(()),
        }
    }

    /// A program's own memfd, mapped, with a page for each byte.
    fn mapped(&self, fd: &impl AsFd, offset: u64, len: usize) -> Result<SharedMemory, Error> {
        let user = rustix::process::geteuid().as_raw();
        let memory = SharedMemory::map_to_register(user, fd, offset, len as u64)?;
        self.ask_first(len, Pages::There)?;
        memory.populate()?;
        Ok(memory)
    }

    /// As [`Self::register_fd`], for one stream only or for all of the domain.
    pub(crate) fn register_fd_for(
        &self,
        fd: impl AsFd,
        (offset, len): (u64, usize),
        access: Access,
        stream: Option<QpNum>,
    ) -> Result<MemoryRegion, Error> {
        let memory = self.mapped(&fd, offset, len)?;
        self.register_mapped(memory, (&fd, offset), access, stream)
    }

    pub(crate) fn register_new(
        &self,
        len: usize,
        access: Access,
        stream: Option<QpNum>,
    ) -> Result<MemoryRegion, Error> {
        self.ask_first(len, Pages::New)?;
        match self.inner.context.session()? {
            Some(session) => {
                let memory = SharedMemory::anonymous(len)?;
                self.register_local(session, memory, access, stream)
            }
            None => {
                let made = SharedMemory::create("rnic-region", len)?;
                self.register_made(made, access, stream)
            }
        }
    }

    /// For the RNIC of this process. The pages of new memory come into being here, and not one by one in
    /// the engine when data is placed.
    fn register_local(
        &self,
        session: &Session,
        memory: SharedMemory,
        access: Access,
        stream: Option<QpNum>,
    ) -> Result<MemoryRegion, Error> {
        memory.populate()?;
        let memory = Arc::new(memory);
        let spec = RegionSpec {
            stream,
            ..self.spec(&memory, access)
        };
        let reply = session.register_local(spec, memory.clone());
        self.registered(reply?, memory)
    }

    /// For the daemon; the pages are on this process's account.
    fn register_made(
        &self,
        (memory, fd): (SharedMemory, OwnedFd),
        access: Access,
        stream: Option<QpNum>,
    ) -> Result<MemoryRegion, Error> {
        memory.populate()?;
        self.register_mapped(memory, (&fd, 0), access, stream)
    }

    fn register_mapped(
        &self,
        memory: SharedMemory,
        (fd, offset): (&impl AsFd, u64),
        access: Access,
        stream: Option<QpNum>,
    ) -> Result<MemoryRegion, Error> {
        let spec = RegionSpec {
            stream,
            offset,
            ..self.spec(&memory, access)
        };
        self.register_by(spec, fd, Arc::new(memory))
    }

    /// A region of all of this memory, at its own addresses.
    fn spec(&self, memory: &SharedMemory, access: Access) -> RegionSpec {
        let base = memory.as_ptr().expose_provenance() as u64;
        RegionSpec::new(self.inner.id, access, base, memory.len() as u64)
    }

    fn register_by(
        &self,
        spec: RegionSpec,
        fd: &impl AsFd,
        memory: Arc<SharedMemory>,
    ) -> Result<MemoryRegion, Error> {
        let request = Request::RegisterMemory(spec);
        let (response, _) = self.inner.context.request(&request, &borrow(fd))?;
        self.registered(response, memory)
    }

    fn registered(
        &self,
        response: Response,
        memory: Arc<SharedMemory>,
    ) -> Result<MemoryRegion, Error> {
        match response {
            Response::Region { stag } => Ok(MemoryRegion {
                registration: Registration::new(self, stag),
                memory,
                adopted: None,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// An STag that work makes valid.
    pub(crate) fn alloc_stag(&self, kind: StagKind) -> Result<Registration, Error> {
        let pd = self.inner.id;
        let request = Request::AllocStag { pd, kind };
        match self.inner.context.request(&request, &[])? {
            (Response::Region { stag }, _) => Ok(Registration::new(self, stag)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    pub(crate) fn id(&self) -> PdId {
        self.inner.id
    }

    pub(crate) fn context(&self) -> &Arc<Inner> {
        &self.inner.context
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        self.context.give_back(&Request::DeallocPd { pd: self.id });
    }
}

/// Registered memory. `drop` blocks until the RNIC touches no byte of it any more; where nothing may block,
/// [`deregister`](Self::deregister) it.
#[derive(Debug)]
pub struct MemoryRegion {
    /// Before `memory`: fields are dropped in order, and it is unmapped after deregistration.
    registration: Registration,
    /// In its process an RNIC holds it too.
    memory: Arc<SharedMemory>,
    /// Pages of the program's that were put into a memfd: private again when nobody reaches them there.
    adopted: Option<Adopted>,
}

/// An STag's existence in the RNIC.
#[derive(Debug)]
pub(crate) struct Registration {
    pd: ProtectionDomain,
    pub(crate) stag: Keyed,
    /// The RNIC has been asked to end it.
    ended: bool,
}

impl Registration {
    fn new(pd: &ProtectionDomain, stag: u32) -> Self {
        Self {
            pd: pd.clone(),
            stag: Keyed::new(stag),
            ended: false,
        }
    }

    /// Ends it, and says how that went.
    fn end(&mut self) -> Result<(), Error> {
        self.ended = true;
        let stag = self.stag.name();
        let request = Request::DeregisterMemory { stag };
        self.pd.inner.context.request_done(&request)
    }

    /// What this STag is to stand for: a range of a region of the same protection domain.
    pub(crate) fn part_of(
        &self,
        region: &MemoryRegion,
        range: &Range<usize>,
    ) -> Result<RemoteMemory, Error> {
        if !Arc::ptr_eq(&self.pd.inner, &region.registration.pd.inner) {
            return Err(Error::WrongPd);
        }
        region.part(range)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let stag = self.stag.name();
        self.pd
            .inner
            .context
            .give_back(&Request::DeregisterMemory { stag });
    }
}

impl MemoryRegion {
    /// The STag (RFC 5040 section 1.1): that of the last [`Self::reregister`], if there was one. It is the lkey
    /// and the rkey of the verbs, which are one value here.
    pub fn stag(&self) -> u32 {
        self.registration.stag.now()
    }

    /// The work that makes `range` of the region valid again after it was invalidated, with these
    /// rights and another key, and what to tell the peer when that work has completed. Rights to
    /// write need a region that was registered with the right to write locally. From here on
    /// [`Self::stag`], [`Self::slice`] and [`Self::remote`] give the STag with the key of this work.
    ///
    /// # Errors
    /// [`Error::Range`], also for no byte. That it is still valid is reported by the work's completion.
    pub fn reregister(
        &self,
        wr_id: u64,
        range: Range<usize>,
        access: Access,
    ) -> Result<(WorkRequest<'static>, RemoteMemory), Error> {
        let part = self.part(&range)?;
        let stag = self.registration.stag.next();
        let part = RemoteMemory { stag, ..part };
        let work = WorkRequest::bind(WrOpcode::FastRegister, wr_id, stag, part, access);
        Ok((work, part))
    }

    /// The tagged offset of the first byte: its address in this process.
    pub fn addr(&self) -> u64 {
        self.memory.as_ptr().addr() as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Never: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The protection domain it was registered in.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.registration.pd
    }

    /// The first byte, for programs that do their own raw copies. The RNIC and peers may write
    /// there at any time, so no reference may be made from it.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Copies bytes out, from `offset` on.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        self.memory.read(offset, into).map_err(Error::of_bounds)
    }

    /// Copies bytes in, from `offset` on.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.memory.write(offset, from).map_err(Error::of_bounds)
    }

    /// Sets the bytes of `range` to `value`.
    pub fn fill(&self, range: Range<usize>, value: u8) -> Result<(), Error> {
        self.check(&range)?;
        self.memory
            .fill(range.start, range.len(), value)
            .map_err(Error::of_bounds)
    }

    /// A copy of the bytes of `range`.
    pub fn to_vec(&self, range: Range<usize>) -> Result<Vec<u8>, Error> {
        self.check(&range)?;
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// An element for work requests: `range` of this region, less than 4 GiB.
    pub fn slice(&self, range: Range<usize>) -> Result<Sge, Error> {
        self.check(&range)?;
        let length = u32::try_from(range.len()).map_err(|_| self.range_error(&range))?;
        Ok(Sge {
            addr: self.addr() + range.start as u64,
            length,
            lkey: self.stag(),
        })
    }

    /// What to tell a peer so that it can Read or Write `range` of this region.
    pub fn remote(&self, range: Range<usize>) -> Result<RemoteMemory, Error> {
        self.check(&range)?;
        Ok(RemoteMemory {
            stag: self.stag(),
            addr: self.addr() + range.start as u64,
            len: range.len() as u64,
        })
    }

    /// Deregisters it and gives its memory back, and says how that went.
    pub(crate) fn give_back(mut self) -> Result<(), Error> {
        self.registration.end()
    }

    /// As [`Self::remote`], for a range that has a byte.
    pub(crate) fn part(&self, range: &Range<usize>) -> Result<RemoteMemory, Error> {
        if range.is_empty() {
            return Err(self.range_error(range));
        }
        self.remote(range.clone())
    }

    fn check(&self, range: &Range<usize>) -> Result<(), Error> {
        if range.start <= range.end && range.end <= self.len() {
            return Ok(());
        }
        Err(self.range_error(range))
    }

    fn range_error(&self, range: &Range<usize>) -> Error {
        Error::Range {
            offset: range.start,
            end: range.end,
            len: self.len(),
        }
    }
}
