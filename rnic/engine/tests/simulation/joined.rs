//! RNICs of one host that are joined by internal links, beside the wire: the way that a stream goes over, sleep
//! and wake-up, shards that don't run for a while, and one that is gone. And nodes that are shards of one interface:
//! frames for one come to another, too.

use std::time::Duration;

use rnic_engine::shard::{Shard, ShardConfig, Siblings, untagged_mtu};
use rnic_net::Path;
use rnic_xsk::{ChunkSize, InternalEnd, Port, Umem};
use rustix::event::{PollFd, PollFlags};
use userspace_net::Instant;

use crate::memory::Party;
use crate::node::{Node, Place, Settings};
use crate::random::Random;
use crate::run::Size;
use crate::simulation::{Simulation, Validity};
use crate::stream::Life;

/// So many streams of a thousand between two joined nodes go over their link, the others over the wire.
const OVER_LINKS: u64 = 700;
/// The longest that a shard does not run.
const LONGEST_HALT: u64 = 3_000_000;

/// The first nodes, so many, which are those of one host; each two of them have a link. Or they are the shards of one
/// interface.
pub struct Host {
    joined: usize,
    siblings: usize,
    /// How many frames each link holds in each direction, or packets each way from a shard to another.
    depth: u32,
    states: Vec<State>,
    pub gone: Option<usize>,
}

#[derive(Clone, Copy)]
struct State {
    sleep: Sleep,
    /// The shard does not run before.
    halted_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    Awake,
    /// Its last poll found nothing to do. Others run before it sleeps.
    Drowsy,
    Asleep,
}

impl Host {
    pub fn new(size: Size, depth: u32) -> Self {
        let state = State {
            sleep: Sleep::Awake,
            halted_until: Instant::ZERO,
        };
        Self {
            joined: size.joined,
            siblings: size.siblings,
            depth,
            states: vec![state; size.nodes],
            gone: None,
        }
    }

    /// No node has others beside it.
    pub fn is_empty(&self) -> bool {
        self.joined + self.siblings == 0
    }

    /// Nodes are shards of one interface.
    pub fn has_siblings(&self) -> bool {
        self.siblings > 0
    }

    fn has(&self, node: usize) -> bool {
        node < self.joined.max(self.siblings)
    }

    /// The number that the link to one node has at another.
    fn link(from: usize, to: usize) -> usize {
        if to < from { to } else { to - 1 }
    }

    /// The nodes of a simulation, joined.
    pub fn nodes(&self, settings: Vec<Settings>, random: &mut Random) -> Vec<Node> {
        let mut places: Vec<_> = settings.iter().map(Settings::place).collect();
        for a in 0..self.joined {
            for b in a + 1..self.joined {
                let frame_bytes = [a, b].map(|node| places[node].umem.frame_capacity());
                let (to_b, to_a) = InternalEnd::pair(frame_bytes, self.depth).unwrap();
                places[a].links.push(to_b);
                places[b].links.push(to_a);
            }
        }
        if self.has_siblings() {
            self.make_siblings(&settings, &mut places, random);
        }
        let parts = settings.into_iter().zip(places).enumerate();
        parts
            .map(|(index, (settings, place))| Node::new(index, settings, place))
            .collect()
    }

    /// Has the first nodes be shards of one interface: their frames are of one UMEM.
    fn make_siblings(&self, settings: &[Settings], places: &mut [Place], random: &mut Random) {
        let count = self.siblings;
        let frames = settings[0].frames * count as u32;
        let (umem, pool) = Umem::heap(frames, settings[0].chunk());
        let secret = [random.next() as u8; 16];
        let siblings = Siblings::among(count, 32 * count, self.depth as usize, secret).unwrap();
        let shares = pool.shares(count).into_iter().zip(siblings);
        for (place, (pool, siblings)) in places.iter_mut().zip(shares) {
            *place = Place {
                umem: umem.clone(),
                pool,
                links: Vec::new(),
                siblings: Some(siblings),
            };
        }
    }
}

impl Simulation {
    /// By which way a new stream goes: over the wire, or over the link that joins its nodes.
    pub fn choose_way(&mut self, from: usize, to: usize) -> bool {
        let joined = from != to && from.max(to) < self.host.joined;
        joined && self.random.chance(OVER_LINKS)
    }

    /// The link that a node reaches another by, and the path of its frames.
    pub fn internal_path(&self, from: usize, to: usize) -> (usize, Path) {
        let link = Host::link(from, to);
        let [node, other] = [from, to].map(|index| &self.nodes[index]);
        let frame_bytes = node.shard.ports()[1 + link].frame_capacity();
        let mtu = untagged_mtu(frame_bytes);
        let path = Path {
            mtu,
            ..node.path_to(other)
        };
        (link, path)
    }

    /// Frames that a node's links or siblings brought, or brought for nothing.
    fn came_by_links(&self, node: usize) -> u64 {
        let shard = &self.nodes[node].shard;
        let statistics = shard.ports()[1..].iter().map(Port::statistics);
        let by_links: u64 = statistics.map(|it| it.received + it.receive_no_frame).sum();
        let siblings = shard.handover();
        by_links + siblings.taken + siblings.no_frame
    }

