//! Fragments of TCP segments' packets put together again (RFC 791 section 3.2, RFC 8200 section 4.5,
//! RFC 5044 section A.5.1).
//!
//! So many packets at a time and no more: one more takes the place of the oldest. A packet is no
//! larger than a frame and waits no longer than [`FRAGMENT_LIFETIME`]. Fragments that overlap spoil
//! their packet (RFC 5722). What is lost here TCP sends again.

use std::net::IpAddr;
use std::time::Duration;

use userspace_tcp::{Ecn, Instant};

use super::parse::{Ip, Link, Part};
use super::{
    ETHERNET_HEADER, FRAGMENT_UNIT, HOP_LIMIT, IPV4_HEADER, Path, TCP_HEADER, Unusable, emit,
};

#[cfg(test)]
mod tests;

/// How long a packet waits for its fragments. The steering program redirects late fragments for as
/// long (`FRAGMENT_LIFETIME` in `steer.bpf.c`).
pub const FRAGMENT_LIFETIME: Duration = Duration::from_secs(10);

/// The most octets behind the headers of an IP packet: where a fragment ends.
const DATA_MAX: usize = 65_535;

/// What a [`Reassembly`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyCounters {
    /// Fragments received, whatever became of them.
    pub fragments: u64,
    /// Packets put together.
    pub reassembled: u64,
    /// Fragments that came twice, octet for octet.
    pub duplicates: u64,
    /// Fragments that no sender makes: empty, or not the last and no multiple of 8 octets, or beyond
    /// what a packet can have, or a first one without a TCP header.
    pub malformed: u64,
    /// Packets given up because fragments overlapped, or disagreed about its end.
    pub overlapping: u64,
    /// Packets given up because they are larger than a frame.
    pub too_large: u64,
    /// Packets given up because some fragments were ECN-capable and others not (RFC 3168 section
    /// 5.3).
    pub mixed_ecn: u64,
    /// Incomplete packets given up early to make room.
    pub evicted: u64,
    /// Incomplete packets given up after [`FRAGMENT_LIFETIME`]; counted when their place is needed.
    pub timed_out: u64,
}

/// Packets of which some fragments are here.
#[derive(Debug)]
pub struct Reassembly {
    slots: Box<[Slot]>,
    counters: ReassemblyCounters,
}

/// What all fragments of a packet have in common. The protocol is TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    id: u32,
    source: IpAddr,
    destination: IpAddr,
    vlan: Option<u16>,
}

/// A place for one packet.
#[derive(Debug)]
struct Slot {
    /// None: free.
    key: Option<Key>,
    since: Instant,
    /// Nothing that comes for it counts any more.
    spoiled: bool,
    /// Octets of data, once the last fragment is here.
    total: Option<usize>,
    /// Octets of data that are here.
    have: usize,
    /// A bit for each [`FRAGMENT_UNIT`] of data that is here.
    units: Box<[u64]>,
    data: Box<[u8]>,
    /// ECN fields seen, a bit each.
    ecn_seen: u8,
    /// Of the first fragment.
    first: Option<Header>,
}

/// What the headers before a fragment's data told; the first one's stand for the whole packet.
#[derive(Clone, Copy, Debug)]
struct Header {
    path: Path,
    ecn: Ecn,
}

/// What became of a packet with one more fragment.
enum Outcome {
    Waiting,
    Complete,
    Duplicate,
    Overlapping,
    TooLarge,
}

