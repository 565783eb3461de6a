//! The windows of this process.
//!
//! The `unsafe` here passes on what [`crate::place`] asks of its caller: the range stays mapped.
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::SealFlags;

use crate::maps::{self, Part, What};
use crate::window::{Key, Window};
use crate::{Neighbours, NotAdopted, Place, fork};

static TABLE: Mutex<Table> = Mutex::new(Table {
    windows: Vec::new(),
    adoptions: 0,
    crowded: false,
    untold: Vec::new(),
});

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) windows: Vec<Window>,
    /// Ranges that were to be adopted.
    adoptions: u64,
    /// The process had too many mappings when they were counted last.
    crowded: bool,
    /// What is to be logged once the table is unlocked: a logger may wait for a thread that forks, which
    /// waits for the table. In a child after fork(2) it may wait for a thread that is not there.
    untold: Vec<String>,
}

/// A range was released.
static RELEASED: Condvar = Condvar::new();
/// How long a range waits for others of a file that nobody takes any more.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// Ranges between two counts of the process's mappings.
const COUNTED_EVERY: u64 = 1024;

/// Pages of the program's that are in a memfd. Dropping it lets them be private again, unless another
/// holds them too. Of a parent process it does nothing.
#[derive(Debug)]
pub struct Adopted {
    pages: Range<usize>,
    window: Key,
    /// Whose it is: [`fork::forks`].
    process: u64,
}

impl Adopted {
    /// As a drop, when the other process has refused the memfd: it had none of its ranges any more, and
    /// takes it but once. Ranges that are placed later are placed in another. They wait for a second at
    /// most until nobody holds pages of theirs in this one.
    pub fn abandon(self) {
        let mut table = lock();
        let mut windows = table.windows.iter_mut();
        if let Some(window) = windows.find(|window| window.key() == self.window) {
            window.abandoned = true;
        }
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        with_table(|table| {
            if fork::forks() == self.process {
                table.release(self.window, &self.pages);
            }
        });
        RELEASED.notify_all();
    }
}

/// Bytes of this process that are adopted now.
pub fn adopted_bytes() -> usize {
    lock()
        .windows
        .iter()
        .map(|window| window.runs.bytes())
        .sum()
}

pub(crate) fn lock() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something with the table, and logs what it had to say afterwards.
fn with_table<T>(work: impl FnOnce(&mut Table) -> T) -> T {
    with_locked(lock(), work)
}

fn with_locked<T>(mut table: MutexGuard<'static, Table>, work: impl FnOnce(&mut Table) -> T) -> T {
    let result = work(&mut table);
    let untold = std::mem::take(&mut table.untold);
    drop(table);
    for line in untold {
        log::warn!("{line}");
    }
    result
}

/// As [`crate::place`].
///
/// # Safety
/// As there.
pub(crate) unsafe fn place(
    start: usize,
    len: usize,
    neighbours: Neighbours,
) -> Result<Place, NotAdopted> {
    fork::watch_forks();
    let pages = pages(start, len)?;
    // SAFETY: the caller's word.
    with_locked(without_abandoned(&pages), |table| unsafe {
        table.place(&pages, start, len, neighbours)
    })
}

/// The table, once nobody holds the pages in a window that is abandoned, or it has taken too long.
fn without_abandoned(pages: &Range<usize>) -> MutexGuard<'static, Table> {
    let held = |table: &mut Table| {
        let mut windows = table.windows.iter();
        windows.any(|window| window.abandoned && window.runs.are_held(pages))
    };
    let waited = RELEASED.wait_timeout_while(lock(), RELEASE_LIMIT, held);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

impl Table {
    /// # Safety
    /// As [`crate::place`].
    unsafe fn place(
        &mut self,
        pages: &Range<usize>,
        start: usize,
        len: usize,
        neighbours: Neighbours,
    ) -> Result<Place, NotAdopted> {
        let parts = maps::parts(pages)?;
        let ours = |file: &Key| self.windows.iter().any(|one| one.key() == *file);
        if let Some(file) = shared_file(&parts).filter(|file| !ours(file)) {
            return mapped_file(file, &parts, start - pages.start);
        }
        let alone = *pages == (start..start + len);
        let neighbours = if alone {
            Neighbours::Exchanged
        } else {
            neighbours
        };
        // SAFETY: the caller's word.
        unsafe { self.adopt(pages, &parts, start, neighbours) }
    }

    /// # Safety
    /// As [`crate::place`].
    unsafe fn adopt(
        &mut self,
        pages: &Range<usize>,
        parts: &[Part],
        start: usize,
        neighbours: Neighbours,
    ) -> Result<Place, NotAdopted> {
        if parts.iter().any(|part| part.what == What::Private) && self.is_crowded() {
            return Err(NotAdopted::Mappings);
        }
        let found = self
            .windows
            .iter()
            .position(|window| window.takes(pages, parts));
        let index = match found {
            Some(index) => index,
            None => {
                self.may_have_window(parts)?;
                self.windows.push(Window::around(pages)?);
                self.windows.len() - 1
            }
        };
        let window = &mut self.windows[index];
        // SAFETY: private parts stay mapped, by the caller's word.
        let put = unsafe { window.put_in(parts, neighbours) };
        if put.is_ok() {
            window.runs.hold(pages);
        }
        let place = Place {
            fd: window.fd.clone(),
            offset: window.offset_of(start),
            adopted: put.is_ok().then(|| Adopted {
                pages: pages.clone(),
                window: window.key(),
                process: fork::forks(),
            }),
        };
        self.windows.retain(|window| !window.runs.is_empty());
        put.map(|()| place)
    }

