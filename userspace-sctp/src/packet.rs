//! SCTP packets (RFC 9260 section 3): the common header, its CRC32C (section 6.8, appendix A), and
//! the chunks one after another.

#[cfg(test)]
mod tests;

use crate::chunk::{Chunk, Report};
use crate::tlv::{Elements, NoRoom, Output, u16_at, u32_at};

/// Bytes of the common header.
pub const HEADER_LEN: usize = 12;

const CHECKSUM_AT: usize = 8;

/// The common header without its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The sender's port; never 0.
    pub source: u16,
    /// The receiver's port; never 0.
    pub destination: u16,
    /// The Verification Tag: 0 in a packet with an INIT.
    pub tag: u32,
}

/// Why bytes are no SCTP packet. They are dropped without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Shorter than a common header and a chunk's head.
    #[error("a packet of {len} bytes has no room for a header and a chunk")]
    TooShort {
        /// Bytes found.
        len: usize,
    },
    /// A port is 0 (section 3.1).
    #[error("port 0 is no port of a packet")]
    PortZero,
    /// The checksum is of other bytes (section 6.8).
    #[error("the packet's CRC32C is {found:#010x}, that of its bytes {computed:#010x}")]
    Checksum {
        found: u32,
        /// Of its bytes.
        computed: u32,
    },
}

/// A packet whose header was read. Its chunks are read one by one.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    pub header: Header,
    body: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads the header, when the checksum is known to be right or is [checked](verify) elsewhere.
    ///
    /// # Errors
    /// When there is no header with a chunk after it, or a port is 0.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let too_short = ParseError::TooShort { len: bytes.len() };
        let body = bytes.get(HEADER_LEN..).filter(|body| body.len() >= 4);
        let body = body.ok_or(too_short)?;
        let header = Header {
            source: u16_at(bytes, 0).ok_or(too_short)?,
            destination: u16_at(bytes, 2).ok_or(too_short)?,
            tag: u32_at(bytes, 4).ok_or(too_short)?,
        };
        if header.source == 0 || header.destination == 0 {
            return Err(ParseError::PortZero);
        }
        Ok(Self { header, body })
    }

    /// The chunks in their order.
    pub const fn chunks(&self) -> Chunks<'a> {
        Chunks {
            elements: Elements::new(self.body),
            stopped: false,
        }
    }
}

/// The chunks of a packet, in order (section 6.10). A partial chunk and what follows it is dropped, so is
/// what follows a chunk whose type asks for that (section 3.2).
#[derive(Debug, Clone)]
pub struct Chunks<'a> {
    elements: Elements<'a>,
    stopped: bool,
}

impl<'a> Chunks<'a> {
    /// Whether nothing was left to read, not even bytes that are no chunk: the last chunk was the only
    /// one, if it was the first.
    pub fn is_at_end(&self) -> bool {
        self.stopped || self.elements.rest().is_empty()
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        if self.stopped {
            return None;
        }
        let chunk = Chunk::read(self.elements.next()?.ok()?);
        if let Chunk::Unknown { report, .. } = &chunk {
            self.stopped = matches!(report, Report::Stop | Report::StopAndReport);
        }
        Some(chunk)
    }
}

/// Checks the checksum of a whole packet (section 6.8).
///
/// # Errors
/// When it is too short to have one, or has another one.
pub fn verify(bytes: &[u8]) -> Result<(), ParseError> {
    let found = bytes
        .get(CHECKSUM_AT..)
        .and_then(|field| field.first_chunk());
    let found = found.ok_or(ParseError::TooShort { len: bytes.len() })?;
    let found = u32::from_le_bytes(*found);
    let computed = checksum(bytes);
    if found == computed {
        Ok(())
    } else {
        Err(ParseError::Checksum { found, computed })
    }
}

/// The CRC32C of a packet, as if its checksum field were 0. It goes out with its lowest byte first
/// (appendix A).
fn checksum(bytes: &[u8]) -> u32 {
    let crc = rnic_crc::append(0, &bytes[..CHECKSUM_AT]);
    let crc = rnic_crc::append(crc, &[0; 4]);
    rnic_crc::append(crc, &bytes[HEADER_LEN.min(bytes.len())..])
}

/// Writes a packet, chunk by chunk, into a buffer of the caller's: no larger than the path's MTU leaves.
#[derive(Debug)]
pub struct Writer<'a> {
    output: Output<'a>,
}

impl<'a> Writer<'a> {
    /// Begins with the header.
    ///
    /// # Errors
    /// When `buffer` has no room for it.
    pub fn new(buffer: &'a mut [u8], header: Header) -> Result<Self, NoRoom> {
        let mut output = Output::new(buffer);
        output.put(&header.source.to_be_bytes())?;
        output.put(&header.destination.to_be_bytes())?;
        output.put(&header.tag.to_be_bytes())?;
        output.put(&[0; 4])?;
        Ok(Self { output })
    }

    /// Appends a chunk.
    ///
    /// # Errors
    /// When there is no room for all of it; then nothing of it was written.
    pub fn chunk(&mut self, chunk: &Chunk<'_>) -> Result<(), NoRoom> {
        chunk.write(&mut self.output)
    }

    /// Appends chunks that are written already.
    pub(crate) fn chunks(&mut self, chunks: &[u8]) -> Result<(), NoRoom> {
        self.output.put(chunks)
    }

    /// Bytes that are left.
    pub const fn room(&self) -> usize {
        self.output.room()
    }

    /// Bytes written so far.
    pub const fn len(&self) -> usize {
        self.output.len()
    }

    /// Whether there is no chunk yet.
    pub const fn is_empty(&self) -> bool {
        self.output.len() <= HEADER_LEN
    }

    /// Puts the checksum in. Gives the packet's length.
    pub fn finish(mut self) -> usize {
        let bytes = self.output.written();
        let crc = checksum(bytes);
        bytes[CHECKSUM_AT..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
        bytes.len()
    }
}
