//! What is measured of clients' requests.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rnic_engine::histogram::Histogram;
use rnic_ipc::control::{MemoryKind, RefusalCode};

use crate::sync::lock;

/// What a device measures of its clients' requests.
#[derive(Debug, Default)]
pub(crate) struct RequestMetrics {
    pub(crate) refused: [AtomicU64; REFUSALS.len()],
    /// How long registrations that succeeded took.
    pub(crate) registrations: Mutex<Histogram>,
    /// How many there were, as [`MemoryKind::ALL`].
    pub(crate) kinds: [AtomicU64; MemoryKind::ALL.len()],
}

/// Each code of a refusal, and its name.
pub(crate) const REFUSALS: [(RefusalCode, &str); 15] = [
    (RefusalCode::Version, "version"),
    (RefusalCode::Malformed, "malformed"),
    (RefusalCode::UnknownObject, "unknown_object"),
    (RefusalCode::Busy, "busy"),
    (RefusalCode::WrongState, "wrong_state"),
    (RefusalCode::Limit, "limit"),
    (RefusalCode::BadMemory, "bad_memory"),
    (RefusalCode::WrongPd, "wrong_pd"),
    (RefusalCode::AddressNotLocal, "address_not_local"),
    (RefusalCode::PortInUse, "port_in_use"),
    (RefusalCode::Unreachable, "unreachable"),
    (RefusalCode::Host, "host"),
    (RefusalCode::ShuttingDown, "shutting_down"),
    (RefusalCode::NotPermitted, "not_permitted"),
    (RefusalCode::MemoryFault, "memory_fault"),
];

impl RequestMetrics {
    /// A request was refused.
    pub(crate) fn count_refusal(&self, code: RefusalCode) {
        let mut both = REFUSALS.iter().zip(&self.refused);
        if let Some((_, count)) = both.find(|((known, _), _)| *known == code) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn registered(&self, memory: MemoryKind, took: Duration) {
        self.kinds[memory as usize].fetch_add(1, Ordering::Relaxed);
        lock(&self.registrations).record(took);
    }
}
