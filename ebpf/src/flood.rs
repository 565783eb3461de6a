//! Limits for unknown_flows: how many segments of no known flow the steering program lets through, and
//! which flows are known. The other half is `flood.bpf.h`.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use crate::sys::SharedBytes;

/// Words of the hash's key (`HASH_KEY_WORDS`).
const KEY_WORDS: usize = 11;
/// Places for flows (`FLOW_PLACES`). Of so many places a thousand flows have one in a thousand, and of
/// the segments of unknown flows as many are taken for theirs.
const PLACES: usize = 1 << 20;
/// `FLOW_HASH`.
const FLOW_HASH: u64 = 0;

/// How many of a kind of frames the program lets through on each processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Frames in a second in the long run; 0: no limit.
    pub per_second: u32,
    /// Frames at once after a while without any; 1 at least.
    pub burst: u32,
    /// Processors that share `per_second`, of which each may let the whole burst through; 1 at least.
    pub sharers: u32,
}

impl Rate {
    /// No limit.
    pub const NONE: Self = Self::of(0);

    /// So many in a second, and as many as in ten seconds at once after ten seconds without any.
    pub const fn of(per_second: u32) -> Self {
        Self {
            per_second,
            burst: per_second.saturating_mul(10),
            sharers: 1,
        }
    }

    /// `struct rate` in `flood.bpf.h`.
    fn words(self) -> [u64; 2] {
        let interval = match self.per_second {
            0 => 0,
            rate => (1_000_000_000 * u64::from(self.sharers.max(1)) / u64::from(rate)).max(1),
        };
        [interval, interval.saturating_mul(self.burst.max(1).into())]
    }
}

/// How many frames of unknown flows the program lets through on each processor: of flows that are not in
/// `KnownFlows`. What is beyond is dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloodLimits {
    /// SYNs, of whatever flow.
    pub syns: Rate,
    /// All other segments of unknown flows; and as many once more of half-open flows.
    pub unknown_flows: Rate,
    /// Fragments of segments of unknown flows.
    pub fragments: Rate,
}

impl FloodLimits {
    /// What suits most interfaces. In the long run so many take little of a shard's time, and few places of its
    /// receive ring while it waits for its core. Ten thousand connections that one host begins at once wait for
    /// nothing. A path cuts the packets of a sender with path MTU discovery only until the sender has learned.
    pub const DEFAULT: Self = Self {
        syns: Rate::of(2_000),
        unknown_flows: Rate::of(2_000),
        fragments: Rate::of(200),
    };

    /// No limits: for programs that enter no flows.
    pub const NONE: Self = Self {
        syns: Rate::NONE,
        unknown_flows: Rate::NONE,
        fragments: Rate::NONE,
    };

    /// The same for an interface whose queues several processors serve: together they let no more
    /// through in the long run. At once each may let the whole burst through, because a peer's frames
    /// may all come in on one.
    pub fn shared_by(self, queues: u32) -> Self {
        let share = |rate: Rate| Rate {
            sharers: queues,
            ..rate
        };
        Self {
            syns: share(self.syns),
            unknown_flows: share(self.unknown_flows),
            fragments: share(self.fragments),
        }
    }

    /// `RATES` in `flood.bpf.h`.
    pub(crate) fn words(&self) -> [[u64; 2]; 3] {
        [self.syns, self.unknown_flows, self.fragments].map(Rate::words)
    }
}

/// When a segment that was dropped comes again as a TCP retransmits, in ticks of 2^24 ns (17 ms): `TIMES` in
/// `flood.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Not sooner.
    pub(crate) again_min: u32,
    /// Nor a hasty one: a SYN that came again sooner than that once, as in a flood that repeats itself.
    pub(crate) hasty_min: u32,
    /// Nor later.
    pub(crate) again_max: u32,
}

