//! A pcapng file of one interface's frames (draft-ietf-opsawg-pcapng), written as they come. It has the
//! interface's description and a block for each frame with time and direction. At the end it says how many
//! frames there were and how many were lost.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::{DataLink, PcapError};
use rnic_ipc::capture::Direction;

/// Bytes of a frame's block beside the frame: its fields, the pad, the direction.
pub const FRAME_OVERHEAD: u64 = 48;
/// Bytes of the block at the end.
pub const END_BYTES: u64 = 52;
/// Resolution of timestamps: 10^-9 s (pcapng's if_tsresol).
const NANOSECONDS: u8 = 9;
/// Direction in pcapng's epb_flags.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// Bytes of the section's header.
const SECTION_HEADER: u64 = 28;

/// A pcapng file that is being written.
#[expect(missing_debug_implementations, reason = "the writer within has none")]
pub struct PcapngFile<W: Write> {
    writer: PcapNgWriter<W>,
    bytes: u64,
    /// Of the last frame, since 1970-01-01 UTC.
    last: u64,
}

impl<W: Write> PcapngFile<W> {
    /// Begins a file of frames of this interface, of which at most `snap` bytes are kept (0: all).
    ///
    /// # Errors
    ///
    /// The writer's, as everywhere here.
    pub fn begin(to: W, interface: &str, mac: Option<[u8; 6]>, snap: u32) -> io::Result<Self> {
        let mut options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(interface)),
            InterfaceDescriptionOption::IfDescription(Cow::Borrowed("frames of the RNIC")),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        options
            .extend(mac.map(|mac| InterfaceDescriptionOption::IfMacAddr(Cow::Owned(mac.to_vec()))));
        let mut writer = PcapNgWriter::new(to).map_err(io_error)?;
        let described = writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: snap,
            options,
        });
        Ok(Self {
            writer,
            bytes: SECTION_HEADER + described.map_err(io_error)? as u64,
            last: 0,
        })
    }

    /// Writes what was kept of a frame of `original` bytes, seen `unix_ns` nanoseconds after
    /// 1970-01-01 UTC.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn frame(
        &mut self,
        unix_ns: u64,
        direction: Direction,
        kept: &[u8],
        original: u32,
    ) -> io::Result<()> {
        let flags = match direction {
            Direction::In => INBOUND,
            Direction::Out => OUTBOUND,
        };
        let written = self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(unix_ns),
            original_len: original,
            data: Cow::Borrowed(kept),
            options: vec![EnhancedPacketOption::Flags(flags)],
        });
        self.bytes += written.map_err(io_error)? as u64;
        self.last = unix_ns;
        Ok(())
    }

    /// Bytes written until now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands on what the writer keeps back.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }

    /// Ends the file: since the capture began so many frames were taken, and so many more lost.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn end(&mut self, taken: u64, lost: u64) -> io::Result<()> {
        let written = self.writer.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: halves_for_writer(self.last),
            options: vec![
                InterfaceStatisticsOption::IsbIfRecv(taken),
                InterfaceStatisticsOption::IsbIfDrop(lost),
            ],
        });
        self.bytes += written.map_err(io_error)? as u64;
        self.flush()
    }
}

/// The upper half of a timestamp comes first in the file, whatever the order of bytes is; the
/// writer, which knows that for packets, does not know it for statistics.
fn halves_for_writer(timestamp: u64) -> u64 {
    if cfg!(target_endian = "little") {
        timestamp.rotate_left(32)
    } else {
        timestamp
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
