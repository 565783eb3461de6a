//! The link: packets under way, and what happens to them.

use std::collections::BTreeMap;
use std::time::Duration;

use rnic_tests::pattern::Pattern;

/// What happens to packets, of 1000 each.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub lost: u64,
    pub delayed: u64,
    pub duplicated: u64,
}

impl Conditions {
    pub const CLEAN: Self = Self {
        lost: 0,
        delayed: 0,
        duplicated: 0,
    };
    /// Each for itself, and all at once.
    pub const BAD: [Self; 4] = [
        Self {
            lost: 30,
            ..Self::CLEAN
        },
        Self {
            delayed: 100,
            ..Self::CLEAN
        },
        Self {
            duplicated: 100,
            ..Self::CLEAN
        },
        Self {
            lost: 20,
            delayed: 50,
            duplicated: 50,
        },
    ];
}

const DELAY: Duration = Duration::from_millis(5);
/// Of a packet that others overtake.
const LONGER: Duration = Duration::from_millis(12);

pub struct Link {
    conditions: Conditions,
    random: Pattern,
    /// By when they arrive, and which was sent first; with the side that gets it.
    under_way: BTreeMap<(Duration, u64), (bool, Vec<u8>)>,
    sent: u64,
}

impl Link {
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self {
            conditions,
            random: Pattern::new(seed),
            under_way: BTreeMap::new(),
            sent: 0,
        }
    }

    fn happens(&mut self, rate: u64) -> bool {
        self.random.next_u64() % 1000 < rate
    }

    pub fn send(&mut self, now: Duration, to_us: bool, packet: Vec<u8>) {
        if self.happens(self.conditions.lost) {
            return;
        }
        let copies = 1 + u64::from(self.happens(self.conditions.duplicated));
        for _ in 0..copies {
            let delay = match self.happens(self.conditions.delayed) {
                true => LONGER,
                false => DELAY,
            };
            self.sent += 1;
            let key = (now + delay, self.sent);
            self.under_way.insert(key, (to_us, packet.clone()));
        }
    }

    pub fn next_arrival(&self) -> Option<Duration> {
        self.under_way.first_key_value().map(|((at, _), _)| *at)
    }

    /// What has arrived by now: a packet, and whether it is ours.
    pub fn arrived(&mut self, now: Duration) -> Option<(bool, Vec<u8>)> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
