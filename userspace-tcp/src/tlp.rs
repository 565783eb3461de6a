//! Tail loss probe (RFC 8985 section 7): when no ACK comes for two round trips, one segment goes
//! out so that the ACK of it shows which of those before arrived. Which segment, and the timer, are
//! in [`crate::connection`].

#[cfg(test)]
mod tests;

use crate::seq::Position;

/// TLP.max_ack_delay in nanoseconds: a peer acknowledges a lonely segment so late, commonly after
/// 40 ms.
const MAX_ACK_DELAY: u64 = 50_000_000;

/// A peer's processor may be busy for so many nanoseconds without anything being lost.
const GRANULARITY: u64 = 1_000_000;

/// Section 7.2: PTO before any round trip was measured, in nanoseconds.
const PTO_INITIAL: u64 = 1_000_000_000;

/// TLP.end_seq and TLP.is_retrans.
#[derive(Debug, Default)]
pub(crate) struct Tlp {
    /// SND.NXT when the probe was sent that is not answered yet.
    end_seq: Option<Position>,
    is_retrans: bool,
    /// No round trip was measured since the last probe.
    stale: bool,
}

/// An ACK that may answer a probe.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answer {
    pub(crate) ack: Position,
    /// End of the bytes that it reports to have come twice.
    pub(crate) duplicate_end: Option<Position>,
    /// A duplicate ACK without any SACK block.
    pub(crate) plain_duplicate: bool,
}

/// What an ACK says of the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing (yet).
    None,
    /// What it repeated had arrived before.
    Needless,
    /// It has repaired a loss, to which congestion control has to respond.
    Repaired,
}

impl Tlp {
    /// TLP_calc_PTO() of section 7.2, but for the retransmission timeout, which may come before. In
    /// nanoseconds.
    pub(crate) fn pto(srtt: Option<u64>, one_segment: bool) -> u64 {
        let Some(srtt) = srtt else {
            return PTO_INITIAL;
        };
        let pto = srtt.saturating_mul(2).saturating_add(GRANULARITY);
        if one_segment {
            pto.saturating_add(MAX_ACK_DELAY)
        } else {
            pto
        }
    }

    /// Section 7.3: whether a probe may go out.
    pub(crate) fn may_probe(&self) -> bool {
        self.end_seq.is_none() && !self.stale
    }

    /// A probe has gone out.
    pub(crate) fn sent(&mut self, next: Position, is_retrans: bool) {
        self.end_seq = Some(next);
        self.is_retrans = is_retrans;
        self.stale = true;
    }

    /// A round trip was measured.
    pub(crate) fn measured(&mut self) {
        self.stale = false;
    }

    /// Fast or RTO recovery begins.
    pub(crate) fn forget(&mut self) {
        self.end_seq = None;
        self.is_retrans = false;
    }

    /// TLP_process_ack() of section 7.4.2.
    pub(crate) fn acknowledged(&mut self, answer: &Answer) -> Verdict {
        let Some(end_seq) = self.end_seq.filter(|&end_seq| answer.ack >= end_seq) else {
            return Verdict::None;
        };
        let verdict = if !self.is_retrans {
            Verdict::None
        } else if answer.duplicate_end == Some(end_seq) {
            Verdict::Needless
        } else if answer.ack > end_seq {
            Verdict::Repaired
        } else if answer.plain_duplicate {
            Verdict::Needless
        } else {
            return Verdict::None;
        };
        self.forget();
        verdict
    }
}
