//! Two hosts in namespaces of the test's own, joined by a veth pair, each with its RNIC; and a
//! client with one queue pair, spoken to in the words of `rnic-ipc` alone.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic_device::{ClientSession, Credentials, Device, DeviceConfig};
use rnic_ipc::control::{
    Access, ConnectSpec, Event, ListenSpec, MemoryKind, MpaOptions, PROTOCOL_VERSION, QpAttributes,
    RegionSpec, Reply, Request, Response,
};
use rnic_ipc::id::QpNum;
use rnic_ipc::kick::Kick;
use rnic_ipc::ring::{
    CqConsumer, CqMemory, DoorbellProducer, QpMemory, WorkQueueProducer, WorkRequest,
};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::Channel;
use rnic_ipc::work::{Completion, Sge, WR_SIGNALED, WrOpcode};
use rustix::thread::LinkNameSpaceType;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of each client's region.
pub const REGION: usize = 4 << 20;

/// A namespace, removed when dropped.
pub struct Host {
    name: String,
    netns: File,
    number: u8,
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status()
        .unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Two hosts. Panics unless run as root: a test that needs them is never skipped.
pub fn hosts(test: &str) -> [Host; 2] {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test makes network namespaces: run it as root (scripts/test does)"
    );
    let hosts = [1, 2].map(|number| {
        let name = format!("{test}-{}-{number}", std::process::id());
        ip(&format!("netns add {name}"));
        let netns = File::open(format!("/run/netns/{name}")).unwrap();
        Host {
            name,
            netns,
            number,
        }
    });
    let [a, b] = &hosts;
    ip(&format!(
        "-n {} link add veth0 type veth peer name veth0 netns {}",
        a.name, b.name
    ));
    for Host { name, number, .. } in &hosts {
        ip(&format!("-n {name} link set dev lo up"));
        ip(&format!("-n {name} link set dev veth0 up"));
        ip(&format!(
            "-n {name} address add 198.18.0.{number}/24 dev veth0"
        ));
        ip(&format!(
            "-n {name} address add 2001:db8::{number}/64 dev veth0 nodad"
        ));
    }
    hosts
}

impl Host {
    pub fn v4(&self) -> IpAddr {
        IpAddr::from([198, 18, 0, self.number])
    }

    pub fn v6(&self) -> IpAddr {
        format!("2001:db8::{}", self.number).parse().unwrap()
    }

    /// Puts the calling thread on this host.
    pub fn enter(&self) {
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(self.netns.as_fd(), kind).unwrap();
    }

    pub fn device(&self, change: impl FnOnce(&mut DeviceConfig)) -> Arc<Device> {
        self.enter();
        let mut config = DeviceConfig::new("veth0");
        change(&mut config);
        Device::open(config).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.name])
            .status();
    }
}

/// A client with one queue pair and one region.
pub struct Client<'h> {
    host: &'h Host,
    session: ClientSession,
    events: Channel,
    doorbells: DoorbellProducer,
    kick: Kick,
    cq: CqConsumer,
    sq: WorkQueueProducer,
    rq: WorkQueueProducer,
    pub qp: QpNum,
    pub memory: SharedMemory,
    pub stag: u32,
}

impl<'h> Client<'h> {
    pub fn new(host: &'h Host, device: &Arc<Device>) -> Self {
        host.enter();
        let session = device
            .connect_client(Credentials {
                uid: 0,
                gid: 0,
                pid: 1,
                superuser: true,
            })
            .unwrap();
        let ask = |request, fds| {
            let (reply, fds): (Reply, Vec<OwnedFd>) = session.request(request, fds);
            (reply.unwrap(), fds.into_iter())
        };
        let hello = Request::Hello {
            version: PROTOCOL_VERSION,
        };
        let (Response::Welcome { doorbells, .. }, mut fds) = ask(hello, vec![]) else {
            panic!()
        };
        let events = Channel::from_fd(fds.next().unwrap());
        let doorbells = DoorbellProducer::attach_fd(fds.next().unwrap(), doorbells, 1)
            .unwrap()
            .remove(0);
        let kick = Kick::from_fd(fds.next().unwrap());

        let (Response::Pd(pd), _) = ask(Request::AllocPd, vec![]) else {
            panic!()
        };
        let (Response::Cq { cq: id, depth }, mut fds) =
            ask(Request::CreateCq { depth: 64 }, vec![])
        else {
            panic!()
        };
        let cq = CqMemory::attach_fd(fds.next().unwrap(), depth, 1)
            .unwrap()
            .remove(0);
        let attributes = QpAttributes {
            pd,
            send_cq: id,
            recv_cq: id,
            sq_depth: 32,
            rq_depth: 32,
            srq: None,
            max_sge: 2,
            max_inline: 0,
            signal_all: false,
            receive_wait: None,
        };
        let (
            Response::Qp {
                qp,
                sq_slots,
                rq_slots,
            },
            mut fds,
        ) = ask(Request::CreateQp(attributes), vec![])
        else {
            panic!()
        };
        let layout = QpMemory::layout(sq_slots, rq_slots).unwrap();
        let (sq, rq) = QpMemory::attach_fd(fds.next().unwrap(), &layout).unwrap();

        let (memory, fd) = SharedMemory::create("region", REGION).unwrap();
        memory.populate().unwrap();
        let register = Request::RegisterMemory(RegionSpec {
            pd,
            stream: None,
            access: Access::READ_WRITE,
            base: 0,
            offset: 0,
            length: REGION as u64,
            memory: MemoryKind::Memfd,
        });
        let (Response::Region { stag }, _) = ask(register, vec![fd]) else {
            panic!()
        };
        Self {
            host,
            session,
            events,
            doorbells,
            kick,
            cq,
            sq,
            rq,
            qp,
            memory,
            stag,
        }
    }

