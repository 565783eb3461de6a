//! `libibverbs.so.1` and `librdmacm.so.1` in one library, over the client API (`rnic`): programs that were
//! built for the verbs run on the RNIC as they are.
//!
//! The layers, from the outside:
//!
//! - `exports` has every symbol with its version, `ops` the functions that the headers call by pointers, `abi` the
//!   structs of the headers.
//! - `ffi` is the border itself (pointers, objects that programs hold, failures, panics). It has most of the
//!   `unsafe`; the rest is in `exports`, `ops`, `per_process` and `pd`.
//! - Everything else is safe code that turns verbs into calls of `rnic` and back.
//!
//! - Nothing here makes progress: the daemon does, or the embedded device's thread.
//! - A program's process has one session for each device (`session::Session`), begun at first use. Its
//!   one thread waits for the RNIC's events and puts them on event channels and asynchronous queues.
//! - What the RNIC can't do fails with the verbs' own error and a line in the log.
//!
//! ```text
//! $ LD_LIBRARY_PATH=target/verbs rping -s -a 192.0.2.2 -v
//! ```

#![deny(unsafe_code)]

mod abi;
mod builder;
mod cm;
mod comp_channel;
mod context;
mod cq;
mod device;
#[allow(unsafe_code)]
mod exports;
#[allow(unsafe_code)]
mod ffi;
mod logger;
mod mw;
#[allow(unsafe_code)]
mod ops;
#[allow(unsafe_code)]
mod pd;
#[allow(unsafe_code)]
mod per_process;
mod poll;
mod post;
mod process;
mod qp;
mod queue;
mod rsocket;
mod send_flags;
mod session;
mod shared;
mod srq;
mod strings;
mod users;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose data is right after every single operation, so that a panic elsewhere does not spoil it.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
