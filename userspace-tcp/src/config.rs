//! What can be set, with its limits. Every bound of the stack is here or a named constant.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use userspace_net::pmtu;

/// Settings of a whole [`crate::Stack`]. Times are upper bounds on what a peer can make it wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Largest TCP payload plus TCP options, in bytes (MTU - IP header - 20), for connections
    /// whose [`ConnOptions`] say nothing smaller. Announced as the MSS option.
    pub mss: u16,
    /// Receive window of each connection, in bytes: what may be beyond the last
    /// [`crate::Stack::consumed`] position. At most 1 GiB (RFC 7323 section 2.3), more is cut; at
    /// least two segments, less is raised.
    pub receive_window: u32,
    /// Most segments that one connection's send queue holds, sent and unsent together. A
    /// connection takes memory for them only while some are queued, some 64 bytes for each.
    pub send_queue_segments: usize,
    /// Most full segments that a congestion window is worth which grows until something is lost: more
    /// than a peer's receive ring has places only wait somewhere. [`CongestionControl::Bbr`] does not
    /// fill queues; its window is what the send queue holds at most.
    pub window_segments: usize,
    /// Most connections, those in TIME-WAIT included.
    pub connections: usize,
    /// Offer and accept timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer and accept selective acknowledgment (RFC 2018).
    pub sack: bool,
    /// Offer and accept window scaling (RFC 7323). Without it the window is at most 65535 bytes.
    pub window_scale: bool,
    /// Offer and accept explicit congestion notification (RFC 3168). [`CongestionControl::Dctcp`]
    /// does in any case, [`CongestionControl::Bbr`] in none.
    pub ecn: bool,
    /// Retransmission timeout before any round trip was measured (RFC 6298 section 2.1).
    pub initial_rto: Duration,
    /// Least retransmission timeout.
    pub min_rto: Duration,
    /// Greatest retransmission timeout, back-off included.
    pub max_rto: Duration,
    /// How long an acknowledgment may be delayed; at most 500 ms (RFC 5681 section 4.2).
    pub ack_delay: Duration,
    /// How many acknowledgments may wait so, of all connections together: when there is one more, the
    /// oldest goes out. A peer that shares a window among many connections waits for nothing else.
    pub delayed_acks: usize,
    /// Times a SYN or SYN-ACK is retransmitted before the connection attempt is given up. RFC 9293
    /// section 3.8.3 wants three minutes at least.
    pub syn_retries: u32,
    /// A connection is given up when the peer has acknowledged nothing for this long although it
    /// should have (the user timeout of RFC 9293 section 3.9.1; R2 of its section 3.8.3), once it is
    /// established. See also [`crate::Stack::set_user_timeout`].
    pub user_timeout: Duration,
    /// Ask idle peers whether they are still there (RFC 9293 section 3.8.4).
    pub keepalive: Option<KeepAlive>,
    /// How long TIME-WAIT lasts (2 MSL).
    pub time_wait: Duration,
    /// How long FIN-WAIT-2 lasts when nothing comes from the peer: [`Duration::MAX`] for as long as
    /// the peer likes, as for any half of a connection that is closed alone.
    pub fin_wait_2: Duration,
    /// Find out the path's MTU also where ICMP errors are filtered: by timeouts, and by segments of
    /// more than is known to pass (RFC 4821, RFC 8899).
    pub path_mtu_probing: bool,
    /// The least path MTU over IPv4 that makes segments smaller, in bytes of an IP packet; on a
    /// narrower path they go as IP fragments. With IPv6 it is 1280 (RFC 8201).
    pub min_path_mtu: u16,
    /// Most segments per second that answer flows that are not there (RST).
    pub resets_per_second: u32,
    /// Answer SYNs beyond a listener's backlog by SYN cookies (RFC 4987 section 3.6), which need no
    /// memory, in place of dropping them.
    pub syn_cookies: bool,
    /// How the congestion window grows and shrinks.
    pub congestion: CongestionControl,
    /// Spread what the congestion window lets out over the round trip, where that takes a
    /// millisecond or more. [`CongestionControl::Bbr`] has a pace of its own in any case.
    pub pacing: bool,
    /// Send FIN in a segment of its own. Else it goes with the last data if that is sent after the close.
    /// An end in the kernel may be notified of a FIN before the data of its segment.
    pub fin_alone: bool,
    /// The layer above cuts a segment that the peer's window does not take, when it is told
    /// ([`Event::WindowTooSmall`](crate::Event::WindowTooSmall)). For a small window it makes segments of so many
    /// bytes, and none smaller. `None`: it does not, and the window is probed until it takes the segment.
    pub cuts_from: Option<u32>,
}

