//! Pages exchanged in place: the system calls.
//!
//! Invariants of the `unsafe` here:
//! * a [`Mapping`] owns its mapping, which is undone once;
//! * between the moment when pages are moved away from their address and the moment when others are there, this
//!   thread touches nothing but its own stack, the moved pages and the window. It touches no heap and no static,
//!   for they may be what was moved. The table's lock is held all the time, so there is no fork(2) meanwhile, and
//!   signals are blocked with it, for a handler would touch them or fork;
//! * bytes are copied by raw pointers; no reference to them exists here.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, UserfaultfdFlags};

use crate::{Needed, NotAdopted, host, maps};

/// Bytes that are exchanged in one step: who touches them waits so long.
pub const PIECE: usize = 4 << 20;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapping of a memfd, whole.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address that belongs to no thread; it is used under the table's lock.
unsafe impl Send for Mapping {}

impl Mapping {
    pub(crate) fn new(fd: &OwnedFd, len: usize) -> Result<Self, NotAdopted> {
        // Where new mappings are locked (mlockall(2)) they are populated, and this one is long: it gets
        // its rights when it is no longer locked.
        let none = ProtFlags::empty();
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let mapped =
            unsafe { rustix::mm::mmap(ptr::null_mut(), len, none, MapFlags::SHARED, fd, 0) };
        let start = NonNull::new(mapped.map_err(host("mmap"))?.cast());
        let start = start.ok_or(NotAdopted::Kind("at address 0"))?;
        let mapping = Self { start, len };
        let at = start.as_ptr().cast();
        // SAFETY: exactly the new mapping.
        unsafe { rustix::mm::munlock(at, len) }.map_err(host("munlock"))?;
        // SAFETY: as above.
        let rights = unsafe {
            let rights = MprotectFlags::READ | MprotectFlags::WRITE;
            rustix::mm::mprotect(at, len, rights)
        };
        rights.map_err(host("mprotect"))?;
        mapping.advise(&(0..len), Advice::LinuxDontDump)?;
        Ok(mapping)
    }

    /// Gives the pages their frames, so that no copy faults for want of memory.
    pub(crate) fn populate(&self, offsets: &Range<usize>) -> Result<(), NotAdopted> {
        match self.advise(offsets, Advice::LinuxPopulateWrite) {
            Err(NotAdopted::Host {
                errno: Errno::NOMEM | Errno::FAULT,
                ..
            }) => Err(NotAdopted::NoMemory),
            populated => populated,
        }
    }

    fn advise(&self, offsets: &Range<usize>, advice: Advice) -> Result<(), NotAdopted> {
        let start = self.at(offsets);
        // SAFETY: `at` gives a range of this mapping; the advice changes no byte.
        unsafe { rustix::mm::madvise(start.cast(), offsets.len(), advice) }.map_err(host("madvise"))
    }

    /// Copies what is at `offsets` to an address.
    ///
    /// # Safety
    /// There are as many bytes that nobody else reaches, and the file has those of `offsets`.
    pub(crate) unsafe fn copy_to(&self, offsets: &Range<usize>, address: usize) {
        let to = ptr::with_exposed_provenance_mut(address);
        // SAFETY: mapped for reading, and the caller's word.
        unsafe { ptr::copy_nonoverlapping(self.at(offsets), to, offsets.len()) };
    }

