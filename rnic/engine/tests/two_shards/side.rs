//! One host: a shard, and a client of it with rings, memory, a CQ and queue pairs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rnic_engine::command::{Answer, Command, CommandError, ShardEvent};
use rnic_engine::region::RegionMemory;
use rnic_engine::shard::{Shard, ShardConfig};
use rnic_ipc::control::{
    Access, ConnectSpec, Event, ListenSpec, MpaOptions, QpAttributes, QpState, ReceiveWait,
    RegionSpec, Transport,
};
use rnic_ipc::id::{ClientId, ConnRequestId, CqId, ListenerId, PdId, QpNum, SrqId};
use rnic_ipc::ring::{
    CqConsumer, CqMemory, DoorbellConsumer, DoorbellProducer, QpMemory, WorkQueueProducer,
    WorkRequest,
};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::work::{Completion, Sge, WR_SIGNALED, WrOpcode};
use rnic_net::{Path, PeerRules};
use rnic_proto::Stag;
use rnic_xsk::{ChunkSize, MemoryPort, MemoryWire, Port, Umem};
use userspace_net::Instant;

pub const CLIENT: ClientId = ClientId(1);
pub const PD: PdId = PdId(1);
pub const CQ: CqId = CqId(1);
pub const LISTENER: ListenerId = ListenerId(1);
/// Bytes of each side's registered memory.
pub const MEMORY: usize = 8 << 20;
/// Tagged offset of its first byte.
pub const BASE: u64 = 0x7000_0000_0000;
pub const DEPTH: u32 = 128;

pub struct Side<P: Port = MemoryPort> {
    pub shard: Shard<P>,
    pub wire: Option<MemoryWire>,
    pub frames: usize,
    pub address: SocketAddr,
    mac: [u8; 6],
    pub mtu: u32,
    pub stag: Stag,
    pub memory: Arc<SharedMemory>,
    pub doorbells: DoorbellProducer,
    pub doorbell_memory: Arc<SharedMemory>,
    /// Completions are taken from the CQ.
    pub collecting: bool,
    pub cq: CqConsumer,
    _notify: OwnedFd,
    /// Work requests that a new queue pair has room for, each way.
    pub depth: u32,
    /// Elements that each of those may have.
    pub max_sge: u32,
    /// Where its completions go.
    pub cq_of_next: CqId,
    pub queues: HashMap<u32, (WorkQueueProducer, WorkQueueProducer)>,
    pub events: Vec<ShardEvent>,
    pub completions: Vec<Completion>,
    next_qp: u32,
    /// What its next queue pairs ask for.
    pub receive_wait: Option<ReceiveWait>,
    /// The queue that their receives come from, instead of one of their own.
    pub srq: Option<SrqId>,
    /// What DDP goes over, of its next listeners and connections.
    pub transport: Transport,
    /// Whether what it connects over SCTP may share associations.
    pub may_share: bool,
    /// What its next connections go over, if not its interface.
    pub internal_link: Option<usize>,
    /// Which peers its next listeners take, and may be further addresses of who it connects to next.
    pub peers: PeerRules,
}

/// Places of the rings that a client's queue pairs share.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    pub doorbells: u32,
    pub completions: u32,
}

impl Default for Rings {
    fn default() -> Self {
        Self {
            doorbells: 64,
            completions: 1024,
        }
    }
}

#[derive(Debug)]
pub struct SideConfig {
    pub shard: ShardConfig,
    pub frames: u32,
    pub wire_depth: usize,
}

impl Default for SideConfig {
    fn default() -> Self {
        let mut shard = ShardConfig {
            receive_reserve: 256,
            ..ShardConfig::default()
        };
        shard.limits.connections = 64;
        shard.limits.regions = 16;
        shard.limits.queue_pairs = 16;
        Self {
            shard,
            frames: 4096,
            wire_depth: 1024,
        }
    }
}

impl SideConfig {
    /// On an interface of this MTU.
    pub fn of_mtu(mtu: u32) -> Self {
        let mut config = Self::default();
        config.shard.path_defaults.mtu = mtu;
        config
    }
}

impl Side {
    /// Side number `number` with a port of its own, whose far end is the test's.
    pub fn new(number: u8, address: SocketAddr, config: SideConfig) -> Self {
        Self::through(number, address, config, |port| port)
    }
}

