//! What one connection knows of its path's MTU: by ICMP (RFC 1191, RFC 8201), and where ICMP is
//! filtered by timeouts and by probes that carry what is sent anyway (RFC 4821, RFC 8899).
//!
//! A segment here is what is posted as one packet; it is known by the positions at which it begins and ends.
//! Sizes are whole IP packets, in bytes. It sends nothing and never cuts a segment: what was posted
//! before the path became narrow goes out as IP fragments.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::Instant;

/// IPv6 needs no smaller packets than this (RFC 8201 section 4).
const MIN_V6: u32 = 1280;

/// No IPv4 link is narrower (RFC 1191 section 3).
const LEAST_V4: u32 = 68;

/// BASE_PLPMTU (RFC 8899 section 5.1.2): passes nearly everywhere.
const BASE_PLPMTU: u32 = 1200;

/// MAX_PROBES (RFC 8899 section 5.1.2): a size is given up when so many probes of it are lost.
const MAX_PROBES: u8 = 3;

/// What paths have (RFC 1191 section 7 and tunnels over Ethernet): probes are of these sizes. What
/// lies between two of them is not worth the segments that would be lost to find it out.
const USUAL: [u32; 15] = [
    1280, 1350, 1400, 1420, 1450, 1472, 1492, 1500, 2002, 3000, 4352, 6000, 8166, 8900, 9000,
];

/// Timeouts in a row for one large segment that make a black hole (RFC 4821 section 7.7), and so
/// many that it is one even for what passes nearly everywhere, or does from another connection.
const BLACK_HOLE_TIMEOUTS: u8 = 2;
const BASE_BLACK_HOLE_TIMEOUTS: u8 = 4;

/// When to look again for more after a router named a size (RFC 1191 section 6.3, RFC 8201
/// section 4), and after a search that ended below the greatest size.
const RAISE_AFTER_ICMP: Duration = Duration::from_secs(600);
const RAISE_AFTER_SEARCH: Duration = Duration::from_secs(300);

/// MTUs of links (RFC 1191 section 7), for routers that name none.
const PLATEAUS: [u32; 10] = [
    65_535, 32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296,
];

/// What all paths of a stack have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The least path MTU over IPv4 that makes segments smaller, in bytes of an IP packet. With IPv6 it is 1280
    /// (RFC 8201).
    pub min_v4: u16,
    /// Find out the path's MTU also where ICMP errors are filtered.
    pub probing: bool,
}

/// The state of the search (RFC 8899 section 5.2).
#[derive(Debug)]
pub struct PathMtu {
    /// Passes, as far as is known.
    plpmtu: u32,
    /// What the first link, the peer and the layer above allow.
    max_plpmtu: u32,
    /// Segments are not made smaller than this, whatever a router says: they go as fragments then.
    min_plpmtu: u32,
    /// What a router named; less than `plpmtu` only below `min_plpmtu`.
    fragment: u32,
    v4: bool,
    probing: bool,
    search: Search,
    /// A segment of the probed size is wanted.
    wanted: bool,
    probe: Option<Probe>,
    timeouts: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    /// SEARCH_COMPLETE, until PMTU_RAISE_TIMER.
    Complete { raise_at: Option<Instant> },
    /// SEARCHING.
    Active {
        /// No larger packet passes.
        high: u32,
        /// PROBED_SIZE.
        probed: u32,
        /// PROBE_COUNT.
        count: u8,
    },
}

/// A segment that is larger than what is known to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Its first byte.
    pub start: u64,
    /// Behind its last.
    pub end: u64,
    /// Of the packet, in bytes.
    size: u32,
}

impl Probe {
    /// Of the packet, in bytes.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }
}

impl PathMtu {
    /// At first the path takes what the first link takes: `max` bytes, with IPv4 or IPv6.
    pub fn new(settings: Settings, max: u32, v4: bool) -> Self {
        let min = if v4 {
            u32::from(settings.min_v4).max(LEAST_V4)
        } else {
            MIN_V6
        };
        Self {
            plpmtu: max,
            max_plpmtu: max,
            min_plpmtu: min.min(max),
            fragment: max,
            v4,
            probing: settings.probing,
            search: Search::Complete { raise_at: None },
            wanted: false,
            probe: None,
            timeouts: 0,
        }
    }

