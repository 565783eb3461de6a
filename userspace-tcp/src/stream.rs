//! Byte-stream mode: what an ordinary TCP program expects, on top of segments.
//!
//! [`ByteWriter`] cuts bytes into segments and puts small ones together (RFC 9293 sections 3.7.4
//! and 3.8.6.2.1); [`ByteReader`] puts early bytes in order. Both are for one connection, live
//! beside its [`crate::Stack`], and reach a buffer's bytes only through the caller's [`Memory`].

mod reader;
mod ring;
mod writer;

pub use reader::ByteReader;
pub use writer::ByteWriter;

/// The caller's buffers: where they come from, and where bytes lie in them.
pub trait Memory<B> {
    /// A free buffer; `None` when there is none at present.
    fn alloc(&mut self) -> Option<B>;

    /// Takes back a buffer that nobody needs.
    fn free(&mut self, buf: B);

    /// A received buffer's bytes, from where the caller counts `payload_at` of
    /// [`ByteReader::arrived`].
    fn bytes<'a>(&'a self, buf: &'a B) -> &'a [u8];

    /// Where the payload of a segment to be sent lies in a buffer of [`Memory::alloc`], and all
    /// the room that it has there.
    fn payload_mut<'a>(&'a self, buf: &'a mut B) -> &'a mut [u8];
}

#[cfg(test)]
mod test_memory;
