//! The sink: verifies segments, places what they carry, and acknowledges it.

use std::time::{Duration, Instant};

use rnic_xsk::Port;
use userspace_tcp::{SeqNum, Timestamps};

use super::super::rate::Received;
use super::super::{BATCH, Kind, Silence, Waiting, Wire, read_header};
use super::segment::{End, Fields, HEADERS, Reader, Template, read_fpdu};
use super::{ACK_DELAY, ACK_SEGMENTS, MESSAGE, ticks};
use crate::endpoint::ToolError;

/// Places what one sender writes. Waits `patience` for the first segment, and for each other.
pub fn receive(wire: &mut Wire, patience: Duration) -> Result<Received, ToolError> {
    let mut receiver = Receiver::new();
    let mut silence = Silence::new(patience);
    let mut times: Option<(Instant, Instant)> = None;
    while !receiver.over {
        let before = receiver.frames;
        let any = receiver.look(wire);
        let now = Instant::now();
        if receiver.frames > before {
            times = Some((times.map_or(now, |(first, _)| first), now));
        }
        let waited = times.is_some_and(|(_, last)| now - last >= ACK_DELAY);
        if receiver.owes_ack(waited) {
            receiver.acknowledge(wire, now)?;
        }
        if any {
            silence.broken();
            continue;
        }
        silence.check()?;
        if wire.waiting == Waiting::Poll {
            let owing = receiver.unacknowledged > 0;
            wire.sleep(if owing { ACK_DELAY } else { patience })?;
        }
    }
    let took = times.map_or(Duration::ZERO, |(first, last)| last - first);
    Ok(Received {
        frames: receiver.frames,
        lost: receiver.unfit,
        payload_bytes: receiver.bytes,
        seconds: took.as_secs_f64(),
    })
}

#[derive(Debug)]
struct Receiver {
    memory: Vec<u8>,
    reader: Reader,
    ack: Template,
    /// The sequence number that is next.
    next: SeqNum,
    /// Segments that were placed and not acknowledged.
    unacknowledged: usize,
    /// One came that was not next: the sender is to hear of it.
    not_next: bool,
    /// Segments that were placed, and bytes of their payload.
    frames: u64,
    bytes: u64,
    /// Frames that were not sound, or not next.
    unfit: u64,
    over: bool,
    started: Instant,
}

impl Receiver {
    fn new() -> Self {
        Self {
            memory: vec![0; MESSAGE],
            reader: Reader::new(End::Sink),
            ack: Template::new(End::Sink, 0),
            next: SeqNum(0),
            unacknowledged: 0,
            not_next: false,
            frames: 0,
            bytes: 0,
            unfit: 0,
            over: false,
            started: Instant::now(),
        }
    }

    /// Takes a batch of what came; says whether there was anything.
    fn look(&mut self, wire: &mut Wire) -> bool {
        if wire.port.receive(&mut wire.pool, &mut wire.received, BATCH) == 0 {
            return false;
        }
        for packet in wire.received.drain(..) {
            self.take(wire.umem.bytes(packet.first()));
            wire.pool.free_packet(packet);
        }
        wire.port.refill(&mut wire.pool);
        true
    }

    #[inline]
    fn take(&mut self, frame: &[u8]) {
        let Some(read) = self.reader.read(frame) else {
            return self.hear(frame);
        };
        if read.seq != self.next {
            self.not_next = true;
            self.unfit += 1;
            return;
        }
        let Some((to, bytes)) = read_fpdu(read.bytes).filter(|_| read.crc) else {
            self.unfit += 1;
            return;
        };
        self.memory[to..to + bytes.len()].copy_from_slice(bytes);
        self.next = self.next.add(read.bytes.len() as u32);
        self.unacknowledged += 1;
        self.frames += 1;
        self.bytes += bytes.len() as u64;
    }

    /// What is no sound segment may say that it is over.
    #[cold]
    fn hear(&mut self, frame: &[u8]) {
        match read_header(frame) {
            Some((Kind::End, _)) => self.over = true,
            _ => self.unfit += 1,
        }
    }

    /// `waited`: for as long as an acknowledgment may.
    fn owes_ack(&self, waited: bool) -> bool {
        self.not_next || self.unacknowledged >= ACK_SEGMENTS || waited && self.unacknowledged > 0
    }

    fn acknowledge(&mut self, wire: &mut Wire, now: Instant) -> Result<(), ToolError> {
        let Some(mut frame) = wire.pool.alloc() else {
            return wire.flush();
        };
        let fields = Fields {
            seq: SeqNum(0),
            ack: self.next,
            times: Timestamps {
                value: ticks(self.started, now),
                echo: self.reader.time(),
            },
        };
        frame.set_len(HEADERS);
        self.ack.write(wire.umem.bytes_mut(&mut frame), &fields, 0);
        match wire.port.transmit(frame, 0) {
            Ok(()) => {
                wire.in_flight += 1;
                self.unacknowledged = 0;
                self.not_next = false;
            }
            Err(frame) => wire.pool.free(frame),
        }
        wire.flush()
    }
}
