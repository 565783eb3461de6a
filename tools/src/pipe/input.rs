//! Standard input: read ahead by one buffer, given out piece by piece.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::nonblocking::NonBlocking;

/// Octets read at a time: many segments, still in the second-level cache.
const BUFFER: usize = 256 << 10;

/// What standard input has for us.
#[derive(Debug)]
pub(super) struct Input {
    /// `None`: the end was reached, or there is nothing to read.
    fd: Option<NonBlocking>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    waiting: bool,
}

impl Input {
    /// Standard input.
    pub(super) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let fd = NonBlocking::open(0, stdin.as_fd(), OFlags::RDONLY)?;
        Ok(Self {
            fd: Some(fd),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            ..Self::nothing()
        })
    }

    /// An input that is at its end.
    pub(super) fn nothing() -> Self {
        Self {
            fd: None,
            buffer: Box::default(),
            start: 0,
            end: 0,
            waiting: false,
        }
    }

    /// Octets that were read and not used; reads when there are none. Empty when there are none
    /// now ([`Input::waits`]) or never any more ([`Input::ended`]).
    pub(super) fn octets(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            self.read()?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// The first `octets` of what is there were used.
    pub(super) fn used(&mut self, octets: usize) {
        self.start = (self.start + octets).min(self.end);
    }

    /// Everything was used and nothing more comes.
    pub(super) fn ended(&self) -> bool {
        self.start == self.end && self.fd.is_none()
    }

    /// The descriptor to wait on, when there was nothing to read.
    pub(super) fn waits(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref().filter(|_| self.waiting)?;
        Some(fd.as_fd())
    }

    /// There may be something to read.
    pub(super) fn ready(&mut self) {
        self.waiting = false;
    }

    fn read(&mut self) -> io::Result<()> {
        let Some(fd) = self.fd.as_ref().filter(|_| !self.waiting) else {
            return Ok(());
        };
        (self.start, self.end) = (0, 0);
        match rustix::io::read(fd, &mut *self.buffer) {
            Ok(0) => self.fd = None,
            Ok(octets) => self.end = octets,
            Err(Errno::AGAIN) => self.waiting = true,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}
