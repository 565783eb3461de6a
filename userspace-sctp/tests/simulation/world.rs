//! Two sides, the link between them, and the time.

use std::net::SocketAddr;

use userspace_net::Instant;
use userspace_sctp::packet::Packet;
use userspace_sctp::{Ends, Event, Failure, IcmpError, IcmpQuote};

use crate::homes;
use crate::link::{Link, Parcel};
use crate::scenario::{Ending, Opening, Scenario};
use crate::side::{Life, Side};
use crate::trace::{describe, trace};

/// No run takes so long: T5, all backed-off timers and some heartbeats are over.
const END: u64 = 3_000_000_000;

/// An application without work looks again after so many microseconds, as long as it has something to post.
const PAUSE: u64 = 50_000;

/// Bytes of an IP header.
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// The UDP encapsulation port of the side without NAT.
const UDP_PORT: u16 = 9899;

/// The first port of the other one's NAT, and the one after it was bound again.
const NAT_PORT: u16 = 40_000;
const NEW_NAT_PORT: u16 = 50_000;

/// The side that restarts, when one does.
const RESTARTS: usize = 1;

pub struct World {
    scenario: Scenario,
    sides: [Side; 2],
    link: Link,
    now: u64,
    has_opened: bool,
    has_ended: bool,
    /// The port of the first side's NAT.
    nat_port: u16,
    /// When both sides were.
    established_at: Option<u64>,
    /// When the first side knew that the other one is at all its addresses.
    confirmed_at: Option<u64>,
}

fn local(side: usize) -> SocketAddr {
    SocketAddr::new([198, 18, 0, 1 + side as u8].into(), 5000 + side as u16)
}

impl World {
    pub fn new(scenario: Scenario) -> Self {
        let make = |at: usize, key: u8| {
            let mut side = Side::new(
                scenario.configs[at].clone(),
                key,
                local(at),
                scenario.messages[at],
                scenario.longest,
            );
            side.posts_early = scenario.posts_early;
            side
        };
        let sides = [make(0, 1), make(1, 2)];
        Self {
            scenario,
            sides,
            link: Link::default(),
            now: 0,
            has_opened: false,
            has_ended: false,
            nat_port: NAT_PORT,
            established_at: None,
            confirmed_at: None,
        }
    }

    pub fn run(&mut self) {
        for (at, side) in self.sides.iter_mut().enumerate() {
            side.stack.listen(local(at)).unwrap();
        }
        self.has_opened = self.scenario.opening == Opening::One;
        let udp = self.udp(1);
        self.sides[0].connect(0, local(1), udp);
        loop {
            self.turn();
            let Some(next) = self.next() else {
                break;
            };
            assert!(next < END, "it does not end: {:?}", self.scenario);
            self.now = next.max(self.now + 1);
        }
    }

    fn turn(&mut self) {
        let now = self.now;
        self.apply_scenario();
        while let Some(parcel) = self.link.arrived(now) {
            let to = parcel.to;
            trace(|| format!("{now} to {to}: {}", describe(&parcel.bytes)));
            let patience = self.scenario.patience;
            let patience = self.scenario.random.within(0, patience);
            self.sides[to].receive(now, &parcel, patience);
        }
        for at in 0..2 {
            self.sides[at]
                .stack
                .advance(Instant::from_nanos(1000 * now));
            self.sides[at].take_events(now);
            self.sides[at].act(now, &mut self.scenario.random);
            let closes = match self.scenario.ending {
                Ending::Close(who) => who[at],
                // The restarted side closes in the end.
                Ending::Restart(_) => at == RESTARTS && self.has_ended,
                Ending::Abort(..) => false,
            };
            if closes && self.sides[at].has_posted_all() {
                self.sides[at].close(now);
            }
            self.sides[at].take_events(now);
            self.transmit(at);
        }
    }

