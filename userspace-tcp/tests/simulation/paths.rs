//! The network between the engines: what becomes of a packet.

use std::time::Duration;

use userspace_net::{Ecn, FourTuple, Instant};

use super::scenario::{Change, Weather};
use super::tally::Tally;
use crate::harness::{Random, packet};

/// A segment on its way.
#[derive(Debug, Clone)]
pub struct Packet {
    pub from: usize,
    pub to: usize,
    /// As the sender sees it.
    pub tuple: FourTuple,
    pub bytes: Vec<u8>,
    /// Bytes in front of the payload.
    pub header_len: usize,
    pub ecn: Ecn,
    /// One byte is wrong.
    pub corrupted: bool,
}

/// How much later than others a late duplicate comes. Less than TIME-WAIT.
const LATE: Duration = Duration::from_secs(8);

pub struct Paths {
    pub weather: Weather,
    dark_until: Instant,
    /// By sender and receiver: when a path takes its next packet, and what it takes.
    busy_until: Vec<Instant>,
    ways: Vec<Duration>,
    engines: usize,
}

impl Paths {
    pub fn new(weather: Weather, engines: usize, random: &mut Random) -> Self {
        let way = weather.way.as_nanos() as u64;
        let ways = (0..engines * engines)
            .map(|_| Duration::from_nanos(random.within(way, 4 * way)))
            .collect();
        Self {
            weather,
            dark_until: Instant::ZERO,
            busy_until: vec![Instant::ZERO; engines * engines],
            ways,
            engines,
        }
    }

    pub fn change(&mut self, now: Instant, change: Change) {
        match change {
            Change::Mtu(mtu) => self.weather.mtu = mtu,
            Change::Lose(lose) => self.weather.lose = lose,
            Change::Outage(time) => self.dark_until = self.dark_until.max(now + time),
        }
    }

    /// What arrives of a packet, and when.
    pub fn carry(
        &mut self,
        now: Instant,
        packet: Packet,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Vec<(Instant, Packet)> {
        let mut arrivals = Vec::new();
        let len = packet.bytes.len();
        if len > packet.header_len + 1 && random.chance(self.weather.split) {
            tally.add("segments split", 1);
            let at = random.within(packet.header_len as u64 + 1, len as u64 - 1) as usize;
            for bytes in packet::split(packet.tuple, &packet.bytes, at) {
                let part = Packet {
                    bytes,
                    ..packet.clone()
                };
                arrivals.extend(self.pass(now, part, random, tally));
            }
            return arrivals;
        }
        if random.chance(self.weather.duplicate) {
            tally.add("packets duplicated", 1);
            let late = if random.chance(self.weather.late) {
                Duration::from_nanos(random.below(LATE.as_nanos() as u64))
            } else {
                Duration::ZERO
            };
            let copy = self.pass(now, packet.clone(), random, tally);
            arrivals.extend(copy.map(|(at, packet)| (at + late, packet)));
        }
        arrivals.extend(self.pass(now, packet, random, tally));
        arrivals
    }

    fn pass(
        &mut self,
        now: Instant,
        mut packet: Packet,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Option<(Instant, Packet)> {
        if now < self.dark_until || random.chance(self.weather.lose) {
            tally.add("packets lost", 1);
            return None;
        }
        if random.chance(self.weather.corrupt) {
            tally.add("packets corrupted", 1);
            let at = random.below(packet.bytes.len() as u64) as usize;
            packet.bytes[at] ^= random.within(1, 255) as u8;
            packet.corrupted = true;
        }
        if packet.ecn != Ecn::NotEct && random.chance(self.weather.mark) {
            tally.add("packets marked", 1);
            packet.ecn = Ecn::Ce;
        }
        let path = packet.from * self.engines + packet.to;
        let start = self.busy_until[path].max(now) + self.weather.spacing;
        self.busy_until[path] = start;
        let mut at = start + self.ways[path];
        if random.chance(self.weather.delay) {
            tally.add("packets late", 1);
            let jitter = self.weather.jitter.as_nanos() as u64;
            at += Duration::from_nanos(random.below(jitter + 1));
        }
        Some((at, packet))
    }
}