impl Reassembly {
    /// For at most `packets` packets at a time (at least 1), each in a frame of at most `frame_max`
    /// octets. All memory is taken at once: somewhat over `packets * frame_max` octets.
    pub fn new(packets: usize, frame_max: usize) -> Self {
        let data_max = frame_max.saturating_sub(ETHERNET_HEADER + IPV4_HEADER);
        Self {
            slots: (0..packets.max(1)).map(|_| Slot::new(data_max)).collect(),
            counters: ReassemblyCounters::default(),
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> &ReassemblyCounters {
        &self.counters
    }

    /// Takes the fragment that is the first `len` octets of `buffer`. When it was the one that its
    /// packet waited for, the whole packet is in `buffer` then, as a frame of so many octets, ready
    /// for [`crate::parse`], with an IP header that stands for those of its fragments.
    ///
    /// # Errors
    /// The frame is not one that [`crate::parse`] calls a fragment.
    pub fn add(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        len: usize,
    ) -> Result<Option<usize>, Unusable> {
        let frame = buffer.get(..len).ok_or(Unusable::Truncated)?;
        let link = Link::parse(frame)?;
        let ip = Ip::parse(frame, &link, len)?;
        let part = ip.part.ok_or(Unusable::IpHeader)?;
        let data = frame.get(ip.data.clone()).ok_or(Unusable::Truncated)?;
        self.counters.fragments += 1;
        if !is_possible(&part, data.len()) {
            self.counters.malformed += 1;
            return Ok(None);
        }
        let key = Key {
            id: part.id,
            source: ip.source,
            destination: ip.destination,
            vlan: link.vlan,
        };
        let Some(slot) = slot_for(&mut self.slots, &mut self.counters, now, key) else {
            return Ok(None);
        };
        let path = Path {
            src_mac: link.source,
            dst_mac: link.destination,
            vlan: link.vlan,
            mtu: 0,
            hop_limit: HOP_LIMIT,
        };
        match slot.add(&part, Header { path, ecn: ip.ecn }, data) {
            Outcome::Complete => Ok(self.finish(key, buffer)),
            outcome => {
                self.counters.count(&outcome);
                Ok(None)
            }
        }
    }

    /// Writes the packet that is complete, and frees its place.
    fn finish(&mut self, key: Key, buffer: &mut [u8]) -> Option<usize> {
        let slot = self.slots.iter_mut().find(|slot| slot.key == Some(key))?;
        slot.key = None;
        let Some(ecn) = slot.ecn() else {
            self.counters.mixed_ecn += 1;
            return None;
        };
        let Some(len) = slot.write(&key, ecn, buffer) else {
            self.counters.too_large += 1;
            return None;
        };
        self.counters.reassembled += 1;
        Some(len)
    }
}

/// Whether a sender may have made this fragment (RFC 8200 section 4.5). The first one has the TCP
/// header, and no other begins within it (RFC 1858, RFC 3128).
fn is_possible(part: &Part, len: usize) -> bool {
    let header_whole = if part.offset == 0 {
        len >= TCP_HEADER
    } else {
        part.offset >= TCP_HEADER
    };
    header_whole
        && len > 0
        && (!part.more || len.is_multiple_of(FRAGMENT_UNIT))
        && part.offset + len <= DATA_MAX
}

/// The place of a packet: the one it has, or a free one, or that of the oldest. None when what comes
/// for it is not wanted.
fn slot_for<'a>(
    slots: &'a mut [Slot],
    counters: &mut ReassemblyCounters,
    now: Instant,
    key: Key,
) -> Option<&'a mut Slot> {
    for slot in slots.iter_mut() {
        let over = now.saturating_duration_since(slot.since) >= FRAGMENT_LIFETIME;
        if slot.key.is_some() && over {
            counters.timed_out += u64::from(!slot.spoiled);
            slot.key = None;
        }
    }
    let known = slots.iter().position(|slot| slot.key == Some(key));
    if let Some(index) = known {
        return slots.get_mut(index).filter(|slot| !slot.spoiled);
    }
    let slot = slots
        .iter_mut()
        .min_by_key(|slot| slot.key.map_or(Instant::ZERO, |_| slot.since))?;
    if slot.key.is_some() {
        counters.evicted += u64::from(!slot.spoiled);
    }
    slot.begin(now, key);
    Some(slot)
}

impl Slot {
    fn new(data_max: usize) -> Self {
        let units = data_max.div_ceil(FRAGMENT_UNIT).div_ceil(64);
        Self {
            key: None,
            since: Instant::ZERO,
            spoiled: false,
            total: None,
            have: 0,
            units: vec![0; units].into_boxed_slice(),
            data: vec![0; data_max].into_boxed_slice(),
            ecn_seen: 0,
            first: None,
        }
    }

