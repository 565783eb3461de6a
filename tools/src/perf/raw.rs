//! AF_XDP without any protocol: how fast frames go from one socket to another, and how long a round
//! trip takes. No protocol over the same sockets can exceed it.
//!
//! A paced sender is never further ahead of its receiver than the receiver's rings are long: it hears
//! from time to time how far that is. That is for a kernel whose receive path, when overrun, leaves
//! the receiver no time on the same core: it would drop most of what it has received, and be measured
//! at that.
//!
//! A frame is an Ethernet header (to everybody, EtherType 0x88B5, which IEEE 802 leaves to local
//! experiments), one byte that says what it is for, seven of padding, and a number. What is behind
//! that is neither written nor read, or an application's bytes (`bytes`). The interface is taken whole,
//! and its kernel hears nothing of it.

mod bytes;
pub mod echo;
pub mod rate;

use std::time::{Duration, Instant};

use rnic_steering::{ModePreference, Tap};
use rnic_xsk::{ChunkSize, FramePool, Packet, Port, Umem, UmemConfig, XskPort, XskPortConfig};
use rustix::event::{PollFd, PollFlags, Timespec};

use self::bytes::Bytes;
use crate::endpoint::ToolError;

/// Bytes of an Ethernet frame that this needs.
pub const FRAME_MIN: usize = 60;

/// Frames that are sent and not completed, at most: a veth's ring has 256 places, and what does not
/// fit there is lost.
pub const IN_FLIGHT: usize = 200;

/// Frames of the UMEM: those that wait for reception, and as many again for everything else.
const FRAMES: u32 = 1024;
/// Frames of a batch.
const BATCH: usize = 32;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of all headers.
const HEADERS: usize = ETHERNET + 16;
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// To be counted; its number is that of frames before it.
    Data = 1,
    /// The sender is done; its number is that of all frames.
    End = 2,
    /// To be sent back as a [`Kind::Pong`] of the same number.
    Ping = 3,
    Pong = 4,
    /// As [`Kind::Data`], and to be answered now and then by a [`Kind::Seen`].
    Paced = 5,
    /// How far a receiver is: the number of the next frame.
    Seen = 6,
}

impl Kind {
    /// Whether a receiver counts such frames.
    const fn counts(self) -> bool {
        matches!(self, Self::Data | Self::Paced)
    }

    fn of(byte: u8) -> Option<Self> {
        [
            Self::Data,
            Self::End,
            Self::Ping,
            Self::Pong,
            Self::Paced,
            Self::Seen,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// What frames that are sent in numbers carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// What nobody writes or reads.
    Nothing,
    /// An application's bytes, which are copied into them, verified, and copied out.
    Bytes,
}

/// How a receiver waits for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Waiting {
    /// Looks again and again
    Spin,
    /// Sleeps in poll(2): for a kernel whose receive path needs the same core
    Poll,
}

/// An interface's queue 0, taken whole.
#[derive(Debug)]
pub struct Wire {
    port: XskPort,
    umem: Umem,
    pool: FramePool,
    received: Vec<Packet>,
    /// Frames that are sent and not completed.
    in_flight: usize,
    waiting: Waiting,
    /// What frames that count carry, if anything.
    bytes: Option<Bytes>,
    /// Attached as long as this lives.
    _tap: Tap,
}

impl Wire {
    /// Takes an interface for frames of up to `bytes` bytes.
    pub fn open(
        interface: &str,
        bytes: usize,
        mode: ModePreference,
        waiting: Waiting,
        load: Load,
    ) -> Result<Self, ToolError> {
        let mtu = u32::try_from(bytes.saturating_sub(ETHERNET)).unwrap_or(u32::MAX);
        let chunk = ChunkSize::for_mtu(mtu)?;
        if load != Load::Nothing && chunk.chunks() > 1 {
            return Err(ToolError::Usage(format!(
                "--verified is for frames that fit one buffer, of {} bytes at most: {bytes} do not",
                ChunkSize::Bytes4096.chunk_capacity()
            )));
        }
        let (umem, mut pool) = Umem::new(&UmemConfig {
            // Of one with wide frames half is for receiving.
            frames: FRAMES * if chunk.chunks() > 1 { 2 } else { 1 },
            chunk,
            ..UmemConfig::default()
        })?;
        let mut tap = Tap::attach(interface, mode)?;
        let mut port = XskPort::open(&umem, XskPortConfig::new(interface, 0))?;
        port.refill(&mut pool);
        tap.set_queue(0, port.fd())?;
        Ok(Self {
            port,
            umem,
            pool,
            received: Vec::with_capacity(BATCH),
            in_flight: 0,
            waiting,
            bytes: (load == Load::Bytes).then(Bytes::new),
            _tap: tap,
        })
    }

    /// Queues a frame of `bytes` bytes; false when there is no room for it now.
    fn queue(&mut self, kind: Kind, number: u64, bytes: usize) -> bool {
        if self.in_flight >= IN_FLIGHT {
            return false;
        }
        let Some(mut frame) = self.pool.alloc_for(bytes) else {
            return false;
        };
        let into = self.umem.bytes_mut(&mut frame);
        write_header(into, kind, number);
        if let Some(all) = self.bytes.as_mut().filter(|_| kind.counts()) {
            all.load(&mut into[..bytes]);
        }
        frame.set_len(bytes);
        match self.port.transmit(frame, 0) {
            Ok(()) => {
                self.in_flight += 1;
                true
            }
            Err(frame) => {
                self.pool.free(frame);
                false
            }
        }
    }

