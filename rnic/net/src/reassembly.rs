//! Fragments of TCP segments' packets put together again (RFC 791 section 3.2, RFC 8200 section 4.5,
//! RFC 5044 section A.5.1).
//!
//! So many packets at a time and no more: one more takes the place of the oldest. A packet is no
//! larger than a frame and waits no longer than [`FRAGMENT_LIFETIME`]. Fragments that overlap spoil
//! their packet (RFC 5722). What is lost here TCP sends again.
//!
//! What a fragment costs does not depend on how many packets wait. They are found by a keyed hash, so that
//! nobody can make many of one place. They stand in the order in which they began.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use siphasher::sip::SipHasher13;
use userspace_net::{Ecn, Instant};

use super::parse::{Ip, Link, Part};
use super::{
    DropReason, ETHERNET_HEADER, FRAGMENT_UNIT, HOP_LIMIT, IPV4_HEADER, Path, Protocol, emit,
};

#[cfg(test)]
mod tests;

/// How long a packet waits for its fragments. The steering program redirects late fragments for as
/// long (`FRAGMENT_LIFETIME` in `steer.bpf.c`).
pub const FRAGMENT_LIFETIME: Duration = Duration::from_secs(10);

/// The most bytes behind the headers of an IP packet: where a fragment ends.
const DATA_MAX: usize = 65_535;

/// What a [`Reassembly`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyCounters {
    /// Fragments received: used, dropped or still waiting.
    pub fragments: u64,
    /// Packets put together.
    pub reassembled: u64,
    /// Fragments that came twice, byte for byte.
    pub duplicates: u64,
    /// Fragments that no sender makes: empty, or not the last and no multiple of 8 bytes, or beyond
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
    /// By packet: its slot.
    places: HashMap<Key, usize, Keyed>,
    /// Slots of packets that wait, those that began first in front.
    waiting: Order,
    /// Slots without a packet.
    free: Vec<usize>,
    counters: ReassemblyCounters,
}

/// What all fragments of a packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    protocol: Protocol,
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
    /// Bytes of data, once the last fragment is here.
    total: Option<usize>,
    /// Bytes of data that are here.
    have: usize,
    /// A bit for each [`FRAGMENT_UNIT`] of data that is here.
    units: Box<[u64]>,
    data: Box<[u8]>,
    /// ECN fields seen, a bit each.
    ecn_seen: u8,
    /// Of the first fragment.
    first: Option<Header>,
}

/// What the headers before a fragment's data say; the first one's stand for the whole packet.
#[derive(Clone, Copy, Debug)]
struct Header {
    path: Path,
    ecn: Ecn,
}

/// The state of a packet after one more fragment.
enum Outcome {
    Waiting,
    Complete,
    Duplicate,
    Overlapping,
    TooLarge,
}

