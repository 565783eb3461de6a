//! Everything that one stack lends to connections while they have something in it.

use userspace_net::pool::{QueuePool, RangePool};

use crate::config::Config;
use crate::inbound::RANGES_MAX;
use crate::outbound::Slot;

/// Send queues and sets of out-of-order ranges.
#[derive(Debug)]
pub(crate) struct Pools<B> {
    pub(crate) queues: QueuePool<Slot<B>>,
    pub(crate) ranges: RangePool,
}

impl<B> Pools<B> {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            queues: QueuePool::new(config.send_queue_segments, config.connections),
            ranges: RangePool::new(RANGES_MAX, config.connections),
        }
    }
}
