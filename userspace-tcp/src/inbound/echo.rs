//! The echo of congestion marks (ECE): for a window's worth of acknowledgments at least
//! (RFC 3168 section 6.1.3), or exactly as the marks came (DCTCP, RFC 8257 section 3.2).

use crate::config::CongestionControl;
use crate::seq::Position;

/// How marks are echoed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EchoMode {
    /// ECN is not in use.
    #[default]
    Off,
    /// From a mark until the peer says CWR.
    UntilReduced,
    /// Each acknowledgment says whether what it acknowledges was marked.
    Precise,
}

impl EchoMode {
    /// What a peer with the same congestion control needs to know.
    pub(crate) fn of(congestion: CongestionControl) -> Self {
        match congestion {
            CongestionControl::Dctcp => Self::Precise,
            CongestionControl::Cubic | CongestionControl::NewReno | CongestionControl::Bbr => {
                Self::UntilReduced
            }
        }
    }
}

/// Acknowledgments of an earlier state that may wait; further changes of the state in between are
/// lost.
const EARLIER_MAX: usize = 4;

/// What the next acknowledgment says.
#[derive(Debug)]
pub(super) struct Echo {
    mode: EchoMode,
    /// DCTCP.CE, or CE was seen and CWR was not.
    ce: bool,
    /// What was acknowledged up to a change, but not told yet, oldest first, and the state until
    /// then.
    earlier: [Position; EARLIER_MAX],
    earlier_ce: [bool; EARLIER_MAX],
    earlier_count: u8,
}

impl Echo {
    pub(super) fn new(mode: EchoMode) -> Self {
        Self {
            mode,
            ce: false,
            earlier: [0; EARLIER_MAX],
            earlier_ce: [false; EARLIER_MAX],
            earlier_count: 0,
        }
    }

    /// A segment with payload came in a packet with or without a mark, before it is added to
    /// `next`. True when the acknowledgment must not wait.
    pub(super) fn arrived(
        &mut self,
        ce: bool,
        cwr: bool,
        last_ack: Position,
        next: Position,
    ) -> bool {
        match self.mode {
            EchoMode::Off => false,
            EchoMode::UntilReduced => {
                // CWR before CE. A sender that has reduced its window may have nothing left to
                // send.
                let changed = ce && !self.ce;
                self.ce = ce || (self.ce && !cwr);
                changed || cwr
            }
            EchoMode::Precise => {
                let changed = ce != self.ce;
                if changed && last_ack < next {
                    self.keep(next);
                }
                self.ce = ce;
                changed
            }
        }
    }

    /// Whether ECE is set on what goes out.
    pub(super) fn ece(&self) -> bool {
        self.ce
    }

    /// Whether an acknowledgment of an earlier state has to go first.
    pub(super) fn has_earlier(&self) -> bool {
        self.earlier_count > 0
    }

    /// The acknowledgment of an earlier state, and whether it carries ECE.
    pub(super) fn take_earlier(&mut self) -> Option<(Position, bool)> {
        let first = (self.earlier[0], self.earlier_ce[0]);
        if !self.has_earlier() {
            return None;
        }
        self.earlier.rotate_left(1);
        self.earlier_ce.rotate_left(1);
        self.earlier_count -= 1;
        Some(first)
    }

    fn keep(&mut self, next: Position) {
        let count = usize::from(self.earlier_count);
        if count < EARLIER_MAX && !self.earlier[..count].contains(&next) {
            self.earlier[count] = next;
            self.earlier_ce[count] = self.ce;
            self.earlier_count += 1;
        }
    }
}
