//! What a seed says.

use std::time::Duration;

use userspace_sctp::Config;

use crate::link::Conditions;
use crate::random::Random;

/// Which sides ask for the association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The first side; the second listens.
    One,
    /// Both, the second so many microseconds later.
    Both(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// These sides close when they have posted all.
    Close([bool; 2]),
    /// The second side forgets all at this time in microseconds, and asks anew.
    Restart(u64),
    /// A side aborts at this time in microseconds.
    Abort(usize, u64),
}

#[derive(Debug)]
pub struct Scenario {
    pub random: Random,
    pub conditions: Conditions,
    /// What the middle of the path takes, in bytes of an IP packet.
    pub link_mtu: usize,
    pub has_icmp: bool,
    /// Packets are in UDP, and the first side is behind a NAT.
    pub in_udp: bool,
    /// The NAT takes another port so many microseconds after the association was established.
    pub rebinding: Option<u64>,
    /// The second side has another address, and says so.
    pub is_multihomed: bool,
    /// This one of its addresses is dead so many microseconds after both were confirmed.
    pub outage: Option<(usize, u64)>,
    pub opening: Opening,
    pub ending: Ending,
    /// The first message is posted before the association is established.
    pub posts_early: bool,
    pub configs: [Config; 2],
    /// Messages of each side.
    pub messages: [u32; 2],
    pub longest: u64,
    /// Microseconds until what came is consumed, at most.
    pub patience: u64,
}

impl Scenario {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let conditions = Conditions::new(&mut random);
        let opening = match random.below(3) {
            0 => Opening::Both(random.below(200_000)),
            _ => Opening::One,
        };
        let time = random.within(1_000, 3_000_000);
        let ending = match random.below(10) {
            0 => Ending::Abort(random.below(2) as usize, time),
            1 => Ending::Restart(time),
            2..=4 => Ending::Close([true, false]),
            5 | 6 => Ending::Close([false, true]),
            _ => Ending::Close([true, true]),
        };
        let configs = [0, 1].map(|_| Config {
            associations: 4,
            send_chunks: random.within(1, 64) as usize,
            receive_window: random.within(1_500, 30_000) as u32,
            mtu: random.within(576, 1500) as usize,
            udp_port: Some(9899),
            peer_addresses: 4,
            // With a dead address each loss at the other one is two errors.
            association_max_retrans: 40,
            potentially_failed_max_retrans: 5 * random.below(2) as u32,
            // Longer than any set-up of a peer that has restarted.
            user_timeout: Some(Duration::from_secs(1000)),
            ..Config::default()
        });
        let has_icmp = random.chance(500);
        // Less, found out by timeouts alone, may take longer than a shutdown has.
        let least = if has_icmp { 576 } else { 1200 };
        let link_mtu = 1500 - (random.below(2) * random.within(0, 1500 - least)) as usize;
        let in_udp = random.chance(300);
        let rebinding = (random.chance(500) && opening == Opening::One)
            .then(|| random.within(500_000, 3_000_000))
            .filter(|_| in_udp && matches!(ending, Ending::Close(_)));
        let is_multihomed = !in_udp && random.chance(400);
        let is_restart = matches!(ending, Ending::Restart(_));
        let outage = (is_multihomed && !is_restart && random.chance(700))
            .then(|| (random.below(2) as usize, random.within(0, 3_000_000)));
        let messages = [0, 1].map(|_| random.below(60) as u32);
        Self {
            conditions,
            link_mtu,
            has_icmp,
            in_udp,
            rebinding,
            is_multihomed,
            outage,
            posts_early: random.chance(400),
            opening,
            ending,
            configs,
            messages,
            longest: random.within(4, 1_500),
            patience: random.below(2) * random.below(400_000),
            random,
        }
    }
}
