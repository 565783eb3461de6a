//! The settings of a stack: bounds, and the protocol parameters of RFC 9260 section 16.

use std::net::IpAddr;
use std::time::Duration;

use crate::chunk::RWND_MIN;
use crate::packet::HEADER_LEN;
use crate::path::rto::Bounds;
use crate::stateless::Offer;

/// The smallest MTU that is used, whatever is asked for or told: every IPv4 host takes such packets.
pub const MTU_MIN: usize = 576;

/// Bytes of the IP headers without options.
const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;

/// Bytes of a UDP header.
pub(crate) const UDP_HEADER_LEN: usize = 8;

/// The settings of a [`crate::Stack`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Most associations at a time.
    pub associations: usize,
    /// Most chunks of one association that are posted and not acknowledged.
    pub send_chunks: usize,
    /// The receive window of one association, in bytes of user data. Less than 1500 is taken as 1500.
    pub receive_window: u32,
    /// Most bytes of fragments that one association keeps until their messages are whole.
    pub fragment_bytes: usize,
    /// Streams that an association would like to send on; at least 1.
    pub outbound_streams: u16,
    /// Streams that it can receive on; at least 1.
    pub inbound_streams: u16,
    /// What the layer above speaks. A peer with another indication, or none, is refused.
    pub adaptation: Option<u32>,
    /// Addresses of a peer that an association uses, from 1 to 4. Further ones that it lists are ignored.
    pub peer_addresses: usize,
    /// Bytes of an IP packet that the first link of every path takes. More is never sent in one piece.
    pub mtu: usize,
    /// The local UDP encapsulation port (RFC 6951), 9899 by its registration; `None`: encapsulated packets are dropped.
    pub udp_port: Option<u16>,
    /// Find out the path's MTU also where ICMP errors are filtered: by timeouts, and by probes of more than is known
    /// to pass (RFC 8899).
    pub path_mtu_probing: bool,
    /// `RTO.Initial`, `RTO.Min` and `RTO.Max`.
    pub rto: Bounds,
    /// `Max.Init.Retransmits`: of an INIT, and of a COOKIE ECHO.
    pub max_init_retransmits: u32,
    /// `Association.Max.Retrans`: consecutive errors after which the peer is given up.
    pub association_max_retrans: u32,
    /// `Path.Max.Retrans`: consecutive errors after which the path is reported as down.
    pub path_max_retrans: u32,
    /// `PotentiallyFailed.Max.Retrans` (RFC 7829): consecutive errors with which a path still gets new data. A path with
    /// more is left for one without, until the peer answers there again. With `path_max_retrans`, or more, paths are
    /// left only when they are down.
    pub potentially_failed_max_retrans: u32,
    /// How long all that was sent may stay unacknowledged, with no SACK at all, until the peer is given up; `None`: as
    /// long as it answers heartbeats.
    pub user_timeout: Option<Duration>,
    /// `HB.interval`; `None`: no heartbeats but to paths that are not confirmed, or left for another one. Then a lost
    /// ABORT of an idle peer is never noticed.
    pub heartbeat_interval: Option<Duration>,
    /// `Max.Burst`: packets with data that one SACK, timeout or posted chunk may let go.
    pub max_burst: u32,
    /// Answers a second to packets of no association.
    pub answers_per_second: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            associations: 1024,
            send_chunks: 1024,
            receive_window: 1 << 20,
            fragment_bytes: 1 << 18,
            outbound_streams: 16,
            inbound_streams: 16,
            adaptation: None,
            peer_addresses: 1,
            mtu: 1500,
            udp_port: None,
            path_mtu_probing: true,
            rto: Bounds::default(),
            max_init_retransmits: 8,
            association_max_retrans: 10,
            path_max_retrans: 5,
            potentially_failed_max_retrans: 0,
            user_timeout: None,
            heartbeat_interval: Some(Duration::from_secs(30)),
            max_burst: 4,
            answers_per_second: 1000,
        }
    }
}

impl Config {
    /// Addresses of a peer that are used beside the first.
    pub(crate) const fn other_addresses(&self) -> usize {
        self.peer_addresses.saturating_sub(1)
    }

    /// What INIT and INIT ACK say.
    pub(crate) fn offer(&self) -> Offer {
        Offer {
            window: self.receive_window.max(RWND_MIN),
            outbound_streams: self.outbound_streams.max(1),
            inbound_streams: self.inbound_streams.max(1),
            adaptation: self.adaptation,
        }
    }
}

/// Bytes of the IP header of a packet to `remote`.
pub(crate) const fn ip_header_len(remote: IpAddr) -> usize {
    match remote {
        IpAddr::V4(_) => IPV4_HEADER_LEN,
        IpAddr::V6(_) => IPV6_HEADER_LEN,
    }
}

/// Bytes that an SCTP packet may have in an IP packet of `mtu` bytes, `around` of which are other headers: a multiple
/// of four.
pub(crate) const fn packet_max(mtu: usize, around: usize) -> usize {
    (mtu - around) / 4 * 4
}

/// Bytes of the largest DATA chunk in such a packet (PMDCS).
pub(crate) const fn pmdcs(packet_max: usize) -> usize {
    packet_max - HEADER_LEN
}
