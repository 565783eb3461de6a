//! Frames to a pcapng file of the device's, and to clients, off the shard's core.
//!
//! The shard copies a frame into a buffer that exists already and passes it on ([`tap`]); a thread of
//! the capture writes, and may be held by the disk or by the client. When all buffers are full the
//! frame is lost and counted: capture never holds the shard.

mod file;
mod live;
pub mod pcapng;
mod tap;

use std::sync::Arc;

use rnic_ipc::control::{Refusal, RefusalCode};

pub(crate) use file::CaptureFile;
pub(crate) use live::{LiveCapture, Prepared};
use tap::Counts;
pub(crate) use tap::Tap;

use crate::refuse;

/// Captures for clients at one time: each has its buffers and its thread.
const LIVE_MAX: usize = 4;

/// The number of the capture to the device's file, at the shard.
pub(crate) const FILE_NUMBER: u32 = 0;

#[derive(Debug, Default)]
pub(crate) struct Captures {
    file: Option<CaptureFile>,
    /// Those for clients, by their numbers at the shard.
    live: Vec<(u32, Arc<Counts>)>,
    numbers: u32,
    /// What those that are over took and lost.
    ended: (u64, u64),
}

impl Captures {
    /// With the file that is written from the start, if one is.
    pub(crate) fn new(file: Option<CaptureFile>) -> Self {
        Self {
            file,
            ..Self::default()
        }
    }

    pub(crate) fn take_file(&mut self) -> Option<CaptureFile> {
        self.file.take()
    }

    /// Frames that were taken, and lost, by all captures since the start; none when there was none.
    pub(crate) fn counts(&self) -> Option<(u64, u64)> {
        let file = self.file.as_ref().map(CaptureFile::counts);
        let running = self.live.iter().map(|(_, counts)| counts).chain(file);
        let sum = running
            .map(|counts| (counts.taken(), counts.lost()))
            .fold(self.ended, |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (self.file.is_some() || self.numbers > 0).then_some(sum)
    }

    /// A place for one more capture for a client: its number.
    pub(crate) fn begin(&mut self, counts: Arc<Counts>) -> Result<u32, Refusal> {
        if self.live.len() >= LIVE_MAX {
            return Err(refuse::refusal(
                RefusalCode::Limit,
                &format!(
                    "one more capture asked, but there are {LIVE_MAX}, as many as there may be: \
                     end another"
                ),
            ));
        }
        // 0 is the file's. After 2^32 captures none of the first can still run: a number names one.
        self.numbers = self.numbers.checked_add(1).unwrap_or(1);
        self.live.push((self.numbers, counts));
        Ok(self.numbers)
    }

    /// A capture for a client is over.
    pub(crate) fn end(&mut self, number: u32) {
        let place = self.live.iter().position(|(found, _)| *found == number);
        if let Some(place) = place {
            let (_, counts) = self.live.swap_remove(place);
            self.ended.0 += counts.taken();
            self.ended.1 += counts.lost();
        }
    }
}
