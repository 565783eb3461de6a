//! What chunks, parameters and error causes have in common: a 4-byte head with the length of head
//! and value, padded with zeros to a multiple of four (RFC 9260 sections 3.2, 3.2.1, 3.3.10).

/// Bytes of a head.
pub(crate) const HEAD_LEN: usize = 4;

/// Reads a big-endian 16-bit number.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*field))
}

/// Reads a big-endian 32-bit number.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*field))
}

/// `len` with its padding.
pub(crate) const fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    /// The first two bytes: type of a parameter, code of a cause, type and flags of a chunk.
    pub(crate) head: u16,
    /// What follows the head, without padding.
    pub(crate) value: &'a [u8],
    /// Head and value, without padding.
    pub(crate) whole: &'a [u8],
}

/// The next bytes are no whole element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Partial;

/// Elements one after another. After a partial one there is nothing more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn read(&mut self) -> Option<Element<'a>> {
        let head = u16_at(self.rest, 0)?;
        let len = usize::from(u16_at(self.rest, 2)?);
        let whole = self.rest.get(..len)?;
        let value = whole.get(HEAD_LEN..)?;
        // The last one's padding may be missing.
        self.rest = self.rest.get(padded(len)..).unwrap_or_default();
        Some(Element { head, value, whole })
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Partial>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let element = self.read().ok_or(Partial);
        if element.is_err() {
            self.rest = &[];
        }
        Some(element)
    }
}

/// There is no room for what should be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the packet has no room for {needed} more bytes; {room} are left")]
pub struct NoRoom {
    /// Bytes that it would take, with padding.
    pub needed: usize,
    /// Bytes that are left.
    pub room: usize,
}

/// Appends to a slice that it can't leave.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    bytes: &'a mut [u8],
    len: usize,
    /// Of the last element.
    padding: usize,
}

impl<'a> Output<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            bytes,
            len: 0,
            padding: 0,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Without the padding of the last element: the chunk around it has that as its own, and its length does not
    /// count it (RFC 9260 section 3.2).
    pub(crate) const fn len_of_value(&self) -> usize {
        self.len - self.padding
    }

    /// Takes the padding of the last element back: the chunk around it pads itself.
    pub(crate) fn take_padding(&mut self) {
        self.len -= std::mem::take(&mut self.padding);
    }

    pub(crate) const fn room(&self) -> usize {
        self.bytes.len() - self.len
    }

    pub(crate) fn written(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    pub(crate) fn put(&mut self, part: &[u8]) -> Result<(), NoRoom> {
        let room = self.room();
        let place = self.bytes.get_mut(self.len..self.len + part.len());
        let place = place.ok_or(NoRoom {
            needed: part.len(),
            room,
        })?;
        place.copy_from_slice(part);
        self.len += part.len();
        Ok(())
    }

    /// Appends so many zeros.
    pub(crate) fn zeros(&mut self, len: usize) -> Result<(), NoRoom> {
        let room = self.room();
        let place = self.bytes.get_mut(self.len..self.len + len);
        place.ok_or(NoRoom { needed: len, room })?.fill(0);
        self.len += len;
        Ok(())
    }

    /// Appends an element whose value `write` appends, and its padding. Leaves nothing behind when there
    /// is no room for all of it.
    pub(crate) fn element(
        &mut self,
        head: u16,
        write: impl FnOnce(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let start = self.len;
        let written = self.try_element(head, start, write);
        if written.is_err() {
            self.len = start;
        }
        written
    }

    fn try_element(
        &mut self,
        head: u16,
        start: usize,
        write: impl FnOnce(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        self.put(&head.to_be_bytes())?;
        self.put(&[0; 2])?;
        write(self)?;
        let len = self.len - start;
        let field = u16::try_from(len).map_err(|_| NoRoom {
            needed: len,
            room: usize::from(u16::MAX),
        })?;
        self.bytes[start + 2..start + HEAD_LEN].copy_from_slice(&field.to_be_bytes());
        let padding = padded(len) - len;
        self.put(&[0; 3][..padding])?;
        self.padding = padding;
        Ok(())
    }
}
