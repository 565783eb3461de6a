//! The receive window (RFC 9293 section 3.8.6): how far the peer may send, announced so that silly
//! windows do not arise (section 3.8.6.2.2).
//!
//! The right edge never moves back.

use crate::config::Config;
use crate::seq::Position;

/// RFC 7323 section 2.3.
pub(crate) const WINDOW_SHIFT_MAX: u8 = 14;

/// RFC 7323 section 2.3: the window must stay below 2^30 bytes.
const WINDOW_MAX: u32 = 1 << 30;

/// How a receive window is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowPlan {
    pub(super) limit: u32,
    shift: u8,
}

impl WindowPlan {
    /// What a SYN offers. The window holds two segments at least, so that silly window avoidance
    /// never keeps the last one shut.
    pub(crate) fn new(config: &Config, mss: u16) -> Self {
        let limit = config
            .receive_window
            .max(2 * u32::from(mss))
            .min(WINDOW_MAX);
        let mut shift = 0;
        while config.window_scale && limit >> shift > u32::from(u16::MAX) {
            shift += 1;
        }
        Self {
            limit: limit.min(u32::from(u16::MAX) << shift),
            shift,
        }
    }

    /// The peer does not scale.
    pub(crate) fn unscaled(self) -> Self {
        Self {
            limit: self.limit.min(u32::from(u16::MAX)),
            shift: 0,
        }
    }

    pub(crate) fn shift(self) -> u8 {
        self.shift
    }

    /// The window field of a SYN, which is never scaled (RFC 7323 section 2.2).
    pub(crate) fn syn_field(self) -> u16 {
        u16::try_from(self.limit).unwrap_or(u16::MAX)
    }
}

/// What was announced, and what could be.
#[derive(Debug)]
pub(super) struct Window {
    plan: WindowPlan,
    /// The layer above needs nothing before this.
    consumed: Position,
    /// The greatest right edge ever announced.
    edge: Position,
    /// Our own full segment size, for SWS avoidance.
    emss: u32,
}

impl Window {
    pub(super) fn new(plan: WindowPlan, emss: u32) -> Self {
        Self {
            plan,
            consumed: 1,
            edge: 1 + u64::from(plan.syn_field()),
            emss,
        }
    }

    /// Its bytes when nothing is held.
    pub(super) fn limit(&self) -> u32 {
        self.plan.limit
    }

    pub(super) fn consumed(&self) -> Position {
        self.consumed
    }

    pub(super) fn edge(&self) -> Position {
        self.edge
    }

    /// The layer above needs nothing before `to`. True when the peer, which expects `next`, should
    /// be told without being asked: the window that it knows of is less than half open, or too
    /// small for what it may want to send.
    pub(super) fn consume(&mut self, to: Position, next: Position) -> bool {
        self.consumed = self.consumed.max(to);
        let known = self.edge.saturating_sub(next);
        let low = u64::from(self.plan.limit / 2).max(2 * u64::from(self.emss));
        self.offered_edge() > self.edge && known < low
    }

    /// The window field of a segment that goes out with `next` as its acknowledgment.
    pub(super) fn announce(&mut self, next: Position) -> u16 {
        let edge = self.offered_edge();
        // Rounded down: an edge that the field can't name exactly is still honoured on arrival
        // (RFC 7323 section 2.4).
        let field = edge.saturating_sub(next) >> self.plan.shift;
        let field = u16::try_from(field).unwrap_or(u16::MAX);
        self.edge = self.edge.max(next + (u64::from(field) << self.plan.shift));
        field
    }

    /// The right edge to announce: moved on only by a worthwhile step.
    fn offered_edge(&self) -> Position {
        let wanted = self.consumed + u64::from(self.plan.limit);
        let step = u64::from((self.plan.limit / 2).min(self.emss));
        if wanted >= self.edge + step {
            wanted
        } else {
            self.edge
        }
    }
}
