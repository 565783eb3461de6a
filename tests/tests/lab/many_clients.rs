//! Many clients with 16 queue pairs each on one daemon: set up, all sending at once, torn down. The
//! figures are printed. `RNIC_TEST_CLIENTS` says how many clients (32 without it). What 256 showed is
//! in docs/operations/configure.md.
//!
//! Of a thousand connections and more each gets so little in the time of the test that messages are
//! small: of large ones most would not be done once.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rnic::{
    AcceptOptions, CompletionQueue, ConnectOptions, Context, ListenOptions, MemoryRegion, QpConfig,
    QueuePair, WcStatus, WorkCompletion,
};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::verbs::FULL_ACCESS;
use rnic_tests::wait;
use rustix::process::{Resource, Rlimit};

const PORT: u16 = 20_000;
/// Without `RNIC_TEST_CLIENTS`.
const CLIENTS: usize = 32;
const QUEUE_PAIRS: usize = 16;
/// Bytes of a message of so many connections.
const MESSAGE: usize = 64 << 10;
const MANY_CONNECTIONS: usize = 1024;
const SMALL_MESSAGE: usize = 4 << 10;
/// Messages that are always under way on each queue pair.
const DEPTH: usize = 2;
const LASTS: Duration = Duration::from_secs(3);
const THREADS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);
const LIMITS: &str = "
[limits]
clients = 400
queue_pairs = 8192
completion_queues = 8192
[limits.user]
clients = 400
queue_pairs = 8192
completion_queues = 8192
listeners = 400
requests_per_second = 1000000
";

/// A client at each end, and the connections between the two.
struct Couple {
    near: End,
    far: End,
    message: usize,
    bytes: u64,
}

struct End {
    queue_pairs: Vec<QueuePair>,
    cq: CompletionQueue,
    region: MemoryRegion,
    context: Context,
}

impl End {
    fn new(daemon: &Daemon) -> Self {
        let context = daemon.open();
        let pd = context.alloc_pd().expect("a protection domain");
        let depth = (2 * DEPTH * QUEUE_PAIRS) as u32;
        let cq = context.create_cq(depth).expect("a completion queue");
        let config = QpConfig::default().sq_depth(DEPTH as u32).rq_depth(1);
        let queue_pairs = (0..QUEUE_PAIRS)
            .map(|_| {
                pd.create_qp(&cq, &cq, config.clone())
                    .expect("a queue pair")
            })
            .collect();
        Self {
            queue_pairs,
            cq,
            region: pd.register(MESSAGE, FULL_ACCESS).expect("a region"),
            context,
        }
    }
}

impl Couple {
    fn new(near: &Daemon, far: &Daemon, at: SocketAddr, message: usize) -> Self {
        let (near, far) = (End::new(near), End::new(far));
        let listener = far
            .context
            .listen(at, ListenOptions::default().backlog(QUEUE_PAIRS as u32))
            .expect("a port");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for qp in &far.queue_pairs {
                    let request = listener.accept().wait(PATIENCE).expect("a request");
                    request
                        .accept(qp, AcceptOptions::default())
                        .wait(PATIENCE)
                        .expect("RDMA mode");
                }
            });
            for qp in &near.queue_pairs {
                let options = ConnectOptions::default();
                qp.connect(at, options).wait(PATIENCE).expect("RDMA mode");
            }
        });
        Self {
            near,
            far,
            message,
            bytes: 0,
        }
    }

    fn post(&self, number: usize) {
        let element = self.near.region.slice(0..self.message).expect("all of it");
        let there = self.far.region.remote(0..self.message).expect("all of it");
        self.near.queue_pairs[number]
            .post_write(number as u64, &[element], there)
            .expect("room");
    }

    /// Counts what is done, and posts as much again.
    fn work(&mut self) -> usize {
        let mut out = [WorkCompletion::default(); DEPTH * QUEUE_PAIRS];
        let count = self.near.cq.poll(&mut out).expect("a sound CQ");
        for completion in &out[..count] {
            assert_eq!(completion.status, WcStatus::Success);
            self.bytes += self.message as u64;
            self.post(completion.wr_id as usize);
        }
        count
    }
}

fn in_threads<T: Send>(work: impl Fn(usize) -> Vec<T> + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || work(n))).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

