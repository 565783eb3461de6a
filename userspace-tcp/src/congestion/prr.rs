//! Proportional Rate Reduction (RFC 9937): while the window is being reduced, what may be sent
//! follows what was delivered, byte by byte, so that the ACK clock never stops and never bursts.
//!
//! Both reduction bounds are here: slow start (PRR-SSRB) while recovery goes forward, the
//! conservative one (PRR-CRB) when an ACK shows further loss or no progress. What an ACK delivers may
//! always be sent, also where more was sent before than was delivered.

#[cfg(test)]
mod tests;

/// The state of RFC 9937, in bytes; RecoverFS is 0 outside of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Prr {
    /// prr_delivered
    delivered: u64,
    /// prr_out
    out: u64,
    /// RecoverFS
    recover_fs: u64,
}

/// What an ACK in recovery says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    /// DeliveredData: bytes acknowledged or selectively acknowledged for the first time.
    pub(crate) bytes: u64,
    /// Bytes in the network, after all that the ACK says.
    pub(crate) pipe: u64,
    /// SND.UNA moved, and nothing more was found lost: the slow start bound is safe.
    pub(crate) safe: bool,
}

impl Prr {
    /// A reduction begins, with `flight` bytes that will be delivered or lost until it ends.
    pub(crate) fn begin(flight: u64) -> Self {
        Self {
            delivered: 0,
            out: 0,
            recover_fs: flight.max(1),
        }
    }

    /// sndcnt: how many bytes may be sent in answer to an ACK.
    pub(crate) fn on_ack(&mut self, delivery: &Delivery, ssthresh: u64, smss: u64) -> u64 {
        let Delivery { bytes, pipe, safe } = *delivery;
        self.delivered = self.delivered.saturating_add(bytes);
        let banked = self.delivered.saturating_sub(self.out);
        let sndcnt = if pipe > ssthresh {
            let share = u128::from(self.delivered) * u128::from(ssthresh);
            let due = share.div_ceil(u128::from(self.recover_fs.max(1)));
            u64::try_from(due)
                .unwrap_or(u64::MAX)
                .saturating_sub(self.out)
        } else {
            let conservative = banked.max(bytes);
            let limit = if safe {
                conservative.saturating_add(smss)
            } else {
                conservative
            };
            limit.min(ssthresh - pipe)
        };
        // Recovery begins with a retransmission, whatever was delivered. And with nothing in the
        // network no ACK would come that lets more out.
        if self.out == 0 || pipe == 0 {
            sndcnt.max(smss)
        } else {
            sndcnt
        }
    }

    /// So many bytes were sent, for the first time or again.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.out = self.out.saturating_add(bytes);
    }
}
