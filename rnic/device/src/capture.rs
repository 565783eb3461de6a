//! Frames to a pcapng file, off the shard's core.
//!
//! The shard copies a frame into a buffer that exists already and passes it on; a thread writes.
//! When all buffers are full the frame is dropped and counted, here and in the file: capture never
//! holds the shard.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::{DataLink, PcapError};
use rnic_engine::capture::Capture;

use crate::DeviceError;
use crate::host::interface::Interface;
use crate::host::privileges;

/// Frames that wait to be written.
const BUFFERS: usize = 4096;
/// Quiet for so long, what was written is flushed to the file.
const FLUSH_AFTER: Duration = Duration::from_millis(100);
/// Resolution of timestamps: 10^-9 s (pcapng's if_tsresol).
const NANOSECONDS: u8 = 9;
/// Direction in pcapng's epb_flags.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A capture that is being written.
#[derive(Debug)]
pub(crate) struct CaptureFile {
    path: PathBuf,
    writer: JoinHandle<()>,
    counts: Arc<Counts>,
}

/// What was captured so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Frames given to the writer.
    pub(crate) frames: AtomicU64,
    /// Frames lost because all buffers were full.
    pub(crate) dropped: AtomicU64,
}

impl CaptureFile {
    /// Begins a file, and gives the end that takes frames of at most `frame_size` octets. The
    /// capture ends when that end is dropped.
    pub(crate) fn create(
        path: &Path,
        interface: &Interface,
        frame_size: usize,
    ) -> Result<(Self, Box<dyn Capture>), DeviceError> {
        let failed = |source| DeviceError::Capture {
            path: path.to_owned(),
            source: io_error(source),
        };
        let file = File::create(path).map_err(|error| failed(PcapError::IoError(error)))?;
        let mut pcap = PcapNgWriter::new(BufWriter::new(file)).map_err(failed)?;
        pcap.write_pcapng_block(description(interface))
            .map_err(failed)?;
        pcap.get_mut()
            .flush()
            .map_err(|error| failed(PcapError::IoError(error)))?;

        let (full_sender, full) = crossbeam::channel::bounded(BUFFERS);
        let (empty_sender, empty) = crossbeam::channel::bounded(BUFFERS);
        for _ in 0..BUFFERS {
            // The channel was made for as many.
            let _ = empty_sender.try_send(Captured::with_capacity(frame_size));
        }
        let counts = Arc::new(Counts::default());
        let worker = Writer {
            pcap,
            full,
            empty: empty_sender,
            counts: counts.clone(),
        };
        let log_path = path.to_owned();
        let writer = std::thread::Builder::new()
            .name("rnic-capture".to_owned())
            .spawn(move || {
                if let Err(error) = worker.run() {
                    log::error!("the capture to {} ends: {error}", log_path.display());
                }
            })
            .map_err(|source| DeviceError::Host {
                what: "a thread for the capture",
                source,
            })?;
        let tap = Tap {
            full: full_sender,
            empty,
            counts: counts.clone(),
        };
        Ok((
            Self {
                path: path.to_owned(),
                writer,
                counts,
            },
            Box::new(tap),
        ))
    }

    /// What was captured so far.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Waits until all is written; the end that takes frames is gone already.
    pub(crate) fn close(self) {
        if self.writer.join().is_err() {
            log::error!("the capture's thread panicked");
        }
        let (frames, dropped) = (
            self.counts.frames.load(Ordering::Relaxed),
            self.counts.dropped.load(Ordering::Relaxed),
        );
        log::info!(
            "{frames} frames captured to {}, {dropped} dropped",
            self.path.display()
        );
    }
}

/// A frame on its way to the file.
#[derive(Debug)]
struct Captured {
    unix_ns: u64,
    outbound: bool,
    octets: Vec<u8>,
}

impl Captured {
    fn with_capacity(octets: usize) -> Self {
        Self {
            unix_ns: 0,
            outbound: false,
            octets: Vec::with_capacity(octets),
        }
    }
}

/// The shard's end.
#[derive(Debug)]
struct Tap {
    full: Sender<Captured>,
    empty: Receiver<Captured>,
    counts: Arc<Counts>,
}

impl Capture for Tap {
    fn frame(&mut self, now_unix_ns: u64, outbound: bool, bytes: &[u8]) {
        let Ok(mut captured) = self.empty.try_recv() else {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        captured.unix_ns = now_unix_ns;
        captured.outbound = outbound;
        captured.octets.clear();
        captured.octets.extend_from_slice(bytes);
        match self.full.try_send(captured) {
            Ok(()) => self.counts.frames.fetch_add(1, Ordering::Relaxed),
            // The writer has ended: the disk is full, or the like.
            Err(_) => self.counts.dropped.fetch_add(1, Ordering::Relaxed),
        };
    }
}

struct Writer {
    pcap: PcapNgWriter<BufWriter<File>>,
    full: Receiver<Captured>,
    empty: Sender<Captured>,
    counts: Arc<Counts>,
}

impl Writer {
    fn run(mut self) -> Result<(), PcapError> {
        privileges::renounce("rnic-capture");
        use crossbeam::channel::RecvTimeoutError::{Disconnected, Timeout};
        let mut last = 0;
        loop {
            match self.full.recv_timeout(FLUSH_AFTER) {
                Ok(captured) => {
                    last = captured.unix_ns;
                    self.write(&captured)?;
                    // The shard may be gone, and its end with it.
                    let _ = self.empty.try_send(captured);
                }
                Err(Timeout) => self.flush()?,
                Err(Disconnected) => break,
            }
        }
        self.pcap.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: halves_for_writer(last),
            options: vec![
                InterfaceStatisticsOption::IsbIfRecv(self.counts.frames.load(Ordering::Relaxed)),
                InterfaceStatisticsOption::IsbIfDrop(self.counts.dropped.load(Ordering::Relaxed)),
            ],
        })?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), PcapError> {
        self.pcap.get_mut().flush().map_err(PcapError::IoError)
    }

    fn write(&mut self, captured: &Captured) -> Result<(), PcapError> {
        let direction = if captured.outbound { OUTBOUND } else { INBOUND };
        self.pcap.write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(captured.unix_ns),
            original_len: captured.octets.len() as u32,
            data: Cow::Borrowed(&captured.octets),
            options: vec![EnhancedPacketOption::Flags(direction)],
        })?;
        Ok(())
    }
}

fn description(interface: &Interface) -> InterfaceDescriptionBlock<'_> {
    InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        options: vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(&interface.name)),
            InterfaceDescriptionOption::IfDescription(Cow::Borrowed("frames of the RNIC")),
            InterfaceDescriptionOption::IfMacAddr(Cow::Borrowed(&interface.mac)),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ],
    }
}

/// The upper half of a timestamp comes first in the file, whatever the order of octets is; the
/// writer, which knows that for packets, does not know it for statistics.
fn halves_for_writer(timestamp: u64) -> u64 {
    if cfg!(target_endian = "little") {
        timestamp.rotate_left(32)
    } else {
        timestamp
    }
}

fn io_error(error: PcapError) -> std::io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => std::io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
