//! DDP Stream Session Control messages on the wire (RFC 5043 section 5.2.3, RFC 6581 section 7).

use std::fmt;

use super::{ChunkError, DdpSsn, SessionError};
use crate::enhanced::Enhanced;

/// The most private data of a message, in bytes, enhanced data included.
pub const PRIVATE_DATA_MAX: usize = 512;
/// DDP-SSN and Function Code.
const HEADER_LEN: usize = 4;

/// What a message is for, with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Function {
    /// Asks for a session.
    Initiate = 1,
    /// Takes it.
    Accept = 2,
    /// The application does not take it.
    Reject = 3,
    /// Nothing more is sent.
    Terminate = 4,
    /// [`Function::Initiate`], with [`Enhanced`] data.
    EnhancedInitiate = 5,
    /// [`Function::Accept`], with [`Enhanced`] data.
    EnhancedAccept = 6,
    /// [`Function::Reject`] of an enhanced Initiate. It has no enhanced data (RFC 6581 section 7).
    EnhancedReject = 7,
}

impl Function {
    const ALL: [Self; 7] = [
        Self::Initiate,
        Self::Accept,
        Self::Reject,
        Self::Terminate,
        Self::EnhancedInitiate,
        Self::EnhancedAccept,
        Self::EnhancedReject,
    ];

    fn from_code(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|it| *it as u16 == code)
    }

    /// Whether its private data begins with [`Enhanced`] data.
    const fn has_enhanced_data(self) -> bool {
        matches!(self, Self::EnhancedInitiate | Self::EnhancedAccept)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Initiate => "Initiate",
            Self::Accept => "Accept",
            Self::Reject => "Reject",
            Self::Terminate => "Terminate",
            Self::EnhancedInitiate => "Enhanced Initiate",
            Self::EnhancedAccept => "Enhanced Accept",
            Self::EnhancedReject => "Enhanced Reject",
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control<'a> {
    pub function: Function,
    /// With an enhanced Initiate and Accept, and no other.
    pub enhanced: Option<Enhanced>,
    /// What the peer's application says.
    pub private_data: &'a [u8],
}

impl<'a> Control<'a> {
    /// The message in a chunk's user data behind the DDP-SSN.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ChunkError> {
        let Some((code, data)) = bytes.split_first_chunk() else {
            let len = bytes.len() + 2;
            return Err(ChunkError::Short { len });
        };
        let found = u16::from_be_bytes(*code);
        let function = Function::from_code(found).ok_or(ChunkError::Function { found })?;
        let len = data.len();
        if len > PRIVATE_DATA_MAX {
            return Err(ChunkError::PrivateData { function, len });
        }
        if function == Function::Terminate && len > 0 {
            return Err(ChunkError::TerminateWithData { len });
        }
        let (enhanced, private_data) = match function.has_enhanced_data() {
            false => (None, data),
            true => {
                let missing = ChunkError::EnhancedDataMissing { function, len };
                let (words, rest) = data.split_first_chunk().ok_or(missing)?;
                (Some(Enhanced::from_bytes(*words)), rest)
            }
        };
        Ok(Self {
            function,
            enhanced,
            private_data,
        })
    }
}

/// The user data of a chunk with a message to send.
#[derive(Clone)]
pub struct ControlChunk {
    bytes: [u8; HEADER_LEN + PRIVATE_DATA_MAX],
    len: usize,
}

impl ControlChunk {
    /// The message with these contents; `enhanced` fits the function.
    pub(super) fn new(
        ssn: DdpSsn,
        function: Function,
        enhanced: Option<Enhanced>,
        private_data: &[u8],
    ) -> Result<Self, SessionError> {
        debug_assert_eq!(enhanced.is_some(), function.has_enhanced_data());
        let enhanced = enhanced.map(Enhanced::to_bytes);
        let enhanced = enhanced.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        let (len, limit) = (private_data.len(), PRIVATE_DATA_MAX - enhanced.len());
        if len > limit {
            return Err(SessionError::PrivateDataTooLong { len, limit });
        }
        let mut chunk = Self {
            bytes: [0; HEADER_LEN + PRIVATE_DATA_MAX],
            len: 0,
        };
        chunk.put(&ssn.0.to_be_bytes());
        chunk.put(&(function as u16).to_be_bytes());
        chunk.put(enhanced);
        chunk.put(private_data);
        Ok(chunk)
    }

    /// A Terminate, which has nothing to say.
    pub(super) fn terminate(ssn: DdpSsn) -> Self {
        let [a, b] = ssn.0.to_be_bytes();
        let [c, d] = (Function::Terminate as u16).to_be_bytes();
        let mut chunk = Self {
            bytes: [0; HEADER_LEN + PRIVATE_DATA_MAX],
            len: 0,
        };
        chunk.put(&[a, b, c, d]);
        chunk
    }

    /// Its bytes, for a chunk of [`PPID_CONTROL`](super::PPID_CONTROL).
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}

impl fmt::Debug for ControlChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControlChunk").field(&self.bytes()).finish()
    }
}

#[cfg(test)]
mod tests;
