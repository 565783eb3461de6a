//! Memory of the program's own making: of the heap, of a mapping, of a static.
//!
//! The `unsafe` here is the promise that [`ProtectionDomain::register_memory`] asks of its caller, and
//! nothing else: what is done with the memory is `rnic-ipc`'s.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use rnic_adopt::{Needed, Neighbours, NotAdopted, Place};
use rnic_ipc::control::{Access, MemoryKind, Refusal, RefusalCode, RegionSpec};
use rnic_ipc::shm::{SharedMemory, ShmError};
use rustix::io::Errno;

use super::{MemoryRegion, Pages, ProtectionDomain};
use crate::error::Error;

impl ProtectionDomain {
    /// Registers `len` bytes from `ptr` on, wherever they lie: of the heap, of a mapping, of a static,
    /// at any alignment. Addresses in work requests and of the peer's are the program's own
    /// ([`MemoryRegion::addr`] is `ptr`).
    ///
    /// Over a daemon, pages of the heap and of private mappings are put into a memfd in place, whole pages. They
    /// are private again when the last region of theirs is dropped; [`rnic_adopt`] says what a program sees of
    /// that. A mapping of a memfd that is sealed with `F_SEAL_SHRINK`, and of which
    /// this process has a descriptor, is used as it is, as by [`Self::register_fd`]. What is neither
    /// (`.data`, threads' stacks, other shared memory) the RNIC reaches by `/proc/self/mem`: more
    /// slowly, without Atomic Operations, and only few regions (`remote_regions`). Other users than the
    /// daemon's own may have none, unless an administrator allows some.
    ///
    /// # Errors
    /// [`Error::Refused`] with `Limit` when a limit does not allow it; of 1 MiB and more before a page of the memory
    /// is exchanged. With `BadMemory` when not all of it is mapped for reading, or for writing where `access` has
    /// a right to write; then nothing of it has changed. [`Error::Io`] when it must be reached by
    /// `/proc/self/mem` and this process may not open that: it gave up privileges without exec(2) (prctl(2),
    /// `PR_SET_DUMPABLE`).
    ///
    /// # Safety
    /// Until the region is dropped the bytes stay mapped; for reading, and with any right to write for
    /// writing. The RNIC and peers read and write them at any time, as the rights say. The program holds no
    /// reference that this would break (`&[u8]` to bytes that a peer may write, `&mut [u8]` to any). What it reads
    /// meanwhile is a mixture of old and new bytes.
    pub unsafe fn register_memory(
        &self,
        ptr: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller's promise is the same.
        let memory = unsafe { SharedMemory::borrowed(ptr, len) }?;
        match self.inner.context.session()? {
            Some(session) => {
                let (start, len) = (memory.as_ptr().expose_provenance(), memory.len());
                rnic_adopt::check(start, len, needed(access))
                    .map_err(|why| bad_memory(&memory, &why))?;
                self.register_local(session, memory, access, None)
            }
            None => self.register_in_place(Arc::new(memory), access),
        }
    }

    /// By the memfd that the memory is in, or whose pages take its place; else by the accessor.
    fn register_in_place(
        &self,
        memory: Arc<SharedMemory>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        self.ask_first(memory.len(), Pages::There)?;
        // The accessor can't do Atomic Operations.
        let spared = memory.len() < SMALL && !access.contains(Access::REMOTE_ATOMIC);
        let why = match self.register_placed(&memory, spared, access) {
            Ok(registered) => return registered,
            Err(NotAdopted::NoMemory) => return Err(Error::Memory(ShmError::NoPages)),
            Err(why @ (NotAdopted::NotMapped | NotAdopted::NotPermitted(_))) => {
                return Err(bad_memory(&memory, &why));
            }
            Err(why) => why,
        };
        let (start, len) = (memory.as_ptr(), memory.len());
        log::debug!("{len} bytes at {start:p} are registered by /proc/self/mem: {why}");
        let by_accessor = self.register_by_accessor(memory.clone(), access);
        // For the limit, or because a process that gave up privileges may not open the file.
        if why == NotAdopted::Neighbours
            && by_accessor.is_err()
            && let Ok(registered) = self.register_placed(&memory, false, access)
        {
            return registered;
        }
        by_accessor
    }

