//! HyStart++ (RFC 9406): the first slow start ends when round trips become longer, before the queue
//! on the path overflows. It goes on at a quarter of its speed for a few round trips first, in case
//! the delay was nobody's queue.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::seq::Position;

/// Bounds of what counts as longer, in microseconds (section 4.2, MIN_RTT_THRESH and
/// MAX_RTT_THRESH).
const RTT_THRESH: (u32, u32) = (4_000, 16_000);

/// MIN_RTT_DIVISOR.
const RTT_DIVISOR: u32 = 8;

/// N_RTT_SAMPLE: samples before a round is judged.
const RTT_SAMPLES: u8 = 8;

/// CSS_GROWTH_DIVISOR.
const CSS_GROWTH_DIVISOR: u64 = 4;

/// CSS_ROUNDS.
const CSS_ROUNDS: u8 = 5;

/// No round trip was measured.
const NONE: u32 = u32::MAX;

/// The round trips of the first slow start. Times are microseconds.
#[derive(Debug)]
pub(crate) struct HyStart {
    /// windowEnd: the round ends when this is acknowledged.
    round_end: Position,
    last_min: u32,
    current_min: u32,
    samples: u8,
    /// Conservative slow start.
    css: Option<Css>,
}

#[derive(Debug)]
struct Css {
    /// cssBaselineMinRtt.
    baseline: u32,
    rounds: u8,
}

/// What an acknowledgment is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// The window grows by so many bytes.
    By(u64),
    /// It grows, and slow start is over.
    Last(u64),
}

impl HyStart {
    pub(crate) fn new() -> Self {
        Self {
            round_end: 0,
            last_min: NONE,
            current_min: NONE,
            samples: 0,
            css: None,
        }
    }

    /// An acknowledgment up to `una`, which would let the window grow by `growth` bytes and brought
    /// the sample `rtt`; `next` is the highest position sent.
    pub(crate) fn acknowledged(
        &mut self,
        growth: u64,
        rtt: Option<Duration>,
        una: Position,
        next: Position,
    ) -> Growth {
        if let Some(rtt) = rtt {
            let micros = u32::try_from(rtt.as_micros()).unwrap_or(NONE - 1);
            self.current_min = self.current_min.min(micros);
            self.samples = self.samples.saturating_add(1);
        }
        let judged = self.samples >= RTT_SAMPLES;
        match &self.css {
            None if judged && self.is_longer() => {
                self.css = Some(Css {
                    baseline: self.current_min,
                    rounds: 0,
                });
            }
            Some(css) if judged && self.current_min < css.baseline => self.css = None,
            _ => {}
        }
        let growth = match self.css {
            None => growth,
            Some(_) => growth / CSS_GROWTH_DIVISOR,
        };
        if una > self.round_end {
            self.round_end = next;
            self.last_min = self.current_min;
            self.current_min = NONE;
            self.samples = 0;
            if let Some(css) = &mut self.css {
                css.rounds += 1;
                if css.rounds >= CSS_ROUNDS {
                    return Growth::Last(growth);
                }
            }
        }
        Growth::By(growth)
    }

    fn is_longer(&self) -> bool {
        if self.last_min == NONE || self.current_min == NONE {
            return false;
        }
        let (least, most) = RTT_THRESH;
        let threshold = (self.last_min / RTT_DIVISOR).clamp(least, most);
        self.current_min >= self.last_min.saturating_add(threshold)
    }
}
