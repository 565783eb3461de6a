//! Loopback: connections between addresses of this host.
//!
//! One end receives the very frame that the other transmits, on loan ([`Frame::lend`]). When the receiver
//! frees it, it returns to its sender, as after any link (`Tx::take_completed`). Nothing is copied.
//! Nothing guards against link errors: no CRC is agreed on, and TCP's checksum over the payload is neither
//! computed nor verified.
//!
//! The loopback is one more port of the shard, [`LOOPBACK`], after those of the links. The same quanta fill
//! it, and the same receive path takes bounded batches from it. Segments from a link's port are never for a
//! connection of the loopback, nor the other way round ([`super::media`]).

use std::collections::VecDeque;

use rnic_ipc::control::MpaOptions;
use rnic_net::{ETHERNET_HEADER, PathDefaults};
use rnic_xsk::{Frame, Packet, Umem};

use crate::conn::Conn;

/// The port's index: no shard has so many.
pub(super) const LOOPBACK: usize = u32::MAX as usize;

/// The largest IP packet of a link whose frames have so many bytes, and no VLAN tag.
pub fn untagged_mtu(frame_bytes: usize) -> u32 {
    let most = frame_bytes.saturating_sub(ETHERNET_HEADER);
    // No IP packet has more.
    u32::from(u16::try_from(most).unwrap_or(u16::MAX))
}

/// What was transmitted and not received yet.
#[derive(Debug)]
pub(super) struct Loopback {
    queue: VecDeque<Frame>,
    depth: usize,
    /// Largest IP packet, in bytes.
    mtu: u32,
}

impl Loopback {
    /// A queue that all frames of the UMEM fit in, which carries packets as large as these take.
    pub fn new(umem: &Umem) -> Self {
        Self {
            queue: VecDeque::with_capacity(umem.frames()),
            depth: umem.frames(),
            mtu: untagged_mtu(umem.frame_capacity()),
        }
    }

    /// Whether nothing waits to be received.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Frames that it takes.
    #[inline]
    pub fn room(&self) -> usize {
        self.depth.saturating_sub(self.queue.len())
    }

    #[inline]
    pub fn transmit(&mut self, frame: Frame) {
        self.queue.push_back(frame.lend());
    }

    /// Appends up to `max` frames to `out`, oldest first; says how many.
    pub fn receive(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let count = max.min(self.queue.len());
        out.extend(self.queue.drain(..count).map(Packet::from));
        count
    }

    /// What the paths of passive connections begin with.
    pub fn defaults(&self) -> PathDefaults {
        PathDefaults::new(self.mtu)
    }
}

/// MPA options as requested or agreed to: no CRC over the loopback.
pub(super) fn mpa_over(port: usize, mpa: &MpaOptions) -> MpaOptions {
    MpaOptions {
        crc: mpa.crc && port != LOOPBACK,
        ..*mpa
    }
}

impl Conn {
    /// Whether both its ends are in this shard.
    pub fn is_loopback(&self) -> bool {
        self.port() == LOOPBACK
    }
}
