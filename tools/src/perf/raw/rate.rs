//! Many frames under way: how many arrive in a second.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{BATCH, ETHERNET, Kind, Silence, Wire};
use crate::endpoint::ToolError;

/// How often the sender says that it is done: one of these may be lost.
const ENDS: usize = 8;
/// Between two of them.
const END_PAUSE: Duration = Duration::from_millis(5);

/// What a sender did.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sent {
    /// Frames that the interface took.
    pub frames: u64,
    /// Octets of each, without FCS.
    pub octets_of_frame: usize,
    /// How long it took.
    pub seconds: f64,
}

/// What a receiver got.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Received {
    /// Frames that arrived.
    pub frames: u64,
    /// Frames that did not.
    pub lost: u64,
    /// Octets behind the Ethernet headers: the payload of no protocol.
    pub payload_octets: u64,
    /// From the first that was seen to the last. What a receiver finds waiting when it gets its core
    /// it sees at once: rates go by the sender's time, if that is longer.
    pub seconds: f64,
}

/// Sends frames of `octets` octets for so long.
pub fn send(wire: &mut Wire, octets: usize, duration: Duration) -> Result<Sent, ToolError> {
    let started = Instant::now();
    let mut frames = 0;
    while started.elapsed() < duration {
        for _ in 0..BATCH {
            if !wire.queue(Kind::Data, frames, octets) {
                break;
            }
            frames += 1;
        }
        wire.flush()?;
    }
    let seconds = started.elapsed().as_secs_f64();
    for _ in 0..ENDS {
        std::thread::sleep(END_PAUSE);
        wire.send(Kind::End, frames, octets)?;
    }
    Ok(Sent {
        frames,
        octets_of_frame: octets,
        seconds,
    })
}

/// Counts the frames of one sender. Waits `patience` for the first, and for each other.
pub fn receive(wire: &mut Wire, patience: Duration) -> Result<Received, ToolError> {
    let mut silence = Silence::new(patience);
    let (mut frames, mut payload, mut sent) = (0, 0, None);
    let mut times: Option<(Instant, Instant)> = None;
    loop {
        let before = frames;
        let any = wire.receive(patience, |kind, number, octets| match kind {
            Kind::Data => {
                frames += 1;
                payload += (octets - ETHERNET) as u64;
            }
            Kind::End => sent = Some(number),
            Kind::Ping | Kind::Pong => {}
        })?;
        if frames > before {
            let now = Instant::now();
            times = Some((times.map_or(now, |(first, _)| first), now));
        }
        if let Some(sent) = sent {
            let took = times.map_or(Duration::ZERO, |(first, last)| last - first);
            return Ok(Received {
                frames,
                lost: sent.saturating_sub(frames),
                payload_octets: payload,
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
