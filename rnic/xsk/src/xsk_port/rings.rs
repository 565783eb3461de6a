//! The four rings of an AF_XDP socket, made safe: a frame is moved in and comes back out.
//!
//! Invariants that the `unsafe` here rests on:
//! - A descriptor enters the fill or the TX ring only together with its [`Frame`], which is kept
//!   in `posted` or `sent` by chunk index until the kernel returns the chunk. So no chunk is in
//!   two rings, or in a ring and in somebody's hands.
//! - All descriptors are of the UMEM that the socket was made with: frames of another are refused.
//! - A wide frame enters the TX ring as several descriptors, one for each chunk, and is kept in
//!   `sent` by its first until the kernel has returned all of them.
//! - What the kernel returns is not trusted: an address must name a chunk whose frame is kept in
//!   the table of that very ring, and data must lie in that chunk. Anything else is counted and
//!   dropped.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use xsk_rs::socket::Fd;
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue};

use super::adaptive_fill::AdaptiveFill;
use super::chains::{Done, Gathered, Gathering, Parts, XDP_PKT_CONTD};
use crate::frame::Frame;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::port::PortStatistics;
use crate::umem::{CHUNK_HEADROOM, KernelSide, Umem};

/// How many descriptors move between a ring and us at a time.
const BATCH: usize = 64;

/// The fill ring is left alone until it lacks so many frames: each touch costs a cache line that
/// the kernel writes too.
const REFILL_AT: usize = 16;

/// Frames that the kernel receives into: out by the fill ring, back by the RX ring.
#[derive(Debug)]
pub(super) struct ReceiveSide {
    fill: FillQueue,
    rx: RxQueue,
    /// By chunk index: the frame while the kernel has it to receive into.
    posted: Box<[Option<Frame>]>,
    outstanding: usize,
    level: AdaptiveFill,
    /// A packet of several chunks that is not all here.
    gathering: Gathering,
    batch: [FrameDesc; BATCH],
}

impl ReceiveSide {
    /// The rings of a socket on a UMEM of `frames` frames, with a fill ring of `entries`.
    pub(super) fn new(fill: FillQueue, rx: RxQueue, frames: usize, entries: usize) -> Self {
        Self {
            fill,
            rx,
            posted: empty_table(frames),
            outstanding: 0,
            level: AdaptiveFill::new(entries),
            gathering: Gathering::default(),
            batch: [FrameDesc::default(); BATCH],
        }
    }

    /// Gives the kernel frames until it has as many as it should.
    pub(super) fn refill(&mut self, umem: &Umem, descs: &[FrameDesc], pool: &mut FramePool) {
        let target = self.level.frames();
        // It may have more still, from when more came.
        let missing = target.saturating_sub(self.outstanding);
        if self.outstanding != 0 && missing < REFILL_AT {
            return;
        }
        while self.outstanding < target {
            let wanted = (target - self.outstanding).min(BATCH);
            let room = self.fill.nb_free(wanted as u32) as usize;
            let mut count = 0;
            while count < wanted.min(room) {
                let Some(frame) = pool.alloc() else { break };
                assert!(umem.owns(&frame), "a pool of another UMEM");
                let index = frame.index();
                self.batch[count] = descs[index];
                self.posted[index] = Some(frame);
                count += 1;
            }
            if count == 0 {
                break;
            }
            // SAFETY: these descriptors' frames were moved into `posted` just now.
            let produced = unsafe { self.fill.produce(&self.batch[..count]) };
            assert_eq!(
                produced, count,
                "the fill ring has the room that it said it had"
            );
            self.outstanding += count;
        }
    }

    /// The driver receives without copying.
    pub(super) fn keep_all(&mut self) {
        self.level.keep_all();
    }

    /// Nobody may look for a while: the next [`Self::refill`] gives the kernel all frames that its ring
    /// takes.
    pub(super) fn expect_many(&mut self) {
        self.level.expect_many();
    }

