//! A daemon that is a thread. It grants everything unless told otherwise, writes down what was
//! asked, and lets the test play the engine.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rnic_ipc::control::{
    ClientLimits, ConnectSpec, DeviceInfo, Event, ListenSpec, MemoryKind, QpState, Refusal,
    RefusalCode, RegionSpec, Reply, Request, Response,
};
use rnic_ipc::id::{ClientId, CqId, ListenerId, PdId, QpNum, SrqId};
use rnic_ipc::kick::Kick;
use rnic_ipc::ring::{
    CqMemory, CqProducer, DoorbellConsumer, QpMemory, SrqMemory, WorkQueueConsumer, WorkRequest,
};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::Channel;
use rnic_ipc::wake::{self, WakeSender};
use rnic_ipc::work::Completion;

use crate::link::Link;
use crate::{CompletionQueue, Context, QpConfig, QueuePair};

/// How to refuse a request; `None` grants it.
type Judge = Box<dyn Fn(&Request) -> Option<Refusal> + Send>;

/// What port 0 becomes.
pub(super) const CHOSEN_PORT: u16 = 40_000;

/// The fake device's.
pub(super) fn addresses() -> Vec<IpAddr> {
    let all = ["198.18.0.1", "198.18.7.1", "2001:db8::1"];
    all.map(|address| address.parse().unwrap()).into()
}

/// What the fake has; dropping it is the daemon's death.
pub(super) struct State {
    pub(super) asked: Vec<Request>,
    pub(super) judge: Judge,
    pub(super) cqs: HashMap<CqId, (CqProducer, WakeSender)>,
    pub(super) qps: HashMap<QpNum, (WorkQueueConsumer, WorkQueueConsumer)>,
    pub(super) srqs: HashMap<SrqId, WorkQueueConsumer>,
    pub(super) regions: HashMap<u32, SharedMemory>,
    pub(super) doorbells: Option<DoorbellConsumer>,
    pub(super) kick: Option<OwnedFd>,
    events: Option<Channel>,
    /// Rings that replace others are none of the depth that the client is given.
    pub(super) spoils_rings: bool,
    /// No peer's link address is known.
    pub(super) neighbour_is_silent: bool,
    /// The number that was given out last.
    pub(super) next: u32,
}

pub(super) struct Fake {
    state: Arc<Mutex<State>>,
    /// Shutting it down ends the thread.
    control: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// A fake daemon that grants everything, and a context on it.
    pub(super) fn start() -> (Self, Context) {
        let (fake, context) = Self::start_judging(Box::new(|_| None));
        (fake, context.unwrap())
    }

    pub(super) fn start_judging(judge: Judge) -> (Self, Result<Context, crate::Error>) {
        let (ours, theirs) = Channel::pair().unwrap();
        let state = Arc::new(Mutex::new(State {
            asked: Vec::new(),
            judge,
            cqs: HashMap::new(),
            qps: HashMap::new(),
            srqs: HashMap::new(),
            regions: HashMap::new(),
            doorbells: None,
            kick: None,
            events: None,
            spoils_rings: false,
            neighbour_is_silent: false,
            next: 0,
        }));
        let control = ours.as_fd().try_clone_to_owned().unwrap();
        let serving = state.clone();
        let thread = std::thread::spawn(move || {
            while let Ok(Some((request, fds))) = ours.recv::<Request>() {
                let (reply, fds) = serving.lock().unwrap().carry_out(request, fds);
                let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
                if ours.send(&reply, &fds).is_err() {
                    break;
                }
            }
        });
        let context = Context::over(Link::Daemon(Mutex::new(theirs)));
        (
            Self {
                state,
                control,
                thread: Some(thread),
            },
            context,
        )
    }

    /// The state, for a look or to play the engine.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap())
    }

    pub(super) fn refuse(&self, judge: impl Fn(&Request) -> Option<Refusal> + Send + 'static) {
        self.with(|state| state.judge = Box::new(judge));
    }

    pub(super) fn tell(&self, event: &Event) {
        self.with(|state| state.events.as_ref().unwrap().send(event, &[]).unwrap());
    }

    /// Puts a completion and wakes the client if it is armed.
    pub(super) fn complete(&self, cq: CqId, wr_id: u64) {
        let completion = Completion {
            wr_id,
            ..Completion::default()
        };
        self.put(cq, &completion);
    }

    /// As [`Self::complete`], for any completion.
    pub(super) fn put(&self, cq: CqId, completion: &Completion) {
        self.with(|state| {
            let (ring, notify) = state.cqs.get_mut(&cq).unwrap();
            ring.push(completion).unwrap();
            if ring.take_armed(false) {
                notify.wake();
            }
        });
    }

    /// Takes a work request off a send queue.
    pub(super) fn take_send(&self, qp: QpNum) -> Option<WorkRequest> {
        self.with(|state| {
            let mut work = WorkRequest::default();
            let (sq, _) = state.qps.get_mut(&qp).unwrap();
            sq.clear_pending();
            sq.pop(&mut work).unwrap().then_some(work)
        })
    }

    pub(super) fn asked(&self) -> Vec<Request> {
        self.with(|state| state.asked.clone())
    }

    /// The daemon dies: all its sockets close.
    pub(super) fn kill(&mut self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.with(|state| {
            state.events = None;
            state.cqs.clear();
            state.kick = None;
        });
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.kill();
    }
}

