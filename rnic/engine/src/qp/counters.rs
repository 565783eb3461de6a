//! What the queue pairs of a shard count. Every refusal is counted under its reason.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Counts of queue pairs: a shard's, or a client's.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct QpCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl std::ops::AddAssign for QpCounters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl QpCounters {
            /// Names and values, in a fixed order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// FPDUs received whole, with the right CRC.
    fpdus_received
    /// FPDUs produced.
    fpdus_sent
    /// FPDUs whose CRC was wrong (RFC 5044 section 8.2).
    crc_errors
    /// FPDUs with a Marker that points elsewhere than their start (RFC 5044 section 8).
    marker_errors
    /// Bytes placed into the application's memory.
    bytes_placed
    /// Bytes taken from the application's memory.
    bytes_gathered
    /// RDMA Writes received whole.
    writes_received
    /// RDMA Writes sent whole.
    writes_sent
    /// Sends of all kinds received whole.
    sends_received
    /// Sends of all kinds sent whole.
    sends_sent
    /// RDMA Read Requests received.
    read_requests_received
    /// RDMA Read Requests sent.
    read_requests_sent
    /// RDMA Read Responses received whole.
    read_responses_received
    /// RDMA Read Responses sent whole.
    read_responses_sent
    /// Immediate Data messages received.
    immediates_received
    /// Immediate Data messages sent.
    immediates_sent
    /// Atomic Requests received.
    atomic_requests_received
    /// Atomic Requests sent.
    atomic_requests_sent
    /// Atomic Responses received.
    atomic_responses_received
    /// Atomic Responses sent: operations done on this side's memory.
    atomic_responses_sent
    /// Local Invalidates done and memory windows bound.
    local_work_done
    /// STags invalidated for a Send with Invalidate.
    stags_invalidated
    /// Terminates received.
    terminates_received
    /// Terminates sent.
    terminates_sent
    /// A peer's accesses refused: no such STag.
    refused_invalid_stag
    /// A peer's accesses refused: another protection domain's STag.
    refused_stag_not_associated
    /// A peer's accesses refused: the region does not give the right.
    refused_access_rights
    /// A peer's accesses refused: outside the region.
    refused_base_or_bounds
    /// A peer's accesses refused: the tagged offset wraps.
    refused_to_wrap
    /// Atomic Requests refused: the memory is not aligned to 64 bits.
    refused_misaligned
    /// Sends with Invalidate of an STag that is not the peer's to invalidate.
    refused_invalidate
    /// Sends and Immediate Data that found no receive posted.
    refused_no_receive
    /// Sends and Immediate Data that began to wait for a receive.
    holds_begun
    /// Sends and Immediate Data that waited longer than they may.
    holds_ran_out
    /// Sends longer than the receive that they met.
    refused_send_too_long
    /// RDMA Read Requests and Atomic Requests beyond the IRD.
    refused_ird_exceeded
    /// Other segments that RDMAP or DDP refuses.
    refused_protocol
    /// Our own work requests that named memory they may not use, or were impossible.
    local_errors
    /// Work requests that completed with success, reported to the client or not.
    work_completed
    /// Work requests that completed in error, flushed ones not counted.
    work_failed
    /// Work requests flushed.
    work_flushed
}
