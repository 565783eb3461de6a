//! One RNIC: a shard over a port in memory, and its client, with rings and memory of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rnic_engine::command::{Answer, Command, CommandError};
use rnic_engine::region::RegionMemory;
use rnic_engine::shard::{Shard, ShardConfig, Siblings, untagged_mtu};
use rnic_ipc::control::{Access, ListenSpec, QpAttributes, RegionSpec, Transport};
use rnic_ipc::id::{ClientId, CqId, ListenerId, PdId, QpNum, SrqId};
use rnic_ipc::ring::{
    CqConsumer, CqMemory, DoorbellConsumer, DoorbellProducer, QpMemory, SrqMemory,
    WorkQueueProducer, WorkRequest,
};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::work::Completion;
use rnic_net::{Path, PathDefaults, PeerRules};
use rnic_proto::Stag;
use rnic_xsk::{ChunkSize, DevicePort, FramePool, InternalEnd, MemoryPort, MemoryWire, Umem};
use userspace_net::Instant;

/// Bytes of a node's memory, registered or not.
pub const ARENA: usize = 64 << 10;
/// Work requests of each queue.
pub const DEPTH: u32 = 32;
/// The most elements of a work request.
pub const MAX_SGE: u32 = 32;
/// Bytes that work may carry itself.
pub const MAX_INLINE: u32 = 80;
/// Completion queues of a node, which its queue pairs share.
pub const CQS: u32 = 2;
/// One more, of fewer entries than may be needed.
pub const TIGHT_CQ: CqId = CqId(CQS);
/// Receives of a shared receive queue.
pub const SRQ_DEPTH: u32 = 32;
const CQ_DEPTH: u32 = 1024;
const CLIENT: ClientId = ClientId(1);
const PORT: u16 = 7174;
const DOORBELLS: u32 = 64;

pub struct Node {
    pub shard: Shard<DevicePort<MemoryPort>>,
    pub wire: MemoryWire,
    pub address: SocketAddr,
    pub arena: Arc<SharedMemory>,
    pub frames: usize,
    mac: [u8; 6],
    mtu: u32,
    loopback_mtu: u32,
    doorbells: DoorbellProducer,
    cqs: Vec<CqConsumer>,
    queues: BTreeMap<u32, (WorkQueueProducer, WorkQueueProducer)>,
    srqs: Vec<WorkQueueProducer>,
    next_qp: u32,
    woken: Vec<OwnedFd>,
}

/// What a node is made with.
pub struct Settings {
    pub shard: ShardConfig,
    pub frames: u32,
    /// Frames that its wire holds in each direction.
    pub wire_depth: usize,
    /// Entries of [`TIGHT_CQ`].
    pub tight_cq: u32,
}

impl Settings {
    /// With tables no larger than one client needs.
    pub fn new(index: usize, mtu: u32) -> Self {
        let mut shard = ShardConfig {
            path_defaults: PathDefaults::new(mtu),
            receive_reserve: 32,
            reassembly: 4,
            secret: [index as u8; 16],
            common_secret: [!(index as u8); 16],
            ..ShardConfig::default()
        };
        shard.limits.clients = 1;
        shard.limits.regions = 48;
        shard.limits.cqs = 1 + CQS as usize;
        shard.limits.srqs = 8;
        shard.limits.queue_pairs = 32;
        shard.limits.listeners = 2;
        shard.limits.connections = 32;
        Self {
            shard,
            frames: 128,
            wire_depth: 64,
            tight_cq: 16,
        }
    }

    /// Frames for its MTU, and nobody beside it.
    pub fn place(&self) -> Place {
        let (umem, pool) = Umem::heap(self.frames, self.chunk());
        Place {
            umem,
            pool,
            links: Vec::new(),
            siblings: None,
        }
    }

    pub fn chunk(&self) -> ChunkSize {
        ChunkSize::for_mtu(self.shard.path_defaults.mtu).unwrap()
    }
}

/// Where a node is: its frames, and who is beside it on its host.
pub struct Place {
    pub umem: Umem,
    pub pool: FramePool,
    /// Ends of internal links to other nodes.
    pub links: Vec<InternalEnd>,
    /// Other nodes are shards of the same interface.
    pub siblings: Option<Siblings>,
}