/// Which congestion control algorithm decides how much may be in the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
    /// DCTCP (RFC 8257), for networks whose switches mark early.
    Dctcp,
    /// BBRv3 (draft-ietf-ccwg-bbr-06), *experimental*: for paths that lose segments by chance. It goes
    /// by what is delivered and by the round trip, and takes up to 2 % of loss for no sign of
    /// congestion. A connection takes some 3 KiB more with it.
    Bbr,
}

impl CongestionControl {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cubic, Self::NewReno, Self::Dctcp, Self::Bbr];

    /// Its name in settings: `cubic`, `newreno`, `dctcp` or `bbr`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
        }
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No congestion control has this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give cubic, newreno, dctcp or bbr")]
pub struct ParseCongestionControlError;

impl FromStr for CongestionControl {
    type Err = ParseCongestionControlError;

    fn from_str(text: &str) -> Result<Self, ParseCongestionControlError> {
        let named = Self::ALL.into_iter().find(|one| one.name() == text);
        named.ok_or(ParseCongestionControlError)
    }
}

/// When and how often an idle peer is asked whether it is still there. The connection is given up
/// as [`crate::Event::TimedOut`] when it does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long nothing must have come before the first probe. At least a second, less is raised.
    pub idle: Duration,
    /// Time between probes. At least a second, less is raised.
    pub interval: Duration,
    /// Unanswered probes after which the connection is given up, one interval after the last.
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(2 * 3600),
            interval: Duration::from_secs(75),
            probes: 9,
        }
    }
}

impl Config {
    /// What `userspace_net` needs of it for the path MTU.
    pub(crate) fn path_mtu(&self) -> pmtu::Settings {
        pmtu::Settings {
            min_v4: self.min_path_mtu,
            probing: self.path_mtu_probing,
        }
    }

    /// Whether connections offer and accept explicit congestion notification. DCTCP needs it; BBR
    /// has no answer to marks (draft-ietf-ccwg-bbr-06 section 3.7), so that it must not ask for them.
    pub(crate) fn wants_ecn(&self) -> bool {
        match self.congestion {
            CongestionControl::Cubic | CongestionControl::NewReno => self.ecn,
            CongestionControl::Dctcp => true,
            CongestionControl::Bbr => false,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 1460,
            receive_window: 1 << 20,
            send_queue_segments: 1024,
            window_segments: 256,
            connections: 65_536,
            timestamps: true,
            sack: true,
            window_scale: true,
            ecn: false,
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(60),
            ack_delay: Duration::from_millis(5),
            delayed_acks: 64,
            syn_retries: 7,
            user_timeout: Duration::from_secs(100),
            keepalive: None,
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            path_mtu_probing: true,
            min_path_mtu: 552,
            resets_per_second: 1000,
            syn_cookies: true,
            congestion: CongestionControl::Cubic,
            pacing: true,
            fin_alone: false,
            cuts_from: None,
        }
    }
}

/// Settings of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnOptions {
    /// Largest TCP payload plus TCP options on this path, in bytes (MTU - IP header - 20): what is
    /// announced in the MSS option and the limit of what is sent. [`Config::mss`] limits it further.
    pub mss: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_congestion_control_is_known_by_its_name() {
        for one in CongestionControl::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        let unknown = "vegas".parse::<CongestionControl>();
        assert_eq!(unknown, Err(ParseCongestionControlError));
    }
}
