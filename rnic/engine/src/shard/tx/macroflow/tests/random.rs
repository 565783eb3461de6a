//! Any crowd, in any order: no segment is lost count of, and nobody waits while nothing is under way.

use userspace_tcp::Stack;

use super::*;
use crate::random::{Random, seeds};
use crate::shard::conn_ids::{conn_id, stack};

const CROWD: u16 = 120;
const STEPS: usize = 3000;

/// What a shard knows of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Conn {
    peer: Option<IpAddr>,
    /// Segments under way.
    segments: usize,
    waits: bool,
    /// It has waited, and its turn is next.
    unblocked: bool,
}

/// Connections as a shard drives them, named by their TCP.
struct Crowd {
    stack: Stack<()>,
    flows: Macroflows,
    ids: Vec<ConnId>,
    conns: Vec<Conn>,
    now: Instant,
}

impl Crowd {
    fn new() -> Self {
        let mut stack = stack(CROWD);
        Self {
            flows: Macroflows::new(usize::from(CROWD), LIMIT),
            ids: (0..CROWD)
                .map(|number| conn_id(&mut stack, number))
                .collect(),
            stack,
            conns: vec![Conn::default(); usize::from(CROWD)],
            now: Instant::ZERO,
        }
    }

    fn join(&mut self, of: usize, random: &mut Random) {
        let peer = [PEER, PEER, PEER, OTHER][random.below(4) as usize];
        let client = client(random.below(3) as u32);
        self.flows.join(self.ids[of], client, peer);
        self.conns[of] = Conn {
            peer: Some(peer),
            ..Conn::default()
        };
    }

    fn leave(&mut self, of: usize) {
        let id = self.ids[of];
        self.flows.leave(id, self.now);
        self.conns[of] = Conn::default();
        // Another takes its place.
        assert!(self.stack.abort(id));
        self.ids[of] = conn_id(&mut self.stack, of as u16);
        assert_eq!(self.ids[of].index(), id.index());
    }

    /// Its turn: it posts what it may of so much, and waits with the rest.
    fn turn(&mut self, of: usize, wanted: usize) {
        if self.conns[of].peer.is_none() {
            return;
        }
        let must_wait = self.flows.must_wait(self.ids[of]);
        let allowed = self.flows.allowance(self.ids[of]);
        let unblocked = self.conns[of].unblocked;
        assert_eq!(
            must_wait,
            allowed == 0 && !unblocked,
            "{:?}",
            self.conns[of]
        );
        let posted = allowed.min(wanted).min(SEGMENTS_PER_TURN);
        self.set(of, self.conns[of].segments + posted);
        self.conns[of].unblocked = false;
        self.conns[of].waits = wanted > allowed;
        if wanted > allowed {
            self.flows.wait(self.ids[of]);
        }
    }

    fn set(&mut self, of: usize, segments: usize) {
        self.conns[of].segments = segments;
        self.flows.under_way(self.ids[of], segments, self.now);
    }

    /// Those that wait and may go on are told.
    fn call(&mut self) {
        while let Some((id, _)) = self.flows.pop_unblocked() {
            let conn = &mut self.conns[id.index()];
            assert!(
                conn.waits && !conn.unblocked,
                "{id:?} is unblocked: {conn:?}"
            );
            (conn.waits, conn.unblocked) = (false, true);
        }
    }

    fn waiting(&self) -> usize {
        self.conns.iter().filter(|conn| conn.waits).count()
    }

    fn check(&self, seed: u64) {
        for peer in [PEER, OTHER] {
            let of_peer = || self.conns.iter().filter(|conn| conn.peer == Some(peer));
            let segments: usize = of_peer().map(|conn| conn.segments).sum();
            let busy = of_peer().filter(|conn| conn.segments > 0).count();
            let flow = self.flows.by_peer.get(&peer);
            let flow = flow.and_then(|flow| self.flows.flows[*flow].as_ref());
            let found = flow.map_or((0, 0, 0), |flow| {
                (flow.members, flow.busy, flow.window.in_flight())
            });
            assert_eq!(found, (of_peer().count(), busy, segments), "seed {seed}");
            if let Some(flow) = flow {
                self.check_turns(flow, seed);
            }
        }
    }

    /// Those that wait have a turn each, which comes when there is room.
    fn check_turns(&self, flow: &Macroflow, seed: u64) {
        let in_stage = |stage| {
            let members = self.flows.members.iter().flatten();
            let here = move |member: &&Member| {
                let conn = self.conns[member.id.index()];
                member.stage == stage && conn.peer == Some(flow.peer)
            };
            members.filter(here)
        };
        assert_eq!(
            flow.unblocked,
            in_stage(Stage::Unblocked).count(),
            "seed {seed}"
        );
        let mut clients: Vec<u32> = in_stage(Stage::Waiting).map(|one| one.client.0).collect();
        clients.sort_unstable();
        clients.dedup();
        let mut turns: Vec<u32> = flow.turns.iter().map(|client| client.0).collect();
        turns.sort_unstable();
        assert_eq!(turns, clients, "seed {seed}");
        assert!(
            flow.open || !flow.has_place(),
            "seed {seed}: nobody is unblocked"
        );
    }
}

#[test]
fn whatever_a_crowd_does_all_go_on_in_the_end() {
    let mut waited = 0;
    for seed in seeds(30) {
        let random = &mut Random::new(seed);
        let mut crowd = Crowd::new();
        let mut passed = Duration::ZERO;
        for _ in 0..STEPS {
            passed += Duration::from_micros(random.below(300));
            let now = Instant::ZERO + passed;
            crowd.now = now;
            let of = random.below(u64::from(CROWD)) as usize;
            let conn = crowd.conns[of];
            match random.below(16) {
                0 => crowd.leave(of),
                1..4 if conn.peer.is_none() => crowd.join(of, random),
                // One that waits has no turn until it is unblocked.
                4..10 if !conn.waits => crowd.turn(of, random.below(60) as usize),
                10..14 => crowd.set(of, random.below(conn.segments as u64 + 1) as usize),
                14 => {
                    let ago = Duration::from_micros(random.below(1000));
                    let sent = Instant::ZERO + passed.saturating_sub(ago);
                    crowd.flows.lost(crowd.ids[of], sent, now);
                }
                _ => crowd.call(),
            }
            crowd.check(seed);
        }
        waited += crowd.waiting();
        // All that is posted is acknowledged, again and again: each that waits has its turn.
        for _ in 0..CROWD {
            for of in 0..crowd.conns.len() {
                crowd.set(of, 0);
                if crowd.conns[of].unblocked {
                    crowd.turn(of, 1);
                }
            }
            crowd.call();
            if crowd.waiting() == 0 {
                break;
            }
        }
        assert_eq!(crowd.waiting(), 0, "seed {seed}: some wait for ever");
    }
    assert!(waited > 0, "nobody had to wait");
}
