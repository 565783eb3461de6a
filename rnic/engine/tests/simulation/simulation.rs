//! A seed's world: nodes, the network, and what is known of them; and the passing of time.

use std::collections::BTreeMap;
use std::time::Duration;

use rnic_ipc::control::{Access, MarkerUse, MpaOptions, QpAttributes, RtrModes, Transport};
use rnic_ipc::id::{CqId, PdId, QpNum};
use rnic_ipc::work::WrOpcode;
use rnic_proto::Stag;
use userspace_net::Instant;

use crate::impairment::Impairment;
use crate::joined::Host;
use crate::memory::{Memory, Party};
use crate::network::{Manners, Network};
use crate::node::{ARENA, CQS, MAX_SGE, Node, Settings, TIGHT_CQ};
use crate::queues::{SharedQueue, Wishes};
use crate::random::Random;
use crate::run::Size;
use crate::stream::{Cause, End, Life, Stream};
use crate::tcp_frames;
use crate::windows::WindowObject;

/// Places for regions in a node's memory: at most one region lies in each, with a margin around.
pub const PLACES: usize = 8;
const PLACE: usize = ARENA / PLACES;

/// What an STag is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Valid,
    /// Work that makes it valid or invalidates it is under way.
    Expected,
    Invalidated,
    Revoked,
    /// A window whose region is gone.
    Orphaned,
    /// Nobody was told the result.
    Unknown,
}

/// What a window is beside its range.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Which of the simulation's windows this is a binding of.
    pub index: usize,
    pub parent: usize,
    pub owner: QpNum,
}

#[derive(Clone, Debug)]
pub struct Region {
    pub node: usize,
    pub stag: Stag,
    pub pd: PdId,
    pub access: Access,
    /// Tagged offset of its first byte.
    pub base: u64,
    /// Where it begins in the node's memory.
    pub at: usize,
    pub len: usize,
    pub validity: Validity,
    /// Something is under way whose outcome hangs on it.
    pub pinned: bool,
    pub window: Option<Window>,
}

impl Region {
    /// Behind its last byte in the memory.
    pub fn end(&self) -> usize {
        self.at + self.len
    }

    pub fn range(&self) -> std::ops::Range<usize> {
        self.at..self.end()
    }

    /// Whether a peer may do this with it, as far as rights go.
    pub fn gives(&self, opcode: WrOpcode) -> bool {
        match opcode {
            WrOpcode::Write => self.access.contains(Access::REMOTE_WRITE),
            WrOpcode::Read => self.access.contains(Access::REMOTE_READ),
            _ => self.access.contains(Access::REMOTE_ATOMIC),
        }
    }

    /// Whether the peer of this queue pair may use it, as far as streams go.
    pub fn is_for(&self, qp: QpNum) -> bool {
        self.window.is_none_or(|window| window.owner == qp)
    }
}

pub struct Simulation {
    pub nodes: Vec<Node>,
    pub memories: Vec<Memory>,
    pub regions: Vec<Region>,
    pub windows: Vec<WindowObject>,
    pub srqs: Vec<SharedQueue>,
    /// The tight CQ of each node has overflowed.
    pub dead_cqs: Vec<bool>,
    /// What each node's client asked of its CQs.
    pub wishes: Vec<Wishes>,
    pub streams: Vec<Stream>,
    pub network: Network,
    pub host: Host,
    /// The network loses and damages nothing.
    pub calm: bool,
    pub now: Instant,
    pub random: Random,
    /// Which end a node's queue pair is.
    pub ends: BTreeMap<(usize, u32), Party>,
    pub happened: BTreeMap<String, u64>,
    /// Work whose completions were found together: those of two CQs are in no order.
    pub batch: Vec<u64>,
    next_id: u64,
    next_stag: u32,
    /// Nodes with work to look at.
    pub due: Vec<bool>,
}

