//! What a run came to, as JSON.

use std::time::Duration;

use rnic_xsk::Frame;
use serde::Serialize;
use userspace_tcp::{ConnCounters, Info, Stack};

/// The figures of one run. Times are seconds, rates are of payload bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// The run ended in order.
    pub ok: bool,
    /// Bytes of standard input that TCP took.
    pub bytes_sent: u64,
    /// Bytes that went to standard output.
    pub bytes_received: u64,
    /// From the established connection to its end.
    pub seconds: f64,
    /// 10^9 bits a second, sent.
    pub gbit_per_second_sent: f64,
    /// 10^9 bits a second, received.
    pub gbit_per_second_received: f64,
    /// From the start of the attempt to the established connection.
    pub handshake_seconds: f64,
    /// XDP mode: native or generic.
    pub mode: String,
    pub tcp: TcpStats,
    pub link: LinkStats,
}

/// TCP's figures, those of the connection's end where they vary.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TcpStats {
    /// Payload bytes of a full segment.
    pub mss: usize,
    /// Smoothed round trip time, microseconds.
    pub srtt_microseconds: f64,
    /// Its mean deviation, microseconds.
    pub rttvar_microseconds: f64,
    /// Retransmission timeout, microseconds.
    pub rto_microseconds: f64,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Greatest congestion window that was seen.
    pub cwnd_max: u64,
    /// Slow start threshold, bytes.
    pub ssthresh: u64,
    /// The peer's receive window, bytes.
    pub peer_window: u64,
    /// Segments received.
    pub segments_in: u64,
    /// Segments sent, retransmissions included.
    pub segments_out: u64,
    /// Segments sent again.
    pub retransmits: u64,
    pub timeouts: u64,
    /// Times that fast recovery began.
    pub recoveries: u64,
    /// Zero-window probes sent.
    pub probes: u64,
    /// Segments that came out of order.
    pub out_of_order: u64,
    /// Segments that brought nothing new.
    pub duplicates: u64,
    /// Segments dropped because there were too many separate ranges.
    pub ranges_full: u64,
    /// Segments that came with a congestion mark.
    pub marked_in: u64,
    /// Times that the peer's echo of marks made the congestion window smaller.
    pub ecn_reductions: u64,
}

/// What was counted below TCP.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LinkStats {
    pub frames_in: u64,
    pub frames_out: u64,
    /// System calls made to send.
    pub send_calls: u64,
    /// Packets dropped for a wrong checksum.
    pub bad_checksums: u64,
    /// Packets dropped for another reason.
    pub unusable: u64,
    /// Segments that could not be sent.
    pub unsendable: u64,
    /// Segments that went out as fragments.
    pub fragmented: u64,
    /// Frames that the kernel dropped because we were late.
    pub receive_ring_full: u64,
    /// Frames that the link's own queue dropped.
    pub send_dropped: u64,
}

impl TcpStats {
    /// Notes how the connection is.
    pub(super) fn look(&mut self, info: &Info) {
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        self.mss = info.mss;
        self.srtt_microseconds = info.srtt.map_or(0.0, microseconds);
        self.rttvar_microseconds = microseconds(info.rttvar);
        self.rto_microseconds = microseconds(info.rto);
        self.cwnd = info.cwnd;
        self.cwnd_max = self.cwnd_max.max(info.cwnd);
        self.ssthresh = info.ssthresh;
        self.peer_window = info.peer_window;
    }

    /// Takes the counters, which outlive the connection.
    pub(super) fn count(&mut self, stack: &Stack<Frame>) {
        let ConnCounters {
            segments_in,
            segments_out,
            retransmits,
            timeouts,
            fast_recoveries,
            probes,
            out_of_order,
            duplicates,
            ranges_full,
            marked_in,
            ecn_reductions,
            ..
        } = stack.totals();
        self.segments_in = segments_in;
        self.segments_out = segments_out;
        self.retransmits = retransmits;
        self.timeouts = timeouts;
        self.recoveries = fast_recoveries;
        self.probes = probes;
        self.out_of_order = out_of_order;
        self.duplicates = duplicates;
        self.ranges_full = ranges_full;
        self.marked_in = marked_in;
        self.ecn_reductions = ecn_reductions;
    }
}
