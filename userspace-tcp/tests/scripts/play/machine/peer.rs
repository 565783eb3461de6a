//! The other end of one pair of ports, as far as the script's numbers need it.

use userspace_net::Instant;

use crate::laws::{Laws, Numbers};
use crate::wire::{Tlv, Wire};

#[derive(Debug)]
pub struct Peer<C> {
    pub conn: Option<C>,
    pub irs: u32,
    /// Known once a SYN of ours was seen.
    pub iss: Option<u32>,
    /// Our first TSval: timestamps of ours count from it.
    pub clock: Option<u32>,
    /// Our latest TSval, for echoes that a script does not write.
    pub latest: u32,
    pub laws: Laws,
    ours: Option<Offer>,
    theirs: Option<Offer>,
}

#[derive(Debug, Clone, Copy)]
struct Offer {
    timestamps: bool,
    scale: Option<u8>,
}

impl<C> Peer<C> {
    pub fn new(irs: u32) -> Self {
        Self {
            conn: None,
            irs,
            iss: None,
            clock: None,
            latest: 0,
            laws: Laws::default(),
            ours: None,
            theirs: None,
        }
    }

    /// Both SYNs had the option.
    pub fn timestamps(&self) -> bool {
        let have = |offer: Option<Offer>| offer.is_some_and(|offer| offer.timestamps);
        have(self.ours) && have(self.theirs)
    }

    /// What segments are held against.
    pub fn numbers(&self) -> Numbers {
        Numbers {
            iss: self.iss.unwrap_or(0),
            irs: self.irs,
            timestamps: self.timestamps(),
        }
    }

    pub fn sees_our(&mut self, wire: &Wire) {
        if let Some((value, _)) = wire.timestamps() {
            self.clock.get_or_insert(value);
            self.latest = value;
        }
        if wire.syn() {
            self.iss.get_or_insert(wire.seq);
            self.ours = Some(Offer::of(wire));
            self.negotiate();
        }
    }

    pub fn sends(&mut self, wire: &Wire) {
        if wire.syn() && self.theirs.is_none() {
            self.theirs = Some(Offer::of(wire));
            self.negotiate();
        }
    }

    fn negotiate(&mut self) {
        if let (Some(ours), Some(theirs)) = (self.ours, self.theirs)
            && let (Some(ours), Some(theirs)) = (ours.scale, theirs.scale)
        {
            self.laws.scale(ours, theirs);
        }
    }
}

impl Offer {
    fn of(wire: &Wire) -> Self {
        let scale = wire.options.iter().find_map(|option| match option {
            Tlv::WindowScale(shift) => Some(*shift),
            _ => None,
        });
        Self {
            timestamps: wire.timestamps().is_some(),
            scale,
        }
    }
}

/// The peer's clock where a script does not say: a tick each millisecond.
pub fn clock(start: Instant, now: Instant) -> u32 {
    let millis = now.saturating_duration_since(start).as_millis();
    5_000 + u32::try_from(millis).expect("a script of less than 49 days")
}