    /// Where `offsets` begin.
    fn at(&self, offsets: &Range<usize>) -> *mut u8 {
        assert!(offsets.start <= offsets.end && offsets.end <= self.len);
        // SAFETY: within the mapping, as was just asserted.
        unsafe { self.start.as_ptr().add(offsets.start) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap gave. Pages of the file that lie at other addresses stay there.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A userfaultfd: who touches a page of a range that is registered with it waits.
#[derive(Debug)]
pub(crate) struct Faults {
    fd: OwnedFd,
    /// The kernel's own accesses, in system calls, wait too instead of failing.
    of_kernel: bool,
}

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Stretch {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Stretch,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Protect {
    range: Stretch,
    mode: u64,
}

const MISSING: u64 = 1;
const WRITE_PROTECT: u64 = 2;

impl Faults {
    pub(crate) fn new() -> Result<Self, NotAdopted> {
        const API: u64 = 0xaa;
        const PAGEFAULT_FLAG_WP: u64 = 1;
        const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
        const IOCTL: Opcode = opcode::read_write::<Api>(0xaa, 0x3f);
        let faults = open()?;
        let mut api = Api {
            api: API,
            features: PAGEFAULT_FLAG_WP | WP_HUGETLBFS_SHMEM,
            ioctls: 0,
        };
        // SAFETY: the kernel reads and writes one `Api`.
        let agreed = unsafe { ioctl(&faults.fd, Updater::<IOCTL, _>::new(&mut api)) };
        agreed.map_err(|_| NotAdopted::Kernel)?;
        Ok(faults)
    }

    /// Whether a system call on what is exchanged waits instead of failing.
    pub(crate) fn are_of_kernel(&self) -> bool {
        self.of_kernel
    }

    fn register(&self, range: &Range<usize>, mode: u64) -> Result<(), NotAdopted> {
        const IOCTL: Opcode = opcode::read_write::<Register>(0xaa, 0x00);
        let mut register = Register {
            range: stretch(range),
            mode,
            ioctls: 0,
        };
        // SAFETY: the kernel reads and writes one `Register`.
        unsafe { ioctl(&self.fd, Updater::<IOCTL, _>::new(&mut register)) }
            .map_err(host("ioctl(UFFDIO_REGISTER)"))
    }

    /// Has who writes wait, or no longer.
    fn protect(&self, range: &Range<usize>, protected: bool) -> Result<(), NotAdopted> {
        const IOCTL: Opcode = opcode::read_write::<Protect>(0xaa, 0x06);
        let mut protect = Protect {
            range: stretch(range),
            mode: protected.into(),
        };
        // SAFETY: the kernel reads and writes one `Protect`.
        unsafe { ioctl(&self.fd, Updater::<IOCTL, _>::new(&mut protect)) }
            .map_err(host("ioctl(UFFDIO_WRITEPROTECT)"))
    }

    /// Nobody waits any more.
    fn unregister(&self, range: &Range<usize>) {
        const IOCTL: Opcode = opcode::read::<Stretch>(0xaa, 0x01);
        let mut range = stretch(range);
        // SAFETY: the kernel reads one `Stretch`. It fails where nothing is registered.
        let _ = unsafe { ioctl(&self.fd, Updater::<IOCTL, _>::new(&mut range)) };
    }

    /// A thread that waits tries again.
    fn wake(&self, range: &Range<usize>) {
        const IOCTL: Opcode = opcode::read::<Stretch>(0xaa, 0x02);
        let mut range = stretch(range);
        // SAFETY: the kernel reads one `Stretch`. Closing the descriptor wakes all the same.
        let _ = unsafe { ioctl(&self.fd, Updater::<IOCTL, _>::new(&mut range)) };
    }
}

/// One that has system calls wait too, where this process may have such.
fn open() -> Result<Faults, NotAdopted> {
    const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);
    let by_call = |more| {
        // SAFETY: it is used for ranges that the callers of this module answer for.
        unsafe { rustix::mm::userfaultfd(UserfaultfdFlags::CLOEXEC | more) }.ok()
    };
    let of_all = by_call(UserfaultfdFlags::empty()).or_else(open_device);
    let of_kernel = of_all.is_some();
    let fd = of_all.or_else(|| by_call(USER_MODE_ONLY));
    let fd = fd.ok_or(NotAdopted::Kernel)?;
    Ok(Faults { fd, of_kernel })
}

/// By the device file, which an administrator may open to a group.
fn open_device() -> Option<OwnedFd> {
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/userfaultfd")
        .ok()?;
    // SAFETY: USERFAULTFD_IOC_NEW takes flags by value.
    let made = unsafe { libc::ioctl(libc_fd(&device), 0xaa00, libc::O_CLOEXEC) };
    // SAFETY: a descriptor that was just made, and is nobody else's.
    (made >= 0).then(|| unsafe { std::os::fd::FromRawFd::from_raw_fd(made) })
}

fn libc_fd(fd: &impl AsFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&fd.as_fd())
}

fn stretch(range: &Range<usize>) -> Stretch {
    Stretch {
        start: range.start as u64,
        len: range.len() as u64,
    }
}

/// Puts the private pages of `range`, all of one mapping, into the window at `offsets`, and these at
/// their address. The pages of the window have their frames.
///
/// # Safety
/// `range` is of private anonymous memory that stays mapped meanwhile, and no memory of this thread's
/// stack or thread-local storage.
pub(crate) unsafe fn put_in(
    faults: &Faults,
    range: &Range<usize>,
    window: &Mapping,
    offsets: &Range<usize>,
) -> Result<(), NotAdopted> {
    // On this thread's stack, as is all that is used below.
    let range = &range.clone();
    let (to, at, len) = (window.at(offsets), address(range), range.len());
    // The kernel takes the fifth argument of mremap(2) for a wish, and rustix passes none: so it is told
    // where to.
    let from = reserve(len)?;
    let moved = faults.register(range, MISSING).and_then(|()| {
        let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
        // SAFETY: moves the range's pages to addresses that were just reserved, and leaves an empty
        // mapping behind, whose first access waits (`faults`).
        let moved = unsafe { rustix::mm::mremap_fixed(at, len, len, flags, from) };
        moved.map_err(host("mremap(MREMAP_DONTUNMAP)"))
    });
    if let Err(error) = moved {
        faults.unregister(range);
        // SAFETY: reserved above, and nothing is there.
        let _ = unsafe { rustix::mm::munmap(from, len) };
        return Err(error);
    }
    // SAFETY: `len` bytes that nobody else reaches, and as many of the window, which have frames.
    unsafe { ptr::copy_nonoverlapping(from.cast(), to, len) };
    // SAFETY: what is there is the empty mapping; the window stays mapped.
    let put = unsafe { move_to(to.cast(), range, MremapFlags::DONTUNMAP) };
    if put.is_ok() {
        // SAFETY: the moved pages are this function's.
        let _ = unsafe { rustix::mm::munmap(from, len) };
        // SAFETY: pages of the program's, which is to have them in its core dumps; changes no byte.
        let _ = unsafe { rustix::mm::madvise(at, len, Advice::LinuxDoDump) };
    } else {
        // SAFETY: what is there is the empty mapping. Without its pages the program can't go on.
        let back = unsafe { move_to(from, range, MremapFlags::empty()) };
        if back.is_err() {
            std::process::abort();
        }
    }
    faults.wake(range);
    put
}

/// Puts private pages with the same bytes in the place of the window's.
///
/// # Safety
/// At `range` are pages of the window's file at `offsets`, and they stay mapped meanwhile.
pub(crate) unsafe fn take_out(
    faults: &Faults,
    range: &Range<usize>,
    window: &Mapping,
    offsets: &Range<usize>,
) -> Result<(), NotAdopted> {
    let (from, len) = (window.at(offsets), range.len());
    let to = private_pages(len)?;
    let done = faults
        .register(range, WRITE_PROTECT)
        .and_then(|()| faults.protect(range, true))
        .and_then(|()| {
            // SAFETY: the window's pages, which nobody writes at `range` now, and new ones. The bytes
            // that another process writes meanwhile are no longer the program's.
            unsafe { ptr::copy_nonoverlapping(from, to.cast(), len) };
            // SAFETY: the window's pages are there, by the caller's word.
            unsafe { move_to(to, range, MremapFlags::empty()) }
        });
    if done.is_err() {
        faults.unregister(range);
    }
    faults.wake(range);
    if done.is_err() {
        // SAFETY: they were not moved, and nobody has their address.
        let _ = unsafe { rustix::mm::munmap(to, len) };
    }
    done
}

/// Has pages come into being, as a thread that writes or reads them would.
pub(crate) fn populate(pages: &Range<usize>, needed: Needed) -> Result<(), NotAdopted> {
    let advice = match needed {
        Needed::Read => Advice::LinuxPopulateRead,
        Needed::ReadAndWrite => Advice::LinuxPopulateWrite,
    };
    // SAFETY: changes no byte, and unmaps nothing.
    let advise = |len| unsafe { rustix::mm::madvise(address(pages), len, advice) };
    match advise(pages.len()) {
        Ok(()) => Ok(()),
        Err(Errno::NOMEM) => Err(NotAdopted::NotMapped),
        // Of no byte it is only wrong where the kernel does not know it (before Linux 5.14).
        Err(Errno::INVAL) if advise(0).is_err() => Ok(()),
        Err(errno) => Err(NotAdopted::NoPage(errno)),
    }
}

/// Private pages for a child of fork(2), beside a buffer for reading `/proc/self/maps`.
#[derive(Debug)]
pub(crate) struct Copies(Mapping);

// SAFETY: as for `Mapping`.
unsafe impl Sync for Copies {}

impl Copies {
    /// So many bytes of them.
    pub(crate) fn new(len: usize) -> Result<Self, NotAdopted> {
        let len = len + maps::BUFFER;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, READ_WRITE, flags) };
        let start = NonNull::new(start.map_err(host("mmap"))?.cast());
        let start = start.ok_or(NotAdopted::Kind("at address 0"))?;
        let mapping = Mapping { start, len };
        // Fewer page faults, where the kernel has such pages.
        let _ = mapping.advise(&(0..len), Advice::LinuxHugepage);
        Ok(Self(mapping))
    }