    /// In a memfd that the RNIC takes: it takes one again only as long as it has a region of it, and
    /// another thread may just have deregistered the last.
    fn register_placed(
        &self,
        memory: &Arc<SharedMemory>,
        spared: bool,
        access: Access,
    ) -> Result<Result<MemoryRegion, Error>, NotAdopted> {
        let mut attempts = 1;
        loop {
            let place = place(memory, access, spared)?;
            let is_adopted = place.is_adopted();
            let registered = self.register_place(memory.clone(), place, access);
            let again = is_adopted && is_refused(&registered, RefusalCode::BadMemory);
            if !again || attempts == ATTEMPTS {
                return Ok(registered);
            }
            attempts += 1;
        }
    }

    fn register_place(
        &self,
        memory: Arc<SharedMemory>,
        place: Place,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let spec = RegionSpec {
            offset: place.offset(),
            memory: match place.is_adopted() {
                true => MemoryKind::Adopted,
                false => MemoryKind::Memfd,
            },
            ..self.spec(&memory, access)
        };
        let registered = self.register_by(spec, &place.fd(), memory.clone());
        // A memfd of the program's own that can't be mapped, for its seals or its holes.
        if is_refused(&registered, RefusalCode::BadMemory) && !place.is_adopted() {
            return self.register_by_accessor(memory, access);
        }
        let adopted = place.into_adopted();
        if is_refused(&registered, RefusalCode::BadMemory) {
            if let Some(adopted) = adopted {
                adopted.abandon();
            }
            return registered;
        }
        let mut region = registered?;
        region.adopted = adopted;
        Ok(region)
    }

    /// Registers memory that the daemon reaches by this process's `/proc/self/mem`.
    pub(super) fn register_by_accessor(
        &self,
        memory: Arc<SharedMemory>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let own = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/proc/self/mem")
            .map_err(|error| Error::Io {
                call: "open(/proc/self/mem)",
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            })?;
        let spec = RegionSpec {
            memory: MemoryKind::Remote,
            ..self.spec(&memory, access)
        };
        let region = self.register_by(spec, &own, memory.clone())?;
        // Pages that are not there yet would come one by one, while the RNIC waits for each. Where one can't
        // come, the region ends with this value.
        let (start, len) = (memory.as_ptr().expose_provenance(), memory.len());
        rnic_adopt::populate(start, len, needed(access))
            .map_err(|why| bad_memory(&memory, &why))?;
        Ok(region)
    }
}

fn needed(access: Access) -> Needed {
    match access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
        true => Needed::ReadAndWrite,
        false => Needed::Read,
    }
}

fn bad_memory(memory: &SharedMemory, why: &NotAdopted) -> Error {
    let (start, len) = (memory.as_ptr(), memory.len());
    Error::Refused(Refusal {
        code: RefusalCode::BadMemory,
        message: format!(
            "{len} bytes at {start:p} to register: {why}. Register what is mapped for reading, and for \
             writing too unless the region is only to be read"
        ),
    })
}

/// Bytes of a region that is rather reached by the accessor than that a system call on bytes beside it
/// fails ([`Neighbours`]).
const SMALL: usize = 64 << 10;

/// How often a range is placed again when the RNIC refuses its memfd.
const ATTEMPTS: u32 = 8;

fn place(memory: &SharedMemory, access: Access, spared: bool) -> Result<Place, NotAdopted> {
    let (start, len) = (memory.as_ptr().expose_provenance(), memory.len());
    let neighbours = match spared {
        true => Neighbours::Spared,
        false => Neighbours::Exchanged,
    };
    // SAFETY: the memory stays mapped until its region is dropped, which drops what was adopted.
    unsafe { rnic_adopt::place(start, len, needed(access), neighbours) }
}

fn is_refused(registered: &Result<MemoryRegion, Error>, code: RefusalCode) -> bool {
    matches!(registered, Err(Error::Refused(refusal)) if refusal.code == code)
}
