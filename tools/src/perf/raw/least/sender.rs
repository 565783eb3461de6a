//! The source: writes segments, keeps them, and hears what has arrived.

use std::time::{Duration, Instant};

use rnic_xsk::{FramePool, Port, Umem};
use userspace_tcp::{SeqNum, Timestamps};

use super::super::rate::{DRAIN, END_PAUSE, ENDS, Sent};
use super::super::{BATCH, IN_FLIGHT, Kind, LEAST_FRAME, Waiting, Wire};
use super::kept::{Kept, News};
use super::segment::{End, Fields, HEADERS, OVERHEAD, Reader, Template, payload_of, write_fpdu};
use super::{MESSAGE, WINDOW, ticks};
use crate::endpoint::ToolError;
use crate::perf::turns::Turns;

/// How long nothing may be acknowledged until all is sent again.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Sends frames of up to `bytes` bytes for so long, in intervals of `turn` if that is given, and until all
/// of them have arrived. Waits `patience` for each acknowledgment.
pub fn send(
    wire: &mut Wire,
    bytes: usize,
    duration: Duration,
    turn: Option<Duration>,
    patience: Duration,
) -> Result<Sent, ToolError> {
    let mut sender = Sender::new(bytes)?;
    let mut turns = Turns::begin(turn)?;
    let (mut before, mut counted) = (0, 0);
    let mut heard = Instant::now();
    sender.since = heard;
    loop {
        let now = Instant::now();
        let over = turns.worked(now) >= duration;
        let new = !over && !turns.is_over(now);
        if !new && sender.kept.len() == 0 {
            let acknowledged = sender.kept.acknowledged();
            if turns.counts() {
                counted += acknowledged - before;
            }
            if over {
                break;
            }
            before = acknowledged;
            heard = turns.go_on()?;
            sender.since = heard;
            continue;
        }
        if now - heard >= patience {
            return Err(ToolError::Peer(format!(
                "nothing was acknowledged for {patience:?}: is the other end there?"
            )));
        }
        sender.fill(wire, new, now);
        wire.port.flush()?;
        sender.take_completed(wire);
        if sender.listen(wire, now) {
            heard = now;
        } else if sender.is_idle(new) && wire.waiting == Waiting::Poll && wire.port.unsent() == 0 {
            wire.sleep(TIMEOUT)?;
        }
    }
    let frames = sender.kept.acknowledged();
    let seconds = turns.worked(Instant::now()).as_secs_f64();
    for _ in 0..ENDS {
        wire.drain(DRAIN)?;
        std::thread::sleep(END_PAUSE);
        wire.send(Kind::End, frames, LEAST_FRAME)?;
    }
    wire.drain(DRAIN)?;
    Ok(Sent {
        frames,
        counted,
        bytes_of_frame: bytes,
        seconds,
        again: sender.again,
    })
}

#[derive(Debug)]
struct Sender {
    memory: Vec<u8>,
    /// Where in the message the next segment begins.
    at: usize,
    /// Bytes of a full segment's payload.
    payload: usize,
    /// Headers of a full segment, and of a message's last one.
    templates: [Template; 2],
    kept: Kept,
    /// When something arrived, or all was sent again.
    since: Instant,
    /// The first segment, by its number, that was never sent.
    fresh: u64,
    /// Since something arrived, all was sent again.
    gone_back: bool,
    /// What `fresh` was when it was last gone back: an acknowledgment up to there and no further may be
    /// the answer to copies of what had arrived all the same (RFC 6582 section 3.2).
    recover: u64,
    /// Segments that were sent again.
    again: u64,
    reader: Reader,
    started: Instant,
}