    /// Where the copies begin.
    pub(crate) fn start(&self) -> usize {
        self.0.start.as_ptr().expose_provenance()
    }

    /// The buffer, behind the copies.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        let at = self.0.len - maps::BUFFER;
        // SAFETY: these bytes of the mapping are this value's, and nothing but this reaches them.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr().add(at), maps::BUFFER) }
    }
}

/// In a child of fork(2): puts a part of the copies, at `copy`, in the place of what is at `range`.
///
/// # Safety
/// At `range` are shared pages with these bytes, and this thread is the only one.
pub(crate) unsafe fn put_copy(copy: usize, range: &Range<usize>) -> Result<(), NotAdopted> {
    let copy = ptr::with_exposed_provenance_mut(copy);
    // SAFETY: nobody has a reference into the pages that are replaced but to the same bytes.
    unsafe { move_to(copy, range, MremapFlags::empty()) }
}

/// Closes a descriptor that is never used again, nor closed.
pub(crate) fn close(fd: &OwnedFd) {
    // SAFETY: so the callers say; its owner is forgotten.
    unsafe { rustix::io::close(libc_fd(fd)) };
}

/// Addresses that nothing else is mapped at.
fn reserve(len: usize) -> Result<*mut c_void, NotAdopted> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }
        .map_err(host("mmap"))
}