impl Simulation {
    pub fn new(seed: u64, size: Size) -> Self {
        let nodes = size.nodes;
        let mut random = Random::new(seed);
        let manners = manners(&mut random);
        // Frames of some take several chunks.
        let mut mtu = || {
            let most = if random.chance(800) { 1500 } else { 11_502 };
            576 + random.below(most - 576 + 1) as u32
        };
        let mut mtus: Vec<_> = (0..nodes).map(|_| mtu()).collect();
        let of_siblings = mtus[0];
        mtus[..size.siblings].fill(of_siblings);
        let settings: Vec<_> = mtus
            .into_iter()
            .enumerate()
            .map(|(index, mtu)| settings(index, mtu, &mut random))
            .collect();
        let depth = match size.joined + size.siblings {
            0 => 1,
            _ => 1 << (1 + random.below(8)),
        };
        let host = Host::new(size, depth);
        let nodes = host.nodes(settings, &mut random);
        Self {
            memories: nodes
                .iter()
                .map(|node| Memory::new(node.arena.clone()))
                .collect(),
            due: vec![true; nodes.len()],
            network: Network::new(nodes.len(), size.siblings, manners, Random::new(!seed)),
            host,
            regions: Vec::new(),
            windows: Vec::new(),
            srqs: Vec::new(),
            dead_cqs: vec![false; nodes.len()],
            wishes: vec![Wishes::default(); nodes.len()],
            nodes,
            streams: Vec::new(),
            calm: manners.are_good(),
            now: Instant::from_nanos(1_000_000),
            random,
            ends: BTreeMap::new(),
            happened: BTreeMap::new(),
            batch: Vec::new(),
            next_id: 0,
            next_stag: 0,
        }
    }

    pub fn count(&mut self, what: &str) {
        *self.happened.entry(what.to_string()).or_insert(0) += 1;
    }

    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// An STag that was never in use.
    pub fn fresh_stag(&mut self) -> Stag {
        self.next_stag += 1;
        Stag::from_parts(self.next_stag, self.random.next() as u8)
    }

