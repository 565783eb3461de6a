//! F-RTO (RFC 5682): whether a retransmission timeout was spurious, by what the first two
//! acknowledgments behind it cover. The SACK-enhanced variant (section 3) where the peer has SACK,
//! else the basic one (section 2).

#[cfg(test)]
mod tests;

use crate::seq::Position;

/// Most new segments in answer to the first acknowledgment.
const NEW_SEGMENTS: u8 = 2;

/// Where the algorithm stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Frto {
    /// Conventional recovery, or none.
    #[default]
    Off,
    /// Step 2: the segment up to `resent` was sent again; everything up to `recover` was out.
    First { resent: Position, recover: Position },
    /// Steps 2b and 3: so many new segments may go, lost ones wait.
    Second { left: u8, recover: Position },
}

/// An acknowledgment in RTO recovery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// SND.UNA after it, and whether it has moved.
    pub(crate) una: Position,
    pub(crate) progress: bool,
    /// It is a duplicate ACK.
    pub(crate) duplicate: bool,
    /// The peer has SACK.
    pub(crate) sack: bool,
    /// End of the lowest segment that it is the first to acknowledge, of those sent only once.
    pub(crate) lowest_original: Position,
    /// Behind the highest that it is the first to acknowledge.
    pub(crate) highest: Position,
}

impl Frto {
    /// Step 1. `in_recovery`: another recovery was under way, whose acknowledgments would mislead.
    /// When the same segment times out again it is the same recovery.
    pub(crate) fn timed_out(&mut self, resent: Position, recover: Position, in_recovery: bool) {
        let again = matches!(*self, Self::First { resent: before, .. } if before == resent);
        *self = if in_recovery && !again {
            Self::Off
        } else {
            Self::First { resent, recover }
        };
    }

    /// Steps 2 and 3. `true`: the timeout was spurious.
    pub(crate) fn acknowledged(&mut self, step: &Step) -> bool {
        match *self {
            Self::Off => {}
            Self::First { resent, recover } if step.progress => {
                let conventional = step.una >= recover || step.una < resent;
                *self = if conventional {
                    Self::Off
                } else {
                    let recover = recover.max(step.una);
                    Self::Second {
                        left: NEW_SEGMENTS,
                        recover,
                    }
                };
            }
            Self::First { .. } => {
                if step.duplicate && !step.sack {
                    *self = Self::Off;
                }
            }
            // Nothing new went out.
            Self::Second {
                left: NEW_SEGMENTS, ..
            } => *self = Self::Off,
            Self::Second { recover, .. } => {
                let news = step.lowest_original <= recover && step.highest <= recover;
                if news && (step.sack || step.progress) {
                    *self = Self::Off;
                    return true;
                }
                if step.progress || step.duplicate || step.highest > recover {
                    *self = Self::Off;
                }
            }
        }
        false
    }

    /// Whether nothing but the windows says what goes out.
    pub(crate) fn is_off(self) -> bool {
        self == Self::Off
    }

    /// Whether new segments go before lost ones.
    pub(crate) fn prefers_new(self) -> bool {
        matches!(self, Self::Second { left, .. } if left > 0)
    }

    /// Whether lost segments have to wait.
    pub(crate) fn holds_lost(self) -> bool {
        match self {
            Self::Off => false,
            Self::First { .. } => true,
            // Without anything new to send it is conventional recovery.
            Self::Second { left, .. } => left < NEW_SEGMENTS,
        }
    }

    /// A new segment goes out.
    pub(crate) fn sent_new(&mut self) {
        if let Self::Second { left, .. } = self {
            *left = left.saturating_sub(1);
        }
    }

    /// A lost segment goes out behind the first.
    pub(crate) fn give_up(&mut self) {
        *self = Self::Off;
    }
}
