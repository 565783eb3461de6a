//! A capture of the RNIC's frames, as they come.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rnic_ipc::capture::{Direction, Filter, RECORD_HEADER, RecordHeader};
use rnic_ipc::control::{Request, Response};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::context::{Context, Inner};
use crate::error::Error;
use crate::link::{descriptors, unexpected};

/// Bytes that are taken off the stream at once, at most.
const CHUNK: usize = 1 << 18;

/// A capture of the RNIC's frames, for administrators. It runs until [`Capture::stop`], or until it is
/// dropped. The RNIC never waits for it: what is not read in time is lost and counted.
#[derive(Debug)]
pub struct Capture {
    context: Arc<Inner>,
    stream: OwnedFd,
    /// What was taken off the stream, of which `begin..end` is not used yet.
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    lost: u64,
    stopped: bool,
    over: bool,
}

/// A frame that was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedFrame<'a> {
    /// When: nanoseconds since 1970-01-01 UTC.
    pub unix_ns: u64,
    /// Whether it was received or sent.
    pub direction: Direction,
    /// Bytes that it had.
    pub original: u32,
    /// The first of them, from the Ethernet header on; all that the filter keeps.
    pub bytes: &'a [u8],
}

impl Context {
    /// Begins to capture the frames that a filter lets through. A client has one capture at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for a client that is no administrator, and when there are too many.
    pub fn capture(&self, filter: &Filter) -> Result<Capture, Error> {
        let fds = match self.inner().request(&Request::StartCapture(*filter), &[])? {
            (Response::Capture, fds) => fds,
            (other, _) => return Err(unexpected(&other)),
        };
        let [stream] = descriptors::<1>(fds)?;
        Ok(Capture {
            context: self.inner().clone(),
            stream,
            buffer: vec![0; CHUNK],
            begin: 0,
            end: 0,
            lost: 0,
            stopped: false,
            over: false,
        })
    }
}

impl Capture {
    /// The next frame, if one comes within `limit`; may return early without. None for good when
    /// [`Self::is_over`].
    ///
    /// # Errors
    ///
    /// [`Error::DaemonGone`] when the RNIC ends the capture by itself.
    pub fn next(&mut self, limit: Duration) -> Result<Option<CapturedFrame<'_>>, Error> {
        if self.over {
            return Ok(None);
        }
        let mut header = self.whole_record()?;
        if header.is_none() {
            let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
            self.context.block(&mut fds, limit)?;
            if fds[0].revents().is_empty() {
                return Ok(None);
            }
            self.fill()?;
            header = self.whole_record()?;
        }
        let Some(header) = header else {
            return Ok(None);
        };
        self.lost = header.lost;
        self.over = header.is_last();
        if self.over {
            return Ok(None);
        }
        let from = self.begin + RECORD_HEADER;
        self.begin = from + header.kept as usize;
        Ok(Some(CapturedFrame {
            unix_ns: header.unix_ns,
            direction: header.direction,
            original: header.original,
            bytes: &self.buffer[from..self.begin],
        }))
    }

    /// Ends the capture; what was captured can still be taken.
    ///
    /// # Errors
    ///
    /// [`Error::DaemonGone`].
    pub fn stop(&mut self) -> Result<(), Error> {
        self.context.request_done(&Request::StopCapture)?;
        self.stopped = true;
        Ok(())
    }

    /// Whether all was taken after [`Self::stop`].
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Frames that were lost until the last one that was taken; at the end, all of them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The header of the next record, when all of it was taken off the stream.
    fn whole_record(&self) -> Result<Option<RecordHeader>, Error> {
        let taken = &self.buffer[self.begin..self.end];
        let Some((bytes, rest)) = taken.split_first_chunk::<RECORD_HEADER>() else {
            return Ok(None);
        };
        let header = RecordHeader::from_bytes(bytes)
            .ok_or_else(|| Error::protocol("a captured frame of impossible length"))?;
        Ok((rest.len() >= header.kept as usize).then_some(header))
    }

    /// Takes what is on the stream, behind what is there.
    fn fill(&mut self) -> Result<(), Error> {
        // A record is shorter than the buffer, so there is room after this.
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        match rustix::io::read(self.stream.as_fd(), &mut self.buffer[self.end..]) {
            Ok(0) => Err(Error::DaemonGone),
            Ok(taken) => {
                self.end += taken;
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(Errno::CONNRESET) => Err(Error::DaemonGone),
            Err(errno) => Err(Error::Io {
                call: "read",
                errno,
            }),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The client may have another by now, which this would end.
        if !self.stopped {
            self.context.give_back(&Request::StopCapture);
        }
    }
}