    /// PLPMTU: the largest packet that is known to pass.
    #[inline]
    pub fn plpmtu(&self) -> u32 {
        self.plpmtu
    }

    /// The largest packet that may be posted next: a probe, if one is wanted.
    #[inline]
    pub fn postable(&self) -> u32 {
        match self.search {
            Search::Active { probed, .. } if self.wanted => probed,
            Search::Active { .. } | Search::Complete { .. } => self.plpmtu,
        }
    }

    /// How a packet of `size` bytes goes out.
    #[inline]
    pub fn fragment_to(&self, size: u32) -> Option<u32> {
        let passes = self.passes();
        (size > passes).then_some(passes)
    }

    /// The largest packet that goes out in one piece, but for a probe.
    #[inline]
    pub fn passes(&self) -> u32 {
        self.plpmtu.min(self.fragment)
    }

    /// The segment from `start` up to `end`, a packet of `size` bytes, was posted.
    #[inline]
    pub fn posted(&mut self, start: u64, end: u64, size: u32) {
        if self.wanted && size > self.plpmtu {
            self.wanted = false;
            self.probe = Some(Probe { start, end, size });
        }
    }

    /// The probe that is posted and of which nothing is known yet.
    #[inline]
    pub fn probe(&self) -> Option<Probe> {
        self.probe
    }

    /// Whether the segment at `start` is the probe.
    #[inline]
    pub fn is_probe(&self, start: u64) -> bool {
        self.probe.is_some_and(|probe| probe.start == start)
    }

    /// Something was acknowledged. `calm`: nothing is lost, and the network takes a probe. Returns whether PLPMTU
    /// changed, as others below.
    pub fn progress(&mut self, now: Instant, calm: bool) -> bool {
        self.timeouts = 0;
        if let Search::Complete { raise_at: Some(at) } = self.search
            && at <= now
        {
            if !self.probing {
                // As RFC 1191 section 6.3: a router will say if it is too much.
                return self.set(self.max_plpmtu, Search::Complete { raise_at: None });
            }
            self.search = Search::Active {
                high: self.max_plpmtu,
                probed: self.max_plpmtu,
                count: 0,
            };
        }
        let searching = matches!(self.search, Search::Active { .. });
        self.wanted = searching && calm && self.probe.is_none();
        false
    }

    pub fn probe_arrived(&mut self, now: Instant) -> bool {
        let Some(probe) = self.probe.take() else {
            return false;
        };
        let Search::Active { high, .. } = self.search else {
            return false;
        };
        let search = self.between(now, probe.size, high);
        self.set(probe.size.max(self.plpmtu), search)
    }

    /// The probe is lost. When other segments are lost as well that says nothing (RFC 4821
    /// section 7.6.4).
    pub fn probe_lost(&mut self, now: Instant, alone: bool) {
        let Some(probe) = self.probe.take().filter(|_| alone) else {
            return;
        };
        if let Search::Active { high, count, .. } = self.search {
            let count = count + 1;
            // It may have been smaller than what was asked for.
            let most = probe.size.saturating_sub(1).min(high);
            self.search = if count < MAX_PROBES {
                Search::Active {
                    high,
                    probed: probe.size,
                    count,
                }
            } else {
                self.between(now, self.plpmtu, most)
            };
        }
    }

    /// A router said that no packet larger than `mtu` passes (0: it named none), about one of `size`
    /// bytes; `probe`: that was the probe. `None`: it can't be so.
    pub fn too_big(&mut self, now: Instant, mtu: u32, size: u32, probe: bool) -> Option<TooBig> {
        let named = match mtu {
            0 if self.v4 => plateau_below(size),
            mtu => mtu,
        };
        let least = if self.v4 { LEAST_V4 } else { MIN_V6 };
        if named < least || named >= size {
            return None;
        }
        let narrower = named < self.plpmtu.min(self.fragment);
        let mut changed = false;
        if narrower {
            self.wanted = false;
            self.probe = None;
            let search = Search::Complete {
                raise_at: Some(now + RAISE_AFTER_ICMP),
            };
            changed = self.set(named, search);
        } else if probe {
            self.probe = None;
            self.search = self.between(now, self.plpmtu, named);
            if let Search::Active { high, probed, .. } = &mut self.search {
                *probed = *high;
            }
        }
        Some(TooBig {
            mtu: named,
            narrower,
            changed,
        })
    }

