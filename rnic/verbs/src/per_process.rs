//! What a process has one of. A child after fork(2) begins with nothing: it does not touch what is its parent's.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A value for each process that asks for it, never freed.
pub(crate) struct PerProcess<T> {
    current: AtomicPtr<Made<T>>,
    make: fn() -> T,
}

struct Made<T> {
    /// [`rnic::process::forks`].
    forks: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Self {
            current: AtomicPtr::new(std::ptr::null_mut()),
            make,
        }
    }

    pub(crate) fn get(&'static self) -> &'static T {
        let found = self.current.load(Ordering::Acquire);
        // SAFETY: null, or what is leaked below.
        match unsafe { found.as_ref() } {
            Some(made) if made.forks == rnic::process::forks() => &made.value,
            _ => self.begin(found),
        }
    }

    fn begin(&'static self, before: *mut Made<T>) -> &'static T {
        let own = Box::leak(Box::new(Made {
            forks: rnic::process::watch_forks(),
            value: (self.make)(),
        }));
        let put = self
            .current
            .compare_exchange(before, own, Ordering::AcqRel, Ordering::Acquire);
        match put {
            Ok(_) => &own.value,
            // SAFETY: what another thread of this process leaked at the same time.
            Err(others) => unsafe { &(*others).value },
        }
    }
}
