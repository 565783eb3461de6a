//! The size of a path's packets (RFC 9260 section 7.3): what [`PathMtu`] knows of IP packets, for packets of SCTP.
//!
//! A search for more begins with what the first link takes. Sizes go down by ICMP errors and by timeouts, and up by
//! probes that carry no data (RFC 8899 section 6.2).

use std::net::IpAddr;

use userspace_net::Instant;
use userspace_net::pmtu::{PathMtu, Settings};

use crate::config::{Config, MTU_MIN, UDP_HEADER_LEN, ip_header_len, packet_max};

#[derive(Debug)]
pub(crate) struct Mtu {
    search: PathMtu,
    /// Bytes of an IP packet around SCTP's: the headers of IP and UDP.
    around: usize,
    ip_header_len: usize,
    /// Bytes of an SCTP packet: a multiple of four.
    packet_max: usize,
}

impl Mtu {
    pub(crate) fn new(config: &Config, remote: IpAddr) -> Self {
        let settings = Settings {
            min_v4: MTU_MIN as u16,
            probing: config.path_mtu_probing,
        };
        let mtu = config.mtu.clamp(MTU_MIN, usize::from(u16::MAX));
        let search = PathMtu::new(settings, mtu as u32, remote.is_ipv4());
        let around = ip_header_len(remote);
        Self {
            packet_max: packet_max(mtu, around),
            search,
            around,
            ip_header_len: around,
        }
    }

    /// Bytes of the largest SCTP packet that is known to pass.
    pub(crate) const fn packet_max(&self) -> usize {
        self.packet_max
    }

    /// The same of an IP packet (PLPMTU).
    pub(crate) fn plpmtu(&self) -> usize {
        self.search.plpmtu() as usize
    }

    /// How an SCTP packet of `len` bytes goes out, as the largest IP packet of it; `None`: in one piece.
    pub(crate) fn fragment_to(&self, len: usize) -> Option<usize> {
        let fragment = self.search.fragment_to(self.ip_len(len));
        fragment.map(|bytes| bytes as usize)
    }

    /// Bytes of the SCTP packet that is wanted as a probe.
    pub(crate) fn wanted_probe(&self) -> Option<usize> {
        let len = packet_max(self.search.postable() as usize, self.around);
        (len > self.packet_max && self.search.probe().is_none()).then_some(len)
    }

    /// The wanted probe is sent. What the packet lacks to a multiple of four no other packet has either.
    pub(crate) fn probe_sent(&mut self) {
        self.search.posted(0, 0, self.search.postable());
    }

    /// The probe was answered. Says whether the size changed, as the others below.
    pub(crate) fn probe_arrived(&mut self, now: Instant) -> bool {
        self.search.probe_arrived(now) && self.changed()
    }

    /// The probe was not answered in time; `alone`: nothing else was lost.
    pub(crate) fn probe_lost(&mut self, now: Instant, alone: bool) {
        self.search.probe_lost(now, alone);
    }

    /// Whether data timed out, and none was acknowledged since.
    pub(crate) const fn is_doubted(&self) -> bool {
        self.search.is_doubted()
    }

    /// The peer has acknowledged data, or a heartbeat; `calm`: nothing is lost.
    pub(crate) fn progress(&mut self, now: Instant, calm: bool) -> bool {
        self.search.progress(now, calm) && self.changed()
    }

    /// The peer answers, though it takes nothing.
    pub(crate) fn answered(&mut self) {
        self.search.answered();
    }

    /// The retransmission timer expired for data in an SCTP packet of `len` bytes.
    pub(crate) fn timed_out(&mut self, len: usize) -> bool {
        self.search.timed_out(self.ip_len(len), false) && self.changed()
    }

    /// A router said that no IP packet larger than `mtu` passes; 0: it named no size. `None`: that can't be so.
    pub(crate) fn too_big(&mut self, now: Instant, mtu: usize) -> Option<bool> {
        let probe = self.search.probe();
        // What was posted before goes as fragments, which no router finds too big.
        let passes = self.search.passes();
        let size = probe.map_or(passes, |probe| probe.size().max(passes));
        let mtu = u32::try_from(mtu).unwrap_or(u32::MAX);
        let said = self.search.too_big(now, mtu, size, probe.is_some())?;
        Some(said.changed && self.changed())
    }

    /// The path's first link takes IP packets of `mtu` bytes. More than before is not used.
    pub(crate) fn first_link(&mut self, mtu: usize) -> bool {
        let mtu = mtu.clamp(MTU_MIN, usize::from(u16::MAX));
        self.search.first_link(mtu as u32) && self.changed()
    }

    /// Packets have a UDP header, or none (RFC 6951 section 5.6).
    pub(crate) fn encapsulate(&mut self, is_in_udp: bool) -> bool {
        let udp = if is_in_udp { UDP_HEADER_LEN } else { 0 };
        self.around = self.ip_header_len + udp;
        self.changed()
    }

    fn changed(&mut self) -> bool {
        let before = self.packet_max;
        self.packet_max = packet_max(self.plpmtu(), self.around);
        self.packet_max != before
    }

    /// Bytes of the IP packet around an SCTP packet.
    fn ip_len(&self, len: usize) -> u32 {
        // The IP length field has 16 bits.
        (self.around + len) as u32
    }
}