    /// The first link of the path takes `mtu` bytes from now on. A wider one is not used: what the
    /// rest of the path takes was found out below the old width.
    pub fn first_link(&mut self, mtu: u32) -> bool {
        let least = if self.v4 { LEAST_V4 } else { MIN_V6 };
        let mtu = mtu.max(least);
        if mtu >= self.max_plpmtu {
            return false;
        }
        self.max_plpmtu = mtu;
        self.min_plpmtu = self.min_plpmtu.min(mtu);
        self.wanted = false;
        self.probe = None;
        let known = self.fragment.min(mtu);
        self.set(known, Search::Complete { raise_at: None })
    }

    /// Whether the retransmission timer ran out since something was acknowledged.
    pub const fn is_doubted(&self) -> bool {
        self.timeouts > 0
    }

    /// The peer has answered, though it takes nothing: the path is not to blame.
    #[inline]
    pub fn answered(&mut self) {
        self.timeouts = 0;
    }

    /// The retransmission timer ran out for a packet of `size` bytes. `passes`: meanwhile the host has
    /// got one as large from another connection, so that it takes more to blame the path: some paths
    /// to a host may be narrower than others.
    pub fn timed_out(&mut self, size: u32, passes: bool) -> bool {
        self.timeouts = self.timeouts.saturating_add(1);
        let base = BASE_PLPMTU.max(self.min_plpmtu);
        let (lower, most) = if size.min(self.plpmtu) > base {
            let most = match passes {
                true => BASE_BLACK_HOLE_TIMEOUTS,
                false => BLACK_HOLE_TIMEOUTS,
            };
            (base, most)
        } else {
            (self.min_plpmtu, BASE_BLACK_HOLE_TIMEOUTS)
        };
        let stuck = self.timeouts >= most && size > lower;
        if !self.probing || !stuck || lower >= self.plpmtu {
            return false;
        }
        self.wanted = false;
        self.probe = None;
        // It may have been an outage: one more segment of the old size shows, once something comes
        // through.
        let search = Search::Active {
            high: self.max_plpmtu,
            probed: self.plpmtu,
            count: MAX_PROBES - 1,
        };
        self.set(lower, search)
    }

    /// The search between what passes and what does not.
    fn between(&self, now: Instant, low: u32, high: u32) -> Search {
        if low >= self.max_plpmtu {
            Search::Complete { raise_at: None }
        } else if let Some(probed) = self.usual_between(low, high) {
            Search::Active {
                high,
                probed,
                count: 0,
            }
        } else {
            Search::Complete {
                raise_at: Some(now + RAISE_AFTER_SEARCH),
            }
        }
    }

    /// The middle of the sizes above `low` and up to `high` that are worth a probe.
    fn usual_between(&self, low: u32, high: u32) -> Option<u32> {
        let first = USUAL.partition_point(|&size| size <= low);
        let behind = USUAL.partition_point(|&size| size <= high);
        let whole = Some(high).filter(|_| high == self.max_plpmtu);
        USUAL
            .get(first.midpoint(behind))
            .filter(|_| first < behind)
            .copied()
            .or(whole)
    }

    fn set(&mut self, size: u32, search: Search) -> bool {
        let before = self.plpmtu;
        self.search = search;
        self.fragment = size.min(self.max_plpmtu);
        self.plpmtu = self.fragment.max(self.min_plpmtu);
        self.plpmtu != before
    }
}

/// What a router said, and was believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooBig {
    /// The largest packet that passes.
    pub mtu: u32,
    /// Less than was known to pass.
    pub narrower: bool,
    /// PLPMTU changed.
    pub changed: bool,
}

fn plateau_below(size: u32) -> u32 {
    let below = PLATEAUS.into_iter().find(|&plateau| plateau < size);
    below.unwrap_or(LEAST_V4)
}