    fn transmit(&mut self, at: usize) {
        let mut out = [0; 1500];
        let time = Instant::from_nanos(1000 * self.now);
        while let Some(transmit) = self.sides[at].stack.poll_transmit(time, &mut out) {
            assert_eq!(transmit.ends.local, local(at));
            let to = transmit.ends.remote;
            let home = homes::of(to, local(1 - at));
            assert!(home == Some(0) || at == 0 && home == Some(1), "{to}");
            let bytes = &out[..transmit.len];
            let (now, to) = (self.now, transmit.ends.remote);
            trace(|| format!("{now} for {to}: {}", describe(bytes)));
            let udp = transmit.udp.map_or(0, |_| UDP_HEADER);
            let whole = transmit.len + IP_HEADER + udp;
            let config = &self.scenario.configs[at];
            assert!(transmit.fragment_to.is_some() || whole <= config.mtu);
            // Fragments that are too large are fragmented again.
            if transmit.fragment_to.is_none() && whole > self.scenario.link_mtu {
                self.drop_too_big(at, &transmit.ends, bytes);
                continue;
            }
            assert_eq!(transmit.udp.is_some(), self.scenario.in_udp);
            // The NAT forwards what is for its present port only.
            let to = transmit.udp.map(|ports| ports.destination);
            if at == 1 && to != self.udp(0) {
                continue;
            }
            let outage = self.outage();
            if at == 0 && home == outage {
                continue;
            }
            let mut parcel = Parcel {
                to: 1 - at,
                udp: self.udp(at),
                from: local(at),
                bytes: bytes.to_vec(),
            };
            if at == 1 && self.scenario.is_multihomed {
                parcel.bytes = homes::listed(bytes, local(at));
                let home = match outage {
                    Some(dead) => 1 - dead,
                    None => self.scenario.random.below(2) as usize,
                };
                parcel.from = homes::address(local(at), home);
            }
            let conditions = &self.scenario.conditions;
            let random = &mut self.scenario.random;
            self.link.send(self.now, &parcel, conditions, random);
        }
    }

    fn is_confirmed(&self) -> bool {
        let Side { stack, used, .. } = &self.sides[0];
        let mut paths = used.iter().flat_map(|id| stack.paths(*id));
        paths.all(|path| path.is_confirmed)
    }

    /// The second side's address that is dead.
    fn outage(&self) -> Option<usize> {
        let (home, after) = self.scenario.outage?;
        let begins = self.confirmed_at? + after;
        (self.now >= begins).then_some(home)
    }

    /// The UDP port of a side as the other one sees it.
    fn udp(&self, side: usize) -> Option<u16> {
        let port = if side == 0 { self.nat_port } else { UDP_PORT };
        Some(port).filter(|_| self.scenario.in_udp)
    }

    /// A router drops the packet, and may say so.
    fn drop_too_big(&mut self, at: usize, ends: &Ends, bytes: &[u8]) {
        let (now, mtu) = (self.now, self.scenario.link_mtu);
        trace(|| format!("{now} too big: {}", describe(bytes)));
        if self.scenario.has_icmp {
            let quote = IcmpQuote {
                ends: *ends,
                tag: Packet::parse(bytes).unwrap().header.tag,
                init_tag: None,
            };
            let error = IcmpError::PacketTooBig { mtu };
            let time = Instant::from_nanos(1000 * now);
            assert!(self.sides[at].stack.icmp(time, &quote, error));
        }
    }

    fn apply_scenario(&mut self) {
        let now = self.now;
        if let Opening::Both(at) = self.scenario.opening
            && now >= at
            && !self.has_opened
        {
            self.has_opened = true;
            let udp = self.udp(0);
            self.sides[1].connect(now, local(0), udp);
        }
        let mut sides = self.sides.iter();
        if self.established_at.is_none() && sides.all(|side| side.is_established) {
            self.established_at = Some(now);
        }
        if self.confirmed_at.is_none() && self.established_at.is_some() && self.is_confirmed() {
            self.confirmed_at = Some(now);
        }
        let after = self.scenario.rebinding.zip(self.established_at);
        if after.is_some_and(|(after, begun)| now >= begun + after) {
            self.nat_port = NEW_NAT_PORT;
        }
        let is_established = self.sides[RESTARTS].is_established;
        match self.scenario.ending {
            Ending::Abort(side, at) if now >= at && !self.has_ended => {
                self.has_ended = self.sides[side].abort(now);
            }
            Ending::Restart(at) if now >= at && is_established && !self.has_ended => {
                self.has_ended = true;
                self.restart();
            }
            _ => {}
        }
    }

    /// The second side forgets all, and asks from the same port.
    fn restart(&mut self) {
        let Scenario {
            configs,
            messages,
            longest,
            ..
        } = &self.scenario;
        let config = configs[RESTARTS].clone();
        self.sides[RESTARTS] = Side::new(config, 3, local(RESTARTS), messages[RESTARTS], *longest);
        self.sides[RESTARTS].posts_early = self.scenario.posts_early;
        // Messages of its life before are not checked.
        self.link.cut();
        let udp = self.udp(0);
        self.sides[RESTARTS].connect(self.now, local(0), udp);
    }

