//! The link: packets under way, and what happens to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::random::Random;

/// From this time on, in microseconds, nothing happens to packets any more: then no end may be a failure.
const PEACE: u64 = 40_000_000;

#[derive(Debug)]
pub struct Conditions {
    /// Of 1000 packets.
    loss: u64,
    duplication: u64,
    damage: u64,
    /// Microseconds.
    delay: (u64, u64),
}

impl Conditions {
    pub fn new(random: &mut Random) -> Self {
        let mut rate = |most: u64| random.below(2) * random.below(most);
        let (loss, duplication, damage) = (rate(250), rate(200), rate(100));
        let least = random.within(10, 50_000);
        let more = random.below(2) * random.below(100_000);
        Self {
            loss,
            duplication,
            damage,
            delay: (least, least + more),
        }
    }
}

/// A packet under way.
#[derive(Debug, Clone)]
pub struct Parcel {
    /// The side that gets it.
    pub to: usize,
    /// The UDP port from which it seems to come.
    pub udp: Option<u16>,
    pub from: SocketAddr,
    pub bytes: Vec<u8>,
}

/// Packets by when they arrive, and which was sent first.
#[derive(Debug, Default)]
pub struct Link {
    under_way: BTreeMap<(u64, u64), Parcel>,
    sent: u64,
}

impl Link {
    pub fn send(
        &mut self,
        now: u64,
        parcel: &Parcel,
        conditions: &Conditions,
        random: &mut Random,
    ) {
        let is_calm = now >= PEACE;
        if !is_calm && random.chance(conditions.loss) {
            return;
        }
        let copies = 1 + u64::from(!is_calm && random.chance(conditions.duplication));
        for _ in 0..copies {
            let mut parcel = parcel.clone();
            let bytes = &mut parcel.bytes;
            if !is_calm && random.chance(conditions.damage) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            let (least, most) = conditions.delay;
            self.sent += 1;
            let arrival = now + random.within(least, most);
            self.under_way.insert((arrival, self.sent), parcel);
        }
    }

    pub fn next(&self) -> Option<u64> {
        self.under_way.keys().next().map(|(arrival, _)| *arrival)
    }

    pub fn arrived(&mut self, now: u64) -> Option<Parcel> {
        let entry = self.under_way.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// Nothing that is under way arrives.
    pub fn cut(&mut self) {
        self.under_way.clear();
    }
}
