//! Memfds that are registered: mapped whole, once for each user, and without holes.
//!
//! While a process punches a hole into a memfd, every access to it in another process sleeps, for
//! seconds where the hole is large. `F_SEAL_FUTURE_WRITE` forbids that, and forbids new mappings for
//! writing too. So whoever registers a part of a file maps all of it, before it is sealed, and later
//! registrations of the same file use the same mapping.
//!
//! They do so by user: a client that was given a descriptor of another user's memfd, which that
//! seal has made one for reading, does not come to write by way of the daemon.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{OFlags, SealFlags, SeekFrom};
use rustix::io::Errno;

use super::{Mapping, ShmError, check_len};

/// The most bytes of files that one user's registrations map (1 TiB): address space, not memory.
pub const USER_FILES_MAX: u64 = 1 << 40;
/// The most of all users together (64 TiB): half of what a process of x86-64 can address.
pub const FILES_MAX: u64 = 1 << 46;

/// A file, as one user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    user: u32,
    device: u64,
    inode: u64,
}

/// The mappings that there are.
static FILES: Mutex<Option<HashMap<Key, Entry>>> = Mutex::new(None);

#[derive(Debug)]
struct Entry {
    mapping: Weak<Mapping>,
    len: u64,
}

/// A memfd that can't shrink.
pub(super) struct Memfd {
    seals: SealFlags,
    device: u64,
    inode: u64,
    /// Bytes.
    size: u64,
    /// Bytes that have pages.
    allocated: u64,
    /// Bytes of a page.
    pub(super) page: u64,
    huge: bool,
}

impl Memfd {
    pub(super) fn of(fd: BorrowedFd<'_>) -> Result<Self, ShmError> {
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| ShmError::NotMemfd)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(ShmError::NotSealed);
        }
        let stat = rustix::fs::fstat(fd).map_err(host("fstat"))?;
        let (page, huge) = page_size(fd)?;
        Ok(Self {
            seals,
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            allocated: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
            page,
            huge,
        })
    }

    /// That the range is in the file.
    pub(super) fn check(&self, offset: u64, len: u64) -> Result<(), ShmError> {
        check_len(len)?;
        let size = self.size;
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(ShmError::TooShort { offset, len, size });
        }
        Ok(())
    }

    /// That each page of the `len` bytes from `offset` is there. Of a file that is sealed by
    /// [`forbid_holes`] it then stays.
    ///
    /// The file is asked, and not mincore(2): that says of the file of another user who forbids writing
    /// (fchmod(2)) that all pages are there, and of pages in swap that they are not. The descriptor's
    /// position, which it has in common with its owner's, is put back; a program that uses it in that
    /// moment may find it elsewhere.
    pub(super) fn check_populated(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: u64,
    ) -> Result<(), ShmError> {
        if self.huge {
            // hugetlbfs knows no holes. Pages may have come since this was read, but none can have gone.
            let allocated = Self::of(fd)?.allocated.max(self.allocated);
            if allocated < self.size {
                let (missing, offset) = (self.size - allocated, 0);
                return Err(ShmError::NotPopulated { missing, offset });
            }
            return Ok(());
        }
        let position = rustix::fs::tell(fd).map_err(host("lseek"))?;
        let checked = check_pages(fd, offset, len);
        rustix::fs::seek(fd, SeekFrom::Start(position)).map_err(host("lseek"))?;
        checked
    }
}

/// That ordinary pages are there. Two calls where all is well, three where not, however many holes
/// there are.
fn check_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(), ShmError> {
    let end = offset.saturating_add(len);
    let first = match seek(fd, SeekFrom::Data(offset))? {
        Some(data) if data == offset => seek(fd, SeekFrom::Hole(offset))?.unwrap_or(offset),
        _ => offset,
    };
    if first >= end {
        return Ok(());
    }
    let until = seek(fd, SeekFrom::Data(first))?.map_or(end, |data| data.min(end));
    Err(ShmError::NotPopulated {
        missing: until.saturating_sub(first),
        offset: first,
    })
}

/// Where data or a hole is next; none at the end.
fn seek(fd: BorrowedFd<'_>, to: SeekFrom) -> Result<Option<u64>, ShmError> {
    match rustix::fs::seek(fd, to) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(host("lseek")(errno)),
    }
}

