//! Decisions by seed: each is a function of the seed, the direction, the packet's number and what
//! is decided, and of nothing else. So an impairment that is added changes no other's decisions.

/// What is decided about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Lost by itself.
    Loss = 1,
    BurstState,
    /// Lost in the state that it is in.
    BurstLoss,
    /// Sent twice.
    Duplicate,
    /// Damaged, and where.
    Corrupt,
    Jitter,
    /// Whether it is held back.
    Reorder,
    /// How far it is held back.
    ReorderBy,
    /// Whether its payload is cut.
    Split,
    /// Whether its payload waits to be joined to the next.
    Join,
    Cut,
}

#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

impl Dice {
    /// For a direction (0 or 1) of a link with this seed.
    pub fn new(seed: u64, direction: u64) -> Self {
        Self(mix(seed ^ mix(direction + 1)))
    }

    /// 64 bits for a decision on a packet.
    pub fn roll(self, packet: u64, purpose: Purpose) -> u64 {
        self.nth(packet, purpose, 0)
    }

    /// The `n`th 64 bits for a decision that needs several.
    pub fn nth(self, packet: u64, purpose: Purpose, n: u64) -> u64 {
        let stream = mix(self.0 ^ (purpose as u64) << 56 ^ n);
        mix(stream.wrapping_add(packet.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

/// A number below `bound`, without a bias that anybody could see; 0 when the bound is 0.
pub(super) fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of `z`.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
