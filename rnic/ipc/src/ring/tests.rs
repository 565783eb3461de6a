//! What rings promise: nothing is lost, nothing hostile gets further than a fault.

mod completion;
mod doorbell;
mod hostile;
mod shared;
mod work_queue;

use std::sync::Arc;

use crate::shm::SharedMemory;

fn private(len: usize) -> Arc<SharedMemory> {
    Arc::new(SharedMemory::private(len).unwrap())
}

/// How often the stress tests turn; Miri is a thousand times slower.
const TURNS: u32 = if cfg!(miri) { 200 } else { 200_000 };
