//! Many frames under way: how many arrive in a second.

use std::time::{Duration, Instant};

use rnic_xsk::{ChunkSize, Port};
use serde::Serialize;

use super::{BATCH, FRAME_MIN, Kind, Silence, Wire};
use crate::endpoint::ToolError;
use crate::perf::turns::Turns;

/// How often the sender says that it is done: one of these may be lost.
const ENDS: usize = 8;
/// Between two of them.
const END_PAUSE: Duration = Duration::from_millis(5);
/// How long the kernel may take to send what is left.
const DRAIN: Duration = Duration::from_millis(500);
/// Chunks that may be under way. A receiver's rings have 512; the rest are those that it has just
/// taken out and not given back.
const CHUNKS: u64 = 384;
/// How often a receiver says how far it is, in a window.
const WORDS: u64 = 6;
/// How long a receiver may say nothing before what was sent counts as lost.
const SILENT: Duration = Duration::from_millis(10);

/// How often a receiver is asked whether it has seen all.
const ASKING: Duration = Duration::from_micros(300);
/// How long it may not answer.
const ANSWER: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sent {
    /// Frames that the interface took.
    pub frames: u64,
    /// Of these, those that went out in the time that counts.
    pub counted: u64,
    /// Bytes of each, without FCS.
    pub bytes_of_frame: usize,
    /// How long it took until the receiver had seen what was not lost.
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Received {
    pub frames: u64,
    /// Frames that did not, or not as they were sent.
    pub lost: u64,
    /// Bytes behind the Ethernet headers, the payload of no protocol, or those of an application.
    pub payload_bytes: u64,
    /// From the first that was seen to the last. What a receiver finds waiting when it gets its core
    /// it sees at once, and a sender may have turns: rates go by the sender's time.
    pub seconds: f64,
}

/// Sends frames of `bytes` bytes for so long, in intervals of `turn` if that is given; `paced`: never
/// further ahead of the receiver than its rings are long.
pub fn send(
    wire: &mut Wire,
    bytes: usize,
    duration: Duration,
    turn: Option<Duration>,
    paced: bool,
) -> Result<Sent, ToolError> {
    let mut turns = Turns::begin(turn)?;
    let (mut frames, mut before, mut counted) = (0, 0, 0);
    let mut pace = paced.then(|| Pace::new(bytes, Instant::now()));
    let kind = if paced { Kind::Paced } else { Kind::Data };
    let seconds = loop {
        let allowed = pace.as_ref().map_or(u64::MAX, |pace| pace.allowed(frames));
        for _ in 0..allowed.min(BATCH as u64) {
            if !wire.queue(kind, frames, bytes) {
                break;
            }
            frames += 1;
        }
        wire.flush()?;
        if let Some(pace) = &mut pace {
            let heard = listen(wire, pace.allowed(frames) == 0)?;
            pace.heard(heard, frames, Instant::now());
        }
        let now = Instant::now();
        let over = turns.worked(now) >= duration;
        if over || turns.is_over(now) {
            all_seen(wire, frames)?;
            if turns.counts() {
                counted += frames - before;
            }
            if over {
                break turns.worked(Instant::now()).as_secs_f64();
            }
            before = frames;
            let now = turns.go_on()?;
            if let Some(pace) = &mut pace {
                pace.heard(Some(frames), frames, now);
            }
        }
    };
    for _ in 0..ENDS {
        wire.drain(DRAIN)?;
        std::thread::sleep(END_PAUSE);
        wire.send(Kind::End, frames, bytes)?;
    }
    wire.drain(DRAIN)?;
    Ok(Sent {
        frames,
        counted,
        bytes_of_frame: bytes,
        seconds,
    })
}

/// Waits until the receiver has seen all frames that were sent and not lost: it is asked behind them.
fn all_seen(wire: &mut Wire, frames: u64) -> Result<(), ToolError> {
    let silence = Silence::new(ANSWER);
    loop {
        // The question may be lost behind what the receiver is not done with, or the answer.
        wire.send(Kind::Ping, frames, FRAME_MIN)?;
        let (asked, mut answered) = (Instant::now(), false);
        while !answered && asked.elapsed() < ASKING {
            wire.receive(ASKING, |kind, number, _| {
                answered |= kind == Kind::Pong && number == frames;
            })?;
        }
        if answered {
            return Ok(());
        }
        silence.check()?;
    }
}

/// What the receiver says, if anything. `idle`: there is nothing else to do until it does.
fn listen(wire: &mut Wire, idle: bool) -> Result<Option<u64>, ToolError> {
    let mut seen = None;
    let hear = |kind, number, _| {
        if kind == Kind::Seen {
            seen = seen.max(Some(number));
        }
    };
    if idle && wire.port.unsent() == 0 {
        wire.receive(SILENT, hear)?;
    } else {
        wire.look(hear);
    }
    Ok(seen)
}

/// How far a sender may be ahead of its receiver.
#[derive(Debug)]
struct Pace {
    window: u64,
    /// The number of the frame that the receiver waits for.
    seen: u64,
    /// When it last said so.
    at: Instant,
}

impl Pace {
    fn new(bytes: usize, at: Instant) -> Self {
        Self {
            window: window(bytes),
            seen: 0,
            at,
        }
    }

    /// How many frames may follow `frames`.
    fn allowed(&self, frames: u64) -> u64 {
        self.seen.saturating_add(self.window).saturating_sub(frames)
    }

    /// After `frames` frames the receiver has said this, or nothing.
    fn heard(&mut self, seen: Option<u64>, frames: u64, now: Instant) {
        if let Some(seen) = seen {
            (self.seen, self.at) = (self.seen.max(seen), now);
        } else if self.allowed(frames) == 0 && now - self.at > SILENT {
            // It lacks the frames that it was to speak at, or its word is lost: neither comes again.
            (self.seen, self.at) = (frames, now);
        }
    }
}

/// How many frames of so many bytes a receiver's rings hold.
fn window(bytes: usize) -> u64 {
    let chunks = bytes.div_ceil(ChunkSize::Bytes4096.chunk_capacity());
    CHUNKS / chunks.max(1) as u64
}

/// Counts the frames of one sender. Waits `patience` for the first, and for each other.
pub fn receive(wire: &mut Wire, patience: Duration) -> Result<Received, ToolError> {
    let mut silence = Silence::new(patience);
    let (mut frames, mut payload, mut sent) = (0, 0, None);
    // The sender wants to know when this was seen.
    let mut asked = None;
    let overhead = wire.overhead();
    // How far it is, how far it has said that it is, and after how many frames it does so.
    let (mut seen, mut told, mut pause) = (0, 0, u64::MAX);
    let mut times: Option<(Instant, Instant)> = None;
    loop {
        let before = frames;
        let any = wire.receive(patience, |kind, number, bytes| match kind {
            Kind::Data | Kind::Paced => {
                frames += 1;
                payload += bytes.saturating_sub(overhead) as u64;
                if kind == Kind::Paced {
                    (seen, pause) = (number.saturating_add(1), window(bytes) / WORDS);
                }
            }
            Kind::End => sent = Some(number),
            Kind::Ping => asked = Some(number),
            Kind::Pong | Kind::Seen => {}
        })?;
        if let Some(number) = asked.take() {
            wire.send(Kind::Pong, number, FRAME_MIN)?;
        }
        if seen.saturating_sub(told) >= pause {
            wire.send(Kind::Seen, seen, FRAME_MIN)?;
            told = seen;
        }
        if frames > before {
            let now = Instant::now();
            times = Some((times.map_or(now, |(first, _)| first), now));
        }
        if let Some(sent) = sent {
            let took = times.map_or(Duration::ZERO, |(first, last)| last - first);
            return Ok(Received {
                frames,
                lost: sent.saturating_sub(frames),
                payload_bytes: payload,
                seconds: took.as_secs_f64(),
            });
        }
        if any {
            silence.broken();
        } else {
            silence.check()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_ahead_of_its_receiver_by_a_window_at_most() {
        let now = Instant::now();
        let mut pace = Pace::new(1514, now);
        assert_eq!(pace.allowed(0), CHUNKS);
        assert_eq!(pace.allowed(CHUNKS), 0);
        pace.heard(Some(100), CHUNKS, now);
        assert_eq!(pace.allowed(CHUNKS), 100);
        pace.heard(Some(50), CHUNKS, now);
        assert_eq!(pace.allowed(CHUNKS), 100, "an older word");
    }

    #[test]
    fn what_is_lost_does_not_stop_a_sender_for_good() {
        let now = Instant::now();
        let mut pace = Pace::new(1514, now);
        pace.heard(None, CHUNKS, now + SILENT);
        assert_eq!(pace.allowed(CHUNKS), 0, "it may still come");
        pace.heard(None, CHUNKS, now + SILENT * 2);
        assert_eq!(pace.allowed(CHUNKS), CHUNKS);
    }

    #[test]
    fn a_receiver_speaks_several_times_in_a_window_of_frames_of_any_size() {
        for (bytes, frames) in [
            (60, CHUNKS),
            (3840, CHUNKS),
            (3841, CHUNKS / 2),
            (9014, CHUNKS / 3),
        ] {
            assert_eq!(window(bytes), frames, "{bytes} bytes");
        }
        assert!(window(11_520) / WORDS > 0);
    }
}
