//! What a local user can take from the others: next to nothing (docs/security.md, local denial of
//! service).

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rnic::Context;
use rnic_ipc::transport::Channel;
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Lab, LinkOptions};
use rnic_tests::user::{open_to_all, run_as};
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
        let opened = run_as(uid, || Context::open(&socket).map(drop));
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
