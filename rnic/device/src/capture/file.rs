//! The capture to a pcapng file that the device was opened with: everything, from the first frame to
//! the last. All users' bytes are in it, so it is for its owner alone.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use rnic_host::Interface;
use rnic_host::files;
use rnic_host::privileges;
use rnic_ipc::threads;

use super::tap::{self, BUFFERS, Captured, Counts, Sink, Tap};
use crate::DeviceError;
use crate::capture::pcapng::PcapngFile;

/// A capture that is being written.
#[derive(Debug)]
pub(crate) struct CaptureFile {
    path: PathBuf,
    writer: JoinHandle<()>,
    counts: Arc<Counts>,
}

impl CaptureFile {
    /// Begins a file, and gives the end that takes frames of at most `frame_size` bytes. The
    /// capture ends when that end, with all its clones, is dropped.
    pub(crate) fn create(
        path: &Path,
        interface: &Interface,
        frame_size: usize,
    ) -> Result<(Self, Tap), DeviceError> {
        let failed = |cause| DeviceError::Capture {
            path: path.to_owned(),
            cause,
        };
        let file = files::create_for_owner(path).map_err(failed)?;
        let begun = PcapngFile::begin(
            BufWriter::new(file),
            &interface.name,
            Some(interface.mac),
            0,
        );
        let mut pcapng = begun.map_err(failed)?;
        pcapng.flush().map_err(failed)?;

        let (tap, queue) = tap::queue(BUFFERS, frame_size);
        let counts = queue.counts().clone();
        let log_path = path.to_owned();
        let thread = Builder::new().name("rnic-capture".to_owned());
        let writer = threads::spawn(thread, move || {
            privileges::renounce("rnic-capture");
            if let Err(error) = queue.write_to(&mut pcapng) {
                log::error!("the capture to {} ends: {error}", log_path.display());
            }
        })
        .map_err(|cause| DeviceError::Host {
            what: "a thread for the capture",
            cause,
        })?;
        let path = path.to_owned();
        Ok((
            Self {
                path,
                writer,
                counts,
            },
            tap,
        ))
    }

    /// What was captured so far.
    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Waits until all is written; the end that takes frames is gone already.
    pub(crate) fn close(self) {
        if self.writer.join().is_err() {
            log::error!("the capture's thread panicked");
        }
        log::info!(
            "{} frames captured to {}, {} lost",
            self.counts.taken(),
            self.path.display(),
            self.counts.lost(),
        );
    }
}

impl Sink for PcapngFile<BufWriter<File>> {
    fn frame(&mut self, captured: &Captured, _: u64) -> std::io::Result<()> {
        let Captured {
            unix_ns,
            direction,
            original,
            bytes,
        } = captured;
        self.frame(*unix_ns, *direction, bytes, *original as u32)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.flush()
    }

    fn end(&mut self, counts: &Counts) -> std::io::Result<()> {
        self.end(counts.taken(), counts.lost())
    }
}

#[cfg(test)]
mod tests;
