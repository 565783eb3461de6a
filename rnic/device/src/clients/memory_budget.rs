//! The budget of memory: a request that makes an object is admitted if the process has memory for it.
//!
//! Where it has not (a limit of addresses or of data, a cgroup's limit) the request is refused, and
//! existing objects go on. The heap's reserve ([`heap`]) is for what can't be refused. So of requests that
//! take much at most one is carried out at a time. Once the reserve was used none is, until it could be taken
//! again. A cgroup's limit gives no warning, its processes are killed; so there must be memory for all
//! that may still be charged.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rnic_host::cgroup::Groups;
use rnic_host::heap;
use rnic_ipc::control::{QpAttributes, Refusal, RefusalCode, Request};
use rnic_ipc::work::SLOT_SIZE;
use rnic_prm::{Prm, Resource};

use crate::refuse;

/// Bytes that a request may take beside those of its rings, and that threads and sockets of the
/// kernel's take meanwhile.
const MARGIN: u64 = heap::HEAP_RESERVE as u64;
/// Bytes of registered memory for each byte of the page tables that reach it: 8 for 4 KiB.
const BYTES_PER_TABLE_BYTE: u64 = 512;
/// Bytes of the shard's tables for each work request that a queue pair may have outstanding, rounded
/// up. A table is in one piece.
const PENDING_BYTES: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct MemoryBudget {
    groups: Groups,
    /// The last request found no memory.
    exhausted: AtomicBool,
    /// Requests that were refused.
    refused: AtomicU64,
}

/// Held while a request that takes much is carried out.
pub(crate) type Exclusive = Option<MutexGuard<'static, ()>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    /// Next to nothing, or only what it gives back.
    Nothing,
    /// A few hundred bytes of tables, or what only an administrator may ask for.
    Little,
    /// Rings, and so many bytes of the heap in one piece.
    Much { heap: usize },
}

impl Cost {
    /// Of one that is above the limit of a queue's depth nothing: it is refused for that.
    fn of(request: &Request, queue_depth: u32) -> Self {
        match request {
            Request::AllocPd
            | Request::RegisterMemory(_)
            | Request::AllocStag { .. }
            | Request::Listen(_)
            | Request::Resolve { .. }
            | Request::Connect { .. }
            | Request::Join { .. }
            | Request::StartCapture(_) => Self::Little,
            Request::Hello { .. }
            | Request::CreateCq { .. }
            | Request::ResizeCq { .. }
            | Request::CreateSrq { .. } => Self::Much { heap: 0 },
            Request::CreateQp(QpAttributes { sq_depth, .. }) if *sq_depth <= queue_depth => {
                let depth = sq_depth.checked_next_power_of_two().unwrap_or(u32::MAX);
                Self::Much {
                    heap: (depth as usize).saturating_mul(PENDING_BYTES),
                }
            }
            _ => Self::Nothing,
        }
    }
}

impl MemoryBudget {
    /// For a process that is in its cgroups already.
    pub(crate) fn new() -> Self {
        Self {
            groups: Groups::find(),
            ..Self::default()
        }
    }

    /// Admits a request if there is memory for it. The result is to be held until it is done.
    pub(crate) fn admit(
        &self,
        request: &Request,
        queue_depth: u32,
        prm: impl FnOnce() -> u64,
    ) -> Result<Exclusive, Refusal> {
        let cost = Cost::of(request, queue_depth);
        // An embedded program's memory is its own.
        if cost == Cost::Nothing || !heap::is_kept() {
            return Ok(None);
        }
        let (exclusive, heap) = match cost {
            Cost::Much { heap } => (Some(heap::take_large()), heap),
            _ => (None, 0),
        };
        let found = if !heap::keep_reserves() || !heap::has(heap) {
            Err(
                "the host gives it no more (see `ulimit -v`, `ulimit -d`, vm.overcommit_memory)"
                    .to_owned(),
            )
        } else {
            self.groups.check(prm().saturating_add(MARGIN))
        };
        match found {
            Ok(()) => {
                if self.exhausted.swap(false, Ordering::Relaxed) {
                    log::info!("there is memory again: requests are carried out");
                }
                Ok(exclusive)
            }
            Err(why) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                if !self.exhausted.swap(true, Ordering::Relaxed) {
                    log::warn!("memory is short, requests that need memory are refused: {why}");
                }
                Err(refuse::refusal(
                    RefusalCode::Host,
                    &format!(
                        "the RNIC has no memory left for it (ENOMEM): {why}; release something, or \
                         raise the limit of the RNIC's process"
                    ),
                ))
            }
        }
    }

    /// Requests that were refused because there was none.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Bytes that may still be charged to the process for what clients have: pages of their rings that
/// were not touched yet, and page tables of registered memory.
pub(crate) fn uncharged(prm: &Prm) -> u64 {
    let rings = prm.ring_entries().saturating_mul(SLOT_SIZE as u64);
    let tables = prm.held_of(Resource::RegisteredBytes) / BYTES_PER_TABLE_BYTE;
    rings.saturating_add(tables)
}

#[cfg(test)]
mod tests;
