//! A capture for a client: its frames go as records over a socket that the client reads.
//!
//! A client that does not read holds the capture's thread and loses frames; that it has hung up ends
//! the thread. Nothing that it does holds anybody else.

use std::io::{self, BufWriter, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use rnic_host::heap;
use rnic_host::privileges;
use rnic_ipc::capture::RecordHeader;

use super::tap::{self, BUFFERS, Captured, Counts, Sink, Tap};

/// Bytes that are collected before they are sent.
const BATCH: usize = 1 << 16;

/// A capture for a client. Dropping it ends the thread, whatever is not sent yet.
#[derive(Debug)]
pub(crate) struct LiveCapture {
    pub(crate) number: u32,
    /// The shard shows it nothing any more; what was shown may still be on its way.
    pub(crate) stopped: bool,
    /// To end a write that the client holds.
    socket: UnixStream,
    writer: Option<JoinHandle<()>>,
}

/// What a capture is made of until it has a number.
#[derive(Debug)]
pub(crate) struct Prepared {
    queue: tap::Queue,
    tap: Tap,
}

impl Prepared {
    /// Buffers for as many bytes of each frame.
    pub(crate) fn new(bytes: usize) -> Self {
        let (tap, queue) = tap::queue(BUFFERS, bytes);
        Self { queue, tap }
    }

    /// What the capture will do.
    pub(crate) fn counts(&self) -> Arc<Counts> {
        self.queue.counts().clone()
    }

    /// Starts the thread; gives the shard's end and the client's.
    pub(crate) fn start(self, number: u32) -> io::Result<(LiveCapture, Tap, OwnedFd)> {
        let Self { queue, tap } = self;
        let (ours, theirs) = UnixStream::pair()?;
        // Descriptors that the client sent there would be closed by the thread that drops our end, which may
        // take as long as the client likes.
        ours.shutdown(Shutdown::Read)?;
        let socket = ours.try_clone()?;
        let mut sink = Records {
            stream: BufWriter::with_capacity(BATCH, ours),
            last: 0,
        };
        let write = move || {
            privileges::renounce("rnic-capture");
            if let Err(error) = queue.write_to(&mut sink) {
                log::debug!("capture {number} ends: {error}");
                // What is left in the buffer would be waited for.
                let _ = sink.stream.into_parts();
            }
        };
        let writer = heap::start_thread("rnic-capture", heap::STACK, write)?;
        let live = LiveCapture {
            number,
            stopped: false,
            socket,
            writer: Some(writer),
        };
        Ok((live, tap, theirs.into()))
    }
}

impl Drop for LiveCapture {
    fn drop(&mut self) {
        // A write that waits fails now, and so does each one after it.
        let _ = self.socket.shutdown(Shutdown::Both);
        if self
            .writer
            .take()
            .is_some_and(|writer| writer.join().is_err())
        {
            log::error!("the thread of capture {} panicked", self.number);
        }
    }
}

struct Records {
    stream: BufWriter<UnixStream>,
    /// The time of the last frame.
    last: u64,
}

impl Sink for Records {
    fn frame(&mut self, captured: &Captured, lost: u64) -> io::Result<()> {
        self.last = captured.unix_ns;
        let header = RecordHeader {
            unix_ns: captured.unix_ns,
            lost,
            original: captured.original as u32,
            kept: captured.bytes.len() as u32,
            direction: captured.direction,
        };
        self.stream.write_all(&header.to_bytes())?;
        self.stream.write_all(&captured.bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }

    fn end(&mut self, counts: &Counts) -> io::Result<()> {
        let header = RecordHeader::last(self.last, counts.lost());
        self.stream.write_all(&header.to_bytes())?;
        self.stream.flush()?;
        self.stream.get_ref().shutdown(Shutdown::Write)
    }
}
