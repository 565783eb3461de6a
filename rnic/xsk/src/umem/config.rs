//! How large a UMEM is to be, and the limits the kernel sets.

use std::fmt;

use crate::error::XskError;

/// Bytes before the data of a frame (`XDP_PACKET_HEADROOM`): the kernel puts received data there
/// too.
pub const CHUNK_HEADROOM: u16 = 256;

/// The most frames of one UMEM: 2 GiB of chunks of 4096 bytes.
pub const MAX_FRAMES: u32 = 1 << 19;

/// The largest ring the kernel is asked for, entries.
pub(crate) const MAX_RING: u32 = 1 << 15;

/// Bytes of an Ethernet header with one VLAN tag.
const LINK_HEADER: u32 = 14 + 4;

/// The most chunks that a received packet lies in: the largest IP packet in chunks of 4096 bytes.
pub const CHUNKS_MAX: usize = 18;
const _: () = assert!(
    CHUNKS_MAX * ChunkSize::Bytes4096.chunk_capacity() >= LINK_HEADER as usize + u16::MAX as usize
);

/// How a UMEM is cut: bytes of a chunk, of which the kernel takes the first two, and how many chunks the
/// largest Ethernet frame lies in (multi-buffer when more than one).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChunkSize {
    /// 2048 bytes: carries frames of up to 1792.
    #[default]
    Bytes2048,
    /// 4096 bytes: carries frames of up to 3840.
    Bytes4096,
    /// 4096 bytes, frames in one or two of them: up to 7680.
    TwoOf4096,
    /// 4096 bytes, frames in one to three of them: up to 11520.
    ThreeOf4096,
    /// 16384 bytes, for memory that the kernel does not know ([`Umem::heap`](crate::Umem::heap)):
    /// carries frames of up to 16128.
    Bytes16384,
}

impl ChunkSize {
    /// The smallest that carries frames of an interface with this MTU (bytes of IP), with a VLAN
    /// tag.
    ///
    /// # Errors
    ///
    /// [`XskError::MtuTooLarge`] above 11502 bytes.
    pub fn for_mtu(mtu: u32) -> Result<ChunkSize, XskError> {
        [
            ChunkSize::Bytes2048,
            ChunkSize::Bytes4096,
            ChunkSize::TwoOf4096,
            ChunkSize::ThreeOf4096,
        ]
        .into_iter()
        .find(|chunk| mtu <= chunk.largest_mtu())
        .ok_or(XskError::MtuTooLarge {
            mtu,
            most: ChunkSize::ThreeOf4096.largest_mtu(),
        })
    }

    /// Bytes of a chunk.
    pub const fn bytes(self) -> usize {
        match self {
            ChunkSize::Bytes2048 => 2048,
            ChunkSize::Bytes4096 | ChunkSize::TwoOf4096 | ChunkSize::ThreeOf4096 => 4096,
            ChunkSize::Bytes16384 => 16_384,
        }
    }

    /// How many chunks the largest frame that is sent lies in.
    pub const fn chunks(self) -> usize {
        match self {
            ChunkSize::Bytes2048 | ChunkSize::Bytes4096 | ChunkSize::Bytes16384 => 1,
            ChunkSize::TwoOf4096 => 2,
            ChunkSize::ThreeOf4096 => 3,
        }
    }

    /// The most bytes of a frame that lie in one chunk.
    pub const fn chunk_capacity(self) -> usize {
        self.bytes() - CHUNK_HEADROOM as usize
    }

    /// The most bytes of one Ethernet frame, without FCS.
    pub const fn frame_capacity(self) -> usize {
        self.chunks() * self.chunk_capacity()
    }

    /// The largest MTU whose frames fit, with a VLAN tag.
    pub const fn largest_mtu(self) -> u32 {
        self.frame_capacity() as u32 - LINK_HEADER
    }

    /// How many of a UMEM's chunks are [`Frame`](crate::Frame)s of their own; the rest make wide
    /// ones. All of them, or half: that half is received into.
    pub(crate) const fn narrow(self, chunks: u32) -> u32 {
        match self.chunks() as u32 {
            1 => chunks,
            wide => chunks - chunks / 2 / wide * wide,
        }
    }
}

/// Whether to ask for huge pages (2 MiB, `/proc/sys/vm/nr_hugepages`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Huge pages when there are enough free, else ordinary ones.
    #[default]
    Prefer,
    /// Ordinary pages.
    Never,
}

/// What a UMEM's memory is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// 2 MiB pages.
    Huge,
    Ordinary,
    /// This process's heap; the kernel does not know it.
    Heap,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageKind::Huge => "huge pages",
            PageKind::Ordinary => "ordinary pages",
            PageKind::Heap => "heap memory",
        })
    }
}

/// The size of a UMEM and of the rings that go with each queue on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UmemConfig {
    /// How many chunks. With huge pages it is rounded up to fill them.
    pub frames: u32,
    /// Bytes of each, and how many a frame may take.
    pub chunk: ChunkSize,
    /// Entries of each queue's fill ring: a power of two. This many frames wait for reception on
    /// each queue. Small rings keep the working set in cache.
    pub fill_ring: u32,
    /// Entries of each queue's completion ring: a power of two, no smaller than the TX ring.
    pub completion_ring: u32,
    /// Huge pages or not.
    pub huge_pages: HugePages,
}

impl Default for UmemConfig {
    /// 4096 frames of 2048 bytes, rings of 512.
    fn default() -> Self {
        Self {
            frames: 4096,
            chunk: ChunkSize::default(),
            fill_ring: 512,
            completion_ring: 512,
            huge_pages: HugePages::default(),
        }
    }
}

impl UmemConfig {
    /// What is wrong with it, if anything.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !(1..=MAX_FRAMES).contains(&self.frames) {
            return Err("the number of frames must be between 1 and 524288");
        }
        check_ring(self.fill_ring)?;
        check_ring(self.completion_ring)
    }
}

/// What is wrong with a ring of so many entries, if anything.
pub(crate) fn check_ring(entries: u32) -> Result<(), &'static str> {
    if entries.is_power_of_two() && entries <= MAX_RING {
        Ok(())
    } else {
        Err("a ring's number of entries must be a power of two of at most 32768")
    }
}