#[test]
fn many_clients_with_16_queue_pairs_each_are_set_up_served_evenly_and_torn_down() {
    let clients = match std::env::var("RNIC_TEST_CLIENTS") {
        Ok(clients) => clients.parse().expect("a number"),
        Err(_) => CLIENTS,
    };
    raise_open_files();
    let mut lab = Lab::new("many-clients");
    let (a, b) = lab.pair(&LinkOptions::default());
    let file = lab.directory().join("rnicd.toml");
    let text = format!("interface = \"{INTERFACE}\"\nframes = 8192\n{LIMITS}");
    std::fs::write(&file, text).expect("the lab's directory is ours");
    let options = DaemonOptions {
        arguments: vec!["--config".to_owned(), file.display().to_string()],
        ..DaemonOptions::default()
    };
    let near = Daemon::start(&lab, &a, &options);
    let far = Daemon::start(&lab, &b, &options);
    let empty = near.resident_bytes();

    let connections = clients * QUEUE_PAIRS;
    let message = match connections {
        MANY_CONNECTIONS.. => SMALL_MESSAGE,
        _ => MESSAGE,
    };
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let mut couples = in_threads(|_| {
        let mut couples = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= clients {
                return couples;
            }
            let at = b.address(Family::V4, PORT + number as u16);
            couples.push(Couple::new(&near, &far, at, message));
        }
    });
    let set_up = start.elapsed();
    let full = near.resident_bytes();
    assert_eq!(near.counter("queue_pairs"), connections as u64);

    let start = Instant::now();
    std::thread::scope(|scope| {
        for couples in couples.chunks_mut(clients.div_ceil(THREADS)) {
            scope.spawn(move || {
                for couple in &*couples {
                    (0..DEPTH * QUEUE_PAIRS).for_each(|n| couple.post(n % QUEUE_PAIRS));
                }
                while start.elapsed() < LASTS {
                    let done: usize = couples.iter_mut().map(Couple::work).sum();
                    if done == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
    });
    let sending = start.elapsed();
    let bytes: Vec<u64> = couples.iter().map(|couple| couple.bytes).collect();
    let sent = near.counter("tcp_segments_out");
    let again = near.counter("tcp_retransmits");

    let start = Instant::now();
    std::thread::scope(|scope| {
        while !couples.is_empty() {
            let rest = couples.split_off(couples.len().saturating_sub(clients.div_ceil(THREADS)));
            scope.spawn(move || drop(rest));
        }
    });
    wait::until("nothing is left of the clients", PATIENCE, || {
        let counters = near.counters();
        let left = counters["queue_pairs"] + counters["held_regions"];
        (left == 0 && counters["device_clients"] == 1).then_some(())
    });
    let torn_down = start.elapsed();

    let sum: u64 = bytes.iter().sum();
    let mean = sum as f64 / bytes.len() as f64;
    let squares: f64 = bytes.iter().map(|own| (*own as f64).powi(2)).sum();
    let jain = (sum as f64).powi(2) / (bytes.len() as f64 * squares);
    let least = bytes.iter().copied().min().unwrap_or(0) as f64;
    let most = bytes.iter().copied().max().unwrap_or(0) as f64;
    println!("{clients} clients with {QUEUE_PAIRS} queue pairs each:");
    println!(
        "set up in {:.2} s ({:.2} ms a connection), torn down in {:.2} s",
        set_up.as_secs_f64(),
        1e3 * set_up.as_secs_f64() / connections as f64,
        torn_down.as_secs_f64(),
    );
    println!(
        "memory of the daemon: {} KiB without clients, {} KiB a queue pair",
        empty >> 10,
        (full.saturating_sub(empty) / connections as u64) >> 10,
    );
    println!(
        "{again} of {sent} segments sent again; {} found no place at the receiver; the size of \
         segments changed {} times",
        far.counter("port0_kernel_fill_ring_empty"),
        near.counter("mss_changes"),
    );
    println!(
        "{:.0} Mbit/s; a client's part of the mean: least {:.2}, most {:.2}; Jain's index {jain:.3}",
        sum as f64 * 8e-6 / sending.as_secs_f64(),
        least / mean,
        most / mean,
    );
    assert!(jain > 0.8 && least > 0.3 * mean, "{bytes:?}");
}

/// Each client has some, and the usual limit is for programs that use select(2).
fn raise_open_files() {
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    rustix::process::setrlimit(Resource::Nofile, limit).expect("no more than is allowed");
}
