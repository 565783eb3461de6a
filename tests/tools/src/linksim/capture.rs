//! What the link forwards and drops, as a pcapng file: tcpdump can't see frames that XDP takes.
//!
//! Interface 0 is what leaves to the right, interface 1 what leaves to the left, with the time at
//! which it leaves. What is dropped is there too, with a comment that says why, and with the time
//! at which that was decided.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};

use super::counters::Fate;
use super::direction::Watch;

/// Resolution of timestamps: 10^-9 s (pcapng's if_tsresol).
const NANOSECONDS: u8 = 9;

/// A file that is being written.
pub struct Capture {
    path: PathBuf,
    writer: PcapNgWriter<BufWriter<File>>,
    /// The most bytes kept of a frame.
    snap: usize,
    /// When the link's time began, since 1970.
    epoch: Duration,
    failed: Option<CaptureError>,
}

/// The file can't be written.
#[derive(Debug, thiserror::Error)]
#[error("the capture to {path}: {reason}")]
pub struct CaptureError {
    path: PathBuf,
    reason: String,
}

impl Capture {
    /// Begins a file at the beginning of the link's time.
    ///
    /// # Errors
    ///
    /// When the file can't be made or written.
    pub fn create(path: &Path, snap: usize, names: [&str; 2]) -> Result<Self, CaptureError> {
        let failed = |error: PcapError| CaptureError {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let file = File::create(path).map_err(|error| failed(PcapError::IoError(error)))?;
        let mut writer = PcapNgWriter::new(BufWriter::new(file)).map_err(failed)?;
        for (name, toward) in [(names[1], "right"), (names[0], "left")] {
            let description = InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: 0,
                options: vec![
                    InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                    InterfaceDescriptionOption::IfDescription(Cow::Owned(format!(
                        "to the {toward}"
                    ))),
                    InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                ],
            };
            writer.write_pcapng_block(description).map_err(failed)?;
        }
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self {
            path: path.to_owned(),
            writer,
            snap,
            epoch: epoch.unwrap_or_default(),
            failed: None,
        })
    }

    /// Writes what is not written yet.
    ///
    /// # Errors
    ///
    /// The first error there was, also of frames before.
    pub fn finish(mut self) -> Result<(), CaptureError> {
        if let Err(error) = self.writer.get_mut().flush() {
            self.note(error.to_string());
        }
        self.failed.map_or(Ok(()), Err)
    }

    fn write(&mut self, now: Duration, interface: usize, bytes: &[u8], comment: Option<&str>) {
        if self.failed.is_some() {
            return;
        }
        let comment = comment.map(|text| EnhancedPacketOption::Comment(Cow::Borrowed(text)));
        let block = EnhancedPacketBlock {
            interface_id: interface as u32,
            timestamp: self.epoch + now,
            original_len: bytes.len() as u32,
            data: Cow::Borrowed(&bytes[..bytes.len().min(self.snap)]),
            options: comment.into_iter().collect(),
        };
        if let Err(error) = self.writer.write_pcapng_block(block) {
            self.note(error.to_string());
        }
    }

    fn note(&mut self, reason: String) {
        let path = self.path.clone();
        log::error!("the capture to {} ends: {reason}", path.display());
        self.failed.get_or_insert(CaptureError { path, reason });
    }
}

impl Watch for Capture {
    fn dropped(&mut self, now: Duration, direction: usize, fate: Fate, bytes: &[u8]) {
        let comment = format!("dropped: {}", fate.name());
        self.write(now, direction, bytes, Some(&comment));
    }

    fn forwarded(&mut self, now: Duration, direction: usize, bytes: &[u8]) {
        self.write(now, direction, bytes, None);
    }
}