impl Reassembly {
    /// For at most `packets` packets at a time (at least 1), each in a frame of at most `frame_max`
    /// bytes. All memory is taken at once: somewhat over `packets * frame_max` bytes. `secret` is that of
    /// the table in which they are found.
    pub fn new(packets: usize, frame_max: usize, secret: [u8; 16]) -> Self {
        let data_max = frame_max.saturating_sub(ETHERNET_HEADER + IPV4_HEADER);
        let packets = packets.max(1);
        Self {
            slots: (0..packets).map(|_| Slot::new(data_max)).collect(),
            // So large that it is never made again for those that have left.
            places: HashMap::with_capacity_and_hasher(2 * packets, Keyed(secret)),
            waiting: Order::new(packets),
            free: (0..packets).collect(),
            counters: ReassemblyCounters::default(),
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> &ReassemblyCounters {
        &self.counters
    }

    /// Takes the fragment that is the first `len` bytes of `buffer`. If its packet is complete now, the whole
    /// packet is in `buffer`, as a frame that is ready for [`crate::parse`]. Its IP header stands for those of
    /// the fragments.
    ///
    /// # Errors
    /// The frame is not one that [`crate::parse`] calls a fragment.
    pub fn add(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        len: usize,
    ) -> Result<Option<usize>, DropReason> {
        let frame = buffer.get(..len).ok_or(DropReason::Truncated)?;
        let link = Link::parse(frame)?;
        let ip = Ip::parse(frame, &link, len)?;
        let part = ip.part.ok_or(DropReason::IpHeader)?;
        let data = frame.get(ip.data.clone()).ok_or(DropReason::Truncated)?;
        self.counters.fragments += 1;
        if !is_possible(ip.protocol, &part, data.len()) {
            self.counters.malformed += 1;
            return Ok(None);
        }
        let key = Key {
            protocol: ip.protocol,
            id: part.id,
            source: ip.source,
            destination: ip.destination,
            vlan: link.vlan,
        };
        let index = self.slot_for(now, key);
        let Some(slot) = self.slots.get_mut(index).filter(|slot| !slot.spoiled) else {
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
            Outcome::Complete => Ok(self.finish(index, key, buffer)),
            outcome => {
                self.counters.count(&outcome);
                Ok(None)
            }
        }
    }

    /// Writes the packet that is complete, and frees its place.
    fn finish(&mut self, index: usize, key: Key, buffer: &mut [u8]) -> Option<usize> {
        self.let_go(index);
        self.free.push(index);
        let slot = self.slots.get(index)?;
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

    /// The place of a packet: the one it has, or a free one, or that of the oldest.
    fn slot_for(&mut self, now: Instant, key: Key) -> usize {
        self.expire(now);
        if let Some(index) = self.places.get(&key) {
            return *index;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            let oldest = self.waiting.first();
            if self.let_go(oldest) {
                self.counters.evicted += 1;
            }
            oldest
        });
        if let Some(slot) = self.slots.get_mut(index) {
            slot.begin(now, key);
        }
        self.places.insert(key, index);
        self.waiting.push(index);
        index
    }

    /// Gives up those that have waited too long: each once, however often this is called.
    fn expire(&mut self, now: Instant) {
        loop {
            let index = self.waiting.first();
            let late = |slot: &Slot| now.saturating_duration_since(slot.since) >= FRAGMENT_LIFETIME;
            if !self.slots.get(index).is_some_and(late) {
                return;
            }
            if self.let_go(index) {
                self.counters.timed_out += 1;
            }
            self.free.push(index);
        }
    }

    /// A packet waits no longer; whether it was still wanted.
    fn let_go(&mut self, index: usize) -> bool {
        self.waiting.remove(index);
        let Some(slot) = self.slots.get_mut(index) else {
            return false;
        };
        if let Some(key) = slot.key.take() {
            self.places.remove(&key);
        }
        !slot.spoiled
    }
}

/// Makes hashes that nobody can foresee who does not know the secret.
#[derive(Clone, Copy)]
struct Keyed([u8; 16]);

impl std::fmt::Debug for Keyed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyed")
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

/// Slots in the order in which their packets began: a ring of links with one more, the last, that is
/// no slot but the beginning and the end.
#[derive(Debug)]
struct Order(Box<[Neighbours]>);

/// Itself, twice: it stands nowhere.
#[derive(Clone, Copy, Debug)]
struct Neighbours {
    before: usize,
    behind: usize,
}

impl Order {
    fn new(slots: usize) -> Self {
        let alone = |index| Neighbours {
            before: index,
            behind: index,
        };
        Self((0..=slots).map(alone).collect())
    }

    /// The one that stands longest; no slot when none stands.
    fn first(&self) -> usize {
        self.0.last().map_or(0, |ends| ends.behind)
    }

    /// Behind all others. It must stand nowhere.
    fn push(&mut self, index: usize) {
        let end = self.0.len() - 1;
        let last = self.at(end).before;
        self.set(index, last, end);
    }

    fn remove(&mut self, index: usize) {
        let Neighbours { before, behind } = self.at(index);
        if let Some(link) = self.0.get_mut(before) {
            link.behind = behind;
        }
        if let Some(link) = self.0.get_mut(behind) {
            link.before = before;
        }
        if let Some(link) = self.0.get_mut(index) {
            (link.before, link.behind) = (index, index);
        }
    }

    fn at(&self, index: usize) -> Neighbours {
        let none = Neighbours {
            before: index,
            behind: index,
        };
        self.0.get(index).copied().unwrap_or(none)
    }

    /// Puts one between two that are neighbours.
    fn set(&mut self, index: usize, before: usize, behind: usize) {
        if let Some(link) = self.0.get_mut(index) {
            (link.before, link.behind) = (before, behind);
        }
        if let Some(link) = self.0.get_mut(before) {
            link.behind = index;
        }
        if let Some(link) = self.0.get_mut(behind) {
            link.before = index;
        }
    }
}

/// Whether a sender may have made this fragment (RFC 8200 section 4.5). The first one has the
/// protocol's header, and no other begins within it (RFC 1858, RFC 3128).
fn is_possible(protocol: Protocol, part: &Part, len: usize) -> bool {
    let header = protocol.header_min();
    let header_whole = if part.offset == 0 {
        len >= header
    } else {
        part.offset >= header
    };
    header_whole
        && len > 0
        && (!part.more || len.is_multiple_of(FRAGMENT_UNIT))
        && part.offset + len <= DATA_MAX
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

    /// Behind the furthest byte that is here, up to a unit.
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
        let headers = emit(
            &path,
            (key.source, key.destination),
            (key.protocol, data.len()),
            ecn,
            out,
        )?;
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
}