    /// Frames that links and siblings lost, because they or their receiver had no space.
    pub fn lost_by_links(&self) -> u64 {
        let siblings = self.nodes.iter().map(|node| node.shard.handover());
        let by_siblings: u64 = siblings.map(|it| it.full + it.no_frame).sum();
        let ports = self.nodes.iter().map(|node| node.shard.ports());
        let links = ports.flat_map(|ports| ports.get(1..).unwrap_or(&[]));
        let statistics = links.map(Port::statistics);
        let by_links = statistics.map(|it| it.send_dropped + it.receive_no_frame);
        by_siblings + by_links.sum::<u64>()
    }

    pub fn is_gone(&self, node: usize) -> bool {
        self.host.gone == Some(node)
    }

    /// Until when a shard does not run, which is so now.
    pub fn halted_until(&self, node: usize) -> Option<Instant> {
        let until = self.host.states[node].halted_until;
        (until > self.now).then_some(until)
    }

    /// Whether a joined node is to be polled for what its links may have brought: it is awake, or was woken.
    pub fn is_woken(&mut self, node: usize) -> bool {
        if !self.host.has(node) || self.is_gone(node) {
            return false;
        }
        let state = &mut self.host.states[node];
        if state.sleep == Sleep::Drowsy && self.nodes[node].shard.prepare_sleep() {
            state.sleep = Sleep::Asleep;
        }
        state.sleep != Sleep::Asleep || is_rung(&self.nodes[node])
    }

    /// Polls a node, which may have slept. Whether it worked, and whether it goes to sleep: then it is to be
    /// looked after once more.
    pub fn poll(&mut self, node: usize, woken: bool) -> (bool, bool) {
        if !self.host.has(node) || self.is_gone(node) {
            return (self.nodes[node].shard.poll(self.now), false);
        }
        let was = self.host.states[node].sleep;
        let slept = was == Sleep::Asleep;
        let before = self.came_by_links(node);
        if slept {
            self.nodes[node].shard.wake_up();
            if woken {
                self.count("shards_woken_by_links");
            }
        }
        let worked = self.nodes[node].shard.poll(self.now);
        let missed = slept && !woken && self.came_by_links(node) > before;
        assert!(!missed, "node {node} slept, and a link had frames for it");
        self.host.states[node].sleep = match worked {
            true => Sleep::Awake,
            false => Sleep::Drowsy,
        };
        (worked, !worked && was != Sleep::Drowsy)
    }

    /// What happens to the host itself now and then.
    pub fn disturb(&mut self) {
        let node = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(20) {
            0 if self.host.joined > 0 => self.leave(node),
            _ => {
                let time = Duration::from_micros(1 + self.random.below(LONGEST_HALT));
                let time = time / [1, 30, 1000][self.random.below(3) as usize];
                self.note(|| format!("node {node} does not run for {time:?}"));
                self.host.states[node].halted_until = self.now + time;
                self.count("shards_halted");
            }
        }
    }

    /// A node's shard is gone, with its ends of links and all that it has: nobody is told.
    fn leave(&mut self, node: usize) {
        if self.host.gone.is_some() {
            return;
        }
        self.note(|| format!("node {node} is gone"));
        self.count("shards_gone");
        self.host.gone = Some(node);
        // A shard in its place that has nothing and reaches nobody.
        let (umem, pool) = Umem::heap(1, ChunkSize::Bytes2048);
        let config = ShardConfig::default();
        let now = self.now;
        self.nodes[node].frames = umem.frames();
        self.nodes[node].shard = Shard::loopback_only(config, umem, pool, now);
        // What is lost with it was not counted.
        self.calm = false;
        for party in self.parties() {
            if self.end_of(party).node == node {
                self.end_is_gone(party);
            }
        }
        self.forget_srqs(node);
        for index in 0..self.regions.len() {
            if self.regions[index].node == node {
                self.rights_end(index, Validity::Revoked);
            }
        }
        self.forget_windows(node);
    }

    fn end_is_gone(&mut self, party: Party) {
        if self.end_of(party).life == Life::Gone {
            return;
        }
        self.doom_somehow(party.stream, "a node is gone");
        self.end_mut(party).life = Life::Gone;
        self.abandon(party);
        let (node, qp) = (self.end_of(party).node, self.end_of(party).qp);
        self.windows_of_stream_end(node, qp);
        self.peers_line_ends(party, None);
    }

    /// A stream's other node is gone, and its own end has been told, unless it waits for nothing, or its
    /// connection never began. A responder of revision 1 may wait for the initiator's first FPDU for ever: nobody
    /// owes it one (RFC 5044 section 7.1.2).
    pub fn has_noticed(&self, party: Party) -> bool {
        let end = self.end_of(party);
        let accepted = self.streams[party.stream].accepted && end.mpa.revision > 1;
        let began = party.end == 0 || accepted;
        let waits = began && end.sq.iter().any(|posted| posted.signaled);
        !self.is_gone(self.end_of(Self::peer(party)).node) || !end.is_alive() || !waits
    }
}

/// Whether one of a node's links ends its sleep.
fn is_rung(node: &Node) -> bool {
    let mut fds: Vec<_> = node
        .shard
        .poll_fds()
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    rustix::event::poll(&mut fds, Some(&Default::default())).unwrap() > 0
}
