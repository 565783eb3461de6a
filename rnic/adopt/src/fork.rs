//! fork(2): a child has private copies of adopted pages, as of any others.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, Once};

use crate::sys;
use crate::table::{self, Table};

thread_local! {
    /// The table, locked by the thread that forks, until it has.
    static LOCKED: Cell<Option<MutexGuard<'static, Table>>> = const { Cell::new(None) };
}

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How many forks are between this process and the one that called [`watch_forks`] first: what belongs to
/// a parent has another number. A bare clone(2) or `_Fork` is not counted.
pub fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// As [`forks`], which are counted from now on.
pub fn watch_forks() -> u64 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| sys::at_fork(before, parent, child));
    forks()
}

/// No exchange is under way while the process forks.
unsafe extern "C" fn before() {
    let locked = table::lock();
    // A thread that ends has none; then the lock ends with this function.
    let _ = LOCKED.try_with(|place| place.set(Some(locked)));
}

unsafe extern "C" fn parent() {
    let _ = LOCKED.try_with(Cell::take);
}

unsafe extern "C" fn child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let locked = LOCKED.try_with(Cell::take).ok().flatten();
    if let Some(mut table) = locked {
        // SAFETY: a child of fork(2) has one thread.
        unsafe { table::leave_parent(&mut table) };
    }
}