    /// Whether the driver waits for a call before it takes what is in the fill ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Moves up to `max` received packets to `out`, by `looks` looks at most where there is nothing.
    pub(super) fn receive(
        &mut self,
        umem: &Umem,
        pool: &mut FramePool,
        out: &mut Vec<Packet>,
        (max, mut looks): (usize, u32),
        statistics: &mut PortStatistics,
    ) -> usize {
        let chunk = umem.chunk().bytes();
        let (mut given, mut chunks) = (0, 0);
        while given < max {
            let wanted = (max - given).min(BATCH);
            // SAFETY: the RX ring is of the socket whose fill ring got the frames in `posted`;
            // the descriptors are checked below before use.
            let count = unsafe { self.rx.consume(&mut self.batch[..wanted]) };
            if count == 0 && given == 0 && looks > 1 {
                looks -= 1;
                continue;
            }
            if given == 0 && count > 0 {
                // Another core wrote it, and a thread that waits for a frame reads it first.
                umem.fetch(self.batch[0].addr());
            }
            chunks += count;
            for place in 0..count {
                let packet = match self.single(place, chunk) {
                    Some(frame) => Packet::from(frame),
                    None => match self.gather(place, umem, pool, statistics) {
                        Some(packet) => packet,
                        None => continue,
                    },
                };
                statistics.received += 1;
                statistics.received_bytes += packet.len(umem) as u64;
                out.push(packet);
                given += 1;
            }
            if count < wanted {
                break;
            }
        }
        if chunks > 0 {
            self.level.found(chunks);
        }
        given
    }

    /// The frame of a packet that lies in one, if that is what the descriptor in this place of the batch
    /// says and nothing is wrong with it; else nothing is done.
    #[inline]
    fn single(&mut self, place: usize, chunk: usize) -> Option<Frame> {
        let desc = &self.batch[place];
        let (start, len) = data_of(desc, chunk)?;
        if desc.options() != 0 || !self.gathering.is_idle() {
            return None;
        }
        let mut frame = take(&mut self.posted, desc.addr() / chunk)?;
        self.outstanding -= 1;
        frame.set_data(start, len);
        Some(frame)
    }

    /// Takes the chunk of the descriptor in this place of the batch, whatever it is; gives the packet
    /// that is whole with it, if one is.
    #[inline(never)]
    fn gather(
        &mut self,
        place: usize,
        umem: &Umem,
        pool: &mut FramePool,
        statistics: &mut PortStatistics,
    ) -> Option<Packet> {
        let chunk = umem.chunk().bytes();
        let desc = &self.batch[place];
        let taken = take(&mut self.posted, desc.addr() / chunk);
        self.outstanding -= usize::from(taken.is_some());
        let frame = taken.and_then(|frame| with_data(frame, desc, chunk, pool));
        statistics.bad_receive_descriptors += u64::from(frame.is_none());
        let more = desc.options() & XDP_PKT_CONTD != 0;
        match frame {
            None if !more && self.gathering.is_idle() => None,
            frame => match self.gathering.add(frame, more, umem, pool) {
                Gathered::Whole(packet) => {
                    statistics.chains_received += u64::from(!packet.is_single());
                    Some(packet)
                }
                Gathered::Waiting => None,
                Gathered::Lost => {
                    statistics.bad_receive_chains += 1;
                    None
                }
            },
        }
    }

    pub(super) fn socket(&self) -> &Fd {
        self.rx.fd()
    }
}

/// Frames that the kernel sends: out by the TX ring, back by the completion ring.
#[derive(Debug)]
pub(super) struct TransmitSide {
    tx: TxQueue,
    completion: CompQueue,
    /// Entries of the TX ring.
    size: usize,
    /// By chunk index, the first of a wide frame: the frame and its cookie while it is staged or the
    /// kernel has it.
    sent: Box<[Option<(Frame, u64)>]>,
    /// Which chunks of wide frames it has.
    parts: Parts,
    /// Descriptors taken but not in the TX ring yet.
    staged: [FrameDesc; BATCH],
    staged_count: usize,
    /// The TX ring may have some that the kernel has not looked at.
    waiting: bool,
    /// Descriptors taken from the completion ring but not given to the caller yet.
    done: [FrameDesc; BATCH],
    done_next: usize,
    done_count: usize,
}