/// Seals a memfd so that nobody can punch holes into it, or map it for writing any more. Mappings that
/// there are stay.
///
/// # Errors
///
/// [`ShmError::SealedSeals`] when it has a seal against further seals.
pub fn forbid_holes(fd: impl std::os::fd::AsFd) -> Result<(), ShmError> {
    let fd = fd.as_fd();
    match rustix::fs::fcntl_add_seals(fd, SealFlags::FUTURE_WRITE) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| ShmError::NotMemfd)?;
            if seals.contains(SealFlags::FUTURE_WRITE) {
                return Ok(());
            }
            Err(ShmError::SealedSeals)
        }
        Err(errno) => Err(host("fcntl(F_ADD_SEALS, F_SEAL_FUTURE_WRITE)")(errno)),
    }
}

/// The mapping of the whole file, which `user` has already or gets now.
pub(super) fn map(
    user: u32,
    fd: BorrowedFd<'_>,
    offset: u64,
    len: u64,
) -> Result<(Arc<Mapping>, Memfd), ShmError> {
    let file = Memfd::of(fd)?;
    file.check(offset, len)?;
    let flags = rustix::fs::fcntl_getfl(fd).map_err(host("fcntl(F_GETFL)"))?;
    if flags & OFlags::ACCMODE != OFlags::RDWR {
        return Err(ShmError::ReadOnly);
    }
    let key = Key {
        user,
        device: file.device,
        inode: file.inode,
    };
    let mut files = lock();
    let files = files.get_or_insert_default();
    if let Some(mapping) = files.get(&key).and_then(|entry| entry.mapping.upgrade()) {
        return Ok((mapping, file));
    }
    if file.seals.contains(SealFlags::SEAL) && !file.seals.contains(SealFlags::FUTURE_WRITE) {
        return Err(ShmError::SealedSeals);
    }
    if file
        .seals
        .intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE)
    {
        return Err(ShmError::SealedWrites);
    }
    let whole = file.size.next_multiple_of(file.page);
    check_len(whole)?;
    let (mut all, mut of_user) = (whole, whole);
    for (other, entry) in files.iter() {
        all += entry.len;
        of_user += if other.user == user { entry.len } else { 0 };
    }
    if of_user > USER_FILES_MAX || all > FILES_MAX {
        return Err(ShmError::TooManyFiles { size: whole });
    }
    let size = usize::try_from(whole).map_err(|_| ShmError::Length { len: whole })?;
    let mapping = Arc::new(Mapping::new(fd, 0, size, Some(key))?);
    let entry = Entry {
        mapping: Arc::downgrade(&mapping),
        len: whole,
    };
    files.insert(key, entry);
    Ok((mapping, file))
}

/// A mapping ends: it is not to be found any more.
pub(super) fn forget(key: &Key, mapping: &Mapping) {
    let mut files = lock();
    let Some(files) = files.as_mut() else {
        return;
    };
    // Another mapping of the file may stand there already.
    if files
        .get(key)
        .is_some_and(|entry| std::ptr::eq(entry.mapping.as_ptr(), mapping))
    {
        files.remove(key);
    }
}

fn lock() -> MutexGuard<'static, Option<HashMap<Key, Entry>>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The page size that mappings of this memfd are aligned to, which its filesystem gives as its block
/// size, and whether pages are huge.
fn page_size(fd: BorrowedFd<'_>) -> Result<(u64, bool), ShmError> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
    let found = rustix::fs::fstatfs(fd).map_err(host("fstatfs"))?;
    let huge = match found.f_type {
        TMPFS_MAGIC => false,
        HUGETLBFS_MAGIC => true,
        _ => return Err(ShmError::NotMemfd),
    };
    u64::try_from(found.f_bsize)
        .ok()
        .filter(|size| size.is_power_of_two())
        .map(|size| (size, huge))
        .ok_or(ShmError::NotMemfd)
}

fn host(call: &'static str) -> impl FnOnce(Errno) -> ShmError {
    move |errno| ShmError::Host { call, errno }
}

#[cfg(test)]
mod tests;
