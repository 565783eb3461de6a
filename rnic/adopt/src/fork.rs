//! fork(2): a child has private copies of adopted pages, as of any others.
//!
//! The copies are made before the fork, by the thread that forks, and the child has them put in the place of the
//! shared pages before fork(2) returns there. So what the parent stores afterwards is not the child's, and
//! neither of them waits for the other: a child may be stopped or killed at any point.
//!
//! Nothing here takes memory of the heap or gives any back. A signal's handler may fork in the midst of
//! malloc(3).
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::{self, Copies};
use crate::table::{self, Locked};

/// What a fork needs from before it until after it.
struct Fork {
    copies: Option<Copies>,
    /// No exchange is under way while the process forks, and nobody else forks.
    table: Locked,
}

/// That of the thread which holds the table, if it forks.
struct Place(UnsafeCell<Option<Fork>>);

// SAFETY: only the thread that holds the table's lock reaches it, and gives the lock back afterwards.
unsafe impl Sync for Place {}

static FORK: Place = Place(UnsafeCell::new(None));

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

unsafe extern "C" fn before() {
    let mut table = table::lock();
    let copies = table::copies(&mut table);
    // SAFETY: this thread has the lock. It has taken what it put there for its last fork.
    unsafe { *FORK.0.get() = Some(Fork { copies, table }) };
}

/// What [`before`] left, in the thread that called it.
fn take() -> Option<Fork> {
    // SAFETY: `before` was called by this thread, which has had the lock since.
    unsafe { (*FORK.0.get()).take() }
}

unsafe extern "C" fn parent() {
    drop(take());
}

unsafe extern "C" fn child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    if let Some(Fork { copies, mut table }) = take() {
        // SAFETY: a child of fork(2) has one thread.
        unsafe { table::leave_parent(&mut table, copies) };
    }
}
