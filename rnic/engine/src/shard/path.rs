//! What is learnt of the paths to the peers while connections use them: ICMP errors, and the segment
//! size that follows (RFC 1191, RFC 8201, RFC 8899).

use rnic_net::IcmpReport;
use rnic_xsk::Port;
use userspace_tcp::ConnId;

use super::Shard;

impl<P: Port> Shard<P> {
    /// Errors about segments that we sent, or that somebody says we sent.
    pub(super) fn icmp_errors(&mut self, reports: &[IcmpReport]) {
        for report in reports {
            let IcmpReport { tuple, seq, error } = *report;
            self.counters.icmp_errors += 1;
            if !self.stack.icmp(self.now, tuple, seq, error) {
                self.counters.icmp_ignored += 1;
            }
        }
        self.introduce();
        self.conclude();
    }

    /// Segments of other sizes from now on. Producing asks for the size of each segment; what was
    /// posted before stays as it is.
    pub(super) fn mss_changed(&mut self, id: ConnId, mss: usize) {
        self.counters.mss_changes += 1;
        if let Some(conn) = self.conns.get(id) {
            log::debug!("{}: segments of {mss} octets from now on", conn.tuple);
        }
        self.make_ready(id);
    }
}
