//! Memory that either end has mapped for the other (riomap, riowrite).

use rnic::WorkRequest;

use super::Stream;
use super::work::{Work, message_of, read_stable, remote};
use crate::ffi::Outcome;
use crate::rsocket::wire::{Entry, Mapped, Message, TARGETS};

impl Stream {
    /// Writes as much of `bytes` as can go now to what the peer has mapped from `offset` on.
    pub(crate) fn write_mapped(&mut self, bytes: &[u8], offset: u64) -> Outcome<usize> {
        self.check_writes()?;
        let (mut left, mut offset) = (bytes, offset);
        while !left.is_empty() && self.end.is_none() {
            let Some((key, addr, length)) = self.mapped_at(offset) else {
                break;
            };
            let length = length.min(left.len() as u64);
            let room = self.find_room(|sender| sender.room_within(length));
            let Some(peer) = self.peer.as_mut().filter(|_| room > 0) else {
                break;
            };
            let start = peer.sender.take_direct(room) as usize;
            let (now, later) = left.split_at(room as usize);
            self.own.write(start, now)?;
            let sge = self.own.slice(start..start + now.len())?;
            let to = remote(key, addr);
            let work = Work::Direct(room).id();
            self.post(&[WorkRequest::write(work, std::slice::from_ref(&sge), to)]);
            left = later;
            offset = offset.wrapping_add(room.into());
        }
        Ok(bytes.len() - left.len())
    }

    /// Where the peer's memory for `offset` is, and how many bytes follow there.
    fn mapped_at(&self, offset: u64) -> Option<(u32, u64, u64)> {
        let first = self.targets_at + TARGETS * Entry::BYTES;
        let entries = (0..usize::from(self.sizes.iomap)).filter_map(|index| {
            let bytes = read_stable(&self.open, first + index * Mapped::BYTES)?;
            Some(Mapped::from_ne_bytes(bytes))
        });
        let found = entries.into_iter().find(|entry| entry.holds(offset))?;
        let from = offset - found.offset;
        let left = u64::from(found.memory.length) - from;
        Some((found.memory.key, found.memory.addr.wrapping_add(from), left))
    }

    pub(crate) fn is_mapped(&self, offset: u64) -> bool {
        self.mapped_at(offset).is_some()
    }

    /// Entries of the peer's table of mapped memory.
    pub(crate) fn iomap_entries(&self) -> u16 {
        self.peer.as_ref().map_or(0, |peer| peer.iomap_entries)
    }

    /// Tells the peer of memory that the program has mapped, as far as messages may go.
    pub(super) fn tell_mapped(&mut self) {
        while self.end.is_none() {
            let (Some(peer), Some((index, mapped))) = (&mut self.peer, self.iomap.next_untold())
            else {
                return;
            };
            if !peer.sender.take_iomap() {
                return;
            }
            let tables = u64::from(peer.targets.length) * Entry::BYTES as u64;
            let place = tables + u64::from(index) * Mapped::BYTES as u64;
            let to = remote(peer.targets.key, peer.targets.addr.wrapping_add(place));
            self.iomap.told(index);
            let (entry, message) = (
                mapped.to_ne_bytes(),
                Message::IomapUpdated(index).to_ne_bytes(),
            );
            let write = WorkRequest::write(Work::Part.id(), &[], to);
            self.post(&[
                write.inline(&entry).unsignaled(),
                message_of(Work::Iomap, &message),
            ]);
        }
    }
}