impl Times {
    /// 0.7 s, less than the first retransmission timeout of a SYN, a second (RFC 6298 section 2); 3 s; 10 s.
    pub(crate) const DEFAULT: Self = Self {
        again_min: 42,
        hasty_min: 179,
        again_max: 596,
    };

    /// As the program has them.
    pub(crate) fn words(self) -> [u32; 3] {
        [self.again_min, self.hasty_min, self.again_max]
    }
}

/// The key of the program's hash: random, and never revealed.
pub(crate) type HashKey = [u64; KEY_WORDS];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// A SYN-ACK waits for its answer: anybody could have forged the SYN.
    HalfOpen,
    /// Of a connection whose peer has shown that it has its address.
    Known,
}

/// The flows whose segments the program takes without a limit, and those for whose segments it has a limit apart
/// from those of other unknown flows. It is memory that the program reads, so that to enter a flow is no system call.
///
/// A place may be that of several flows and counts them; one that has counted 255 stays.
#[derive(Debug)]
pub struct KnownFlows {
    places: SharedBytes,
    key: HashKey,
}

impl KnownFlows {
    /// Maps the program's `FLOWS`.
    pub(crate) fn new(map: BorrowedFd<'_>, key: HashKey) -> io::Result<Self> {
        let places = SharedBytes::map(map, 2 * PLACES)?;
        Ok(Self { places, key })
    }

    /// The segments from `remote` to `local` are of such a flow. To be left as often as it was entered.
    pub fn enter(&mut self, local: (IpAddr, u16), remote: (IpAddr, u16), state: FlowState) {
        let place = self.place(local, remote, state);
        self.places.change(place, |count| count.checked_add(1));
    }

    /// They are so no more.
    pub fn leave(&mut self, local: (IpAddr, u16), remote: (IpAddr, u16), state: FlowState) {
        let place = self.place(local, remote, state);
        // A count that is full stays so: nobody knows how many it is of.
        let counts = |count: &u8| !matches!(count, 0 | &u8::MAX);
        self.places.change(place, |count| {
            Some(count).filter(counts).map(|count| count - 1)
        });
    }

    fn place(&self, local: (IpAddr, u16), remote: (IpAddr, u16), state: FlowState) -> usize {
        let first = match state {
            FlowState::Known => 0,
            FlowState::HalfOpen => PLACES,
        };
        first + hash(&self.key, local, remote) as usize % PLACES
    }
}

/// `hash` in `flood.bpf.h`, of a frame from `remote` to `local`.
fn hash(key: &HashKey, local: (IpAddr, u16), remote: (IpAddr, u16)) -> u32 {
    let term = |at: usize, a: u32, second: usize, b: u64| {
        let a = key[at].wrapping_add(a.into());
        a.wrapping_mul(key[second].wrapping_add(b))
    };
    let mut sum = key[0];
    match (remote.0, local.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let [source, destination] =
                [source, destination].map(|address| u32::from_ne_bytes(address.octets()));
            sum = sum.wrapping_add(term(1, source, 2, destination.into()));
        }
        (source, destination) => {
            let source = words(source);
            let destination = words(destination);
            for (at, second, [a, b]) in [
                (3, 4, [source[0], source[1]]),
                (5, 6, [source[2], source[3]]),
                (7, 8, [destination[0], destination[1]]),
                (1, 2, [destination[2], destination[3]]),
            ] {
                sum = sum.wrapping_add(term(at, a, second, b.into()));
            }
        }
    }
    let ([a, b], [c, d]) = (remote.1.to_be_bytes(), local.1.to_be_bytes());
    let ports = u32::from_ne_bytes([a, b, c, d]);
    (sum.wrapping_add(term(9, ports, 10, FLOW_HASH)) >> 32) as u32
}

/// An IPv6 address as it is in a frame.
fn words(address: IpAddr) -> [u32; 4] {
    let bytes = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let (words, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|at| words.get(at).map_or(0, |word| u32::from_ne_bytes(*word)))
}

#[cfg(test)]
mod tests;
