//! What holds on any connection whatever a script is about: each segment out and each byte in is
//! held against it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use userspace_net::Instant;
use userspace_tcp::NewRange;

use crate::wire::{RST, Wire, absolute, relative};

/// Half a cycle of a clock that ticks each millisecond: after that it can't be compared.
pub const CLOCK_CYCLE: Duration = Duration::from_millis(1 << 31);

/// One connection, as an onlooker between the two ends knows it.
#[derive(Debug, Default)]
pub struct Laws {
    /// Posted segments in order: where each begins and how long it is.
    posted: BTreeMap<i64, u32>,
    posted_end: i64,
    /// Where each of the bytes shown to the layer above begins: as ranges that don't touch.
    shown: BTreeSet<(u64, u64)>,
    in_order: u64,
    ack: Option<i64>,
    edge: Option<i64>,
    shift: Option<(u8, u8)>,
    timestamp: Option<(u32, Instant)>,
}

/// What was agreed when the connection was opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbers {
    pub iss: u32,
    pub irs: u32,
    /// Both SYNs had the timestamps option.
    pub timestamps: bool,
}

impl Laws {
    /// The layer above has posted a segment.
    pub fn post(&mut self, len: u32) {
        let start = self.posted_end + 1;
        self.posted.insert(start, len);
        self.posted_end += i64::from(len);
    }

    /// The window scale options of our SYN and of the peer's, both there.
    pub fn scale(&mut self, ours: u8, theirs: u8) {
        self.shift = Some((ours.min(14), theirs.min(14)));
    }

    /// A segment goes out.
    pub fn sent(&mut self, now: Instant, wire: &Wire, ends: Numbers) -> Result<(), String> {
        let Numbers {
            iss,
            irs,
            timestamps,
        } = ends;
        let seq = relative(wire.seq, iss);
        if wire.len > 0 && self.posted.get(&seq) != Some(&wire.len) {
            return Err(format!(
                "{} bytes at {seq} are no segment that was posted: one is split or joined",
                wire.len
            ));
        }
        if wire.is(RST) {
            return Ok(());
        }
        if wire.is(crate::wire::ACK) {
            self.acknowledges(wire, irs)?;
        }
        match wire.timestamps() {
            None if timestamps => {
                return Err(
                    "timestamps are negotiated, so every segment has them (RFC 7323 \
                            section 3.2)"
                        .to_owned(),
                );
            }
            Some((value, _)) => {
                let backward = |(last, at): (u32, Instant)| {
                    now.saturating_duration_since(at) < CLOCK_CYCLE && relative(value, last) < 0
                };
                if self.timestamp.is_some_and(backward) {
                    return Err("TSval goes back (RFC 7323 section 5.4)".to_owned());
                }
                self.timestamp = Some((value, now));
            }
            None => {}
        }
        Ok(())
    }

    fn acknowledges(&mut self, wire: &Wire, irs: u32) -> Result<(), String> {
        let ack = relative(wire.ack, irs);
        if self.ack.is_some_and(|last| ack < last) {
            return Err(format!("the acknowledgment goes back to {ack}"));
        }
        self.ack = Some(ack);
        let shift = match self.shift {
            Some((ours, _)) if !wire.syn() => ours,
            _ => 0,
        };
        let edge = ack + (i64::from(wire.window) << shift);
        // A window that the field can't name exactly is rounded down (RFC 7323 section 2.4).
        let slack = (1 << shift) - 1;
        if self.edge.is_some_and(|last| edge + slack < last) {
            return Err(format!(
                "the window's right edge goes back to {edge} (RFC 9293 section 3.8.6)"
            ));
        }
        self.edge = self.edge.max(Some(edge));
        Ok(())
    }

    /// The layer above gets bytes of a segment; `in_order_to`: what it is told, if the connection
    /// is still there.
    pub fn received(
        &mut self,
        wire: &Wire,
        irs: u32,
        new: &[NewRange],
        in_order_to: Option<u64>,
    ) -> Result<(), String> {
        for range in new {
            let (start, end) = (range.offset, range.offset + u64::from(range.len));
            if range.len == 0 || range.skip + range.len > wire.len {
                return Err(format!("{range:?} lies outside of the segment"));
            }
            let at = absolute(start.cast_signed() + 1 - i64::from(range.skip), irs);
            // The bytes of a SYN stand behind it.
            if at != wire.seq.wrapping_add(u32::from(wire.syn())) {
                return Err(format!("{range:?} names other bytes than the segment's"));
            }
            if self.shown.iter().any(|&(a, b)| a < end && start < b) {
                return Err(format!("{range:?} was shown before, at least a part of it"));
            }
            self.shown.insert((start, end));
        }
        let mut in_order = self.in_order;
        for &(start, end) in self.shown.range((in_order, 0)..) {
            if start > in_order {
                break;
            }
            in_order = end;
        }
        if let Some(told) = in_order_to.filter(|&told| told != in_order) {
            return Err(format!(
                "{in_order} bytes are here in order, but in_order_to is {told}"
            ));
        }
        self.in_order = in_order;
        Ok(())
    }

    /// Bytes that came in order.
    pub fn in_order(&self) -> u64 {
        self.in_order
    }
}
