//! Standard output: takes what it takes, and says when it takes no more for now.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::nonblocking::NonBlocking;

/// Slices given out in one system call.
pub(super) const SLICES: usize = 128;

/// Where received bytes go.
#[derive(Debug)]
pub(super) struct Output {
    /// `None`: closed, or everything is thrown away.
    fd: Option<NonBlocking>,
    waiting: bool,
}

impl Output {
    /// Standard output.
    pub(super) fn open() -> io::Result<Self> {
        Self::over(1, io::stdout().as_fd())
    }

    pub(super) fn over(number: u32, fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            fd: Some(NonBlocking::open(number, fd, OFlags::WRONLY)?),
            waiting: false,
        })
    }

    /// Takes everything and keeps nothing.
    pub(super) fn nothing() -> Self {
        Self {
            fd: None,
            waiting: false,
        }
    }

    /// Writes what it can; says how many bytes that were.
    pub(super) fn write(&mut self, slices: &[&[u8]]) -> io::Result<usize> {
        let Some(fd) = &self.fd else {
            return Ok(slices.iter().map(|slice| slice.len()).sum());
        };
        if self.waiting {
            return Ok(0);
        }
        let mut vector = [IoSlice::new(&[]); SLICES];
        let count = slices.len().min(SLICES);
        for (place, slice) in vector.iter_mut().zip(slices) {
            *place = IoSlice::new(slice);
        }
        match rustix::io::writev(fd, &vector[..count]) {
            Ok(bytes) => Ok(bytes),
            Err(Errno::AGAIN | Errno::INTR) => {
                self.waiting = true;
                Ok(0)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Tells whoever reads that nothing more comes.
    pub(super) fn close(&mut self) {
        if self.fd.take().is_some()
            && let Ok(nothing) = rustix::fs::open("/dev/null", OFlags::WRONLY, Mode::empty())
        {
            // The descriptor itself has to stay taken, so that nothing else gets its number.
            let _ = rustix::stdio::dup2_stdout(&nothing);
        }
    }

    /// The descriptor to wait on, when it took no more.
    pub(super) fn waits(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref().filter(|_| self.waiting)?;
        Some(fd.as_fd())
    }

    /// It may take more.
    pub(super) fn ready(&mut self) {
        self.waiting = false;
    }
}
