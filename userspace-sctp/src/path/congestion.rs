//! The congestion window (RFC 9260 section 7.2). No sender may be more aggressive than this.
//!
//! Bytes are those of DATA chunks with their headers and padding. `pmdcs` is the path's largest DATA chunk.

#[cfg(test)]
mod tests;

use crate::tsn::Tsn;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Acknowledged {
    /// Bytes of chunks that no SACK acknowledged before, by its cumulative TSN or a block.
    pub bytes: usize,
    /// The cumulative TSN moved on.
    pub advances: bool,
    /// Bytes in flight before it came.
    pub flight_before: usize,
    /// Nothing is outstanding any more.
    pub all: bool,
}

/// The congestion control of one path.
#[derive(Debug, Clone)]
pub struct Congestion {
    pmdcs: usize,
    cwnd: usize,
    ssthresh: usize,
    partial_bytes_acked: usize,
    /// Fast Recovery lasts until this TSN is acknowledged.
    exit: Option<Tsn>,
    /// After a timeout only one packet may be in flight, until something is acknowledged.
    single: bool,
}

impl Congestion {
    /// Before any data was sent.
    pub fn new(pmdcs: usize, is_v6: bool) -> Self {
        let first = if is_v6 { 4344 } else { 4404 };
        Self {
            pmdcs,
            cwnd: (4 * pmdcs).min((2 * pmdcs).max(first)),
            ssthresh: usize::MAX,
            partial_bytes_acked: 0,
            exit: None,
            single: false,
        }
    }

    /// The path's largest DATA chunk is another one from now on.
    pub const fn set_pmdcs(&mut self, pmdcs: usize) {
        self.pmdcs = pmdcs;
    }

    /// Bytes that may be in flight.
    pub const fn cwnd(&self) -> usize {
        self.cwnd
    }

    /// Up to here the window grows by slow start.
    pub const fn ssthresh(&self) -> usize {
        self.ssthresh
    }

    /// Whether the sender recovers from a loss.
    pub const fn is_in_fast_recovery(&self) -> bool {
        self.exit.is_some()
    }

    /// Whether another packet may go with so many bytes in flight (rule B of section 6.1: the window may be
    /// exceeded by less than a packet).
    pub const fn may_send(&self, flight: usize) -> bool {
        if self.single {
            flight == 0
        } else {
            flight < self.cwnd
        }
    }

    /// A SACK came. To be called before what it says of losses (the note of section 7.2.4).
    pub fn acknowledged(&mut self, cumulative: Tsn, acknowledged: Acknowledged) {
        let Acknowledged {
            bytes,
            advances,
            flight_before,
            all,
        } = acknowledged;
        if bytes > 0 {
            self.single = false;
        }
        let is_full = flight_before >= self.cwnd;
        if self.cwnd <= self.ssthresh {
            if advances && is_full && self.exit.is_none() {
                self.cwnd += bytes.min(self.pmdcs);
            }
        } else {
            self.partial_bytes_acked += bytes;
            match (self.partial_bytes_acked >= self.cwnd, is_full) {
                (true, true) => {
                    self.partial_bytes_acked -= self.cwnd;
                    self.cwnd += self.pmdcs;
                }
                (true, false) => self.partial_bytes_acked = self.cwnd,
                (false, _) => {}
            }
        }
        if all {
            self.partial_bytes_acked = 0;
        }
        if self
            .exit
            .is_some_and(|exit| cumulative.is_at_or_after(exit))
        {
            self.exit = None;
        }
    }

    /// Chunks were reported missing for the third time; `highest` is the last TSN that was sent. Says whether the
    /// earliest of them go at once, whatever the window (step 3 of section 7.2.4).
    pub fn lost(&mut self, highest: Tsn) -> bool {
        if self.exit.is_some() {
            return false;
        }
        self.halve();
        self.cwnd = self.ssthresh;
        self.exit = Some(highest);
        true
    }

    /// The T3-rtx timer expired.
    pub fn timed_out(&mut self) {
        self.halve();
        self.cwnd = self.pmdcs;
        self.single = true;
        self.exit = None;
    }

    /// Nothing was sent for one retransmission timeout.
    pub fn idle(&mut self) {
        if self.ssthresh == usize::MAX {
            self.ssthresh = self.cwnd;
        }
        // It only shrinks: four chunks may be more than the window was.
        self.cwnd = self.cwnd.min((self.cwnd / 2).max(4 * self.pmdcs));
    }

    fn halve(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(4 * self.pmdcs);
        self.partial_bytes_acked = 0;
    }
}