    pub fn ask(&self, request: Request) -> Reply {
        self.host.enter();
        self.session.request(request, Vec::new()).0
    }

    pub fn listen(&self, address: IpAddr) -> SocketAddr {
        let request = Request::Listen(ListenSpec {
            local: SocketAddr::new(address, 0),
            backlog: 4,
            transport: rnic_ipc::control::Transport::Tcp,
        });
        match self.ask(request) {
            Ok(Response::Listening { local, .. }) => local,
            reply => panic!("{reply:?}"),
        }
    }

    pub fn connect(&self, remote: SocketAddr) -> Reply {
        self.ask(Request::Connect {
            qp: self.qp,
            spec: ConnectSpec {
                remote,
                local: None,
                local_port: 0,
                transport: rnic_ipc::control::Transport::Tcp,
                mpa: MpaOptions::default(),
                private_data: b"hello".to_vec(),
            },
        })
    }

    /// Accepts the next connection request.
    pub fn accept(&self) {
        let request = match self.event() {
            Event::ConnectRequest {
                request,
                private_data,
                ..
            } => {
                assert_eq!(private_data, b"hello");
                request
            }
            event => panic!("{event:?}"),
        };
        let (qp, mpa) = (self.qp, MpaOptions::default());
        self.ask(Request::Accept {
            request,
            qp,
            mpa,
            private_data: b"welcome".to_vec(),
        })
        .unwrap();
    }

    #[track_caller]
    pub fn event(&self) -> Event {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.events.try_recv::<Event>() {
                Ok(Some((event, _))) => return event,
                Ok(None) => panic!("the event socket is closed"),
                Err(_) => self.pause(end, "an event"),
            }
        }
    }

    #[track_caller]
    pub fn established(&self) {
        match self.event() {
            Event::Established { .. } => {}
            event => panic!("{event:?}"),
        }
    }

    pub fn post(&mut self, opcode: WrOpcode, wr_id: u64, local: Sge, remote: (u32, u64)) {
        let mut request = WorkRequest::new(opcode, wr_id);
        request.slot.flags = WR_SIGNALED;
        (request.slot.rkey, request.slot.remote_addr) = remote;
        assert!(request.set_sges(&[local]));
        let queue = if opcode == WrOpcode::Recv {
            &mut self.rq
        } else {
            &mut self.sq
        };
        queue.push(&request).unwrap();
        if queue.set_pending().is_some() && self.doorbells.ring(self.qp).unwrap() {
            self.kick.kick();
        }
    }

    pub fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: self.stag,
        }
    }

    #[track_caller]
    pub fn completion(&mut self) -> Completion {
        let end = Instant::now() + PATIENCE;
        let mut out = [Completion::default()];
        while self.cq.poll(&mut out).unwrap() == 0 {
            self.pause(end, "a completion");
        }
        out[0]
    }

    #[track_caller]
    fn pause(&self, end: Instant, what: &str) {
        assert!(
            Instant::now() < end,
            "{what} does not come to queue pair {}",
            self.qp
        );
        std::thread::sleep(Duration::from_micros(100));
    }

    pub fn bytes(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(at, &mut bytes).unwrap();
        bytes
    }
}

/// Drives a device, when it needs that, until it is shut down.
pub fn drive(device: &Arc<Device>) {
    let device = Arc::downgrade(device);
    std::thread::spawn(move || {
        while let Some(device) = device.upgrade() {
            if !device.drive() {
                drop(device);
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    });
}

pub fn counter(device: &Device, name: &str) -> u64 {
    let counters = device.counters().unwrap();
    let found = counters.iter().find(|(found, _)| found == name);
    found
        .unwrap_or_else(|| panic!("no counter {name} in {counters:?}"))
        .1
}

/// Waits until `condition` holds.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "{what} does not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}