impl TransmitSide {
    /// The rings of a socket on a UMEM, with a TX ring of `size` entries.
    pub(super) fn new(tx: TxQueue, completion: CompQueue, umem: &Umem, size: usize) -> Self {
        let frames = umem.frames();
        Self {
            tx,
            completion,
            size,
            sent: empty_table(frames),
            parts: Parts::new(frames, umem.first_wide(), umem.chunk().chunks()),
            staged: [FrameDesc::default(); BATCH],
            staged_count: 0,
            waiting: false,
            done: [FrameDesc::default(); BATCH],
            done_next: 0,
            done_count: 0,
        }
    }

    /// How many frames can be taken now, however large they are.
    pub(super) fn room(&mut self) -> usize {
        match self.parts.chunks() {
            1 => self.room_for(1),
            chunks => self.room_for(chunks) / chunks,
        }
    }

    /// How many descriptors can be taken now; exact when they are fewer than `wanted`.
    fn room_for(&mut self, wanted: usize) -> usize {
        let wanted = self.staged_count + wanted;
        (self.tx.nb_free(wanted as u32) as usize).saturating_sub(self.staged_count)
    }

    /// Takes a frame, unless the ring is too full for all of it.
    pub(super) fn stage(
        &mut self,
        umem: &Umem,
        kernel: &KernelSide,
        mut frame: Frame,
        cookie: u64,
    ) -> Result<(), Frame> {
        assert!(umem.owns(&frame), "a frame of another UMEM");
        let parts = umem.parts(&frame);
        if self.room_for(parts) < parts {
            return Err(frame);
        }
        if self.staged_count + parts > BATCH {
            self.submit();
        }
        // xsk-rs sends from where its descriptor of the chunk begins, and nowhere else.
        umem.move_data_to(&mut frame, CHUNK_HEADROOM);
        if parts > 1 {
            umem.spread(&mut frame);
        }
        let index = frame.index();
        for part in 0..parts {
            let mut desc = kernel.descriptors[index + part];
            // SAFETY: the descriptor is of this UMEM, and its frame is ours: nobody borrows it.
            unsafe { kernel.umem.data_mut(&mut desc) }
                .cursor()
                .set_pos(umem.part_len(frame.len(), part));
            desc.set_options(if part + 1 < parts { XDP_PKT_CONTD } else { 0 });
            self.staged[self.staged_count] = desc;
            self.staged_count += 1;
        }
        self.parts.sent(index, parts);
        self.sent[index] = Some((frame, cookie));
        if self.staged_count == BATCH {
            self.submit();
        }
        Ok(())
    }

    /// Puts what is staged into the TX ring.
    fn submit(&mut self) {
        let produced = match &self.staged[..self.staged_count] {
            // SAFETY: as below.
            [alone] => unsafe { self.tx.produce_one(alone) },
            // SAFETY: these descriptors' frames are in `sent`, and each descriptor is staged once.
            several => unsafe { self.tx.produce(several) },
        };
        assert_eq!(
            produced, self.staged_count,
            "frames are staged only when the ring has room"
        );
        self.waiting |= produced > 0;
        self.staged_count = 0;
    }

    /// How many frames the kernel has not looked at yet.
    pub(super) fn unsent(&mut self) -> usize {
        self.staged_count + self.size.saturating_sub(self.tx.nb_free_exact() as usize)
    }

