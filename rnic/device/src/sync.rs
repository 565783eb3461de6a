//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A thread that panicked with it has left a value that is whole: no change here stops half way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
