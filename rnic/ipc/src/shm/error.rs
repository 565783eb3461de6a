//! What can be wrong with shared memory, and whose fault it is.

use rustix::io::Errno;

/// The longest mapping, in bytes (1 TiB): keeps every sum of offsets far from overflow.
pub const MAPPING_MAX: u64 = 1 << 40;

/// An access beyond the memory's end, or to a word that isn't aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} are not inside the memory of {memory} bytes, aligned")]
pub struct OutOfBounds {
    /// Where, in bytes.
    pub offset: usize,
    /// How much, in bytes.
    pub len: usize,
    /// Bytes of the memory.
    pub memory: usize,
}

/// Why memory could not be made or mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// The other process's fault: not a memfd.
    #[error(
        "the descriptor is not a memfd; shared memory must be made with memfd_create(2) and sealed \
         with F_SEAL_SHRINK"
    )]
    NotMemfd,
    /// The other process's fault: it could be truncated while we use it.
    #[error(
        "the memfd is not sealed against shrinking; call fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) \
         before passing it"
    )]
    NotSealed,
    /// The other process's fault: holes could be punched into it while we use it.
    #[error(
        "the memfd has F_SEAL_SEAL without F_SEAL_FUTURE_WRITE, so it can't be kept from getting holes; \
         leave F_SEAL_SEAL out: F_SEAL_FUTURE_WRITE is added when it is registered"
    )]
    SealedSeals,
    /// The other process's fault: it can't be mapped for writing.
    #[error(
        "the memfd is sealed against new mappings for writing (F_SEAL_WRITE or F_SEAL_FUTURE_WRITE), and \
         none of this user's registrations has it mapped. Registering a memfd seals it so: to register \
         it again, keep one registration of it until then, or take a new memfd"
    )]
    SealedWrites,
    /// The other process's fault: it has a descriptor for reading only.
    #[error("the memfd's descriptor is not open for reading and writing")]
    ReadOnly,
    /// The other process's fault: pages would be charged to whoever touches them first.
    #[error(
        "{missing} bytes of the memfd have no page yet, at offset {offset}: have them all before \
         registering, with madvise(MADV_POPULATE_WRITE) or by writing to each page"
    )]
    NotPopulated {
        /// Bytes without a page: of the first hole in the range or, of huge pages, in all of the file.
        missing: u64,
        /// Where the hole is, in bytes from the file's start.
        offset: u64,
    },
    /// The other process's fault: the file was mapped before it had these bytes.
    #[error(
        "{len} bytes from offset {offset} are wanted of a memfd that had {size} when it was registered \
         first, and can't be mapped anew: give it its size before that"
    )]
    Grown {
        /// Where the range begins.
        offset: u64,
        len: u64,
        /// Bytes that are mapped.
        size: u64,
    },
    /// A bound: [`USER_FILES_MAX`](super::USER_FILES_MAX) or [`FILES_MAX`](super::FILES_MAX).
    #[error(
        "a memfd of {size} bytes is mapped whole, and there is no room for it among those that this user \
         (1 TiB) or all users (64 TiB) have registered: use smaller ones"
    )]
    TooManyFiles {
        /// Bytes of the file.
        size: u64,
    },
    /// The host's: what is asked for needs huge pages.
    #[error(
        "{pages} huge pages of 2 MiB asked, but the host has not as many free: reserve some, as root, \
         with `sysctl vm.nr_hugepages=<number>`, or do without"
    )]
    NoHugePages { pages: usize },
    /// The host's: it has no page for memory that was just made.
    #[error("the host has no memory left for what was to be shared")]
    NoPages,
    /// This process has as many as its table of mappings holds.
    #[error("this process has as many shared mappings as it may have: unmap some")]
    TooMany,
    /// The other process's fault.
    #[error("the memfd has {size} bytes, but {len} from offset {offset} on are wanted")]
    TooShort {
        /// Where the range begins.
        offset: u64,
        len: u64,
        /// Bytes of the memfd.
        size: u64,
    },
    /// The caller's fault.
    #[error(
        "a shared memory of {len} bytes can't be made: between 1 and {MAPPING_MAX} are possible"
    )]
    Length {
        /// Bytes asked for.
        len: u64,
    },
    /// The host's refusal.
    #[error("{call} on shared memory failed: {errno}")]
    Host {
        /// The system call.
        call: &'static str,
        errno: Errno,
    },
}