    /// Registers memory in a free place; none when all places are taken.
    pub fn register(&mut self, node: usize, pd: PdId, access: Access) -> Option<usize> {
        let taken = |place: usize| {
            self.regions.iter().any(|region| {
                region.node == node
                    && region.at / PLACE == place
                    && region.validity != Validity::Revoked
                    && region.window.is_none()
            })
        };
        let place = (0..PLACES).find(|place| !taken(*place))?;
        let margin = 16 + self.random.below(1000) as usize;
        let len = 1 + self.random.below((PLACE - margin - 16) as u64) as usize;
        let at = place * PLACE + margin;
        let base = self.random.next() >> 1;
        let stag = self.fresh_stag();
        let bytes = self.bytes(len);
        self.memories[node].fill(at, &bytes);
        self.nodes[node].register(stag, pd, access, base, (at, len));
        self.note(|| format!("node {node} registers {stag} {at}..{} {access:?}", at + len));
        self.regions.push(Region {
            node,
            stag,
            pd,
            access,
            base,
            at,
            len,
            validity: Validity::Valid,
            pinned: false,
            window: None,
        });
        Some(self.regions.len() - 1)
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend_from_slice(&self.random.next().to_le_bytes());
        }
        out.truncate(len);
        out
    }

    /// Begins a stream between two nodes, with memory that both can use.
    pub fn connect(&mut self, from: usize, to: usize) {
        let internal = self.choose_way(from, to);
        let revision = self.revision();
        let ends = [from, to].map(|node| self.end(node, revision));
        self.open(ends, internal);
    }

    pub fn revision(&mut self) -> u8 {
        if self.random.chance(700) { 2 } else { 1 }
    }

    pub fn open(&mut self, ends: [End; 2], internal: bool) {
        let port = 40_000 + self.streams.len() as u16;
        let revision = ends[0].mpa.revision;
        let stream = self.streams.len();
        for (end, of) in ends.iter().enumerate() {
            self.ends.insert((of.node, of.qp.0), Party { stream, end });
        }
        // SCTP tells its peer no segment size: the larger packets of one would be lost on the link of the other.
        let mtus = ends.each_ref().map(|end| self.nodes[end.node].mtu());
        let transport = match self.random.chance(300) && mtus[0] == mtus[1] {
            true => Transport::Sctp,
            false => Transport::Tcp,
        };
        if transport == Transport::Sctp {
            self.count("streams_over_sctp");
        }
        self.streams.push(Stream {
            transport,
            port,
            ends,
            accepted: false,
            internal,
            causes: Vec::new(),
        });
        if internal {
            self.count("streams_over_links");
            self.network.keep_out(port);
        }
        self.begin_connecting(stream);
        if revision == 1 {
            // The responder may send nothing before (RFC 5044 section 7.1.2).
            self.write_nothing(Party { stream, end: 0 });
        }
    }

    fn end(&mut self, node: usize, revision: u8) -> End {
        // Most of a node's streams share a protection domain.
        let pd = PdId(1 + self.random.below(5).saturating_sub(2) as u32);
        self.register(node, pd, Access::ALL);
        if self.random.chance(300) {
            self.register(node, pd, Access::LOCAL_WRITE);
        }
        let srq = self.random.chance(250).then(|| self.srq(node, pd));
        let mut cqs = [(); 2].map(|()| CqId(self.random.below(u64::from(CQS)) as u32));
        for (queue, cq) in cqs.iter_mut().enumerate() {
            // With a dead CQ nobody would know which receive a queue pair had in hand.
            let lost = queue == 1 && srq.is_some();
            if self.random.chance(100) && !self.dead_cqs[node] && !lost {
                *cq = TIGHT_CQ;
            }
        }
        let signal_all = self.random.chance(300);
        let max_sge = if self.random.chance(200) { MAX_SGE } else { 6 };
        let qp = self.nodes[node].create_qp(QpAttributes {
            srq: srq.map(|srq| self.srqs[srq].id),
            max_sge,
            signal_all,
            receive_wait: None,
            ..Node::attributes(pd, cqs)
        });
        End {
            node,
            qp,
            pd,
            cqs,
            srq,
            signal_all,
            max_sge,
            mpa: self.mpa(revision),
            life: Life::Opening,
            sq: Default::default(),
            rq: Default::default(),
            line: Default::default(),
            failed: [false; 3],
            bare: false,
        }
    }

    /// What an end asks of its peer.
    pub fn mpa(&mut self, revision: u8) -> MpaOptions {
        let mut depth = || 1 + self.random.below(4) as u16;
        // Revision 1 agrees on no depths: they must suit as they are.
        let (ird, ord) = match revision {
            1 => (4, depth()),
            _ => (depth(), depth()),
        };
        MpaOptions {
            revision,
            crc: self.random.chance(600),
            markers: MarkerUse::of_flag(self.random.chance(500)),
            aligned: self.random.chance(600),
            rtr: RtrModes::ALL,
            ird,
            ord,
        }
    }

    /// Nothing was lost or damaged on any way.
    pub fn is_calm(&self) -> bool {
        self.calm && self.lost_by_links() == 0
    }

    /// A stream may end from here on.
    pub fn doom(&mut self, stream: usize, cause: Cause) {
        self.note(|| {
            format!(
                "stream {stream} may end: {}, {:?}",
                cause.what, cause.reasons
            )
        });
        self.streams[stream].causes.push(cause);
    }

    /// As above, and what either end learns of it does not matter.
    pub fn doom_somehow(&mut self, stream: usize, what: &'static str) {
        let reasons = [Vec::new(), Vec::new()];
        self.doom(stream, Cause { what, reasons });
    }

    /// Lets all nodes work until nothing can be done without time going on.
    pub fn settle(&mut self) {
        loop {
            let mut worked = false;
            for node in 0..self.nodes.len() {
                worked |= self.halted_until(node).is_none() && self.work(node);
            }
            if !worked {
                return;
            }
        }
    }

    pub fn work(&mut self, index: usize) -> bool {
        if self.is_gone(index) {
            self.network.discard(index);
        }
        let woken = self.is_woken(index);
        let node = &mut self.nodes[index];
        let given = self.network.give(index, &node.wire, self.now);
        let late = node.shard.next_deadline().is_some_and(|at| at <= self.now);
        if !given && !late && !woken && !self.due[index] {
            return false;
        }
        let (worked, dozes) = self.poll(index, woken);
        self.due[index] = worked;
        self.network.take(&self.nodes[index].wire, self.now);
        self.observe(index);
        self.check_wake_ups(index);
        self.check_limits(index);
        worked || given || dozes
    }

    /// Goes on to the next moment at which something happens, or to `end`; false when that comes
    /// first.
    pub fn step_until(&mut self, end: Instant) -> bool {
        self.settle();
        let least = self.now + Duration::from_nanos(1);
        let moments = (0..self.nodes.len()).filter_map(|node| self.next_moment(node));
        let next = moments.min().unwrap_or(end).max(least);
        self.now = next.min(end);
        self.settle();
        next < end
    }

    /// When something happens next at a node, unless others do something.
    fn next_moment(&mut self, node: usize) -> Option<Instant> {
        let moments = [
            self.network.next(node),
            self.nodes[node].shard.next_deadline(),
        ];
        let next = moments.into_iter().flatten().min();
        self.halted_until(node).or(next)
    }

    /// One moment further.
    pub fn step(&mut self) {
        self.step_until(self.now + Duration::from_secs(3600));
    }

    /// Runs until `done`, for at most `limit` of virtual time.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit;
        self.settle();
        while !done(self) {
            if !self.step_until(end) {
                return done(self);
            }
        }
        true
    }

    pub fn check_memories(&mut self) {
        for (who, memory) in self.memories.iter_mut().enumerate() {
            memory.check(who);
        }
    }

    /// Says what happens, when `RNIC_TEST_TRACE` is set.
    pub fn note(&self, what: impl FnOnce() -> String) {
        static WANTED: std::sync::LazyLock<bool> =
            std::sync::LazyLock::new(|| std::env::var_os("RNIC_TEST_TRACE").is_some());
        if *WANTED {
            println!("{:?} {}", self.now, what());
        }
    }
}

