//! The bytes of one call to send or receive: where they lie, and how many have gone or come.

use std::ffi::c_int;

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, iovec};
use rustix::io::Errno;

use super::State;
use crate::ffi::{Outcome, Ptr};

/// Copied around, so that nothing is left to drop when a thread that waits is cancelled.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    parts: Ptr<iovec>,
    count: usize,
    flags: c_int,
    done: usize,
}

impl Transfer {
    /// Of `count` elements, which stay where they are for the call.
    pub(crate) fn new(parts: Ptr<iovec>, count: usize, flags: c_int) -> Self {
        Self {
            parts,
            count,
            flags,
            done: 0,
        }
    }

    /// Where the next bytes lie, and how many.
    fn next(&self) -> Option<(Ptr<u8>, usize)> {
        let mut skip = self.done;
        for part in self.parts.values(self.count) {
            if skip < part.iov_len {
                let at = Ptr::from_raw(part.iov_base.cast::<u8>()).at(skip);
                return Some((at, part.iov_len - skip));
            }
            skip -= part.iov_len;
        }
        None
    }

    /// What a call gives that can do no more now.
    fn stop(&self, state: &State) -> Outcome<Option<isize>> {
        let nonblocking = state.options.nonblocking || self.flags & MSG_DONTWAIT != 0;
        match (self.done, nonblocking) {
            (0, true) => Err(Errno::AGAIN.into()),
            (_, true) => Ok(self.finished()),
            (_, false) => Ok(None),
        }
    }

    fn finished(&self) -> Option<isize> {
        Some(self.done())
    }

    /// Bytes that have gone or come: what the call gives when it has to end early, unless it is 0.
    pub(crate) fn done(&self) -> isize {
        isize::try_from(self.done).unwrap_or(isize::MAX)
    }

    /// Sends what can go; done when all has, or when what does not wait can do no more.
    pub(crate) fn send(&mut self, state: &mut State) -> Outcome<Option<isize>> {
        self.put(state, |stream, bytes, _| stream.send(bytes))
    }

    /// The same to what the peer has mapped, from `offset` on.
    pub(crate) fn write_mapped(
        &mut self,
        state: &mut State,
        offset: u64,
    ) -> Outcome<Option<isize>> {
        self.put(state, |stream, bytes, done| {
            let offset = offset.wrapping_add(done as u64);
            if !stream.is_mapped(offset) {
                return Err(Errno::INVAL.into());
            }
            stream.write_mapped(bytes, offset)
        })
    }

    fn put(
        &mut self,
        state: &mut State,
        mut put: impl FnMut(&mut super::stream::Stream, &[u8], usize) -> Outcome<usize>,
    ) -> Outcome<Option<isize>> {
        while let Some((at, bytes)) = self.next() {
            let Some(stream) = state.stream()? else {
                return self.stop(state);
            };
            // Why it ended is for the next call, which is told it once.
            if self.done > 0 && stream.end().is_some() {
                break;
            }
            match put(stream, at.slice(bytes), self.done) {
                Ok(count) => {
                    self.done += count;
                    if count < bytes && stream.end().is_none() {
                        return self.stop(state);
                    }
                }
                Err(_) if self.done > 0 => break,
                Err(fail) => return Err(fail),
            }
        }
        Ok(self.finished())
    }

    /// Receives what is there; done when anything is, or all that was asked for with `MSG_WAITALL`.
    pub(crate) fn receive(&mut self, state: &mut State) -> Outcome<Option<isize>> {
        let peek = self.flags & MSG_PEEK != 0;
        while let Some((at, bytes)) = self.next() {
            let Some(stream) = state.stream()? else {
                return self.stop(state);
            };
            let count = stream.receive(at.slice_mut(bytes), peek)?;
            self.done += count;
            if count == bytes && !peek {
                continue;
            }
            if self.done > 0 && (peek || self.flags & MSG_WAITALL == 0) {
                break;
            }
            if stream.at_end() {
                // After bytes a failure is the next call's, which is told it once.
                if self.done == 0
                    && let Some(errno) = stream.take_failure()
                {
                    return Err(errno.into());
                }
                break;
            }
            return self.stop(state);
        }
        Ok(self.finished())
    }
}
