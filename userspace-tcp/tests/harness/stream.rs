//! The application of a byte stream: writes of any size, reads of any size.

use userspace_net::Instant;
use userspace_tcp::stream::{ByteReader, ByteWriter, Memory};
use userspace_tcp::{ConnId, Received, Stack};

use super::{Buf, Buffers, Random};

/// How it writes and reads.
#[derive(Debug, Clone)]
pub struct BytePlan {
    /// Bytes of one write, at most.
    pub write_max: u64,
    /// Bytes of one read, at most.
    pub read_max: u64,
    /// Writes of 1000 that are pushed.
    pub push_per_mille: u64,
    /// Writes of 1000 that are flushed.
    pub flush_per_mille: u64,
    pub nodelay: bool,
    /// Buffers that the reader may hold.
    pub pieces_max: usize,
}

pub struct ByteStream {
    pub plan: BytePlan,
    pub writer: ByteWriter<Buf>,
    pub reader: ByteReader<Buf>,
}

/// Bytes of payload that fit a buffer.
const BUFFER: usize = 9000;

impl Memory<Buf> for Buffers {
    fn alloc(&mut self) -> Option<Buf> {
        Some(self.fill(vec![0; BUFFER]))
    }

    fn free(&mut self, buf: Buf) {
        Self::free(self, buf);
    }

    fn bytes<'a>(&'a self, buf: &'a Buf) -> &'a [u8] {
        &buf.bytes
    }

    fn payload_mut<'a>(&'a self, buf: &'a mut Buf) -> &'a mut [u8] {
        &mut buf.bytes
    }
}

impl ByteStream {
    pub fn new(plan: BytePlan, conn: ConnId, window: usize) -> Self {
        Self {
            writer: ByteWriter::new(conn, plan.nodelay),
            reader: ByteReader::new(window, plan.pieces_max),
            plan,
        }
    }

    pub fn arrived(&mut self, buffers: &mut Buffers, payload: &[u8], received: &Received) {
        // Some bytes of headers in front.
        let buf = buffers.fill([&[0; 5], payload].concat());
        assert!(self.reader.arrived(buffers, buf, 5, received));
    }

    /// Gives up everything that it holds.
    pub fn free(mut self, buffers: &mut Buffers) {
        self.writer.release(buffers);
        self.reader.clear(buffers);
    }

    /// One read; says how many bytes it took. `check` sees them, with their place.
    pub fn read(
        &mut self,
        buffers: &mut Buffers,
        random: &mut Random,
        check: impl Fn(u64, &[u8]),
    ) -> u64 {
        let mut slices: [&[u8]; 3] = [&[]; 3];
        let filled = self.reader.slices(buffers, &mut slices);
        let bytes = slices[..filled].concat();
        let most = random.within(1, self.plan.read_max) as usize;
        let bytes = &bytes[..bytes.len().min(most)];
        check(self.reader.consumed_to(), bytes);
        self.reader.consume(buffers, bytes.len());
        bytes.len() as u64
    }

    /// One write of what `chunk` says, from `from` to at most `end`; says how many bytes it took.
    pub fn write(
        &mut self,
        (stack, buffers, now): (&mut Stack<Buf>, &mut Buffers, Instant),
        random: &mut Random,
        (from, end): (u64, u64),
        chunk: impl Fn(u64, u64) -> &'static [u8],
    ) -> u64 {
        let len = random.within(1, self.plan.write_max).min(end - from);
        let taken = self.writer.write(stack, now, buffers, chunk(from, len));
        if random.chance(self.plan.flush_per_mille) {
            self.writer.flush(stack, now, buffers);
        } else if random.chance(self.plan.push_per_mille) {
            self.writer.push(stack, now, buffers);
        }
        taken as u64
    }
}