    /// Has the kernel send what was taken, by `send` (one system call each), until all is gone or
    /// it says later. In copy mode one call sends 32 frames at most. `asynchronous`: the driver
    /// sends by itself once woken.
    pub(super) fn flush(
        &mut self,
        asynchronous: bool,
        statistics: &mut PortStatistics,
        mut send: impl FnMut() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        // Most polls have nothing to send.
        if self.staged_count == 0 && !self.waiting {
            return Ok(());
        }
        let (staged, others) = (self.staged_count, self.waiting);
        self.submit();
        // Where nothing waited there is no need to look: the ring's word is the kernel's to write.
        let mut pending = if others { self.unsent() } else { staged };
        // Every turn but the last sends at least one of at most `size` frames.
        while pending > 0 && self.tx.needs_wakeup() {
            statistics.send_calls += 1;
            match send() {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                // The link's queue was full and the frame that met it is lost.
                Err(Errno::BUSY) => {
                    statistics.send_dropped += 1;
                    break;
                }
                Err(Errno::NOBUFS) => {
                    statistics.send_busy += 1;
                    break;
                }
                Err(errno) => return Err(errno),
            }
            if asynchronous {
                break;
            }
            let left = self.unsent();
            if left >= pending {
                statistics.send_busy += 1;
                break;
            }
            pending = left;
        }
        self.waiting = pending > 0;
        Ok(())
    }

    /// The frame of this chunk, if it was taken and is not done. The kernel reads its chunks, as we may.
    pub(super) fn sent(&self, index: usize) -> Option<&Frame> {
        let (frame, _) = self.sent.get(index)?.as_ref()?;
        Some(frame)
    }

    /// Takes back one frame that the kernel is done with.
    pub(super) fn completed(
        &mut self,
        umem: &Umem,
        statistics: &mut PortStatistics,
    ) -> Option<(Frame, u64)> {
        let chunk = umem.chunk().bytes();
        loop {
            if self.done_next == self.done_count {
                self.done_next = 0;
                // SAFETY: the completion ring is of the socket whose TX ring got the frames in
                // `sent`; the descriptors are checked below before use.
                self.done_count = unsafe { self.completion.consume(&mut self.done) };
                if self.done_count == 0 {
                    return None;
                }
            }
            let desc = self.done[self.done_next];
            self.done_next += 1;
            let sent = match self.parts.done(desc.addr() / chunk) {
                Done::Frame(index) => take(&mut self.sent, index),
                Done::Part => continue,
                Done::Never => None,
            };
            if let Some((mut frame, cookie)) = sent {
                if umem.parts(&frame) > 1 {
                    umem.gather(&mut frame);
                }
                statistics.completed += 1;
                return Some((frame, cookie));
            }
            statistics.bad_completions += 1;
        }
    }
}

/// A received frame with the data that its descriptor names; back to the pool when it can't be.
fn with_data(
    mut frame: Frame,
    desc: &FrameDesc,
    chunk: usize,
    pool: &mut FramePool,
) -> Option<Frame> {
    let data = data_of(desc, chunk).filter(|_| desc.options() & !XDP_PKT_CONTD == 0);
    let Some((start, len)) = data else {
        pool.free(frame);
        return None;
    };
    frame.set_data(start, len);
    Some(frame)
}

/// Where in its chunk the data of a descriptor begins, and its bytes, if it lies there.
#[inline]
fn data_of(desc: &FrameDesc, chunk: usize) -> Option<(u16, u16)> {
    let (start, len) = (desc.addr() % chunk, desc.lengths().data());
    let fits = start >= usize::from(CHUNK_HEADROOM) && len <= chunk - start;
    // Both are at most the chunk's 4096 bytes.
    fits.then_some((start as u16, len as u16))
}

/// The descriptor of a socket, for as long as the ring that the socket lives with is borrowed.
pub(super) fn borrow_fd(socket: &Fd) -> BorrowedFd<'_> {
    // SAFETY: xsk-rs lends its `Fd` only out of a ring, which keeps the socket open.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }
}

/// Whatever the table has for the chunk, if there is such a chunk.
fn take<T>(table: &mut [Option<T>], index: usize) -> Option<T> {
    table.get_mut(index)?.take()
}

fn empty_table<T>(frames: usize) -> Box<[Option<T>]> {
    std::iter::repeat_with(|| None).take(frames).collect()
}

#[cfg(test)]
mod tests;
