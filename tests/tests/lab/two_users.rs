//! Clients of two users on one daemon: neither can name, read, write, invalidate or exhaust what the
//! other has (RFC 5042 sections 5 and 6).

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use rnic::{
    Access, Context, Error, QpConfig, RefusalCode, RemoteMemory, SrqConfig, WcStatus, WorkRequest,
};
use rnic_ipc::control::{
    ListenSpec, MemoryKind, PROTOCOL_VERSION, QpAttributes, QpState, RegionSpec, Reply, Request,
    Response, StagKind,
};
use rnic_ipc::id::{CqId, ListenerId, PdId, QpNum, SrqId};
use rnic_ipc::shm::SharedMemory;
use rnic_ipc::transport::Channel;
use rnic_tests::binary;
use rnic_tests::daemon::Daemon;
use rnic_tests::lab::{Family, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::user::{open_to_all, run_as};
use rnic_tests::verbs::{Endpoint, connect};

const VICTIM: u32 = 61_002;
const ATTACKER: u32 = 61_003;
const PORT: u16 = 18515;
const LEN: usize = 4096;
const SEED: u64 = 42;

/// A victim that is at work with a peer of its own.
struct Scene {
    pair: Pair,
    victim: Endpoint,
    peer: Endpoint,
}

impl Scene {
    fn new(name: &str) -> Self {
        let pair = Pair::new(name);
        open_to_all(&pair.daemon_a);
        let socket = pair.daemon_a.socket();
        let context = run_as(VICTIM, || {
            rnic::Daemon::at(socket).and_then(|it| it.open(None))
        })
        .expect("the daemon serves");
        let (victim, peer) = (
            Endpoint::of(context, LEN),
            Endpoint::new(&pair.daemon_b, LEN),
        );
        connect(&victim, &peer, pair.b.address(Family::V4, PORT));
        victim.fill(SEED);
        Self { pair, victim, peer }
    }

    fn attacker(&self) -> Context {
        let socket = self.pair.daemon_a.socket();
        run_as(ATTACKER, || {
            rnic::Daemon::at(socket).and_then(|it| it.open(None))
        })
        .expect("the daemon serves")
    }

    /// A queue pair of the attacker's and one of an accomplice's on the other host, connected: at
    /// the first error it is gone.
    fn accomplices(&self) -> (Endpoint, Endpoint) {
        let attacker = Endpoint::of(self.attacker(), LEN);
        let accomplice = Endpoint::new(&self.pair.daemon_b, LEN);
        connect(
            &attacker,
            &accomplice,
            self.pair.b.address(Family::V4, PORT + 1),
        );
        (attacker, accomplice)
    }

    /// The victim's memory as the attackers know it: all of it, in the best case for them.
    fn prey(&self) -> RemoteMemory {
        self.victim.remote()
    }

    /// The victim has its bytes, and its peer Reads them.
    #[track_caller]
    fn is_unharmed(&self) {
        assert!(self.victim.holds(SEED), "other bytes");
        self.peer.fill(0);
        // The side that was connected to works after the other has.
        self.peer.post_recv(1, 0..8);
        self.victim
            .post(WorkRequest::send(1, &[self.victim.element(0..8)]));
        assert_eq!(self.peer.completion().status, WcStatus::Success);
        assert_eq!(self.victim.completion().status, WcStatus::Success);
        let all = [self.peer.element(0..LEN)];
        self.peer
            .post(WorkRequest::read(2, &all, self.victim.remote()));
        assert_eq!(self.peer.completion().status, WcStatus::Success);
        assert!(self.peer.holds(SEED), "other bytes came");
    }
}

/// A client without a library.
struct Raw {
    control: Channel,
    _fds: Vec<OwnedFd>,
}

impl Raw {
    fn greet(daemon: &Daemon, uid: u32) -> Self {
        let control = run_as(uid, || Channel::connect(daemon.socket())).expect("it listens");
        let mut raw = Self {
            control,
            _fds: Vec::new(),
        };
        let version = PROTOCOL_VERSION;
        raw.ask(&Request::Hello { version }).expect("it serves us");
        raw
    }

    fn ask(&mut self, request: &Request) -> Reply {
        let memory = match request {
            Request::RegisterMemory(RegionSpec { length, .. }) => {
                let made = SharedMemory::create("own", *length as usize).expect("memory");
                made.0.populate().expect("pages");
                Some(made)
            }
            _ => None,
        };
        let fds: Vec<_> = memory.iter().map(|(_, fd)| fd.as_fd()).collect();
        self.control.send(request, &fds).expect("it listens");
        let (reply, fds) = self.control.recv().expect("sound").expect("an answer");
        self._fds.extend(fds);
        reply
    }
}

fn queue_pair(pd: PdId, cq: CqId, srq: Option<SrqId>) -> Request {
    Request::CreateQp(QpAttributes {
        pd,
        send_cq: cq,
        recv_cq: cq,
        sq_depth: 4,
        rq_depth: 4,
        srq,
        max_sge: 1,
        max_inline: 0,
        signal_all: false,
        receive_wait: None,
    })
}

fn register(pd: PdId, stream: Option<QpNum>) -> Request {
    Request::RegisterMemory(RegionSpec {
        pd,
        stream,
        access: Access::ALL,
        base: 0,
        offset: 0,
        length: 4096,
        memory: MemoryKind::Memfd,
    })
}

#[test]
fn no_object_of_another_user_can_be_named() {
    let pair = Pair::new("users-name");
    open_to_all(&pair.daemon_a);
    let mut victim = Raw::greet(&pair.daemon_a, VICTIM);
    let mut attacker = Raw::greet(&pair.daemon_a, ATTACKER);
    let (Ok(Response::Pd(pd)), Ok(Response::Cq { cq, .. })) = (
        victim.ask(&Request::AllocPd),
        victim.ask(&Request::CreateCq { depth: 4 }),
    ) else {
        panic!("no domain, or no completion queue");
    };
    let (depth, max_sge) = (4, 1);
    let shared = Request::CreateSrq { pd, depth, max_sge };
    let local = pair.a.address(Family::V4, PORT);
    let (
        Ok(Response::Srq { srq, .. }),
        Ok(Response::Qp { qp, .. }),
        Ok(Response::Region { stag }),
        Ok(Response::Listening { listener, .. }),
    ) = (
        victim.ask(&shared),
        victim.ask(&queue_pair(pd, cq, None)),
        victim.ask(&register(pd, None)),
        victim.ask(&Request::Listen(ListenSpec {
            local,
            backlog: 1,
            transport: rnic_ipc::control::Transport::Tcp,
        })),
    )
    else {
        panic!("not everything was granted");
    };
    let (Ok(Response::Pd(own_pd)), Ok(Response::Cq { cq: own_cq, .. })) = (
        attacker.ask(&Request::AllocPd),
        attacker.ask(&Request::CreateCq { depth: 4 }),
    ) else {
        panic!("no domain, or no completion queue");
    };
    let names = |pd, cq, srq, qp, stag, listener| {
        vec![
            register(pd, None),
            register(own_pd, Some(qp)),
            Request::AllocStag {
                pd,
                kind: StagKind::WindowType1,
            },
            shared_in(pd),
            queue_pair(pd, own_cq, None),
            queue_pair(own_pd, cq, None),
            queue_pair(own_pd, own_cq, Some(srq)),
            Request::ArmSrq { srq, limit: 1 },
            Request::QueryQp { qp },
            Request::ModifyQp {
                qp,
                state: QpState::Error,
            },
            Request::Disconnect { qp, abort: true },
            Request::DestroyQp { qp },
            Request::DeregisterMemory { stag },
            Request::DestroySrq { srq },
            Request::DestroyCq { cq },
            Request::DeallocPd { pd },
            Request::Unlisten { listener },
        ]
    };
    let theirs = names(pd, cq, srq, qp, stag, listener);
    let none = 77_777;
    let nobodys = names(
        PdId(none),
        CqId(none),
        SrqId(none),
        QpNum(none),
        none,
        ListenerId(none),
    );
    for (theirs, nobodys) in theirs.iter().zip(&nobodys) {
        let refused = attacker.ask(theirs).expect_err("it is another user's");
        assert_eq!(
            refused.code,
            RefusalCode::UnknownObject,
            "{theirs:?}: {refused}"
        );
        // Nor can be told that it is there.
        let unknown = attacker.ask(nobodys).expect_err("it is nobody's");
        let words = |text: &str| text.replace(|letter: char| letter.is_ascii_hexdigit(), "");
        assert_eq!(words(&refused.message), words(&unknown.message));
    }
    for request in [
        Request::QueryQp { qp },
        Request::DestroyQp { qp },
        Request::DeregisterMemory { stag },
        Request::DestroySrq { srq },
        Request::DestroyCq { cq },
        Request::DeallocPd { pd },
        Request::Unlisten { listener },
    ] {
        victim.ask(&request).expect("all of it is still there");
    }
}

fn shared_in(pd: PdId) -> Request {
    let (depth, max_sge) = (4, 1);
    Request::CreateSrq { pd, depth, max_sge }
}

#[test]
fn no_memory_of_another_user_can_be_read() {
    let scene = Scene::new("users-read");
    let mut prey = scene.victim.element(0..LEN);
    // By local work that names it as its source.
    let (attacker, accomplice) = scene.accomplices();
    attacker.post(WorkRequest::write(1, &[prey], accomplice.remote()));
    assert_eq!(attacker.completion().status, WcStatus::LocalProtection);
    assert!(!accomplice.holds(SEED));
    prey.length = 8;
    let (attacker, accomplice) = scene.accomplices();
    accomplice.post_recv(1, 0..LEN);
    attacker.post(WorkRequest::send(1, &[prey]));
    assert_eq!(attacker.completion().status, WcStatus::LocalProtection);
    assert!(accomplice.content().iter().all(|byte| *byte == 0));
    // By a peer, over a connection of the attacker's.
    let (attacker, accomplice) = scene.accomplices();
    attacker.post(WorkRequest::write(
        1,
        &[attacker.element(0..8)],
        accomplice.remote(),
    ));
    assert_eq!(attacker.completion().status, WcStatus::Success);
    let into = [accomplice.element(0..LEN)];
    accomplice.post(WorkRequest::read(1, &into, scene.prey()));
    assert_eq!(accomplice.completion().status, WcStatus::RemoteAccess);
    assert!(!accomplice.holds(SEED));
    scene.is_unharmed();
}

#[test]
fn no_memory_of_another_user_can_be_written() {
    let scene = Scene::new("users-write");
    let prey = scene.victim.element(0..LEN);
    // By local work that names it as its sink.
    let (attacker, accomplice) = scene.accomplices();
    attacker.post(WorkRequest::read(1, &[prey], accomplice.remote()));
    assert_eq!(attacker.completion().status, WcStatus::LocalProtection);
    let (attacker, accomplice) = scene.accomplices();
    let word = rnic::Sge { length: 8, ..prey };
    attacker.post(WorkRequest::atomic_fetch_add(
        1,
        &word,
        accomplice.remote(),
        1,
    ));
    assert_eq!(attacker.completion().status, WcStatus::LocalProtection);
    let (attacker, accomplice) = scene.accomplices();
    attacker
        .qp
        .post_recv(WorkRequest::recv(1, &[prey]))
        .expect("room");
    attacker.post(WorkRequest::write(
        2,
        &[attacker.element(0..8)],
        accomplice.remote(),
    ));
    assert_eq!(attacker.completion().status, WcStatus::Success);
    accomplice.post(WorkRequest::send(1, &[accomplice.element(0..64)]));
    assert_eq!(attacker.completion().status, WcStatus::LocalProtection);
    // By a peer, over a connection of the attacker's.
    type Work = fn(&[rnic::Sge; 1], RemoteMemory) -> WorkRequest<'_>;
    let ways: [Work; 2] = [
        |from, to| WorkRequest::write(1, from, to),
        |from, to| WorkRequest::atomic_swap(1, &from[0], to, 7),
    ];
    for way in ways {
        let (attacker, accomplice) = scene.accomplices();
        attacker.post(WorkRequest::write(
            1,
            &[attacker.element(0..8)],
            accomplice.remote(),
        ));
        assert_eq!(attacker.completion().status, WcStatus::Success);
        let from = [accomplice.element(0..8)];
        accomplice.post(way(&from, scene.prey()));
        let ending = attacker.ending();
        let sent = matches!(ending, rnic::DisconnectReason::TerminateSent { .. });
        assert!(sent, "{ending:?}");
    }
    scene.is_unharmed();
}

#[test]
fn no_stag_of_another_user_can_be_invalidated() {
    let scene = Scene::new("users-invalidate");
    let stag = scene.prey().stag;
    let (attacker, _accomplice) = scene.accomplices();
    attacker.post(WorkRequest::local_invalidate(1, stag));
    let done = attacker.completion();
    assert_ne!(done.status, WcStatus::Success, "{done:?}");
    let (attacker, accomplice) = scene.accomplices();
    attacker.post_recv(1, 0..8);
    attacker.post(WorkRequest::write(
        2,
        &[attacker.element(0..8)],
        accomplice.remote(),
    ));
    assert_eq!(attacker.completion().status, WcStatus::Success);
    accomplice.post(WorkRequest::send_with_invalidate(1, &[], stag));
    let ending = attacker.ending();
    let sent = matches!(ending, rnic::DisconnectReason::TerminateSent { .. });
    assert!(sent, "{ending:?}");
    scene.is_unharmed();
}

/// Takes more and more until it is refused, for reaching a limit.
#[track_caller]
fn take_all<T>(what: &str, mut take: impl FnMut() -> Result<T, Error>) -> Vec<T> {
    let mut taken = Vec::new();
    loop {
        match take() {
            Ok(more) => taken.push(more),
            Err(Error::Refused(refusal)) => {
                assert_eq!(refusal.code, RefusalCode::Limit, "{what}: {refusal}");
                return taken;
            }
            Err(error) => panic!("{what}: {error} after {}", taken.len()),
        }
    }
}

#[test]
fn what_one_user_takes_is_not_missed_by_another() {
    let scene = Scene::new("users-exhaust");
    let contexts = take_all("clients", || {
        let socket = scene.pair.daemon_a.socket();
        run_as(ATTACKER, || {
            rnic::Daemon::at(socket).and_then(|it| it.open(None))
        })
    });
    let first = &contexts[0];
    let _pds: Vec<_> = contexts
        .iter()
        .map(|context| take_all("protection domains", || context.alloc_pd()))
        .collect();
    let pd = &_pds[0][0];
    let cq = first.create_cq(4).expect("the first");
    let config = QpConfig::default()
        .sq_depth(1)
        .rq_depth(1)
        .max_sge(1)
        .max_inline(0)
        .signal_all(false);
    let qps = take_all("queue pairs", || pd.create_qp(&cq, &cq, config.clone()));
    let cqs = take_all("completion queues", || first.create_cq(1));
    let small = SrqConfig::default().depth(1).max_sge(1);
    let srqs = take_all("receive queues", || pd.create_srq(small));
    // The same memory again and again, so that it costs little of it.
    let large = 1 << 28;
    let (_, fd) = SharedMemory::create("large", large).expect("a memfd");
    let regions = take_all("bytes", || pd.register_fd(&fd, 0, large, Access::ALL));
    println!(
        "{} clients, {} queue pairs, {} completion queues, {} shared queues, {} regions",
        contexts.len(),
        qps.len(),
        cqs.len(),
        srqs.len(),
        regions.len()
    );
    // The victim works, and can have more of everything.
    scene.is_unharmed();
    let socket = scene.pair.daemon_a.socket();
    let again = run_as(VICTIM, || {
        rnic::Daemon::at(socket).and_then(|it| it.open(None))
    })
    .expect("room for another client");
    let (another, peer) = (
        Endpoint::of(again, LEN),
        Endpoint::new(&scene.pair.daemon_b, LEN),
    );
    let shared = another.pd.create_srq(SrqConfig::default());
    drop(shared.expect("a shared receive queue"));
    connect(&another, &peer, scene.pair.b.address(Family::V4, PORT + 1));
    another.fill(SEED);
    another.post(WorkRequest::write(
        1,
        &[another.element(0..LEN)],
        peer.remote(),
    ));
    assert_eq!(another.completion().status, WcStatus::Success);
    rnic_tests::wait::until("the bytes are there", rnic_tests::verbs::LIMIT, || {
        peer.holds(SEED).then_some(())
    });
}

/// No memory is looked for: that has another refusal, which others would get as well.
#[test]
fn a_size_beyond_its_limit_is_refused_by_the_limits_name_before_memory_is_asked_for() {
    let pair = Pair::new("users-sizes");
    open_to_all(&pair.daemon_a);
    let mut attacker = Raw::greet(&pair.daemon_a, ATTACKER);
    let (Ok(Response::Pd(pd)), Ok(Response::Cq { cq, .. })) = (
        attacker.ask(&Request::AllocPd),
        attacker.ask(&Request::CreateCq { depth: 4 }),
    ) else {
        panic!("no domain, or no completion queue");
    };
    let local = pair.a.address(Family::V4, PORT);
    let transport = rnic_ipc::control::Transport::Tcp;
    for huge in [1 << 31, u32::MAX] {
        let sized = |change: fn(&mut QpAttributes, u32)| match queue_pair(pd, cq, None) {
            Request::CreateQp(mut attributes) => {
                change(&mut attributes, huge);
                Request::CreateQp(attributes)
            }
            other => other,
        };
        let (depth, max_sge, backlog) = (huge, 1, huge);
        for (request, limit) in [
            (sized(|its, huge| its.sq_depth = huge), "queue_depth"),
            (sized(|its, huge| its.rq_depth = huge), "queue_depth"),
            (sized(|its, huge| its.max_sge = huge), "sges"),
            (sized(|its, huge| its.max_inline = huge), "inline_bytes"),
            (Request::CreateCq { depth }, "cq_depth"),
            (Request::ResizeCq { cq, depth }, "cq_depth"),
            (Request::CreateSrq { pd, depth, max_sge }, "queue_depth"),
            (
                Request::Listen(ListenSpec {
                    local,
                    backlog,
                    transport,
                }),
                "backlog",
            ),
        ] {
            let refused = attacker.ask(&request).expect_err("it is too much");
            assert_eq!(refused.code, RefusalCode::Limit, "{request:?}: {refused}");
            assert!(refused.message.contains(limit), "{request:?}: {refused}");
        }
    }
    let log = pair.daemon_a.log();
    assert!(!log.contains("memory is short"), "{log}");
}

/// Whoever runs a daemon can read and write the memory of its clients.
#[test]
fn root_is_no_client_of_another_users_daemon_wherever_it_is_named() {
    let mut lab = Lab::new("users-daemon");
    let (host, _) = lab.pair(&LinkOptions::default());
    // As a runtime directory is made for a user.
    let [theirs, roots, shared] = ["theirs", "roots", "shared"].map(|name| {
        let path = lab.directory().join(name);
        fs::create_dir(&path).expect("the lab's directory is ours");
        path
    });
    chown(&theirs, Some(ATTACKER), None).expect("root may");
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).expect("root may");
    open_directory(lab.directory());
    let program = binary::copy("rnicd", lab.directory());
    let [in_theirs, in_shared] = [&theirs, &shared].map(|path| path.join("rnicd.sock"));
    let started = |socket: &Path| {
        let uid = ATTACKER.to_string();
        let command = host.namespace.command("setpriv").label("rnicd");
        let command = command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
        let command = command.arg(&program).args(["--loopback", "--socket"]);
        let command = command.arg(socket).args(["--socket-mode", "0666"]);
        Daemon::started(command, &host.namespace, socket, None)
    };
    let _daemons = [&in_theirs, &in_shared].map(|socket| started(socket));
    let link = shared.join("link.sock");
    run_as(ATTACKER, || symlink(&in_theirs, &link)).expect("it is open to all");
    for socket in [&in_theirs, &in_shared, &link] {
        let refused = rnic::Daemon::at(socket)
            .and_then(|it| it.open(None))
            .map(drop)
            .expect_err("it is another user's");
        let told = refused.to_string();
        let whose = format!("user {ATTACKER}");
        assert!(told.contains(&whose), "{}: {told}", socket.display());
        for variable in ["RNIC_SOCKET", "XDG_RUNTIME_DIR"] {
            let value = if variable == "RNIC_SOCKET" {
                socket
            } else {
                &theirs
            };
            let env = host.namespace.command("env").label("rnicctl");
            let env = env.args(["-u", "RNIC_SOCKET", "-u", "XDG_RUNTIME_DIR"]);
            let env = env.arg(format!("{variable}={}", value.display()));
            let told = env
                .arg(binary::path("rnicctl"))
                .arg("clients")
                .run()
                .failure();
            assert!(told.contains(&whose), "{variable}: {told}");
        }
        // The user itself is served.
        run_as(ATTACKER, || {
            rnic::Daemon::at(socket).and_then(|it| it.open(None))
        })
        .expect("its own daemon");
    }
    // Only root could put it there: as with `rnicd --user`.
    let given = roots.join("rnicd.sock");
    chown(&roots, Some(ATTACKER), None).expect("root may");
    let _given = started(&given);
    chown(&roots, Some(0), None).expect("root may");
    let _context = rnic::Daemon::at(&given)
        .and_then(|it| it.open(None))
        .expect("root gave the place away itself");
}

fn open_directory(path: &Path) {
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("root may");
}
