//! What memory is registered for.

use serde::{Deserialize, Serialize};

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
    /// A mapping of the client's memfd.
    Memfd,
    /// The same, of a memfd into which the client's library put pages that the program had made.
    Adopted,
    /// The client's `/proc/self/mem`: a system call for each access.
    Remote,
    /// It is memory of this process (embedded mode).
    Local,
}

impl MemoryKind {
    /// All of them.
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

/// Rights of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Receives and RDMA Read data may be placed here.
    pub local_write: bool,
    /// A peer may RDMA Read.
    pub remote_read: bool,
    /// A peer may RDMA Write.
    pub remote_write: bool,
    /// A peer may do Atomic Operations (RFC 7306).
    pub remote_atomic: bool,
}

impl Access {
    /// The rights as bits of a work request.
    pub const fn bits(self) -> u32 {
        self.local_write as u32
            | (self.remote_read as u32) << 1
            | (self.remote_write as u32) << 2
            | (self.remote_atomic as u32) << 3
    }

    /// The rights from bits; those that mean nothing are not looked at.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            local_write: bits & 1 != 0,
            remote_read: bits & 2 != 0,
            remote_write: bits & 4 != 0,
            remote_atomic: bits & 8 != 0,
        }
    }

    /// Local work only: a sink of receives, a source of anything.
    pub const LOCAL: Self = Self {
        local_write: true,
        remote_read: false,
        remote_write: false,
        remote_atomic: false,
    };

    /// A peer may RDMA Read and RDMA Write, too.
    pub const READ_WRITE: Self = Self {
        remote_read: true,
        remote_write: true,
        ..Self::LOCAL
    };
    /// All rights, for peers too.
    pub const ALL: Self = Self {
        local_write: true,
        remote_read: true,
        remote_write: true,
        remote_atomic: true,
    };
}
