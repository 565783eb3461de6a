//! Standard input and output without blocking and without changing them for others.
//!
//! O_NONBLOCK belongs to an open file description, which a shell and other programs may share with
//! us. So a pipe or a terminal is opened a second time, by its name in /proc; where that can't be
//! done (a socket) the flag is set, and taken back at the end. Regular files never block for long.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};

/// Bytes of a pipe that we ask for, instead of 64 KiB: fewer and larger turns.
const PIPE_BYTES: usize = 1 << 20;

/// A descriptor that does not block.
#[derive(Debug)]
pub(super) struct NonBlocking {
    fd: OwnedFd,
    /// Flags to be put back.
    flags: Option<OFlags>,
}

impl NonBlocking {
    /// `number` is 0 or 1, of which `fd` is the descriptor; `access` is how it is to be opened.
    pub(super) fn open(number: u32, fd: BorrowedFd<'_>, access: OFlags) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        if kind == FileType::Fifo {
            // As much as the host allows; any size works.
            let _ = rustix::pipe::fcntl_setpipe_size(fd, PIPE_BYTES);
        }
        if matches!(kind, FileType::Fifo | FileType::CharacterDevice) {
            let name = format!("/proc/self/fd/{number}");
            let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
            if let Ok(fd) = rustix::fs::open(name, flags, Mode::empty()) {
                return Ok(Self { fd, flags: None });
            }
        }
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        let regular = matches!(kind, FileType::RegularFile | FileType::BlockDevice);
        if regular || flags.contains(OFlags::NONBLOCK) {
            return Ok(Self { fd, flags: None });
        }
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        let flags = Some(flags);
        Ok(Self { fd, flags })
    }
}

impl AsFd for NonBlocking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for NonBlocking {
    fn drop(&mut self) {
        if let Some(flags) = self.flags {
            // Nobody is left to be told.
            let _ = rustix::fs::fcntl_setfl(&self.fd, flags);
        }
    }
}

#[cfg(test)]
mod tests;
