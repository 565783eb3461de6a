//! The windows of this process.
//!
//! The `unsafe` here passes on what [`crate::place`] asks of its caller: the range stays mapped.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::SealFlags;

use crate::maps::{self, Part, What};
use crate::sys::{self, Copies, PIECE, Signals};
use crate::window::{Key, Window};
use crate::{Needed, Neighbours, NotAdopted, Place, fork, memory};

static TABLE: Mutex<Table> = Mutex::new(Table {
    windows: Vec::new(),
    adoptions: 0,
    crowded: false,
    untold: Vec::new(),
    not_copied: None,
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
    /// Bytes that a child of fork(2) shares with its parent, and why: to be logged as well.
    not_copied: Option<(usize, NotAdopted)>,
}

/// The table, locked, with no signal handled meanwhile: its handler might fork.
#[derive(Debug)]
pub(crate) struct Locked {
    table: MutexGuard<'static, Table>,
    _signals: Signals,
}

impl Deref for Locked {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.table
    }
}

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

pub(crate) fn lock() -> Locked {
    let signals = Signals::block();
    Locked {
        table: TABLE.lock().unwrap_or_else(PoisonError::into_inner),
        _signals: signals,
    }
}

/// Does something with the table, and logs what it had to say afterwards.
fn with_table<T>(work: impl FnOnce(&mut Table) -> T) -> T {
    with_locked(lock(), work)
}

fn with_locked<T>(mut table: Locked, work: impl FnOnce(&mut Table) -> T) -> T {
    let result = work(&mut table);
    let mut untold = std::mem::take(&mut table.untold);
    let not_copied = table.not_copied.take();
    drop(table);
    untold.extend(not_copied.map(|(bytes, why)| {
        format!(
            "a child of fork(2) shares {bytes} bytes of registered memory with its parent, because copies \
             failed: {why}; what either writes there, the other sees"
        )
    }));
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
    needed: Needed,
    neighbours: Neighbours,
) -> Result<Place, NotAdopted> {
    fork::watch_forks();
    let pages = pages(start, len)?;
    // SAFETY: the caller's word.
    with_locked(without_abandoned(&pages), |table| unsafe {
        table.place(&pages, (start, len), needed, neighbours)
    })
}

/// The table, once nobody holds the pages in a window that is abandoned, or it has taken too long.
fn without_abandoned(pages: &Range<usize>) -> Locked {
    let held = |table: &mut Table| {
        let mut windows = table.windows.iter();
        windows.any(|window| window.abandoned && window.runs.are_held(pages))
    };
    let Locked { table, _signals } = lock();
    let waited = RELEASED.wait_timeout_while(table, RELEASE_LIMIT, held);
    Locked {
        table: waited.unwrap_or_else(PoisonError::into_inner).0,
        _signals,
    }
}

impl Table {
    /// # Safety
    /// As [`crate::place`].
    unsafe fn place(
        &mut self,
        pages: &Range<usize>,
        (start, len): (usize, usize),
        needed: Needed,
        neighbours: Neighbours,
    ) -> Result<Place, NotAdopted> {
        let parts = maps::parts(pages, needed)?;
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
pub(crate) fn pages(start: usize, len: usize) -> Result<Range<usize>, NotAdopted> {
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

/// Before fork(2): copies of all that is adopted, for the child; none where nothing is.
pub(crate) fn copies(table: &mut Table) -> Option<Copies> {
    let bytes: usize = table.windows.iter().map(|one| one.runs.bytes()).sum();
    if bytes == 0 {
        return None;
    }
    let least = bytes.saturating_add(2 * PIECE) as u64;
    let copies = match memory::available() {
        Some(available) if available < least => Err(NotAdopted::NoMemory),
        _ => Copies::new(bytes),
    };
    match copies {
        Ok(copies) => {
            let windows = table.windows.iter_mut();
            windows.fold(copies.start(), |at, window| window.runs.lay_out(at));
            for window in &table.windows {
                // SAFETY: there are as many bytes as all runs have, and each has its own.
                unsafe { window.copy_runs() };
            }
            Some(copies)
        }
        Err(why) => {
            table.not_copied = Some((bytes, why));
            None
        }
    }
}

/// In a child of fork(2), which has one thread: what its parent adopted is private from now on.
///
/// It takes no memory of the heap and gives none back: a signal's handler may have forked in the midst of
/// malloc(3).
///
/// # Safety
/// There is no other thread.
pub(crate) unsafe fn leave_parent(table: &mut Table, copies: Option<Copies>) {
    let mut windows = ManuallyDrop::new(std::mem::take(&mut table.windows));
    if let Some(mut copies) = copies {
        let mut failed = None;
        let looked = maps::each_shared(copies.buffer(), |range, file, offset| {
            for window in windows.iter().filter(|window| window.key() == file) {
                for (part, copy) in window.copies_of(&range, offset) {
                    // SAFETY: mapped from the file, as was just read, and the caller's word.
                    if let Err(why) = unsafe { sys::put_copy(copy, &part) } {
                        let before = failed.take().map_or(0, |(bytes, _)| bytes);
                        failed = Some((before + part.len(), why));
                    }
                }
            }
        });
        if let Err(why) = looked {
            let all = windows.iter().map(|window| window.runs.bytes()).sum();
            failed = Some((all, why));
        }
        table.not_copied = failed;
    }
    windows.drain(..).for_each(Window::leave);
}
