//! What a local user can take from the others: next to nothing (docs/security.md, local denial of
//! service).

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rnic::{ListenOptions, QpConfig};
use rnic_ipc::control::{PROTOCOL_VERSION, Request};
use rnic_ipc::id::PdId;
use rnic_ipc::transport::Channel;
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::user::{open_to_all, run_as};
use rnic_tests::verbs::FULL_ACCESS;
use rnic_tests::{binary, tool};
use rustix::net::sockopt::{
    set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size,
};

const ATTACKER: u32 = 61_003;
const VICTIM: u32 = 61_004;
const ROOT: u32 = 0;
/// How long the last close of an attacker's socket takes.
const LINGER: Duration = Duration::from_secs(60);
/// More than the daemon has threads for the attacker (68), and than waited to be closed when one
/// thread closed them (256).
const SURPLUS: usize = 400;
/// How long a client may wait for its Hello to be answered, at the worst, and mostly.
const WORST: Duration = Duration::from_secs(2);
const MOSTLY: Duration = Duration::from_millis(100);
const CONNECTS: usize = 25;
const THREADS: usize = 2;

/// TCP sockets whose last close takes as long as [`LINGER`] says.
struct Lingering {
    listener: TcpListener,
    peers: Vec<TcpStream>,
}

impl Lingering {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback is up");
        set_socket_recv_buffer_size(&listener, 4096).expect("a small one");
        Self {
            listener,
            peers: Vec::new(),
        }
    }

    fn one(&mut self) -> TcpStream {
        let at = self.listener.local_addr().expect("it is bound");
        let mut stream = TcpStream::connect(at).expect("it listens");
        set_socket_send_buffer_size(&stream, 4096).expect("a small one");
        self.peers
            .push(self.listener.accept().expect("it connects").0);
        stream.set_nonblocking(true).expect("a flag");
        while stream.write(&[0; 65536]).is_ok() {}
        set_socket_linger(&stream, Some(LINGER)).expect("an option");
        stream
    }
}

/// Connects more often than it may, and leaves a socket in each channel that is slow to close.
struct Flood {
    stop: Arc<AtomicBool>,
    connected: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn of(socket: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let connected = Arc::new(AtomicU64::new(0));
        let thread = |_| {
            let (socket, stop) = (socket.to_owned(), stop.clone());
            let connected = connected.clone();
            std::thread::spawn(move || run_as(ATTACKER, || flood(&socket, &stop, &connected)))
        };
        Self {
            threads: (0..THREADS).map(thread).collect(),
            stop,
            connected,
        }
    }

    fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// To be called when the daemon is gone: whoever waits for it waits no more.
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no panic");
        }
    }
}

fn flood(socket: &PathBuf, stop: &AtomicBool, connected: &AtomicU64) {
    let mut sockets = Lingering::new();
    let mut held = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let Ok(channel) = Channel::connect(socket) else {
            return;
        };
        connected.fetch_add(1, Ordering::Relaxed);
        if sockets.peers.len() < SURPLUS {
            let stream = sockets.one();
            // The daemon may have closed it already.
            let _ = channel.send(&1_u8, &[stream.as_fd()]);
            // Who closes it last waits: it may be this program.
            std::thread::spawn(move || drop(stream));
            held.push(channel);
        }
    }
}

/// How long it takes to be served; none when it takes more than [`WORST`].
fn connect_as(uid: u32, socket: &Path) -> Option<Duration> {
    let (done, is_done) = channel();
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        let start = Instant::now();
        let opened = run_as(uid, || {
            rnic::Daemon::at(&socket)
                .and_then(|it| it.open(None))
                .map(drop)
        });
        // Who asked may have gone.
        let _ = done.send(opened.map(|()| start.elapsed()));
    });
    let served = is_done.recv_timeout(WORST).ok()?;
    Some(served.expect("the daemon has a place for another user"))
}

