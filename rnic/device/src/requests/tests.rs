//! Clients of a device whose link is in memory and whose interface is the loopback: everything
//! between a request and the shard, without privilege.

mod capture;
mod hello;
mod inspect;
mod joins;
mod lifetimes;
mod listening;
mod memory;
mod peers;
mod queues;
mod remote;
mod shards;
mod users;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic_engine::shard::{Shard, ShardConfig};
use rnic_host::{Interface, Netlink};
use rnic_ipc::control::{
    Access, ListenSpec, MemoryKind, PROTOCOL_VERSION, QpAttributes, RefusalCode, RegionSpec, Reply,
    Request, Response, StagKind,
};
use rnic_ipc::id::{CqId, PdId, QpNum};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::Channel;
use rnic_net::PathDefaults;
use rnic_xsk::{ChunkSize, MemoryPort, MemoryWire, Umem};

use crate::clients::shared_prm::SharedPrm;
use crate::device::core::Core;
use crate::interface::OpenInterface;
use crate::interface::open::Started;
use crate::interface::paths::L2Interface;
use crate::runtime::Shards;
use crate::runtime::driver::{Driver, Engine, ThreadConfig, event_channel};
use crate::{ClientSession, Credentials, Device, DeviceConfig, Limits, Runtime};

const CREDENTIALS: Credentials = Credentials {
    uid: 1000,
    gid: 1000,
    pid: 77,
    superuser: false,
};
const HELLO: Request = Request::Hello {
    version: PROTOCOL_VERSION,
};
const LOCALHOST: &str = "127.0.0.1:0";

/// A device on the loopback, with the far end of its link.
pub(crate) struct Bench {
    pub(crate) device: Arc<Device>,
    wire: MemoryWire,
}

impl Bench {
    pub(crate) fn new(runtime: Runtime) -> Self {
        Self::with_limits(runtime, Limits::default())
    }

    fn with_limits(runtime: Runtime, limits: Limits) -> Self {
        Self::of(runtime, limits, 1)
    }

    /// With several shards, each with a network of its own.
    fn with_shards(shards: u8) -> Self {
        Self::of(Runtime::Thread, Limits::default(), shards)
    }

    fn of(runtime: Runtime, limits: Limits, shards: u8) -> Self {
        let make = |number: u8| {
            let (umem, pool) = Umem::heap(2048, ChunkSize::Bytes2048);
            let (port, wire) = MemoryPort::intercepted(&umem, 64);
            let zero = userspace_net::Instant::ZERO;
            let config = ShardConfig {
                number: (0, number),
                ..ShardConfig::default()
            };
            let shard = Shard::new(config, pool, vec![port], zero);
            (Engine::new(shard, number, Instant::now()), wire)
        };
        let (mut engines, mut wires): (Vec<_>, Vec<_>) = (0..shards).map(make).unzip();
        let mut config = DeviceConfig::new("lo");
        config.limits = limits;
        config.resolve_timeout = Duration::from_millis(50);
        let (drivers, events) = match runtime {
            Runtime::Thread => {
                let (sender, events) = event_channel();
                let start = |engine| {
                    let thread = ThreadConfig {
                        core: None,
                        polling: config.polling,
                        seccomp: true,
                    };
                    let driver = Driver::threaded(engine, sender.clone(), thread);
                    driver.unwrap()
                };
                (engines.into_iter().map(start).collect(), events)
            }
            Runtime::Caller => {
                let (driver, events) = Driver::inline(Box::new(engines.remove(0))).unwrap();
                (vec![driver], events)
            }
        };
        let name = "lo".to_owned();
        let shared_prm = SharedPrm::new(config.limits.clone(), config.administrators);
        let l2 = L2Interface {
            interface: Interface {
                name,
                index: 1,
                mac: [2, 0, 0, 0, 0, 1],
                defaults: PathDefaults::new(1500),
            },
            vlan: None,
        };
        let frame_bytes = ChunkSize::Bytes2048.frame_capacity();
        let mut interface = OpenInterface::new((config, 0), vec![l2], frame_bytes, None).unwrap();
        interface.netlink = Some(Netlink::open().unwrap());
        let started = Started {
            interface,
            shards: Shards::new(drivers, events),
            capture: None,
        };
        let core = Core::new(started, Arc::new(shared_prm));
        core.interface.take_loopback_addresses();
        Self {
            device: Device::start(Arc::new(core)).unwrap(),
            wire: wires.remove(0),
        }
    }