impl Sender {
    fn new(bytes: usize) -> Result<Self, ToolError> {
        let payload = payload_of(bytes).filter(|payload| *payload <= MESSAGE);
        let payload = payload.ok_or_else(|| {
            ToolError::Usage(format!(
                "--least: no segment of a Write fits a frame of {bytes} bytes"
            ))
        })?;
        let template = |payload| Template::new(End::Source, payload + OVERHEAD - HEADERS);
        let started = Instant::now();
        Ok(Self {
            memory: vec![0x5a; MESSAGE],
            at: 0,
            payload,
            templates: [template(payload), template(MESSAGE % payload)],
            kept: Kept::new(WINDOW),
            since: started,
            fresh: 0,
            gone_back: false,
            recover: 0,
            again: 0,
            reader: Reader::new(End::Source),
            started,
        })
    }

    /// Whether there is nothing to do before something is heard; `new` as below.
    fn is_idle(&self, new: bool) -> bool {
        self.kept.are_sent() && (!new || self.kept.len() == WINDOW)
    }

    /// Queues a batch of segments, as far as there is room; `new`: also such as were not sent yet.
    fn fill(&mut self, wire: &mut Wire, new: bool, now: Instant) {
        let times = Timestamps {
            value: ticks(self.started, now),
            echo: self.reader.time(),
        };
        let full = self.payload + OVERHEAD - HEADERS;
        for _ in 0..BATCH {
            if wire.in_flight == IN_FLIGHT {
                return;
            }
            let appends = self.kept.are_sent();
            if appends && (!new || self.kept.len() == WINDOW) {
                return;
            }
            if appends && !self.append(&mut wire.pool, &wire.umem) {
                return;
            }
            let Some(mut next) = self.kept.take_next() else {
                return;
            };
            let fields = Fields {
                seq: next.seq,
                ack: SeqNum(0),
                times,
            };
            let template = &self.templates[usize::from(next.bytes != full)];
            template.write(wire.umem.bytes_mut(&mut next.frame), &fields, next.sum);
            if let Err(frame) = wire.port.transmit(next.frame, next.number) {
                return self.kept.refused(frame);
            }
            wire.in_flight += 1;
            self.again += u64::from(next.number < self.fresh);
            self.fresh = self.fresh.max(next.number + 1);
        }
    }

    /// Makes the next segment, but for its headers; false when there is no frame for it.
    #[inline]
    fn append(&mut self, pool: &mut FramePool, umem: &Umem) -> bool {
        let Some(mut frame) = pool.alloc() else {
            return false;
        };
        let end = (self.at + self.payload).min(MESSAGE);
        let from = &self.memory[self.at..end];
        let bytes = from.len() + OVERHEAD - HEADERS;
        frame.set_len(HEADERS + bytes);
        let fpdu = &mut umem.bytes_mut(&mut frame)[HEADERS..HEADERS + bytes];
        let sum = write_fpdu(fpdu, from, self.at, end == MESSAGE);
        self.kept.push(frame, bytes, sum);
        self.at = if end == MESSAGE { 0 } else { end };
        true
    }

    /// Takes back what the link is done with.
    fn take_completed(&mut self, wire: &mut Wire) {
        while let Some((frame, number)) = wire.port.completed() {
            wire.in_flight -= 1;
            if let Some(frame) = self.kept.returned(number, frame) {
                wire.pool.free(frame);
            }
        }
    }

    /// Hears what has arrived; says whether anything new has.
    fn listen(&mut self, wire: &mut Wire, now: Instant) -> bool {
        let Wire { port, pool, .. } = wire;
        let (mut arrived, mut same) = (false, false);
        port.receive(pool, &mut wire.received, BATCH);
        for packet in wire.received.drain(..) {
            if let Some(read) = self.reader.read(wire.umem.bytes(packet.first())) {
                let news = self.kept.acknowledge(read.ack, |frame| pool.free(frame));
                arrived |= news == News::Arrived;
                same |= news == News::Same;
            }
            pool.free_packet(packet);
        }
        port.refill(pool);
        let says_missing = !self.gone_back && self.kept.acknowledged() != self.recover;
        let missing = same && says_missing || now - self.since >= TIMEOUT;
        if arrived || missing {
            self.since = now;
            self.gone_back = !arrived;
        }
        if !arrived && missing {
            self.kept.go_back();
            self.recover = self.fresh;
        }
        arrived
    }
}