fn settings(index: usize, mtu: u32, random: &mut Random) -> Settings {
    let mut settings = Settings::new(index, mtu);
    settings.shard.receive_reserve = 32 + random.below(64) as usize;
    let tcp = &mut settings.shard.tcp;
    tcp.receive_window = 1 << (12 + random.below(7));
    tcp.send_queue_segments = 4 + random.below(60) as usize;
    tcp.timestamps = random.chance(700);
    tcp.sack = random.chance(700);
    tcp.window_scale = random.chance(700);
    settings.frames = 128 + random.below(300) as u32;
    settings.tight_cq = 1 << (1 + random.below(5));
    settings.wire_depth = 16 + random.below(100) as usize;
    settings
}

fn manners(random: &mut Random) -> Manners {
    let delay = Duration::from_micros(1 + random.below(2000));
    let good = Manners {
        impairment: Impairment {
            delay,
            ..Impairment::NONE
        },
        cut: 0,
        join: 0,
        longest: tcp_frames::SMALLEST_MTU,
        sly: 0,
    };
    let cuts = random.chance(500);
    let good = Manners {
        cut: if cuts { random.below(300) } else { 0 },
        join: if cuts { random.below(500) } else { 0 },
        ..good
    };
    // As with TSO and GRO, or with a few segments that differ.
    let good = match random.chance(300) {
        true => Manners {
            join: 700 + random.below(301),
            longest: tcp_frames::SUPER_PACKET,
            ..good
        },
        false => good,
    };
    if random.chance(300) {
        return good;
    }
    Manners {
        impairment: Impairment {
            loss: random.below(60),
            duplicate: random.below(50),
            corrupt: random.below(20),
            reorder: random.below(300),
            delay,
        },
        sly: if random.chance(200) { 10 } else { 0 },
        ..good
    }
}
