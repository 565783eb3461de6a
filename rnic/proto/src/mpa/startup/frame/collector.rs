//! Collects a frame from bytes that come in any cuts. What can be told from the front of a frame
//! is told at once: a peer that does not speak MPA is found by its first wrong byte.

use super::{
    ALIGNED_BITS, CRC, ENHANCED, FRAME_LEN_MAX, FrameHeader, FrameKind, HEADER_LEN, KEY_LEN,
    MARKERS, PRIVATE_DATA_MAX, REJECTED, Revision,
};
use crate::enhanced::Enhanced;
use crate::mpa::startup::StartupError;

/// The bytes of one frame, as far as they have come.
#[derive(Debug)]
pub(in crate::mpa::startup) struct Collector {
    kind: FrameKind,
    bytes: [u8; FRAME_LEN_MAX],
    len: usize,
}

/// A whole frame.
#[derive(Clone, Copy, Debug)]
pub(in crate::mpa::startup) struct Collected {
    pub(in crate::mpa::startup) header: FrameHeader,
    /// Bytes of the last input that belong to the frame.
    pub(in crate::mpa::startup) consumed: usize,
    /// Where the application's private data ends in the frame.
    pub(in crate::mpa::startup) end: usize,
}

impl Collector {
    pub(in crate::mpa::startup) fn new(kind: FrameKind) -> Self {
        Self {
            kind,
            bytes: [0; FRAME_LEN_MAX],
            len: 0,
        }
    }

    /// Takes bytes up to the frame's end; the frame, when it is whole.
    pub(in crate::mpa::startup) fn take(
        &mut self,
        input: &[u8],
    ) -> Result<Option<Collected>, StartupError> {
        let header = self.fill(HEADER_LEN, input);
        self.check_key()?;
        if self.len < HEADER_LEN {
            return Ok(None);
        }
        let revision = Revision::from_number(self.bytes[KEY_LEN + 1])?;
        let found = u16::from_be_bytes([self.bytes[KEY_LEN + 2], self.bytes[KEY_LEN + 3]]);
        let pd_length = usize::from(found);
        if pd_length > PRIVATE_DATA_MAX {
            return Err(StartupError::PdLength { found });
        }
        let flags = self.bytes[KEY_LEN];
        // In revision 1 the bit is reserved, and not checked.
        let enhanced = flags & ENHANCED != 0 && revision == Revision::Two;
        if enhanced && pd_length < Enhanced::LEN {
            return Err(StartupError::EnhancedDataMissing { found });
        }
        let end = HEADER_LEN + pd_length;
        let consumed = header + self.fill(end, &input[header..]);
        if self.len < end {
            return Ok(None);
        }
        let words = self.bytes[HEADER_LEN..]
            .first_chunk()
            .copied()
            .filter(|_| enhanced);
        let header = FrameHeader {
            markers: flags & MARKERS != 0,
            crc: flags & CRC != 0,
            aligned: flags & ALIGNED_BITS == self.kind.aligned(),
            rejected: flags & REJECTED != 0,
            revision,
            enhanced: words.map(Enhanced::from_bytes),
        };
        Ok(Some(Collected {
            header,
            consumed,
            end,
        }))
    }

    /// The application's private data of the frame that was collected.
    pub(in crate::mpa::startup) fn private_data(&self, frame: &Collected) -> &[u8] {
        let enhanced = if frame.header.enhanced.is_some() {
            Enhanced::LEN
        } else {
            0
        };
        &self.bytes[HEADER_LEN + enhanced..frame.end]
    }

    /// Fills up to `end` from the front of `input`; gives the bytes used.
    fn fill(&mut self, end: usize, input: &[u8]) -> usize {
        let take = end.saturating_sub(self.len).min(input.len());
        self.bytes[self.len..self.len + take].copy_from_slice(&input[..take]);
        self.len += take;
        take
    }

    fn check_key(&self) -> Result<(), StartupError> {
        let found = &self.bytes[..self.len.min(KEY_LEN)];
        let (wanted, len) = (self.kind, found.len());
        if found == &wanted.key()[..len] {
            Ok(())
        } else if found == &wanted.opposite().key()[..len] {
            Err(StartupError::SameRole { wanted })
        } else {
            Err(StartupError::NotMpa { wanted })
        }
    }
}
