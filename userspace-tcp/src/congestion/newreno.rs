//! NewReno (RFC 5681, RFC 6582): half on congestion, one segment more per window of bytes
//! acknowledged (appropriate byte counting, RFC 3465).

#[cfg(test)]
mod tests;

/// Congestion avoidance by additive increase, multiplicative decrease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NewReno {
    /// Bytes acknowledged since cwnd grew.
    acked: u64,
}

impl NewReno {
    /// RFC 3465 section 2.1: cwnd after `bytes` more were acknowledged.
    pub(crate) fn grow(&mut self, cwnd: u64, smss: u64, bytes: u64) -> u64 {
        self.acked = self.acked.saturating_add(bytes);
        if self.acked < cwnd {
            return cwnd;
        }
        // One segment for one ACK, however much it acknowledges.
        self.acked = self.acked.saturating_sub(cwnd).min(cwnd);
        cwnd + smss
    }

    /// RFC 5681 section 3.1, equation 4: ssthresh after congestion with `flight` bytes out.
    pub(crate) fn reduce(&mut self, flight: u64) -> u64 {
        self.acked = 0;
        flight / 2
    }
}
