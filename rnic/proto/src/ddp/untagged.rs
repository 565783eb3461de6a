//! The receive side of one untagged queue: which message and which byte of it may come (RFC 5041
//! sections 4.3, 5.3 and 7.1).
//!
//! Placement and Delivery are two steps. [`InboundQueue::check_placement`] judges a segment without
//! changing anything; [`InboundQueue::advance`] is called for segments in the LLP's order and says
//! what is delivered. A segment is checked right before it advances, so only the next byte passes;
//! what comes before its turn is looked at elsewhere, and judged here when that has come.

#[cfg(test)]
mod tests;

use super::DdpError;
use crate::{MessageOffset, Msn};

/// What the receive side of a queue waits for.
#[derive(Clone, Debug)]
pub struct InboundQueue {
    msn: Msn,
    /// The byte of the message `msn` that comes next.
    mo: u32,
}

/// Where a segment takes its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More segments of the message are to come.
    Partial,
    /// The message is whole.
    Complete {
        /// The message's length in bytes.
        length: u32,
    },
}

impl Default for InboundQueue {
    fn default() -> Self {
        Self {
            msn: Msn::FIRST,
            mo: 0,
        }
    }
}

impl InboundQueue {
    /// The message that is expected or under way.
    pub fn msn(&self) -> Msn {
        self.msn
    }

    /// The byte of that message which comes next.
    pub fn mo(&self) -> MessageOffset {
        MessageOffset(self.mo)
    }

    /// Judges whether a segment with `len` bytes of payload may be placed.
    pub fn check_placement(&self, msn: Msn, mo: MessageOffset, len: u32) -> Result<(), DdpError> {
        if msn != self.msn {
            return Err(DdpError::MsnRange);
        }
        if mo.0 != self.mo {
            return Err(DdpError::InvalidMo);
        }
        // The ULP Message Length is less than 2^32 (RFC 5041 section 5.2).
        if mo.0.checked_add(len).is_none() {
            return Err(DdpError::MessageTooLong);
        }
        Ok(())
    }

    /// Goes back to the beginning of the message `msn`, whose first segment was taken last.
    pub fn go_back(&mut self, msn: Msn) {
        (self.msn, self.mo) = (msn, 0);
    }

    /// Takes a segment that passed [`InboundQueue::check_placement`] and is the LLP's next.
    pub fn advance(&mut self, len: u32, last: bool) -> Progress {
        let length = self.mo.saturating_add(len);
        if last {
            self.msn = self.msn.next();
            self.mo = 0;
            Progress::Complete { length }
        } else {
            self.mo = length;
            Progress::Partial
        }
    }
}
