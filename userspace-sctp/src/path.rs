//! What is kept for each address of the peer: its retransmission timeout ([`rto`]), its congestion window
//! ([`congestion`]), the size of its packets, its timers, and how often it did not answer.

pub mod congestion;
pub(crate) mod mtu;
pub mod rto;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use userspace_net::{Instant, UdpPorts};

use crate::config::{Config, pmdcs};
use crate::interface::{Ends, Route};
use crate::tsn::Tsn;
use congestion::Congestion;
use mtu::Mtu;
use rto::Rto;

/// Most addresses of a peer.
pub const PATHS_MAX: usize = 4;

/// Idle timeouts that are taken into account at once: the window has long reached its floor then.
const IDLE_MAX: u32 = 64;

/// The path to an address of the peer.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) remote: IpAddr,
    /// The peer is there: the layer above says so, or the set-up or a heartbeat went this way (section 5.4).
    pub(crate) is_confirmed: bool,
    /// Somebody else has the address: nothing is sent to it.
    pub(crate) is_withdrawn: bool,
    pub(crate) rto: Rto,
    pub(crate) congestion: Congestion,
    /// The peer's UDP encapsulation port (RFC 6951).
    pub(crate) udp: Option<u16>,
    /// The size of its packets.
    pub(crate) mtu: Mtu,
    /// Consecutive errors (section 8.2).
    pub(crate) errors: u32,
    /// `PotentiallyFailed.Max.Retrans`.
    errors_allowed: u32,
    /// There were no more than `Path.Max.Retrans`.
    pub(crate) is_active: bool,
    pub(crate) timers: Timers,
    pub(crate) heartbeat: Heartbeat,
    /// What the last probe of the MTU says that nobody else can know, and when it was sent; until it is answered or
    /// given up.
    pub(crate) probe: Option<(u64, Instant)>,
    /// The earliest TSN that was outstanding when it was sent, and the bytes of the packet that carried it.
    pub(crate) carried: Option<(Tsn, usize)>,
    /// One packet of lost chunks may go whatever the congestion window says (section 7.2.4).
    pub(crate) fast: bool,
    /// Only what was sent after this measures the round trip: one measurement a round trip, and none of what was
    /// sent before a retransmission (rules C4 and C5 of section 6.3.1).
    measure_from: Option<Instant>,
    /// When data was last sent, or the window was last adjusted for idleness.
    busy: Option<Instant>,
}

/// The timers of a path, under the RFC's names.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// T3-rtx.
    pub(crate) t3: Option<Instant>,
    /// The next heartbeat, or the end of the wait for the last one.
    pub(crate) heartbeat: Option<Instant>,
    /// PROBE_TIMER of RFC 8899: the end of the wait for the answer to a probe of the path's MTU.
    pub(crate) probe: Option<Instant>,
}

/// The last heartbeat.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    /// What it says that nobody else can know, and when it was sent; until it is answered.
    pub(crate) sent: Option<(u64, Instant)>,
    /// Its timeout runs.
    pub(crate) is_awaited: bool,
    /// It waits to be sent.
    pub(crate) is_pending: bool,
}

impl Path {
    /// To the remote end of `route`.
    pub(crate) fn new(config: &Config, route: Route, is_confirmed: bool) -> Self {
        let Route { ends, udp } = route;
        let mut mtu = Mtu::new(config, ends.remote.ip());
        mtu.encapsulate(udp.is_some());
        Self {
            remote: ends.remote.ip(),
            is_confirmed,
            is_withdrawn: false,
            rto: Rto::new(config.rto),
            congestion: Congestion::new(pmdcs(mtu.packet_max()), ends.remote.is_ipv6()),
            udp,
            mtu,
            errors: 0,
            errors_allowed: config.potentially_failed_max_retrans,
            is_active: true,
            timers: Timers::default(),
            heartbeat: Heartbeat::default(),
            probe: None,
            carried: None,
            fast: false,
            measure_from: None,
            busy: None,
        }
    }

    /// How packets of an association with these ends go here.
    pub(crate) fn route(&self, ends: Ends) -> Route {
        let remote = SocketAddr::new(self.remote, ends.remote.port());
        Route {
            ends: Ends { remote, ..ends },
            udp: self.udp,
        }
    }

    /// The UDP header of its packets.
    pub(crate) fn udp_ports(&self, config: &Config) -> Option<UdpPorts> {
        ports(config, self.udp)
    }

    /// Whether data goes here rather than elsewhere: what went last was answered, but for as many times as are allowed
    /// (RFC 7829 section 3.1: it has not potentially failed).
    pub(crate) const fn is_sound(&self) -> bool {
        self.is_usable() && self.errors <= self.errors_allowed
    }

    /// Whether data may go here: the peer is there, and answers.
    pub(crate) const fn is_usable(&self) -> bool {
        self.is_confirmed && self.is_active
    }

    /// Bytes of the largest SCTP packet.
    pub(crate) const fn packet_max(&self) -> usize {
        self.mtu.packet_max()
    }

    /// Its packets go another way from now on: congestion control starts over (section 7.2.5.2).
    pub(crate) fn moved(&mut self) {
        self.congestion = Congestion::new(pmdcs(self.packet_max()), self.remote.is_ipv6());
    }

    /// Packets have another size from now on. Before any data the congestion window's first size follows from it
    /// (section 7.2.1).
    pub(crate) fn resized(&mut self) {
        match self.busy {
            None => self.moved(),
            Some(_) => self.congestion.set_pmdcs(pmdcs(self.packet_max())),
        }
    }

    /// Somebody else has the address. The path keeps its place, because chunks know their paths by it.
    pub(crate) fn withdraw(&mut self) {
        self.is_withdrawn = true;
        self.is_confirmed = false;
        self.heartbeat = Heartbeat::default();
        self.timers.heartbeat = None;
    }

    /// The next timer.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let Timers {
            t3,
            heartbeat,
            probe,
        } = self.timers;
        [t3, heartbeat, probe].into_iter().flatten().min()
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