fn private_pages(len: usize) -> Result<*mut c_void, NotAdopted> {
    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, READ_WRITE, flags) }
        .map_err(host("mmap"))
}

/// Moves a mapping to `range`, in the place of what is there.
///
/// # Safety
/// What is there may be unmapped.
unsafe fn move_to(
    from: *mut c_void,
    range: &Range<usize>,
    more: MremapFlags,
) -> Result<(), NotAdopted> {
    let (len, flags) = (range.len(), MremapFlags::MAYMOVE | more);
    // SAFETY: the caller's word.
    let moved = unsafe { rustix::mm::mremap_fixed(from, len, len, flags, address(range)) };
    moved.map(drop).map_err(host("mremap(MREMAP_FIXED)"))
}

fn address(range: &Range<usize>) -> *mut c_void {
    ptr::with_exposed_provenance_mut(range.start)
}

/// While it lives this thread has no signal handled.
#[derive(Debug)]
pub(crate) struct Signals(SigSet);

impl Signals {
    pub(crate) fn block() -> Self {
        let mut before = SigSet::empty();
        let blocked = pthread_sigmask(
            SigmaskHow::SIG_SETMASK,
            Some(&SigSet::all()),
            Some(&mut before),
        );
        blocked.expect("SIG_SETMASK is a way to change a mask, which is all that can be wrong");
        Self(before)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&self.0), None);
    }
}