#[test]
fn sockets_that_linger_keep_no_other_user_from_connecting() {
    let mut lab = Lab::new("lingering");
    let (host, _) = lab.pair(&LinkOptions::default());
    let mut daemon = Daemon::start(&lab, &host, &DaemonOptions::default());
    open_to_all(&daemon);
    let flood = Flood::of(daemon.socket());
    let start = Instant::now();
    while flood.connected() < 2 * SURPLUS as u64 && start.elapsed() < WORST {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut took = Vec::new();
    for uid in [VICTIM, ROOT].into_iter().cycle().take(2 * CONNECTS) {
        let served = connect_as(uid, daemon.socket());
        let flooded = flood.connected();
        took.push(served.unwrap_or_else(|| {
            panic!(
                "uid {uid} is not served within {WORST:?} after {} clients were, beside {flooded} \
                 connections of an attacker",
                took.len()
            )
        }));
    }
    took.sort();
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "{} connections of an attacker; another client waits {median:?}, {worst:?} at the worst",
        flood.connected()
    );
    daemon.assert_alive();
    drop(daemon);
    flood.end();
    assert!(median < MOSTLY, "{median:?}");
}

/// Asks in a loop, in so many threads with a client each, until it is told to stop; at first they wait.
struct Askers {
    stop: Arc<AtomicBool>,
    wait: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

/// Half of them ask for counters, half for what is refused.
const ASKERS: usize = 32;
/// What a neighbour keeps of its throughput, at the least, also where other programs run. Debug builds on two cores
/// keep 0.7, and 0.3 without the budget of requests.
const KEEPS: f64 = 0.5;
/// Measured so often, with and without them in turn. The best count: what other programs take of the processors
/// is in none of the two.
const ROUNDS: usize = 5;
/// The requests a second that a user has, and a little for the clock.
const ANSWERS: f64 = 2000.0 * 1.1;
const PORT: u16 = 18_515;

impl Askers {
    fn of(socket: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let wait = Arc::new(AtomicBool::new(true));
        let answered = Arc::new(AtomicU64::new(0));
        let thread = |number| {
            let (socket, stop) = (socket.to_owned(), stop.clone());
            let (answered, wait) = (answered.clone(), wait.clone());
            let request = match number % 2 {
                0 => Request::QueryCounters { first: 0 },
                _ => Request::DeallocPd { pd: PdId(999) },
            };
            std::thread::spawn(move || {
                run_as(ATTACKER, || {
                    ask(&socket, &request, [&stop, &wait], &answered)
                });
            })
        };
        Self {
            threads: (0..ASKERS).map(thread).collect(),
            stop,
            wait,
            answered,
        }
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no panic");
        }
    }
}

