//! Standard input: read straight to where its bytes are sent from.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::nonblocking::NonBlocking;

/// Places that are filled in one system call.
const PLACES: usize = 64;

/// What standard input has for us.
#[derive(Debug)]
pub(super) struct Input {
    /// `None`: there is nothing to read. It stays beyond the end: the output may be the same socket,
    /// which blocks again once this is dropped.
    fd: Option<NonBlocking>,
    ended: bool,
    waiting: bool,
}

impl Input {
    /// Standard input.
    pub(super) fn open() -> io::Result<Self> {
        Self::over(0, io::stdin().as_fd())
    }

    fn over(number: u32, fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            fd: Some(NonBlocking::open(number, fd, OFlags::RDONLY)?),
            ended: false,
            waiting: false,
        })
    }

    /// An input that is at its end.
    pub(super) fn nothing() -> Self {
        Self {
            fd: None,
            ended: true,
            waiting: false,
        }
    }

    /// Fills the places with what there is; says how many bytes that were. None when there is
    /// nothing now ([`Input::waits`]) or never any more ([`Input::ended`]).
    pub(super) fn read(&mut self, places: &mut [&mut [u8]]) -> io::Result<usize> {
        let idle = self.ended || self.waiting;
        let Some(fd) = self.fd.as_ref().filter(|_| !idle) else {
            return Ok(0);
        };
        let mut vector: [IoSliceMut<'_>; PLACES] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let (mut wanted, count) = (0, places.len().min(PLACES));
        for (slot, place) in vector.iter_mut().zip(places) {
            wanted += place.len();
            *slot = IoSliceMut::new(place);
        }
        if wanted == 0 {
            return Ok(0);
        }
        match rustix::io::readv(fd, &mut vector[..count]) {
            Ok(0) => self.ended = true,
            Ok(bytes) => {
                // All that there was: whether there is more is for poll(2) to say.
                self.waiting = bytes < wanted;
                return Ok(bytes);
            }
            Err(Errno::AGAIN | Errno::INTR) => self.waiting = true,
            Err(errno) => return Err(errno.into()),
        }
        Ok(0)
    }

    /// Nothing more comes.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// The descriptor to wait on, when there was nothing more to read.
    pub(super) fn waits(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref().filter(|_| self.waiting)?;
        Some(fd.as_fd())
    }

    /// There may be something to read.
    pub(super) fn ready(&mut self) {
        self.waiting = false;
    }
}

#[cfg(test)]
mod tests;
