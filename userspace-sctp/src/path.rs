//! What is kept for each address of the peer: its retransmission timeout ([`rto`]), its congestion window
//! ([`congestion`]), the size of its packets, and how often it did not answer.

pub mod congestion;
pub(crate) mod mtu;
pub mod rto;

use std::net::IpAddr;
use std::time::Duration;

use userspace_net::Instant;

use crate::config::{Config, pmdcs};
use crate::interface::{Route, UdpPorts};
use congestion::Congestion;
use mtu::Mtu;
use rto::Rto;

/// Idle timeouts that are taken into account at once: the window has long reached its floor then.
const IDLE_MAX: u32 = 64;

/// The path to a peer that has one address.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) rto: Rto,
    pub(crate) congestion: Congestion,
    /// The peer's UDP encapsulation port (RFC 6951).
    pub(crate) udp: Option<u16>,
    /// The size of its packets.
    pub(crate) mtu: Mtu,
    /// Consecutive errors (sections 8.1, 8.2: with one path both counters are the same).
    pub(crate) errors: u32,
    /// Only what was sent after this measures the round trip: one measurement a round trip, and none of what was
    /// sent before a retransmission (rules C4 and C5 of section 6.3.1).
    measure_from: Option<Instant>,
    /// When data was last sent, or the window was last adjusted for idleness.
    busy: Option<Instant>,
}

impl Path {
    pub(crate) fn new(config: &Config, route: Route) -> Self {
        let Route { ends, udp } = route;
        let mut mtu = Mtu::new(config, ends.remote.ip());
        mtu.encapsulate(udp.is_some());
        Self {
            rto: Rto::new(config.rto),
            congestion: Congestion::new(pmdcs(mtu.packet_max()), ends.remote.is_ipv6()),
            udp,
            mtu,
            errors: 0,
            measure_from: None,
            busy: None,
        }
    }

    /// The UDP header of its packets.
    pub(crate) fn udp_ports(&self, config: &Config) -> Option<UdpPorts> {
        ports(config, self.udp)
    }

    /// Bytes of the largest SCTP packet.
    pub(crate) const fn packet_max(&self) -> usize {
        self.mtu.packet_max()
    }

    /// Its packets go another way from now on: congestion control begins anew (section 7.2.5.2).
    pub(crate) fn moved(&mut self, remote: IpAddr) {
        self.congestion = Congestion::new(pmdcs(self.packet_max()), remote.is_ipv6());
    }

    /// Packets have another size from now on.
    pub(crate) const fn resized(&mut self) {
        self.congestion.set_pmdcs(pmdcs(self.packet_max()));
    }

    /// A round trip that ended `now`.
    pub(crate) fn measured(&mut self, now: Instant, rtt: Duration) {
        if self
            .measure_from
            .is_none_or(|from| now.saturating_duration_since(from) > rtt)
        {
            self.rto.measured(rtt);
            self.measure_from = Some(now);
        }
    }

    /// Something was sent again: what was sent before measures nothing.
    pub(crate) fn sent_again(&mut self, now: Instant) {
        self.measure_from = Some(now);
    }

    /// Data is about to be sent. `is_idle`: none is under way. The window shrinks for each timeout without data
    /// (section 7.2.1).
    pub(crate) fn sends(&mut self, now: Instant, is_idle: bool) {
        if let Some(busy) = self.busy
            && is_idle
        {
            let idle =
                now.saturating_duration_since(busy).as_nanos() / self.rto.get().as_nanos().max(1);
            for _ in 0..idle.min(IDLE_MAX.into()) {
                self.congestion.idle();
            }
        }
        self.busy = Some(now);
    }
}

/// The UDP header of packets to a peer with this encapsulation port.
pub(crate) fn ports(config: &Config, peers: Option<u16>) -> Option<UdpPorts> {
    let (source, destination) = (config.udp_port?, peers?);
    Some(UdpPorts {
        source,
        destination,
    })
}
