//! What memory is registered for.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use serde::{Deserialize, Serialize};

use crate::id::{PdId, QpNum};

/// A memory region, from the request to the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionSpec {
    /// Its protection domain.
    pub pd: PdId,
    /// A queue pair of that domain and client, when only its stream may use the region.
    pub stream: Option<QpNum>,
    /// What local work and remote peers may do.
    pub access: Access,
    /// The tagged offset of the first byte: by convention its address in the client, and with
    /// [`MemoryKind::Remote`] that address.
    pub base: u64,
    /// Where the region begins in its memfd, in bytes; 0 for other memory.
    pub offset: u64,
    /// Its length in bytes, at least 1.
    pub length: u64,
    /// How the RNIC reaches its memory.
    pub memory: MemoryKind,
}

impl RegionSpec {
    /// A region at the beginning of a memfd, for all streams of its domain.
    pub const fn new(pd: PdId, access: Access, base: u64, length: u64) -> Self {
        Self {
            pd,
            stream: None,
            access,
            base,
            offset: 0,
            length,
            memory: MemoryKind::Memfd,
        }
    }
}

/// What an STag without memory of its own is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StagKind {
    /// A memory window of type 1: for peers of all queue pairs of its protection domain.
    WindowType1,
    /// A memory window of type 2B: for the peer of the queue pair that bound it.
    WindowType2B,
    /// A region that is registered by work (fast registration).
    FastRegion,
}

/// How the RNIC reaches a region's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// It has none of its own: a window, a fast region.
    None,
    /// A mapping of the client's memfd, which is sealed against shrinking.
    Memfd,
    /// The same, of a memfd into which the client's library put pages that the program had made. For people: it
    /// makes no difference to the RNIC.
    Adopted,
    /// The client's `/proc/self/mem`, open for writing too if any right is to write: a system call for each access,
    /// and no Atomic Operations. For clients that may (`remote_regions`).
    Remote,
    /// It is memory of this process (embedded mode).
    Local,
}

impl MemoryKind {
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Memfd,
        Self::Adopted,
        Self::Remote,
        Self::Local,
    ];

    /// As people read it, and metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Memfd => "memfd",
            Self::Adopted => "adopted",
            Self::Remote => "remote",
            Self::Local => "local",
        }
    }
}

/// Rights of a region: a set, such as `Access::LOCAL_WRITE | Access::REMOTE_READ`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Rights", into = "Rights")]
pub struct Access(u8);

impl Access {
    /// None for peers, and nothing is placed here: a source of local work.
    pub const NONE: Self = Self(0);
    /// Receives and RDMA Read data may be placed here.
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer may RDMA Read.
    pub const REMOTE_READ: Self = Self(1 << 1);
    /// A peer may RDMA Write.
    pub const REMOTE_WRITE: Self = Self(1 << 2);
    /// A peer may do Atomic Operations (RFC 7306).
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Local work, and a peer may RDMA Read and RDMA Write.
    pub const READ_WRITE: Self = Self(1 | 1 << 1 | 1 << 2);
    /// All rights.
    pub const ALL: Self = Self(0b1111);

    /// Whether all rights of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether at least one right of `other` is in this set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The rights of both: `|` for constants.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These rights if the condition holds, or else none.
    #[must_use]
    pub const fn when(self, condition: bool) -> Self {
        match condition {
            true => self,
            false => Self::NONE,
        }
    }

    /// The rights as bits of a work request.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// The rights from bits; those that mean nothing are not looked at.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits as u8 & Self::ALL.0)
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rights = Rights::from(*self);
        f.debug_struct("Access")
            .field("local_write", &rights.local_write)
            .field("remote_read", &rights.remote_read)
            .field("remote_write", &rights.remote_write)
            .field("remote_atomic", &rights.remote_atomic)
            .finish()
    }
}

/// The same with a name for each right, as messages and JSON have it.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Access")]
struct Rights {
    local_write: bool,
    remote_read: bool,
    remote_write: bool,
    remote_atomic: bool,
}

impl From<Access> for Rights {
    fn from(access: Access) -> Self {
        Self {
            local_write: access.contains(Access::LOCAL_WRITE),
            remote_read: access.contains(Access::REMOTE_READ),
            remote_write: access.contains(Access::REMOTE_WRITE),
            remote_atomic: access.contains(Access::REMOTE_ATOMIC),
        }
    }
}

impl From<Rights> for Access {
    fn from(rights: Rights) -> Self {
        Self::LOCAL_WRITE.when(rights.local_write)
            | Self::REMOTE_READ.when(rights.remote_read)
            | Self::REMOTE_WRITE.when(rights.remote_write)
            | Self::REMOTE_ATOMIC.when(rights.remote_atomic)
    }
}