    fn stranger(&self) -> ClientSession {
        self.device.connect_client(CREDENTIALS).unwrap()
    }

    pub(crate) fn client(&self) -> ClientSession {
        self.client_of(CREDENTIALS)
    }

    /// A client, with the channel of its events, and what else it has.
    fn client_with_events(&self) -> (ClientSession, (Channel, Vec<OwnedFd>)) {
        let session = self.stranger();
        let (reply, mut fds) = session.request(HELLO, Vec::new());
        reply.unwrap();
        let events = Channel::from_fd(fds.remove(0));
        (session, (events, fds))
    }

    fn client_of(&self, credentials: Credentials) -> ClientSession {
        let session = self.device.connect_client(credentials).unwrap();
        session.request(HELLO, Vec::new()).0.unwrap();
        session
    }

    fn level(&self, name: &str) -> u64 {
        let counters = self.device.counters().unwrap();
        let found = counters.iter().find(|(found, _)| found == name);
        found
            .unwrap_or_else(|| panic!("no counter {name}: {counters:?}"))
            .1
    }

    /// Waits for something that another thread, or runtime, brings about.
    #[track_caller]
    fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !condition() {
            assert!(Instant::now() < end, "{what} does not come about");
            if !self.device.drive() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn both() -> [Bench; 2] {
    [Bench::new(Runtime::Caller), Bench::new(Runtime::Thread)]
}

fn ask(session: &ClientSession, request: Request) -> Reply {
    session.request(request, Vec::new()).0
}

#[track_caller]
fn refused(reply: Reply) -> RefusalCode {
    let refusal = reply.unwrap_err();
    assert!(!refusal.message.is_empty());
    refusal.code
}

pub(crate) fn pd(session: &ClientSession) -> PdId {
    match ask(session, Request::AllocPd) {
        Ok(Response::Pd(pd)) => pd,
        reply => panic!("{reply:?}"),
    }
}

fn cq(session: &ClientSession) -> CqId {
    match session.request(Request::CreateCq { depth: 16 }, Vec::new()) {
        (Ok(Response::Cq { cq, depth: 16 }), fds) if fds.len() == 2 => cq,
        reply => panic!("{reply:?}"),
    }
}

fn attributes(pd: PdId, cq: CqId) -> QpAttributes {
    QpAttributes {
        pd,
        send_cq: cq,
        recv_cq: cq,
        sq_depth: 16,
        rq_depth: 16,
        srq: None,
        max_sge: 4,
        max_inline: 0,
        signal_all: false,
        receive_wait: None,
    }
}

fn qp(session: &ClientSession, pd: PdId, cq: CqId) -> QpNum {
    let create = Request::CreateQp(attributes(pd, cq));
    match session.request(create, Vec::new()) {
        (
            Ok(Response::Qp {
                qp,
                sq_slots: 32,
                rq_slots: 32,
            }),
            fds,
        ) if fds.len() == 1 => qp,
        reply => panic!("{reply:?}"),
    }
}

fn memfd(bytes: usize) -> OwnedFd {
    let (memory, fd) = SharedMemory::create("test", bytes).unwrap();
    memory.populate().unwrap();
    fd
}

fn register(pd: PdId, length: u64) -> Request {
    let access = Access::READ_WRITE;
    Request::RegisterMemory(RegionSpec {
        pd,
        stream: None,
        access,
        base: 0x10_0000,
        offset: 0,
        length,
        memory: MemoryKind::Memfd,
    })
}

pub(crate) fn region(session: &ClientSession, pd: PdId) -> u32 {
    match session.request(register(pd, 8192), vec![memfd(8192)]).0 {
        Ok(Response::Region { stag }) => stag,
        reply => panic!("{reply:?}"),
    }
}

fn listen(session: &ClientSession, local: &str) -> Result<SocketAddr, RefusalCode> {
    match ask(
        session,
        Request::Listen(ListenSpec {
            local: local.parse().unwrap(),
            backlog: 4,
            transport: rnic_ipc::control::Transport::Tcp,
        }),
    ) {
        Ok(Response::Listening { local, .. }) => Ok(local),
        Ok(response) => panic!("{response:?}"),
        Err(refusal) => Err(refusal.code),
    }
}