    fn next(&self) -> Option<u64> {
        let micros = |at: Instant| at.as_nanos().div_ceil(1000);
        let deadlines = self
            .sides
            .iter()
            .filter_map(|side| side.stack.next_deadline());
        let deadlines = deadlines.map(micros);
        let dues = self.sides.iter().filter_map(Side::next_due);
        let opening = match self.scenario.opening {
            Opening::Both(at) if !self.has_opened => Some(at),
            _ => None,
        };
        let lives = |side: &Side| side.stack.associations().count() > 0;
        let works = |side: &Side| {
            lives(side) && side.is_established && !side.is_closed && !side.has_posted_all()
        };
        let ending = match self.scenario.ending {
            Ending::Abort(_, at) if at > self.now => Some(at),
            Ending::Restart(at) if !self.has_ended && self.sides.iter().all(lives) => {
                Some(at.max(self.now + PAUSE))
            }
            _ => None,
        };
        let pause = self.sides.iter().any(works).then_some(self.now + PAUSE);
        let all = deadlines.chain(dues).chain(self.link.next());
        all.chain(opening).chain(ending).chain(pause).min()
    }

    /// Says what kind of end there was.
    pub fn judge(&self) -> String {
        for side in &self.sides {
            assert_eq!(side.stack.associations().count(), 0);
            assert_eq!(side.lent, 0, "buffers that did not come back");
        }
        let none = Life::default();
        let lives = [0, 1].map(|at| self.life(at).unwrap_or(&none));
        match self.scenario.ending {
            Ending::Abort(..) => self.judge_abort(lives),
            Ending::Close(_) if self.is_too_slow(lives) => {
                for at in 0..2 {
                    assert!(lives[1 - at].came.is_subset(&lives[at].posted));
                }
                "closed, too slowly after an outage".to_owned()
            }
            Ending::Close(_) | Ending::Restart(_) => {
                // The first side is gone behind another port of its NAT, when its SHUTDOWN COMPLETE was lost.
                let cut_off = [Failure::Unreachable, Failure::ShutdownTimedOut];
                let cut_off = cut_off.map(|failure| Some(Event::Failed(failure)));
                let is_cut_off = self.nat_port != NAT_PORT && cut_off.contains(&lives[1].end);
                assert_eq!(lives[0].end, Some(Event::Closed));
                assert!(is_cut_off || lives[1].end == Some(Event::Closed));
                self.assert_all_came(lives);
                let restarted = lives[1 - RESTARTS].restarted;
                format!("{}, restarted: {restarted}", self.kind())
            }
        }
    }

    /// T5-shutdown-guard may expire before six timeouts of a minute have shown that an address is dead.
    fn is_too_slow(&self, lives: [&Life; 2]) -> bool {
        let is_late = |life: &&Life| life.end == Some(Event::Failed(Failure::ShutdownTimedOut));
        self.outage().is_some() && lives.iter().any(is_late)
    }

    fn judge_abort(&self, lives: [&Life; 2]) -> String {
        for at in 0..2 {
            assert!(lives[1 - at].came.is_subset(&lives[at].posted));
            let end = lives[at].end;
            assert!(matches!(end, None | Some(Event::Aborted(_))), "{end:?}");
        }
        self.kind()
    }

    fn assert_all_came(&self, lives: [&Life; 2]) {
        for at in 0..2 {
            assert_eq!(lives[at].posted, lives[1 - at].came);
        }
    }

    fn kind(&self) -> String {
        let ending = match self.scenario.ending {
            Ending::Close(who) => format!("closed by {who:?}"),
            Ending::Restart(_) => "restart".to_owned(),
            Ending::Abort(who, _) => format!("aborted by {who}"),
        };
        match self.scenario.opening {
            Opening::One => ending,
            Opening::Both(_) => format!("both ask, {ending}"),
        }
    }

    /// The life of the association that a side's application uses. No other may have brought anything.
    fn life(&self, at: usize) -> Option<&Life> {
        let side = &self.sides[at];
        let used = side.used?;
        for (id, life) in &side.lives {
            // An old cookie may come again with what it brought.
            assert!(*id == used || life.came.iter().all(|number| *number == 0));
        }
        side.lives.get(&used)
    }
}