fn ask(socket: &Path, request: &Request, [stop, wait]: [&AtomicBool; 2], answered: &AtomicU64) {
    let channel = Channel::connect(socket).expect("the daemon serves");
    let hello = Request::Hello {
        version: PROTOCOL_VERSION,
    };
    let said = |request: &Request| {
        channel.send(request, &[]).expect("the daemon listens");
        let reply = channel.recv_reply().expect("the daemon speaks");
        reply.expect("the daemon answers").0
    };
    said(&hello).expect("a place for a client");
    while !stop.load(Ordering::Relaxed) {
        if wait.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let _ = said(request);
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Gbit/s of a neighbour's Writes.
fn throughput(pair: &Pair) -> f64 {
    let at = pair.b.address(Family::V4, PORT);
    let more = ["--op", "write", "--size", "65536", "--duration", "1"];
    let done = tool::client(&pair.daemon_a, "rnic-perf", at, &more).run();
    let report = tool::report(&done.success());
    let goodput = report["goodput"]["gbit_per_second"].as_f64();
    goodput.unwrap_or_else(|| panic!("no goodput in {report}"))
}

#[test]
fn requests_in_a_loop_leave_a_neighbour_its_throughput() {
    let pair = Pair::new("asking");
    open_to_all(&pair.daemon_a);
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let askers = Askers::of(pair.daemon_a.socket());
    let (mut alone, mut beside, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(throughput(&pair));
        askers.wait.store(false, Ordering::Relaxed);
        // Past the burst that everybody has.
        std::thread::sleep(Duration::from_secs(1));
        let (start, first) = (Instant::now(), askers.answered());
        beside.push(throughput(&pair));
        let answered = (askers.answered() - first) as f64;
        rates.push(answered / start.elapsed().as_secs_f64());
        askers.wait.store(true, Ordering::Relaxed);
    }
    askers.end();
    let [alone, beside, rate] =
        [alone, beside, rates].map(|all| all.into_iter().fold(0.0, f64::max));
    println!(
        "{alone:.2} Gbit/s alone, {beside:.2} beside {ASKERS} clients with {rate:.0} answers a second: \
         {:.2}",
        beside / alone
    );
    assert!(rate < ANSWERS, "{rate}");
    assert!(pair.daemon_a.counter("requests_delayed") > 0);
    assert!(beside > KEEPS * alone, "{beside} of {alone}");
}

/// A device that one user may fill.
const SMALL: &str = "
[limits]
clients = 8
protection_domains = 128
regions = 256
completion_queues = 128
queue_pairs = 64
[limits.client]
protection_domains = 128
regions = 256
[limits.user]
clients = 8
protection_domains = 128
regions = 256
completion_queues = 128
queue_pairs = 64
";

/// Takes more and more until there is none for this user.
fn take_all<T>(what: &str, mut take: impl FnMut() -> Result<T, rnic::Error>) -> Vec<T> {
    let mut taken = Vec::new();
    loop {
        match take() {
            Ok(more) => taken.push(more),
            Err(rnic::Error::Refused(refusal)) => {
                let kept = "kept for administrators";
                assert!(refusal.message.contains(kept), "{what}: {refusal}");
                return taken;
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

#[test]
fn a_full_device_lets_an_administrator_in() {
    let mut lab = Lab::new("full");
    let (a, b) = lab.pair(&LinkOptions::default());
    let file = lab.directory().join("rnicd.toml");
    std::fs::write(&file, SMALL).expect("the directory is ours");
    let small = DaemonOptions {
        arguments: vec!["--config".to_owned(), file.display().to_string()],
        ..DaemonOptions::default()
    };
    let daemon = Daemon::start(&lab, &a, &small);
    let other = Daemon::start(&lab, &b, &DaemonOptions::default());
    open_to_all(&daemon);
    let clients = take_all("clients", || {
        run_as(ATTACKER, || {
            rnic::Daemon::at(daemon.socket()).and_then(|it| it.open(None))
        })
    });
    let pds = take_all("protection domains", || clients[0].alloc_pd());
    let cqs = take_all("completion queues", || clients[0].create_cq(16));
    let config = QpConfig::default();
    let qps = take_all("queue pairs", || {
        pds[0].create_qp(&cqs[0], &cqs[0], config.clone())
    });
    let regions = take_all("regions", || pds[0].register(4096, FULL_ACCESS));
    let taken = [
        &clients.len(),
        &pds.len(),
        &cqs.len(),
        &qps.len(),
        &regions.len(),
    ];
    assert_eq!(taken, [&7, &126, &126, &63, &252]);

    // What rnicctl shows, and what an administrator tries the path with.
    let shown = daemon
        .namespace()
        .command(binary::path("rnicctl"))
        .arg("--socket")
        .arg(daemon.socket())
        .arg("clients")
        .run()
        .success();
    assert!(
        shown.stdout.contains(&ATTACKER.to_string()),
        "{}",
        shown.stdout
    );
    let at = b.address(Family::V4, PORT);
    let _server = tool::server(&other, "rnic-ping", at, &[]);
    let _ = tool::client(&daemon, "rnic-ping", at, &["--count", "3"])
        .run()
        .success();
    // Nobody else gets in.
    let refused = run_as(VICTIM, || {
        rnic::Daemon::at(daemon.socket()).and_then(|it| it.open(None))
    });
    assert!(
        matches!(refused, Err(rnic::Error::Refused(_))),
        "{refused:?}"
    );
}

/// How often a user's new clients are served in a second, with a little for the clock: each counts for
/// ten requests and its Hello.
const LIVES: f64 = 2000.0 / 11.0 * 1.2;
const LASTS: Duration = Duration::from_secs(1);
/// Lines of one kind in the log: 20 a second, in some seconds.
const LOGGED: usize = 200;

#[test]
fn clients_that_come_and_go_in_a_loop_are_slowed_and_another_user_is_not() {
    let mut lab = Lab::new("lives");
    let (host, _) = lab.pair(&LinkOptions::default());
    let daemon = Daemon::start(&lab, &host, &DaemonOptions::default());
    open_to_all(&daemon);
    let stop = AtomicBool::new(false);
    let lives = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..ASKERS {
            scope.spawn(|| {
                run_as(ATTACKER, || {
                    while !stop.load(Ordering::Relaxed) {
                        // Those that have just gone may still have their places.
                        let opened = rnic::Daemon::at(daemon.socket()).and_then(|it| it.open(None));
                        lives.fetch_add(opened.is_ok().into(), Ordering::Relaxed);
                    }
                });
            });
        }
        // Past the burst that everybody has.
        std::thread::sleep(LASTS);
        let (start, first) = (Instant::now(), lives.load(Ordering::Relaxed));
        std::thread::sleep(LASTS);
        let lived = lives.load(Ordering::Relaxed) - first;
        let rate = lived as f64 / start.elapsed().as_secs_f64();
        let waits = connect_as(VICTIM, daemon.socket());
        stop.store(true, Ordering::Relaxed);
        println!("{rate:.0} clients a second; another waits {waits:?}");
        assert!(rate < LIVES, "{rate}");
        assert!(waits.is_some());
    });
    // Nor do they fill the log.
    let log = daemon.log();
    let lines = log.lines().filter(|line| line.contains("connected on"));
    let (logged, lived) = (lines.count(), lives.load(Ordering::Relaxed));
    println!("{logged} lines of {lived} clients");
    assert!(logged < LOGGED, "{logged} lines of {lived} clients");
    assert!(
        log.contains("more lines of one kind were left out"),
        "{log}"
    );
}

#[test]
fn what_clients_take_of_open_files_is_within_what_the_daemon_counts_on() {
    let mut lab = Lab::new("open-files");
    let (a, b) = lab.pair(&LinkOptions::default());
    let socket = lab.directory().join("few.sock");
    // Fewer than clients may take: the daemon says so when it starts.
    let few = a
        .namespace
        .command("prlimit")
        .label("rnicd")
        .arg("--nofile=4000:4000")
        .arg(binary::path("rnicd"))
        .args(["--interface", INTERFACE, "--socket"])
        .arg(&socket);
    let daemon = Daemon::started(few, &a.namespace, &socket, None);
    let other = Daemon::start(&lab, &b, &DaemonOptions::default());
    let warning = "4000 open files are allowed, but clients may take";
    assert!(daemon.log().contains(warning), "{}", daemon.log());
    assert!(!other.log().contains("open files"), "{}", other.log());

    let mut before = daemon.open_files();
    let mut took = |what, most: usize| {
        let now = daemon.open_files();
        let more = now.saturating_sub(before);
        println!("{what}: {more}");
        assert!(
            more <= most,
            "{what} took {more} open files, and not {most}"
        );
        before = now;
    };
    let context = daemon.open();
    let pd = context.alloc_pd().expect("a domain");
    took("a client", 12);
    let cqs: Vec<_> = (0..20)
        .map(|_| context.create_cq(16).expect("a queue"))
        .collect();
    // Memory of the last one, and of what the client got before, waits to be sealed.
    took("20 completion queues", 24);
    let _qps: Vec<_> = (0..20)
        .map(|_| {
            pd.create_qp(&cqs[0], &cqs[0], QpConfig::default())
                .expect("a pair")
        })
        .collect();
    took("20 queue pairs", 1);
    let _regions: Vec<_> = (0..20)
        .map(|_| pd.register(4096, FULL_ACCESS).expect("a region"))
        .collect();
    took("20 regions", 0);
    let at = |port| SocketAddr::new(a.address(Family::V4, PORT).ip(), port);
    let _listeners: Vec<_> = (0..20)
        .map(|_| {
            context
                .listen(at(0), ListenOptions::default().backlog(4))
                .expect("a port")
        })
        .collect();
    took("20 listeners", 20);
}