impl<P: Port> Side<P> {
    /// As [`Side::new`], with what `wrap` makes of its port.
    pub fn through(
        number: u8,
        address: SocketAddr,
        config: SideConfig,
        wrap: impl FnOnce(MemoryPort) -> P,
    ) -> Self {
        let chunk = ChunkSize::for_mtu(config.shard.path_defaults.mtu).unwrap();
        let (umem, pool) = Umem::heap(config.frames, chunk);
        let (port, wire) = MemoryPort::intercepted(&umem, config.wire_depth);
        let mtu = config.shard.path_defaults.mtu;
        let shard = Shard::new(config.shard, pool, vec![wrap(port)], Instant::ZERO);
        let (frames, rings) = (umem.frames(), Rings::default());
        let mut side = Self::over(number, address, shard, Some(wire), frames, rings);
        side.mtu = mtu;
        side
    }

    /// Side number `number` over a shard.
    pub fn over(
        number: u8,
        address: SocketAddr,
        mut shard: Shard<P>,
        wire: Option<MemoryWire>,
        frames: usize,
        rings: Rings,
    ) -> Self {
        let now = Instant::ZERO;
        let Rings {
            doorbells: entries,
            completions,
        } = rings;
        let size = DoorbellConsumer::memory_size(entries, 1).unwrap();
        let doorbell_memory = Arc::new(SharedMemory::private(size).unwrap());
        let engine = DoorbellConsumer::create_in(&doorbell_memory, entries, 1)
            .unwrap()
            .remove(0);
        let doorbells = DoorbellProducer::attach(&doorbell_memory, entries, 1)
            .unwrap()
            .remove(0);
        let command = Command::AddClient {
            client: CLIENT,
            doorbells: engine,
        };
        shard.execute(command, now).unwrap();
        let (mut rings, fd) = CqMemory::create(completions, 1).unwrap();
        let cq = CqMemory::attach_fd(fd, completions, 1).unwrap().remove(0);
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::DGRAM,
            rustix::net::SocketFlags::empty(),
            None,
        )
        .unwrap();
        shard
            .execute(
                Command::AddCq {
                    client: CLIENT,
                    cq: CQ,
                    ring: rings.remove(0),
                    notify: theirs.into(),
                },
                now,
            )
            .unwrap();
        let memory = Arc::new(SharedMemory::private(MEMORY).unwrap());
        let stag = Stag::from_parts(u32::from(number), 7);
        let mut side = Self {
            shard,
            wire,
            frames,
            address,
            mac: [2, 0, 0, 0, 0, number],
            mtu: 1500,
            stag,
            memory,
            doorbells,
            doorbell_memory,
            collecting: true,
            cq,
            _notify: ours,
            depth: DEPTH,
            max_sge: 4,
            cq_of_next: CQ,
            queues: HashMap::new(),
            events: Vec::new(),
            completions: Vec::new(),
            next_qp: 0,
            receive_wait: None,
            srq: None,
            transport: Transport::Tcp,
            may_share: false,
            internal_link: None,
            peers: PeerRules::default(),
        };
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        side.register(stag, PD, all, 0, MEMORY);
        side
    }

    pub fn register(&mut self, stag: Stag, pd: PdId, access: Access, offset: usize, len: usize) {
        let memory = RegionMemory::Shared {
            memory: Arc::clone(&self.memory),
            offset,
            len,
        };
        let base = BASE + offset as u64;
        let command = Command::AddRegion {
            stag,
            spec: RegionSpec::new(pd, access, base, memory.len()),
            memory,
            word: None,
        };
        self.shard.execute(command, Instant::ZERO).unwrap();
    }

    /// Adds another CQ, which nobody looks at, for the queue pairs that are made from now on.
    pub fn add_cq(&mut self, cq: CqId, entries: u32) {
        let (mut rings, _) = CqMemory::create(entries, 1).unwrap();
        let (notify, _) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::DGRAM,
            rustix::net::SocketFlags::empty(),
            None,
        )
        .unwrap();
        let client = CLIENT;
        let command = Command::AddCq {
            client,
            cq,
            ring: rings.remove(0),
            notify: notify.into(),
        };
        self.shard.execute(command, Instant::ZERO).unwrap();
        self.cq_of_next = cq;
    }

    pub fn create_qp(&mut self) -> QpNum {
        self.try_create_qp().unwrap()
    }

    pub fn try_create_qp(&mut self) -> Result<QpNum, CommandError> {
        self.next_qp += 1;
        let qp = QpNum(self.next_qp);
        let slots = QpMemory::slots(self.depth, self.max_sge).unwrap();
        let layout = QpMemory::layout(slots, slots).unwrap();
        let (sq, rq, _, fd) = QpMemory::create(&layout, 0).unwrap();
        self.queues
            .insert(qp.0, QpMemory::attach_fd(fd, &layout).unwrap());
        let attributes = QpAttributes {
            pd: PD,
            send_cq: self.cq_of_next,
            recv_cq: self.cq_of_next,
            sq_depth: self.depth,
            rq_depth: self.depth,
            srq: self.srq,
            max_sge: self.max_sge,
            max_inline: 0,
            signal_all: false,
            receive_wait: self.receive_wait,
        };
        let command = Command::AddQp {
            client: CLIENT,
            qp,
            attributes,
            sq,
            rq,
        };
        self.shard.execute(command, Instant::ZERO).map(|_| qp)
    }

    pub fn listen(&mut self, backlog: u32, now: Instant) {
        let peers = self.peers.clone();
        let local = self.address;
        let command = Command::Listen {
            client: CLIENT,
            listener: LISTENER,
            spec: ListenSpec {
                local,
                backlog,
                transport: self.transport,
            },
            peers,
        };
        self.shard.execute(command, now).unwrap();
    }

    pub fn path_to(&self, other: &Self) -> Path {
        Path {
            src_mac: self.mac,
            dst_mac: other.mac,
            vlan: None,
            mtu: self.mtu,
            hop_limit: 64,
        }
    }

    pub fn connect(
        &mut self,
        qp: QpNum,
        port: u16,
        remote: SocketAddr,
        path: Path,
        mpa: MpaOptions,
        private_data: &[u8],
        now: Instant,
    ) -> Result<Answer, CommandError> {
        let local = SocketAddr::new(self.address.ip(), port);
        let private_data = private_data.to_vec();
        self.shard.execute(
            Command::Connect {
                qp,
                spec: ConnectSpec {
                    remote,
                    local: Some(local.ip()),
                    local_port: match self.may_share {
                        true => 0,
                        false => local.port(),
                    },
                    transport: self.transport,
                    mpa,
                    private_data,
                },
                local,
                path,
                internal_link: self.internal_link,
                peers: self.peers.clone(),
            },
            now,
        )
    }

    /// The newest connection request, if it is not answered yet.
    pub fn take_request(&mut self) -> Option<(ConnRequestId, MpaOptions, Vec<u8>)> {
        let at = self.events.iter().position(|event| {
            matches!(
                event,
                ShardEvent::Client {
                    event: Event::ConnectRequest { .. },
                    ..
                }
            )
        })?;
        match self.events.remove(at) {
            ShardEvent::Client {
                event:
                    Event::ConnectRequest {
                        request,
                        mpa,
                        private_data,
                        ..
                    },
                ..
            } => Some((request, mpa, private_data)),
            _ => None,
        }
    }

    pub fn client_events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter_map(|event| match event {
            ShardEvent::Client { event, .. } => Some(event),
            _ => None,
        })
    }

    pub fn is_established(&self, qp: QpNum) -> bool {
        self.client_events()
            .any(|event| matches!(event, Event::Established { qp: of, .. } if *of == qp))
    }

    pub fn disconnected(&self, qp: QpNum) -> Option<rnic_ipc::control::DisconnectReason> {
        self.client_events().find_map(|event| match event {
            Event::Disconnected { qp: of, reason, .. } if *of == qp => Some(*reason),
            _ => None,
        })
    }

    pub fn state(&mut self, qp: QpNum) -> QpState {
        match self
            .shard
            .execute(Command::QueryQp { qp }, Instant::ZERO)
            .unwrap()
        {
            Answer::QpState(state) => state,
            other => panic!("{other:?}"),
        }
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            addr: BASE + offset as u64,
            length: length as u32,
            lkey: self.stag.0,
        }
    }

    /// Rings the doorbell for what was pushed.
    pub fn ring(&mut self, qp: QpNum) {
        if self.queues[&qp.0].0.set_pending().is_some() {
            self.doorbells.ring(qp).unwrap();
        }
    }

    pub fn post(&mut self, qp: QpNum, request: &WorkRequest) {
        self.push(qp, request);
        self.ring(qp);
    }

    /// Posts without a doorbell.
    fn push(&mut self, qp: QpNum, request: &WorkRequest) {
        self.queues.get_mut(&qp.0).unwrap().0.push(request).unwrap();
    }

    pub fn post_recv(&mut self, qp: QpNum, wr_id: u64, offset: usize, len: usize) {
        self.post_recv_into(qp, wr_id, self.sge(offset, len));
    }

    pub fn post_recv_into(&mut self, qp: QpNum, wr_id: u64, sge: Sge) {
        let mut request = WorkRequest::new(WrOpcode::Recv, wr_id);
        assert!(request.set_sges(&[sge]));
        self.queues
            .get_mut(&qp.0)
            .unwrap()
            .1
            .push(&request)
            .unwrap();
        self.ring(qp);
    }

    /// A signalled Write, Read or Send of `len` bytes; `remote` is the peer's STag and offset.
    pub fn post_work(
        &mut self,
        qp: QpNum,
        opcode: WrOpcode,
        wr_id: u64,
        local: usize,
        remote: (Stag, usize),
        len: usize,
    ) {
        self.push_work(qp, opcode, wr_id, local, remote, len);
        self.ring(qp);
    }

    /// As [`Self::post_work`], without a doorbell.
    pub fn push_work(
        &mut self,
        qp: QpNum,
        opcode: WrOpcode,
        wr_id: u64,
        local: usize,
        remote: (Stag, usize),
        len: usize,
    ) {
        self.push_elements(qp, opcode, wr_id, &[self.sge(local, len)], remote);
    }

    /// The same with any elements.
    pub fn push_elements(
        &mut self,
        qp: QpNum,
        opcode: WrOpcode,
        wr_id: u64,
        sges: &[Sge],
        remote: (Stag, usize),
    ) {
        let mut request = WorkRequest::new(opcode, wr_id);
        request.slot.flags = WR_SIGNALED;
        request.slot.rkey = remote.0.0;
        request.slot.remote_addr = BASE + remote.1 as u64;
        assert!(request.set_sges(sges));
        self.push(qp, &request);
    }

    pub fn fill(&self, offset: usize, len: usize, seed: u64) {
        self.memory.write(offset, &pattern(len, seed)).unwrap();
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory.read(offset, &mut out).unwrap();
        out
    }

    /// Takes what the shard told and completed.
    pub fn collect(&mut self) {
        while let Some(event) = self.shard.poll_event() {
            self.events.push(event);
        }
        let mut out = [Completion::default(); 64];
        while self.collecting {
            let count = self.cq.poll(&mut out).unwrap();
            if count == 0 {
                return;
            }
            self.completions.extend_from_slice(&out[..count]);
        }
    }

    pub fn completion(&self, wr_id: u64) -> Option<Completion> {
        self.completions
            .iter()
            .copied()
            .find(|completion| completion.wr_id == wr_id)
    }

    pub fn counter(&mut self, name: &str) -> u64 {
        match self
            .shard
            .execute(Command::QueryCounters, Instant::ZERO)
            .unwrap()
        {
            Answer::Counters(all) => all.iter().find(|(of, _)| of == name).unwrap().1,
            other => panic!("{other:?}"),
        }
    }

    pub fn counter_names(&mut self) -> Vec<String> {
        match self
            .shard
            .execute(Command::QueryCounters, Instant::ZERO)
            .unwrap()
        {
            Answer::Counters(all) => all.into_iter().map(|(name, _)| name).collect(),
            other => panic!("{other:?}"),
        }
    }
}

/// What TCP and SCTP give to be sent always has a way and fits its frame.
impl<P: Port> Drop for Side<P> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.counter("unsendable"), 0, "segments that did not leave");
        }
    }
}

pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = crate::random::Random::new(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&random.next().to_le_bytes());
    }
    out.truncate(len);
    out
}