    /// Sends what is queued, and takes back what was sent.
    fn flush(&mut self) -> Result<(), ToolError> {
        self.port.flush()?;
        while let Some((frame, _)) = self.port.completed() {
            self.pool.free(frame);
            self.in_flight -= 1;
        }
        Ok(())
    }

    /// Sends one frame now, waiting for room.
    fn send(&mut self, kind: Kind, number: u64, bytes: usize) -> Result<(), ToolError> {
        while !self.queue(kind, number, bytes) {
            self.flush()?;
        }
        self.flush()
    }

    /// Bytes of a frame that are no payload.
    const fn overhead(&self) -> usize {
        match self.bytes {
            Some(_) => bytes::OVERHEAD,
            None => ETHERNET,
        }
    }

    /// Shows each received frame of ours that is sound, with its length, to `seen`; says whether there
    /// was any frame at all. When there is none it may sleep, for `patience` at most.
    fn receive(
        &mut self,
        patience: Duration,
        seen: impl FnMut(Kind, u64, usize),
    ) -> Result<bool, ToolError> {
        let any = self.look(seen);
        if !any && self.waiting == Waiting::Poll {
            self.sleep(patience)?;
        }
        Ok(any)
    }

    /// As [`Self::receive`], without sleeping.
    fn look(&mut self, mut seen: impl FnMut(Kind, u64, usize)) -> bool {
        let Self { port, pool, .. } = self;
        if port.receive(pool, &mut self.received, BATCH) == 0 {
            return false;
        }
        for packet in self.received.drain(..) {
            let frame = self.umem.bytes(packet.first());
            if let Some((kind, number)) = read_header(frame) {
                let mut bytes = self.bytes.as_mut().filter(|_| kind.counts());
                if bytes.as_mut().is_none_or(|all| all.place(frame)) {
                    seen(kind, number, packet.len(&self.umem));
                }
            }
            pool.free_packet(packet);
        }
        port.refill(pool);
        true
    }

    /// Waits until the kernel has sent all that was queued, but no longer than `patience`.
    fn drain(&mut self, patience: Duration) -> Result<(), ToolError> {
        let started = Instant::now();
        self.flush()?;
        while self.port.unsent() > 0 && started.elapsed() < patience {
            self.flush()?;
        }
        Ok(())
    }

    fn sleep(&mut self, patience: Duration) -> Result<(), ToolError> {
        self.port.prepare_sleep(&mut self.pool);
        let mut fds = [PollFd::from_borrowed_fd(self.port.fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(patience).ok();
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(ToolError::Io {
                what: "waiting for frames".into(),
                source: errno.into(),
            }),
        }
    }
}

/// How long nothing came.
#[derive(Debug)]
struct Silence {
    patience: Duration,
    since: Instant,
}

impl Silence {
    fn new(patience: Duration) -> Self {
        Self {
            patience,
            since: Instant::now(),
        }
    }

    fn broken(&mut self) {
        self.since = Instant::now();
    }

    /// An error when it has lasted too long.
    fn check(&self) -> Result<(), ToolError> {
        if self.since.elapsed() < self.patience {
            return Ok(());
        }
        Err(ToolError::Peer(format!(
            "no frame came for {:?}: is the other end there, and did it come up after this one?",
            self.patience
        )))
    }
}

fn write_header(into: &mut [u8], kind: Kind, number: u64) {
    into[..6].fill(0xff);
    into[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 1]);
    into[12..ETHERNET].copy_from_slice(&ETHER_TYPE);
    into[ETHERNET..ETHERNET + 8].copy_from_slice(&[kind as u8, 0, 0, 0, 0, 0, 0, 0]);
    into[ETHERNET + 8..HEADERS].copy_from_slice(&number.to_be_bytes());
}

/// What a frame says, if it is one of ours.
fn read_header(bytes: &[u8]) -> Option<(Kind, u64)> {
    let bytes: &[u8; HEADERS] = bytes.first_chunk()?;
    let number = *bytes.last_chunk()?;
    let kind = Kind::of(bytes[ETHERNET]).filter(|_| bytes[12..ETHERNET] == ETHER_TYPE)?;
    Some((kind, u64::from_be_bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_nothing_else_is_one() {
        let mut bytes = [0xaa; FRAME_MIN];
        for kind in [
            Kind::Data,
            Kind::End,
            Kind::Pong,
            Kind::Paced,
            Kind::Seen,
            Kind::Ping,
        ] {
            write_header(&mut bytes, kind, 7 << 40);
            assert_eq!(read_header(&bytes), Some((kind, 7 << 40)));
        }
        assert_eq!(read_header(&bytes[..HEADERS - 1]), None, "cut off");
        bytes[ETHERNET] = 9;
        assert_eq!(read_header(&bytes), None, "of no known kind");
        write_header(&mut bytes, Kind::End, 1);
        bytes[12] = 8;
        assert_eq!(read_header(&bytes), None, "of another protocol");
    }
}
