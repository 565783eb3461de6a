//! A look at every frame that a shard receives or sends. Frames that XDP takes never reach the
//! kernel's packet sockets, so this is the only place where they can be seen.

/// Takes copies of frames. Called on the shard's core: it must not block for long.
pub trait Capture: Send + std::fmt::Debug {
    /// A whole Ethernet frame, without FCS, as received or as handed to the link.
    /// `now_unix_ns` is nanoseconds since 1970-01-01 UTC.
    fn frame(&mut self, now_unix_ns: u64, outbound: bool, bytes: &[u8]);
}
