//! INIT and INIT ACK (RFC 9260 sections 3.3.2, 3.3.3): both have the same form.

use crate::parameter::Parameters;
use crate::tlv::{NoRoom, Output, u16_at, u32_at};
use crate::tsn::Tsn;

/// Bytes in front of the parameters, without the chunk's head.
pub const INIT_FIXED_LEN: usize = 16;

/// The smallest receiver window that may be advertised, in bytes.
pub const RWND_MIN: u32 = 1500;

/// What one side says of itself when an association begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Init<'a> {
    /// The Initiate Tag: its Verification Tag.
    pub tag: u32,
    /// The Advertised Receiver Window Credit, in bytes.
    pub window: u32,
    /// Streams that it would like to send on.
    pub outbound_streams: u16,
    /// Streams that it can receive on.
    pub inbound_streams: u16,
    /// The TSN of its first DATA chunk.
    pub initial_tsn: Tsn,
    pub parameters: Parameters<'a>,
}

/// Why an INIT or INIT ACK begins no association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// It names no tag. An INIT is dropped, an INIT ACK ends the attempt.
    #[error("the Initiate Tag is 0")]
    TagZero,
    #[error("the receiver window is {window} bytes; at least 1500 are needed")]
    WindowTooSmall {
        /// In bytes.
        window: u32,
    },
    /// It can't receive, or will not send, on any stream.
    #[error("the number of streams is 0 in one direction")]
    NoStreams,
}

impl<'a> Init<'a> {
    pub(super) fn read(value: &'a [u8]) -> Option<Self> {
        Some(Self {
            tag: u32_at(value, 0)?,
            window: u32_at(value, 4)?,
            outbound_streams: u16_at(value, 8)?,
            inbound_streams: u16_at(value, 10)?,
            initial_tsn: Tsn(u32_at(value, 12)?),
            parameters: Parameters::new(value.get(INIT_FIXED_LEN..)?),
        })
    }

    /// Whether the fixed fields have values that they may have.
    ///
    /// # Errors
    /// The first field that has not.
    pub fn check(&self) -> Result<(), InitError> {
        if self.tag == 0 {
            return Err(InitError::TagZero);
        }
        if self.window < RWND_MIN {
            return Err(InitError::WindowTooSmall {
                window: self.window,
            });
        }
        if self.outbound_streams == 0 || self.inbound_streams == 0 {
            return Err(InitError::NoStreams);
        }
        Ok(())
    }

    pub(super) fn write(&self, output: &mut Output<'_>) -> Result<(), NoRoom> {
        output.put(&self.tag.to_be_bytes())?;
        output.put(&self.window.to_be_bytes())?;
        output.put(&self.outbound_streams.to_be_bytes())?;
        output.put(&self.inbound_streams.to_be_bytes())?;
        output.put(&self.initial_tsn.0.to_be_bytes())?;
        output.put(self.parameters.bytes())
    }
}
