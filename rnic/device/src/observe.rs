//! What a device counts and measures. It reads the other parts, and changes none of them.

pub(crate) mod counters;
pub(crate) mod metrics;