    fn begin(&mut self, now: Instant, key: Key) {
        self.key = Some(key);
        self.since = now;
        self.spoiled = false;
        self.total = None;
        self.have = 0;
        self.units.fill(0);
        self.ecn_seen = 0;
        self.first = None;
    }

    /// Takes a fragment of the packet that [`is_possible`].
    fn add(&mut self, part: &Part, header: Header, data: &[u8]) -> Outcome {
        let end = part.offset + data.len();
        let contradicts = match self.total {
            Some(total) => end > total || (!part.more && end != total),
            None => !part.more && end < self.reach(),
        };
        if contradicts {
            self.spoiled = true;
            return Outcome::Overlapping;
        }
        let Some(place) = self.data.get_mut(part.offset..end) else {
            self.spoiled = true;
            return Outcome::TooLarge;
        };
        let units = part.offset / FRAGMENT_UNIT..end.div_ceil(FRAGMENT_UNIT);
        let present = units
            .clone()
            .filter(|unit| is_set(&self.units, *unit))
            .count();
        if present > 0 {
            if present == units.len() && place == data {
                return Outcome::Duplicate;
            }
            self.spoiled = true;
            return Outcome::Overlapping;
        }
        place.copy_from_slice(data);
        for unit in units {
            if let Some(word) = self.units.get_mut(unit / 64) {
                *word |= 1 << (unit % 64);
            }
        }
        self.have += data.len();
        self.ecn_seen |= 1 << header.ecn.bits();
        if part.offset == 0 {
            self.first = Some(header);
        }
        if !part.more {
            self.total = Some(end);
        }
        if self.total == Some(self.have) {
            Outcome::Complete
        } else {
            Outcome::Waiting
        }
    }

    /// Behind the furthest octet that is here, up to a unit.
    fn reach(&self) -> usize {
        let word = self.units.iter().rposition(|word| *word != 0);
        word.map_or(0, |index| {
            let top = self
                .units
                .get(index)
                .map_or(0, |word| 64 - word.leading_zeros());
            // The last unit of a fragment that is not the last one is full.
            (index * 64 + top as usize) * FRAGMENT_UNIT
        })
    }

    /// The ECN field of the whole (RFC 3168 section 5.3); None when there can't be one.
    fn ecn(&self) -> Option<Ecn> {
        let seen = |ecn: Ecn| self.ecn_seen & (1 << ecn.bits()) != 0;
        let first = self.first?.ecn;
        let one = self.ecn_seen == 1 << first.bits();
        match (one, seen(Ecn::NotEct), seen(Ecn::Ce)) {
            (true, ..) => Some(first),
            (false, true, _) => None,
            (false, false, true) => Some(Ecn::Ce),
            (false, false, false) => Some(first),
        }
    }

    fn write(&self, key: &Key, ecn: Ecn, out: &mut [u8]) -> Option<usize> {
        let data = self.data.get(..self.total?)?;
        let path = self.first?.path;
        let headers = emit(&path, key.source, key.destination, ecn, data.len(), out)?;
        let len = headers + data.len();
        out.get_mut(headers..len)?.copy_from_slice(data);
        Some(len)
    }
}

fn is_set(units: &[u64], unit: usize) -> bool {
    units
        .get(unit / 64)
        .is_some_and(|word| word & (1 << (unit % 64)) != 0)
}

impl ReassemblyCounters {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Waiting | Outcome::Complete => {}
            Outcome::Duplicate => self.duplicates += 1,
            Outcome::Overlapping => self.overlapping += 1,
            Outcome::TooLarge => self.too_large += 1,
        }
    }

    /// Every counter under its name, in a fixed order.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("rx_fragments", self.fragments),
            ("rx_reassembled", self.reassembled),
            ("rx_fragment_duplicates", self.duplicates),
            ("rx_fragments_malformed", self.malformed),
            ("rx_fragments_overlapping", self.overlapping),
            ("rx_fragments_too_large", self.too_large),
            ("rx_fragments_mixed_ecn", self.mixed_ecn),
            ("rx_fragments_evicted", self.evicted),
            ("rx_fragments_timed_out", self.timed_out),
        ]
    }
}
