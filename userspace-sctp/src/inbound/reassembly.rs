//! Messages that their sender cut into chunks (RFC 9260 section 6.9), until they are whole. Fragments of a
//! message have consecutive TSNs, the first has the B bit and the last the E bit.
//!
//! DDP's messages fit a packet, so a peer that fragments is rare: fragments are copied here, within a bound.

#[cfg(test)]
mod tests;

use crate::chunk::Data;
use crate::tsn::Tsn;

/// Most fragments that are kept, however short they are: each costs memory beside its bytes, and is moved when one
/// with a lower TSN comes.
pub const FRAGMENTS_MAX: usize = 1024;

/// A message that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub stream: u16,
    /// The Payload Protocol Identifier.
    pub protocol: u32,
    /// Whether it has no place in an order.
    pub unordered: bool,
    pub bytes: Vec<u8>,
}

/// Fragments can't be kept, or are of no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReassemblyError {
    /// So many bytes are not kept. The chunk must not be acknowledged: its sender sends it again.
    #[error("fragments of {bytes} bytes are kept, and {more} more would exceed the bound")]
    TooMuch {
        /// Bytes that are kept.
        bytes: usize,
        /// Bytes of the fragment.
        more: usize,
    },
    /// The same, because [`FRAGMENTS_MAX`] are kept.
    #[error("{FRAGMENTS_MAX} fragments are kept, and no more can be")]
    TooMany,
    /// A message begins or ends where another one has not ended, or goes on in another stream. The sender is at
    /// fault: the association is aborted.
    #[error("the fragment with TSN {tsn} does not fit its neighbours")]
    Misfit { tsn: Tsn },
}

/// Fragments whose messages are not whole.
#[derive(Debug)]
pub struct Reassembly {
    /// By TSN, ascending.
    fragments: Vec<Fragment>,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Fragment {
    tsn: Tsn,
    begin: bool,
    end: bool,
    stream: u16,
    sequence: u16,
    protocol: u32,
    unordered: bool,
    bytes: Vec<u8>,
}

impl Reassembly {
    /// Keeps at most so many bytes, in at most [`FRAGMENTS_MAX`] fragments.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            fragments: Vec::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Bytes that are kept: no room of the receive window.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a fragment whose TSN is new. Gives the message that it makes whole.
    ///
    /// # Errors
    /// When it exceeds the bound, or can't be.
    pub fn take(&mut self, data: &Data<'_>) -> Result<Option<Message>, ReassemblyError> {
        let more = data.payload.len();
        if self.bytes + more > self.bytes_max {
            return Err(ReassemblyError::TooMuch {
                bytes: self.bytes,
                more,
            });
        }
        if self.fragments.len() == FRAGMENTS_MAX {
            return Err(ReassemblyError::TooMany);
        }
        let at = self
            .fragments
            .partition_point(|other| data.tsn.is_after(other.tsn));
        let fragment = Fragment::of(data);
        let neighbours = (
            at.checked_sub(1).and_then(|at| self.fragments.get(at)),
            self.fragments.get(at),
        );
        let fits_before = neighbours.0.is_none_or(|before| before.suits(&fragment));
        let fits_after = neighbours.1.is_none_or(|after| fragment.suits(after));
        if !fits_before || !fits_after {
            return Err(ReassemblyError::Misfit { tsn: data.tsn });
        }
        self.bytes += more;
        self.fragments.insert(at, fragment);
        Ok(self.whole(at))
    }

    /// Takes out the message that the fragment at `at` is of, if it is whole.
    fn whole(&mut self, at: usize) -> Option<Message> {
        let follows = |pair: &[Fragment]| pair[0].tsn.next() == pair[1].tsn;
        let before = self.fragments[..=at].windows(2).rev();
        let first = at
            - before
                .take_while(|pair| !pair[1].begin && follows(pair))
                .count();
        let after = self.fragments[at..].windows(2);
        let last = at
            + after
                .take_while(|pair| !pair[0].end && follows(pair))
                .count();
        if !self.fragments[first].begin || !self.fragments[last].end {
            return None;
        }
        let Fragment {
            stream,
            protocol,
            unordered,
            ..
        } = self.fragments[first];
        let parts = self.fragments.drain(first..=last);
        let bytes: Vec<u8> = parts.flat_map(|part| part.bytes).collect();
        self.bytes -= bytes.len();
        Some(Message {
            stream,
            protocol,
            unordered,
            bytes,
        })
    }
}

impl Fragment {
    fn of(data: &Data<'_>) -> Self {
        Self {
            tsn: data.tsn,
            begin: data.begin,
            end: data.end,
            stream: data.stream,
            sequence: data.sequence,
            protocol: data.protocol,
            unordered: data.unordered,
            bytes: data.payload.to_vec(),
        }
    }

    /// Whether `next` can come after it.
    fn suits(&self, next: &Self) -> bool {
        if self.tsn.next() != next.tsn {
            return true;
        }
        let same = self.stream == next.stream
            && self.unordered == next.unordered
            && (self.unordered || self.sequence == next.sequence);
        match (self.end, next.begin) {
            (true, true) => true,
            (false, false) => same,
            _ => false,
        }
    }
}
