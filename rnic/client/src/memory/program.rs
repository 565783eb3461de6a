//! Memory of the program's own making: of the heap, of a mapping, of a static.
//!
//! The `unsafe` here is the promise that [`ProtectionDomain::register_memory`] asks of its caller, and
//! nothing else: what is done with the memory is `rnic-ipc`'s.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use rnic_adopt::NotAdopted;
use rnic_ipc::control::{Access, RefusalCode, Request};
use rnic_ipc::shm::{SharedMemory, ShmError};
use rustix::io::Errno;

use super::{MemoryRegion, Pages, ProtectionDomain};
use crate::error::Error;

impl ProtectionDomain {
    /// Registers `len` bytes from `ptr` on, wherever they lie: of the heap, of a mapping, of a static,
    /// at any alignment. Addresses in work requests and of the peer's are the program's own
    /// ([`MemoryRegion::addr`] is `ptr`).
    ///
    /// Over a daemon, pages of the heap and of private mappings are put into a memfd in place, whole
    /// pages, and are private again when the last region of theirs is dropped ([`rnic_adopt`] says what
    /// a program sees of that). A mapping of a memfd that is sealed with `F_SEAL_SHRINK`, and of which
    /// this process has a descriptor, is used as it is, as by [`Self::register_fd`]. What is neither
    /// (`.data`, stacks, other shared memory) the RNIC reaches by `/proc/self/mem`: more slowly, without
    /// Atomic Operations, and only few regions (`remote_regions`).
    ///
    /// # Errors
    /// [`Error::Refused`], before a byte of the memory is touched, when a limit does not allow it
    /// (`Limit`), or when there is no memory at that address (`BadMemory`).
    ///
    /// # Safety
    /// Until the region is dropped the bytes stay mapped; for reading, and with any right to write for
    /// writing. The RNIC and peers read and write them at any time, as the rights say: the program
    /// holds no reference that this would break (`&[u8]` to bytes that a peer may write, `&mut [u8]` to
    /// any), and takes what it reads meanwhile for a mixture of old and new bytes.
    pub unsafe fn register_memory(
        &self,
        ptr: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller's promise is the same.
        let memory = unsafe { SharedMemory::borrowed(ptr, len) }?;
        match self.inner.context.session()? {
            Some(session) => self.register_local(session, memory, access, None),
            None => self.register_in_place(memory, access),
        }
    }

    /// By the memfd that the memory is in, or whose pages take its place; else by the accessor.
    fn register_in_place(
        &self,
        memory: SharedMemory,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let (start, len) = (memory.as_non_null(), memory.len());
        self.ask_first(len, Pages::There)?;
        // SAFETY: it stays mapped until the region is dropped, which drops what was adopted.
        let place = match unsafe { rnic_adopt::place(start.addr().get(), len) } {
            Ok(place) => place,
            Err(NotAdopted::NoMemory) => return Err(Error::Memory(ShmError::NoPages)),
            Err(why) => {
                log::debug!("{len} bytes at {start:p} are registered by /proc/self/mem: {why}");
                return self.register_by_accessor(memory, access);
            }
        };
        let request = Request::RegisterMemory {
            pd: self.inner.id,
            stream: None,
            access,
            base: start.as_ptr().expose_provenance() as u64,
            offset: place.offset(),
            length: len as u64,
            adopted: place.is_adopted(),
        };
        match self.inner.context.request(&request, &[place.fd()]) {
            Ok((response, _)) => {
                let mut region = self.registered(response, Arc::new(memory))?;
                region.adopted = place.into_adopted();
                Ok(region)
            }
            // A memfd of the program's own that can't be mapped, for its seals or its holes.
            Err(Error::Refused(refusal))
                if refusal.code == RefusalCode::BadMemory && !place.is_adopted() =>
            {
                log::debug!("{len} bytes at {start:p} are registered by /proc/self/mem: {refusal}");
                self.register_by_accessor(memory, access)
            }
            Err(error) => Err(error),
        }
    }

    /// Registers memory that the daemon reaches by this process's `/proc/self/mem`.
    pub(super) fn register_by_accessor(
        &self,
        memory: SharedMemory,
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
        let request = Request::RegisterRemote {
            pd: self.inner.id,
            stream: None,
            access,
            address: memory.as_ptr().expose_provenance() as u64,
            length: memory.len() as u64,
        };
        self.register_by(&request, &own, memory)
    }
}