impl Node {
    /// Node number `index` in [its place](Settings::place).
    pub fn new(index: usize, settings: Settings, place: Place) -> Self {
        let Place {
            umem,
            pool,
            links,
            siblings,
        } = place;
        let mtu = settings.shard.path_defaults.mtu;
        let (port, wire) = MemoryPort::intercepted_with_super_packets(&umem, settings.wire_depth);
        let (doorbells, engine) = doorbells();
        let ports = vec![DevicePort::Queue(port)];
        let mut node = Self {
            frames: pool.free_chunks(),
            shard: Shard::new(settings.shard, pool, ports, Instant::ZERO),
            wire,
            address: format!("198.18.0.{}:{PORT}", index + 1).parse().unwrap(),
            arena: Arc::new(SharedMemory::private(ARENA).unwrap()),
            mac: [2, 0, 0, 0, 0, index as u8],
            mtu,
            loopback_mtu: untagged_mtu(umem.frame_capacity()),
            doorbells,
            cqs: Vec::new(),
            queues: BTreeMap::new(),
            srqs: Vec::new(),
            next_qp: 0,
            woken: Vec::new(),
        };
        if let Some(siblings) = siblings {
            node.shard.join(siblings);
        }
        for (link, end) in links.into_iter().enumerate() {
            node.must(Command::SetInternalLink { link, end });
        }
        node.open(engine, settings.tight_cq);
        node
    }

    fn open(&mut self, doorbells: DoorbellConsumer, tight: u32) {
        let client = CLIENT;
        self.must(Command::AddClient { client, doorbells });
        for cq in 0..=CQS {
            let depth = if cq == TIGHT_CQ.0 { tight } else { CQ_DEPTH };
            let size = CqMemory::size(depth, 1).unwrap();
            let memory = Arc::new(SharedMemory::private(size).unwrap());
            let ring = CqMemory::create_in(&memory, depth, 1).unwrap().remove(0);
            self.cqs
                .push(CqMemory::attach(&memory, depth, 1).unwrap().remove(0));
            let (ours, notify) = rustix::net::socketpair(
                rustix::net::AddressFamily::UNIX,
                rustix::net::SocketType::DGRAM,
                rustix::net::SocketFlags::empty(),
                None,
            )
            .unwrap();
            self.woken.push(ours);
            self.must(Command::AddCq {
                client,
                cq: CqId(cq),
                ring,
                notify: notify.into(),
            });
        }
        for (listener, transport) in [(1, Transport::Tcp), (2, Transport::Sctp)] {
            let local = self.address;
            self.must(Command::Listen {
                client,
                listener: ListenerId(listener),
                spec: ListenSpec {
                    local,
                    backlog: 16,
                    transport,
                },
                peers: PeerRules::default(),
            });
        }
    }

    fn must(&mut self, command: Command) {
        self.shard.execute(command, Instant::ZERO).unwrap();
    }

    pub fn execute(&mut self, command: Command, now: Instant) -> Result<Answer, CommandError> {
        self.shard.execute(command, now)
    }

    /// Registers bytes of the arena.
    pub fn register(
        &mut self,
        stag: Stag,
        pd: PdId,
        access: Access,
        base: u64,
        at: (usize, usize),
    ) {
        let memory = RegionMemory::Shared {
            memory: Arc::clone(&self.arena),
            offset: at.0,
            len: at.1,
        };
        self.must(Command::AddRegion {
            stag,
            spec: RegionSpec::new(pd, access, base, memory.len()),
            memory,
            word: None,
        });
    }

    /// Of a queue pair of the usual size with receives of its own.
    pub fn attributes(pd: PdId, [send_cq, recv_cq]: [CqId; 2]) -> QpAttributes {
        QpAttributes {
            pd,
            send_cq,
            recv_cq,
            sq_depth: DEPTH,
            rq_depth: DEPTH,
            srq: None,
            max_sge: 6,
            max_inline: MAX_INLINE,
            signal_all: false,
            receive_wait: None,
        }
    }

    pub fn create_qp(&mut self, attributes: QpAttributes) -> QpNum {
        self.next_qp += 1;
        let qp = QpNum(self.next_qp);
        let max_sge = attributes.max_sge;
        let sq_slots = QpMemory::slots(DEPTH, attributes.send_places()).unwrap();
        let rq_slots = QpMemory::slots(DEPTH, max_sge).unwrap();
        let layout = QpMemory::layout(sq_slots, rq_slots).unwrap();
        let memory = Arc::new(SharedMemory::private(layout.size).unwrap());
        let (sq, rq) = QpMemory::create_in(Arc::clone(&memory), &layout).unwrap();
        self.queues
            .insert(qp.0, QpMemory::attach(memory, &layout).unwrap());
        self.must(Command::AddQp {
            client: CLIENT,
            qp,
            attributes,
            sq,
            rq,
        });
        qp
    }