impl State {
    fn carry_out(&mut self, request: Request, fds: Vec<OwnedFd>) -> (Reply, Vec<OwnedFd>) {
        self.asked.push(request.clone());
        if let Some(refusal) = (self.judge)(&request) {
            return (Err(refusal), Vec::new());
        }
        self.next += 1;
        let number = self.next;
        let mut out = Vec::new();
        let response = match request {
            Request::Hello { .. } => {
                let (events, client_events) = Channel::pair().unwrap();
                let (mut doorbells, memory) = DoorbellConsumer::create(16, 1).unwrap();
                let kick = Kick::new().unwrap();
                self.events = Some(events);
                self.doorbells = doorbells.pop();
                self.kick = Some(kick.as_fd().try_clone_to_owned().unwrap());
                out = vec![client_events.into_fd(), memory, kick.into_fd()];
                Response::Welcome {
                    client: ClientId(number),
                    doorbells: 16,
                    shards: 1,
                }
            }
            Request::AllocPd => Response::Pd(PdId(number)),
            Request::AllocStag { .. } => Response::Region { stag: number << 8 },
            Request::RegisterMemory(RegionSpec {
                memory: MemoryKind::Remote,
                ..
            }) => Response::Region { stag: number },
            Request::RegisterMemory(RegionSpec { offset, length, .. }) => {
                let memory = SharedMemory::map(&fds[0], offset, length).unwrap();
                self.regions.insert(number, memory);
                Response::Region { stag: number }
            }
            Request::CreateCq { depth } => {
                let depth = depth.next_power_of_two();
                let (mut rings, memory) = CqMemory::create(depth, 1).unwrap();
                let ring = rings.remove(0);
                let (notify, client_notify) = wake::pair().unwrap();
                self.cqs.insert(CqId(number), (ring, notify));
                out = vec![memory, client_notify.into_fd()];
                Response::Cq {
                    cq: CqId(number),
                    depth,
                }
            }
            Request::ResizeCq { cq, depth } => {
                let depth = depth.next_power_of_two();
                let (mut rings, memory) = CqMemory::create(depth, 1).unwrap();
                let mut ring = rings.remove(0);
                let (before, _) = self.cqs.get_mut(&cq).unwrap();
                ring.follow(before);
                *before = ring;
                out = vec![memory];
                let depth = if self.spoils_rings { 2 * depth } else { depth };
                Response::Cq { cq, depth }
            }
            Request::CreateQp(attributes) => {
                let places = attributes.send_places();
                let sq_slots = QpMemory::slots(attributes.sq_depth, places).unwrap();
                let rq_slots = QpMemory::slots(attributes.rq_depth, attributes.max_sge).unwrap();
                let layout = QpMemory::layout(sq_slots, rq_slots).unwrap();
                let (sq, rq, _, memory) = QpMemory::create(&layout, 0).unwrap();
                self.qps.insert(QpNum(number), (sq, rq));
                out = vec![memory];
                Response::Qp {
                    qp: QpNum(number),
                    sq_slots,
                    rq_slots,
                }
            }
            Request::CreateSrq { depth, max_sge, .. } => {
                let slots = QpMemory::slots(depth, max_sge).unwrap();
                let (ring, memory) = SrqMemory::create(slots, max_sge).unwrap();
                self.srqs.insert(SrqId(number), ring);
                out = vec![memory];
                Response::Srq {
                    srq: SrqId(number),
                    slots,
                }
            }
            Request::QueryQp { .. } => Response::QpState(QpState::Idle),
            Request::Listen(ListenSpec { mut local, .. }) => {
                if local.port() == 0 {
                    local.set_port(CHOSEN_PORT);
                }
                Response::Listening {
                    listener: ListenerId(number),
                    local,
                }
            }
            Request::QueryDevice => Response::Device(DeviceInfo {
                interface: "fake0".into(),
                xdp_mode: "native".into(),
                addresses: addresses(),
                mtu: 1500,
                queues: 1,
                max_sge: 32,
                max_inline: 512,
                max_queue_depth: 1024,
                mac: [0; 6],
                link_up: true,
                link_mbits: 0,
                limits: ClientLimits::default(),
            }),
            Request::QueryCounters { first } => {
                let all: Vec<_> = (0..5).map(|n| (format!("counter_{n}"), n)).collect();
                Response::Counters(all.into_iter().skip(first as usize).take(2).collect())
            }
            Request::Resolve { .. } if self.neighbour_is_silent => Response::Resolving,
            Request::Connect {
                spec: ConnectSpec {
                    local, local_port, ..
                },
                ..
            } => {
                let port = if local_port == 0 {
                    CHOSEN_PORT
                } else {
                    local_port
                };
                let local = local.unwrap_or(addresses()[0]);
                Response::Connecting {
                    local: SocketAddr::new(local, port),
                }
            }
            _ => Response::Done,
        };
        (Ok(response), out)
    }
}

/// A refusal of requests that `wanted` picks.
pub(super) fn refusal(code: RefusalCode) -> Refusal {
    Refusal {
        code,
        message: "the fake says no".into(),
    }
}

/// A queue pair with one completion queue, whose sends reach the fake without a connection.
pub(super) fn queue_pair(context: &Context) -> (QueuePair, CompletionQueue) {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let config = QpConfig {
        sq_depth: 4,
        rq_depth: 4,
        max_sge: 2,
        max_inline: 32,
        signal_all: false,
        receive_wait: None,
        early_sends: true,
        srq: None,
    };
    let qp = pd.create_qp(&cq, &cq, config).unwrap();
    (qp, cq)
}
