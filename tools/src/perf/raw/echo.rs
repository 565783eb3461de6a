//! One frame at a time: how long a round trip takes.

use std::time::{Duration, Instant};

use super::{Kind, Silence, Wire};
use crate::endpoint::ToolError;
use crate::report::{Latency, Samples};

/// Rounds before the first that counts.
const WARM_UP: u64 = 100;

/// Sends frames of `bytes` bytes, each when the one before has come back, for so long; the time of
/// both ways. Waits `patience` for each.
pub fn ping(
    wire: &mut Wire,
    bytes: usize,
    duration: Duration,
    patience: Duration,
) -> Result<Latency, ToolError> {
    let mut samples = Samples::default();
    let mut counted = Instant::now();
    for round in 0.. {
        if round == WARM_UP {
            counted = Instant::now();
        }
        if round > WARM_UP && counted.elapsed() >= duration {
            break;
        }
        let started = Instant::now();
        wire.send(Kind::Ping, round, bytes)?;
        let silence = Silence::new(patience);
        let mut back = false;
        while !back {
            let any = wire.receive(patience, |kind, number, _| {
                back |= kind == Kind::Pong && number == round;
            })?;
            if !any {
                silence.check()?;
            }
        }
        if round >= WARM_UP {
            samples.record(started.elapsed());
        }
    }
    wire.send(Kind::End, 0, bytes)?;
    samples.latency().ok_or_else(|| {
        ToolError::Usage("no time for a single frame: give a longer --duration".into())
    })
}

/// Sends back each frame that asks for it, until told that it was the last. Waits `patience` for each.
pub fn pong(wire: &mut Wire, patience: Duration) -> Result<(), ToolError> {
    let mut silence = Silence::new(patience);
    loop {
        let (mut asked, mut over) = (None, false);
        let any = wire.receive(patience, |kind, number, bytes| match kind {
            Kind::Ping => asked = Some((number, bytes)),
            Kind::End => over = true,
            Kind::Data | Kind::Pong | Kind::Paced | Kind::Seen => {}
        })?;
        if let Some((number, bytes)) = asked {
            wire.send(Kind::Pong, number, bytes)?;
        }
        if over {
            return Ok(());
        }
        if any {
            silence.broken();
        } else {
            silence.check()?;
        }
    }
}
