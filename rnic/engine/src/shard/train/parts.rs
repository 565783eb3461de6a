//! Segments in several frames, as those of a large MTU are: a car for each frame.
//!
//! Whether one belongs to a train is decided as of any other; only that it takes several places.

use rnic_net::Recognised;
use rnic_xsk::{CHUNKS_MAX, Packet, Umem};

use super::{Car, Head, Train};

/// A segment in the frames of a packet.
#[derive(Debug)]
pub(in crate::shard) struct Parts {
    pub packet: Packet,
    /// Where its payload begins in the first frame.
    pub start: usize,
    /// Octets of payload in all frames.
    pub len: usize,
    /// The payload was found to end with the CRC32C of what is before.
    pub sound: bool,
}

impl Train {
    /// As [`Self::couple`].
    pub fn couple_parts(&mut self, head: &Head, parts: Parts) -> Result<(), Parts> {
        if !self.admits(head, parts.len, parts.packet.frames().count()) {
            return Err(parts);
        }
        self.push_parts(parts);
        Ok(())
    }

    /// As [`Self::couple_recognised`].
    pub fn couple_recognised_parts(
        &mut self,
        found: &Recognised,
        parts: Parts,
    ) -> Result<(), Parts> {
        if !self.admits_recognised(found, parts.len, parts.packet.frames().count()) {
            return Err(parts);
        }
        self.push_parts(parts);
        Ok(())
    }

    /// As [`Self::recognise`], of a packet; `sum` is asked for each part of its payload in turn.
    pub fn recognise_parts(
        &self,
        packet: &Packet,
        umem: &Umem,
        port: usize,
        sum: impl FnMut(&[u8]) -> u16,
    ) -> Option<Recognised> {
        let (head, headers) = self.known.as_ref()?;
        let mut slices = [&[][..]; CHUNKS_MAX];
        let (first, rest) = packet.slices(umem, &mut slices).split_first()?;
        headers
            .recognise_parts(first, rest, sum)
            .filter(|_| head.port == port)
    }

    fn push_parts(&mut self, parts: Parts) {
        let Parts {
            packet,
            mut start,
            len: mut left,
            sound,
        } = parts;
        let mut frames = packet.into_frames().peekable();
        while let Some(frame) = frames.next() {
            let len = left.min(frame.len().saturating_sub(start));
            self.push(Car {
                goes_on: frames.peek().is_some(),
                frame,
                start,
                len,
                sound,
            });
            (start, left) = (0, left - len);
        }
    }
}

#[cfg(test)]
mod tests;
