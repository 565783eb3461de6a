//! What the engine needs of a link: frames in, frames out, and a descriptor to sleep on.

use std::os::fd::BorrowedFd;

use crate::error::XskError;
use crate::frame::Frame;
use crate::internal_port::InternalPort;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::umem::Umem;

/// One queue of an interface, or one end of a link in memory.
///
/// No method blocks and none allocates memory after start-up, unless the caller's `out` is too
/// small. A frame given to a port comes back out of the same port, but for those that are inside
/// when the port is dropped: they are lost until the UMEM goes.
pub trait Port {
    /// The UMEM whose frames this port takes and gives.
    fn umem(&self) -> &Umem;

    /// Appends up to `max` received packets to `out`; says how many. Frames that can't be used go
    /// back to `pool`.
    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize;

    /// As [`receive`](Self::receive), for a caller that has nothing else to do: one that a look costs
    /// next to nothing looks again, so many times in all, while there is nothing.
    fn receive_within(
        &mut self,
        looks: u32,
        pool: &mut FramePool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> usize {
        let _ = looks;
        self.receive(pool, out, max)
    }

    /// How many frames [`transmit`](Self::transmit) would take now, however large they are.
    fn transmit_room(&mut self) -> usize;

    /// Queues a frame (whole Ethernet frame, no FCS) for sending; `cookie` comes back with it from
    /// [`completed`](Self::completed). Nothing leaves before [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// The frame itself when the ring is full: flush, take completions, and try later.
    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame>;

    /// Sends what is queued, as far as the link takes it now; the rest goes with the next flush.
    ///
    /// # Errors
    ///
    /// Only when nothing can be sent over the link at present (interface down or gone), not when it is busy.
    fn flush(&mut self) -> Result<(), XskError>;

    /// How many frames wait for the next [`flush`](Self::flush) although `transmit` took them; one of
    /// several chunks may count for each.
    fn unsent(&mut self) -> usize;

    /// A copy of the frame of this chunk, in a frame of `pool`. `None` when the port was not given it to send, or is
    /// done with it, or the pool has no frame for as much.
    fn copy_transmitted(&self, index: usize, pool: &mut FramePool) -> Option<Frame>;

    /// Takes back one frame that the link is done with, and its cookie. Its data is as it was.
    fn completed(&mut self) -> Option<(Frame, u64)>;

    /// Gives the link frames to receive into, from `pool`, as many as it wants.
    fn refill(&mut self, pool: &mut FramePool);

    /// As [`Self::refill`], for a caller that will look for packets only when it is woken for them: so many
    /// may have come until then that the link needs all frames that it can hold.
    fn prepare_sleep(&mut self, pool: &mut FramePool);

    /// Readable when there is something to receive; `None` when the port must be polled.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;

    /// The most bytes of one Ethernet frame, without FCS.
    fn frame_capacity(&self) -> usize;

    /// Whether what it gives came through the kernel's IP and UDP: their checksums were found right, and what is told
    /// about packets that were sent comes as packets of ICMP.
    fn is_of_kernel(&self) -> bool {
        false
    }

    /// What was counted so far.
    fn statistics(&self) -> PortStatistics;

    /// The port that this end of an internal link is. `None` where such ports are never one.
    fn of_internal(end: InternalPort) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = end;
        None
    }

    /// The end of an internal link that this port is, if it is one.
    fn internal(&mut self) -> Option<&mut InternalPort> {
        None
    }
}

/// Counters of a port since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Packets given to the caller.
    pub received: u64,
    pub received_bytes: u64,
    /// Frames taken by `transmit`.
    pub transmitted: u64,
    pub transmitted_bytes: u64,
    /// Frames given back by `completed`.
    pub completed: u64,
    /// System calls made to send.
    pub send_calls: u64,
    /// Times the link said "try later" to a send.
    pub send_busy: u64,
    /// Times a send lost a frame because the link's own queue was full.
    pub send_dropped: u64,
    /// Frames refused by `transmit` because the ring was full.
    pub transmit_ring_full: u64,
    /// Received descriptors that named no chunk that was out, or data outside of it.
    pub bad_receive_descriptors: u64,
    /// Received packets that were dropped because they lie in more chunks than a frame may take, or
    /// one of their descriptors was bad.
    pub bad_receive_chains: u64,
    /// Completions that named no chunk that was out.
    pub bad_completions: u64,
    /// Times that a packet could not be received because the caller had too few free frames.
    pub receive_no_frame: u64,
    /// Packets that were received in several frames.
    pub chains_received: u64,
    /// Packets that were sent with several segments in them.
    pub super_packets_sent: u64,
    pub super_packet_segments_sent: u64,
    /// The kernel's count: received frames dropped for another reason.
    pub kernel_rx_dropped: u64,
    /// The kernel's count: received frames dropped because the RX ring was full.
    pub kernel_rx_ring_full: u64,
    /// The kernel's count: received frames that found the fill ring empty.
    pub kernel_fill_ring_empty: u64,
    /// The kernel's count: descriptors in the fill ring that it refused.
    pub kernel_rx_invalid: u64,
    /// The kernel's count: descriptors in the TX ring that it refused.
    pub kernel_tx_invalid: u64,
    /// The kernel's count: times it found the TX ring empty.
    pub kernel_tx_ring_empty: u64,
}