    /// Whether the process has more mappings than this may add to.
    fn is_crowded(&mut self) -> bool {
        if self.adoptions.is_multiple_of(COUNTED_EVERY) {
            self.crowded = maps::are_many();
        }
        self.adoptions += 1;
        self.crowded
    }

    /// Whether a new window could take the parts: all of them are private.
    fn may_have_window(&self, parts: &[Part]) -> Result<(), NotAdopted> {
        for part in parts {
            match part.what {
                What::Private => {}
                What::Shared { device, inode, .. } => {
                    let ours = |window: &Window| window.key() == (device, inode);
                    return Err(match self.windows.iter().any(ours) {
                        true => NotAdopted::Several,
                        false => NotAdopted::Kind("shared memory"),
                    });
                }
                What::Other(what) => return Err(NotAdopted::Kind(what)),
            }
        }
        Ok(())
    }

    fn release(&mut self, key: Key, pages: &Range<usize>) {
        let Some(window) = self.windows.iter_mut().find(|one| one.key() == key) else {
            return;
        };
        for run in window.runs.release(pages) {
            // SAFETY: it was said of this moment when the pages were adopted.
            let private = maps::present(&run).and_then(|parts| unsafe { window.take_out(&parts) });
            match private {
                Ok(()) => window.runs.remove(&run),
                Err(error) => self.untold.push(format!(
                    "{} bytes at {:#x} stay in a memfd after they were deregistered: {error}",
                    run.len(),
                    run.start
                )),
            }
        }
        self.windows.retain(|window| !window.runs.is_empty());
    }
}

/// The whole pages that the range touches.
fn pages(start: usize, len: usize) -> Result<Range<usize>, NotAdopted> {
    let page = rustix::param::page_size();
    let end = start.checked_add(len).filter(|end| *end > start);
    let end = end.and_then(|end| end.checked_next_multiple_of(page));
    Ok(start / page * page..end.ok_or(NotAdopted::NotMapped)?)
}

/// The file that all parts are a shared mapping of, in order.
fn shared_file(parts: &[Part]) -> Option<Key> {
    let mut found = None;
    for part in parts {
        let What::Shared {
            device,
            inode,
            offset,
        } = part.what
        else {
            return None;
        };
        let begins = offset.wrapping_sub(part.range.start as u64);
        if *found.get_or_insert((device, inode, begins)) != (device, inode, begins) {
            return None;
        }
    }
    found.map(|(device, inode, _)| (device, inode))
}

/// A memfd that the program has mapped itself, by a descriptor that it still has.
fn mapped_file(key: Key, parts: &[Part], in_page: usize) -> Result<Place, NotAdopted> {
    let Some(What::Shared { offset, .. }) = parts.first().map(|part| &part.what) else {
        return Err(NotAdopted::NotMapped);
    };
    let fd = descriptor_of(key).ok_or(NotAdopted::Kind(
        "shared memory of which this process has no descriptor",
    ))?;
    let seals = rustix::fs::fcntl_get_seals(&fd).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        return Err(NotAdopted::Kind(
            "shared memory that can shrink (a memfd without F_SEAL_SHRINK, or another file)",
        ));
    }
    Ok(Place {
        fd: Arc::new(fd),
        offset: offset + in_page as u64,
        adopted: None,
    })
}

/// Another description of the file, so that nobody's position in it moves.
fn descriptor_of((device, inode): Key) -> Option<OwnedFd> {
    use std::os::unix::fs::MetadataExt;
    let open = std::fs::read_dir("/proc/self/fd").ok()?;
    let paths = open.flatten().map(|entry| entry.path());
    for path in paths {
        let same = std::fs::metadata(&path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (device, inode));
        let open = || std::fs::File::options().read(true).write(true).open(&path);
        if let Some(Ok(file)) = same.then(open) {
            return Some(file.into());
        }
    }
    None
}

/// In a child of fork(2), which has one thread: what its parent adopted is private from now on.
///
/// # Safety
/// There is no other thread.
pub(crate) unsafe fn leave_parent(table: &mut Table) {
    for window in std::mem::take(&mut table.windows) {
        for run in window.runs.ranges() {
            // SAFETY: the caller's word.
            let copied =
                maps::present(&run).and_then(|parts| unsafe { window.copy_in_place(&parts) });
            if let Err(error) = copied {
                let (bytes, at) = (run.len(), run.start);
                table.untold.push(format!(
                    "this child shares {bytes} bytes at {at:#x} with its parent: {error}"
                ));
            }
        }
    }
}