/// What the thread that calls can't do without.
#[derive(Debug)]
pub(crate) struct OwnThread {
    /// As gettid(2) gives it.
    pub(crate) id: u32,
    /// Where it stands: on its stack, or on another that the program has made (a fiber's, a signal's).
    pub(crate) pointer: usize,
    /// Its stack. The first thread's is told by `/proc/self/maps`.
    pub(crate) stack: Option<Range<usize>>,
    /// An address in its thread-local storage.
    pub(crate) storage: usize,
    /// Where the thread library's descriptor of it begins.
    pub(crate) descriptor: usize,
}

impl OwnThread {
    pub(crate) fn now() -> Self {
        let id = rustix::thread::gettid();
        let here = 0_u8;
        // SAFETY: give addresses of this thread's, at which nothing is accessed.
        let (storage, descriptor) = unsafe {
            (
                libc::__errno_location().addr(),
                libc::pthread_self() as usize,
            )
        };
        Self {
            id: id.as_raw_pid().cast_unsigned(),
            pointer: ptr::from_ref(&here).addr(),
            stack: (id != rustix::process::getpid()).then(own_stack).flatten(),
            storage,
            descriptor,
        }
    }
}

/// The address of a thread's list of robust mutexes, which lies in its descriptor. `id` is of this
/// process, or 0 for the thread that calls.
pub(crate) fn robust_list(id: u32) -> Option<usize> {
    let (mut list, mut len) = (0_usize, 0_usize);
    // SAFETY: the kernel writes an address and a length to where they are told to be.
    let found = unsafe {
        let (list, len) = (ptr::from_mut(&mut list), ptr::from_mut(&mut len));
        libc::syscall(libc::SYS_get_robust_list, id as libc::c_int, list, len)
    };
    (found == 0 && list != 0).then_some(list)
}

/// Bytes from a thread's descriptor to its rseq(2) area, where that is told. On other machines than
/// x86-64 it is counted from elsewhere.
pub(crate) fn rseq_offset() -> Option<isize> {
    const NAME: &std::ffi::CStr = c"__rseq_offset";
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    // SAFETY: looks a symbol up, which has the type that is read (glibc 2.35).
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr());
        (!found.is_null()).then(|| found.cast::<isize>().read())
    }
}

/// A thread's stack, at whose end its thread-local storage is.
fn own_stack() -> Option<Range<usize>> {
    // SAFETY: all zeroes is a value of this plain struct.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let (mut start, mut len) = (ptr::null_mut(), 0);
    // SAFETY: the calls fill in, and then destroy, what is given to them.
    let known = unsafe {
        let known = libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) == 0
            && libc::pthread_attr_getstack(&attributes, &mut start, &mut len) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        known
    };
    known.then(|| start.addr()..start.addr() + len)
}

/// Has `child` called in the child of each fork(2), with `before` called first, in the parent.
pub(crate) fn at_fork(
    before: unsafe extern "C" fn(),
    parent: unsafe extern "C" fn(),
    child: unsafe extern "C" fn(),
) {
    // SAFETY: the functions are there as long as this library is.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}