    /// A shared receive queue.
    pub fn create_srq(&mut self, max_sge: u32) -> SrqId {
        let srq = SrqId(self.srqs.len() as u32);
        let slots = QpMemory::slots(SRQ_DEPTH, max_sge).unwrap();
        let memory = Arc::new(SharedMemory::private(SrqMemory::size(slots).unwrap()).unwrap());
        let ring = SrqMemory::create_in(Arc::clone(&memory), slots, max_sge).unwrap();
        self.srqs
            .push(SrqMemory::attach(memory, slots, max_sge).unwrap());
        self.must(Command::AddSrq {
            client: CLIENT,
            srq,
            max_sge,
            ring,
        });
        srq
    }

    /// Nobody is notified of receives that wait.
    pub fn post_shared_recv(&mut self, srq: SrqId, request: &WorkRequest) {
        self.srqs[srq.0 as usize].push(request).unwrap();
    }

    /// Of its interface, in bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    pub fn path_to(&self, other: &Node) -> Path {
        if self.address == other.address {
            return Path::loopback(self.loopback_mtu);
        }
        Path {
            src_mac: self.mac,
            dst_mac: other.mac,
            vlan: None,
            mtu: self.mtu.min(other.mtu),
            hop_limit: 64,
        }
    }

    /// `inline`: bytes that the request carries instead of elements.
    pub fn post_send(&mut self, qp: QpNum, request: &WorkRequest, inline: Option<&[u8]>) {
        let queues = self.queues.get_mut(&qp.0).unwrap();
        match inline {
            Some(bytes) => {
                let operands = request.operands().unwrap();
                let queue = &mut queues.0;
                queue.push_inline(&request.slot, bytes, &operands).unwrap();
            }
            None => queues.0.push(request).unwrap(),
        }
        self.ring(qp);
    }

    pub fn post_recv(&mut self, qp: QpNum, request: &WorkRequest) {
        let queues = self.queues.get_mut(&qp.0).unwrap();
        queues.1.push(request).unwrap();
        self.ring(qp);
    }

    fn ring(&mut self, qp: QpNum) {
        if self.queues[&qp.0].0.set_pending().is_some() {
            self.doorbells.ring(qp).unwrap();
        }
    }

    /// The completions that came since the last call, each with its CQ, and each CQ's in order.
    pub fn completions(&mut self) -> Vec<(CqId, Completion)> {
        let mut all = Vec::new();
        let mut out = [Completion::default(); 64];
        for (name, cq) in self.cqs.iter_mut().enumerate() {
            loop {
                let count = cq.poll(&mut out).unwrap();
                if count == 0 {
                    break;
                }
                all.extend(out[..count].iter().map(|one| (CqId(name as u32), *one)));
            }
        }
        all
    }

    /// Entries of a CQ.
    pub fn cq_depth(&self, cq: CqId) -> u32 {
        self.cqs[cq.0 as usize].depth()
    }

    /// Asks for one wake-up by the next completion, or the next that is solicited or an error.
    pub fn arm(&mut self, cq: CqId, solicited_only: bool) {
        self.cqs[cq.0 as usize].arm(solicited_only);
    }

    /// How often the client of a CQ was woken since the last call.
    pub fn wake_ups(&mut self, cq: CqId) -> usize {
        let notices = &self.woken[cq.0 as usize];
        let mut bytes = [0; 4];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let mut count = 0;
        while rustix::net::recv(notices, &mut bytes, flags).is_ok() {
            count += 1;
        }
        count
    }

    pub fn counters(&mut self) -> Vec<(String, u64)> {
        match self.execute(Command::QueryCounters, Instant::ZERO) {
            Ok(Answer::Counters(all)) => all,
            other => panic!("{other:?}"),
        }
    }

    /// Every frame is back in its pool, and no connection, queue pair or STag is left.
    pub fn assert_empty(&self, who: usize) {
        let levels = self.shard.levels();
        assert_eq!(
            levels.frames_free, self.frames,
            "node {who}: frames {levels:?}"
        );
        assert_eq!(levels.frames_held, 0, "node {who}: {levels:?}");
        assert_eq!(levels.connections, 0, "node {who}: {levels:?}");
        assert_eq!(levels.queue_pairs, 0, "node {who}: {levels:?}");
        assert_eq!(levels.regions, 0, "node {who}: {levels:?}");
        assert_eq!(levels.queues_lent, 0, "node {who}: {levels:?}");
    }
}

fn doorbells() -> (DoorbellProducer, DoorbellConsumer) {
    let size = DoorbellConsumer::memory_size(DOORBELLS, 1).unwrap();
    let memory = Arc::new(SharedMemory::private(size).unwrap());
    let engine = DoorbellConsumer::create_in(&memory, DOORBELLS, 1)
        .unwrap()
        .remove(0);
    let client = DoorbellProducer::attach(&memory, DOORBELLS, 1)
        .unwrap()
        .remove(0);
    (client, engine)
}
