//! Loopback: connections between addresses of this host. What one end transmits is what the other
//! receives: the same frame, on loan ([`Frame::lend`]) until whoever receives it frees it, and then its
//! sender's again, as after any link (`Shard::take_completed`). Nothing is copied, and nothing is
//! checked that guards against a link's errors: no CRC is agreed on, TCP's checksum over the payload is
//! neither taken nor looked at.
//!
//! It is one more port of the shard, [`LOOPBACK`], behind those of the links: the same quanta fill it,
//! the same receive path takes batches from it, as bounded. What comes from a port of a link is never for
//! a connection of the loopback, nor the other way round.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use rnic_ipc::control::MpaOptions;
use rnic_net::{ETHERNET_HEADER, Path, PathDefaults};
use rnic_xsk::{Frame, Packet, Umem};

use crate::conn::Conn;

/// The port's index: no shard has so many.
pub(super) const LOOPBACK: usize = u32::MAX as usize;

/// What was transmitted and not received yet.
#[derive(Debug)]
pub(super) struct Loopback {
    queue: VecDeque<Frame>,
    /// As many as there are frames.
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
            mtu: loopback_mtu(umem.frame_capacity()),
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

    /// Transmits a frame.
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

/// The largest IP packet of a loopback over frames of so many bytes, in bytes.
pub fn loopback_mtu(frame_bytes: usize) -> u32 {
    let most = frame_bytes.saturating_sub(ETHERNET_HEADER);
    // No IP packet has more.
    u32::from(u16::try_from(most).unwrap_or(u16::MAX))
}

/// The port of a new connection's first frames: which one of a link, the peer's answer tells.
pub(super) fn first_port(path: &Path) -> usize {
    if path.is_loopback() { LOOPBACK } else { 0 }
}

/// What is asked of the MPA start-up, or agreed to: over the loopback no CRC.
pub(super) fn mpa_over(port: usize, mpa: &MpaOptions) -> MpaOptions {
    MpaOptions {
        crc: mpa.crc && port != LOOPBACK,
        ..*mpa
    }
}

impl Conn {
    /// Whether both its ends are addresses of this host.
    pub fn is_loopback(&self) -> bool {
        self.port() == LOOPBACK
    }

    /// The address that the peer is known by where it counts who asks too much: all programs of this host
    /// have one, since each may name any of the host's.
    pub fn peer_host(&self) -> IpAddr {
        match self.is_loopback() {
            true => IpAddr::V4(Ipv4Addr::LOCALHOST),
            false => self.tuple.remote.addr,
        }
    }
}
