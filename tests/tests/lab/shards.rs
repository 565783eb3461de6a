//! Several shards for an interface: one client's objects over all of them, for real.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rnic::{
    AcceptOptions, Access, CompletionQueue, ConnectOptions, Context, ListenOptions, MemoryRegion,
    ProtectionDomain, QpConfig, QueuePair, SharedReceiveQueue, SrqConfig, WcStatus, WindowType,
    WorkCompletion, WorkRequest,
};
use rnic_tests::daemon::{Daemon, DaemonOptions, scrape};
use rnic_tests::lab::{Family, Host, Lab, LinkOptions};
use rnic_tests::pattern::Pattern;
use rnic_tests::tool;
use rnic_tests::verbs::{FULL_ACCESS, LIMIT};
use rustix::fs::{MemfdFlags, SealFlags};

const TO_READ: Access = Access::REMOTE_READ;
const PORT: u16 = 18515;
/// Bytes of each queue pair's part of the memory.
const PART: usize = 5000;

/// Two hosts, and a daemon with shards on each. Dropped in this order.
struct Shards {
    daemons: [Daemon; 2],
    metrics: [PathBuf; 2],
    hosts: [Host; 2],
    _lab: Lab,
}

impl Shards {
    /// Interfaces with so many queues, and so many shards for each.
    fn new(name: &str, queues: u32, shards: [&str; 2]) -> Self {
        let mut lab = Lab::new(name);
        let (a, b) = lab.pair(&LinkOptions {
            queues,
            ..LinkOptions::default()
        });
        let metrics = ["a", "b"].map(|name| lab.directory().join(format!("metrics-{name}.sock")));
        let start = |host: &Host, shards: &str, metrics: &PathBuf| {
            let metrics = format!("unix:{}", metrics.display());
            let frames = (2048 * queues).to_string();
            let said = [
                "--shards",
                shards,
                "--frames",
                &frames,
                "--metrics",
                &metrics,
            ];
            let options = DaemonOptions {
                arguments: said.map(str::to_owned).to_vec(),
                ..DaemonOptions::default()
            };
            Daemon::start(&lab, host, &options)
        };
        let daemons = [
            start(&a, shards[0], &metrics[0]),
            start(&b, shards[1], &metrics[1]),
        ];
        Self {
            daemons,
            metrics,
            hosts: [a, b],
            _lab: lab,
        }
    }

    /// What each shard of a daemon tells of a metric, of the series with this label if there are several.
    fn of_each(&self, daemon: usize, metric: &str, label: &str) -> Vec<u64> {
        let text = scrape(&self.metrics[daemon]);
        let series = format!("{metric}{{shard=\"");
        let is_it = |line: &&str| line.starts_with(&series) && line.contains(label);
        let values = text.lines().filter(is_it);
        values
            .map(|line| {
                let (_, value) = line.rsplit_once(' ').expect("a value");
                value.parse().expect("a number")
            })
            .collect()
    }
}

/// One client with many queue pairs, one completion queue and one region.
struct Side {
    qps: Vec<QueuePair>,
    /// Where their receives come from, if not from queues of their own.
    srq: Option<SharedReceiveQueue>,
    cq: CompletionQueue,
    region: MemoryRegion,
    pd: ProtectionDomain,
    context: Context,
}

impl Side {
    fn new(daemon: &Daemon, queue_pairs: usize) -> Self {
        let context = daemon.open();
        let pd = context.alloc_pd().expect("a protection domain");
        let depth = u32::try_from(4 * queue_pairs).expect("few");
        let cq = context
            .create_cq(depth.max(16))
            .expect("a completion queue");
        let region = pd
            .register(PART * queue_pairs, FULL_ACCESS)
            .expect("a region");
        Self {
            qps: Vec::new(),
            srq: None,
            cq,
            region,
            pd,
            context,
        }
    }

    fn queue_pair(&self) -> QueuePair {
        let config = QpConfig::default().sq_depth(8).rq_depth(8);
        let (pd, cq) = (&self.pd, &self.cq);
        let made = match &self.srq {
            Some(srq) => pd.create_qp(cq, cq, config.srq(srq.clone())),
            None => pd.create_qp(cq, cq, config),
        };
        made.expect("a queue pair")
    }

    /// A receive for what comes next, of the queue pair or of all.
    fn expect_one(&self, qp: &QueuePair) {
        let slot = [self.region.slice(0..8).expect("a part")];
        let receive = WorkRequest::recv(7, &slot);
        match &self.srq {
            Some(srq) => srq.post_recv(receive),
            None => qp.post_recv(receive),
        }
        .expect("room");
    }

    /// So many completions, all of work that succeeded.
    #[track_caller]
    fn complete(&self, count: usize) {
        let mut done = [WorkCompletion::default(); 32];
        let mut left = count;
        while left > 0 {
            let found = self.cq.poll(&mut done).expect("a sound completion queue");
            for done in &done[..found] {
                assert_eq!(done.status, WcStatus::Success, "{done:?}");
            }
            left -= found;
            if found == 0 {
                self.cq.readable().wait(LIMIT).expect("a completion");
            }
        }
    }
}

/// So many queue pairs of one client at each end, connected in turn.
fn connected(shards: &Shards, queue_pairs: usize) -> [Side; 2] {
    let sides = [0, 1].map(|end| Side::new(&shards.daemons[end], queue_pairs));
    connect(shards, sides, queue_pairs)
}

fn connect(shards: &Shards, [mut a, mut b]: [Side; 2], queue_pairs: usize) -> [Side; 2] {
    let at = shards.hosts[1].address(Family::V4, PORT);
    let listener = b
        .context
        .listen(at, ListenOptions::default().backlog(64))
        .expect("a free address");
    let accepted = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let accept = |_| {
                let request = listener.accept().wait(LIMIT).expect("a request");
                let qp = b.queue_pair();
                // In whatever shard it is, this is for that of the request.
                b.expect_one(&qp);
                request
                    .accept(&qp, AcceptOptions::default())
                    .wait(LIMIT)
                    .expect("RDMA mode");
                qp
            };
            (0..queue_pairs).map(accept).collect::<Vec<_>>()
        });
        for _ in 0..queue_pairs {
            let qp = a.queue_pair();
            qp.connect(at, ConnectOptions::default())
                .wait(Duration::from_secs(10))
                .expect("RDMA mode");
            a.qps.push(qp);
        }
        accepting.join().expect("all are accepted")
    });
    b.qps = accepted;
    [a, b]
}

/// All queue pairs write at once, each to a part of its own, and say so by a Send; what was written is there.
#[track_caller]
fn all_write(from: &Side, to: &Side, seed: u64) {
    let count = from.qps.len();
    let bytes = Pattern::bytes(seed, PART * count);
    from.region.write(0, &bytes).expect("it has as many");
    for (number, qp) in from.qps.iter().enumerate() {
        let part = number * PART..(number + 1) * PART;
        let local = [from.region.slice(part.clone()).expect("a part")];
        let remote = to.region.remote(part).expect("a part");
        let write = WorkRequest::write(1, &local, remote).unsignaled();
        qp.post_send_all(&[write, WorkRequest::send(2, &[])])
            .expect("room");
    }
    from.complete(count);
    to.complete(count);
    assert!(to.region.to_vec(0..PART * count).expect("all of it") == bytes);
}

#[test]
fn every_message_arrives_between_hosts_of_several_shards() {
    for (queues, shards) in [
        (2, ["2", "2"]),
        (4, ["4", "1"]),
        (8, ["1", "8"]),
        (8, ["3", "auto"]),
    ] {
        let shards = Shards::new("shards", queues, shards);
        for family in Family::ALL {
            let at = shards.hosts[1].address(family, PORT);
            let _server = tool::server(&shards.daemons[1], "rnic-perf", at, &[]);
            for op in ["write", "send", "read"] {
                for size in [1, 64, 4096, 1 << 20] {
                    let said =
                        format!("--op {op} --size {size} --depth 4 --iterations 10 --verify");
                    let said: Vec<&str> = said.split_whitespace().collect();
                    let client = tool::client(&shards.daemons[0], "rnic-perf", at, &said).spawn();
                    let _ = client.finish(Duration::from_secs(60)).success();
                }
            }
        }
    }
}

#[test]
fn one_client_s_queue_pairs_are_spread_over_shards_and_share_its_objects() {
    const QUEUE_PAIRS: usize = 64;
    let shards = Shards::new("spread", 4, ["4", "4"]);
    let [a, b] = connected(&shards, QUEUE_PAIRS);
    all_write(&a, &b, 1);
    for end in [0, 1] {
        let of_each = shards.of_each(end, "rnic_queue_pairs", "");
        assert_eq!(
            of_each.iter().sum::<u64>(),
            QUEUE_PAIRS as u64,
            "{of_each:?}"
        );
        assert_eq!(of_each, [16; 4], "of daemon {end}");
    }
}

/// A window is bound by work of one queue pair after the other, in all shards, and used over all of them each time.
#[test]
fn a_window_that_work_of_one_shard_binds_is_reached_over_all() {
    const QUEUE_PAIRS: usize = 8;
    let shards = Shards::new("window", 4, ["4", "4"]);
    let [a, b] = connected(&shards, QUEUE_PAIRS);
    assert_eq!(shards.of_each(1, "rnic_queue_pairs", ""), [2; 4]);
    let bytes = Pattern::bytes(5, PART * QUEUE_PAIRS);
    b.region.write(0, &bytes).expect("it has as many");
    let window = b.pd.alloc_window(WindowType::Type1).expect("a window");
    for (number, binder) in b.qps.iter().enumerate() {
        let part = number * PART..(number + 1) * PART;
        let bound = window.bind(1, &b.region, part.clone(), TO_READ);
        let (bind, remote) = bound.expect("in the region");
        binder.post_send(bind).expect("room");
        b.complete(1);
        for (place, qp) in a.qps.iter().enumerate() {
            let local = [a
                .region
                .slice(place * PART..(place + 1) * PART)
                .expect("a part")];
            let read = WorkRequest::read(2, &local, remote);
            qp.post_send(read).expect("room");
        }
        a.complete(QUEUE_PAIRS);
        let found = a.region.to_vec(0..PART * QUEUE_PAIRS).expect("all of it");
        assert!(
            found
                .chunks(PART)
                .all(|found| *found == bytes[part.clone()])
        );
    }
    let unbind = window.unbind(3);
    b.qps[0].post_send(unbind).expect("room");
    b.complete(1);
}

/// They take from one queue, which is in one shard. Their connections come to all.
#[test]
fn queue_pairs_with_shared_receives_accept_what_comes_to_any_shard() {
    const QUEUE_PAIRS: usize = 16;
    let shards = Shards::new("srq", 4, ["4", "4"]);
    let mut sides = [0, 1].map(|end| Side::new(&shards.daemons[end], QUEUE_PAIRS));
    let srq = sides[1].pd.create_srq(SrqConfig::default());
    sides[1].srq = Some(srq.expect("a shared receive queue"));
    let [a, b] = connect(&shards, sides, QUEUE_PAIRS);
    all_write(&a, &b, 1);
    b.qps.iter().for_each(|qp| b.expect_one(qp));
    all_write(&a, &b, 2);
    assert_eq!(shards.of_each(0, "rnic_queue_pairs", ""), [4; 4]);
    let of_each = shards.of_each(1, "rnic_queue_pairs", "");
    assert_eq!(of_each, [QUEUE_PAIRS as u64, 0, 0, 0]);
    let given = shards.of_each(1, "rnic_handovers_total", "result=\"given\"");
    assert!(given[1..].iter().all(|given| *given > 0), "{given:?}");
}

/// Writes by all queue pairs, one outstanding on each, until the time is over; how many each did.
fn write_for(from: &Side, to: &Side, time: Duration) -> Vec<u64> {
    let begun = Instant::now();
    let post = |number: usize| {
        let part = number * PART..(number + 1) * PART;
        let local = [from.region.slice(part.clone()).expect("a part")];
        let remote = to.region.remote(part).expect("a part");
        let write = WorkRequest::write(number as u64, &local, remote);
        from.qps[number].post_send(write).expect("room");
    };
    let mut counts = vec![0; from.qps.len()];
    (0..counts.len()).for_each(post);
    let mut outstanding = counts.len();
    let mut done = [WorkCompletion::default(); 32];
    while outstanding > 0 {
        let found = from.cq.poll(&mut done).expect("a sound completion queue");
        for done in &done[..found] {
            assert_eq!(done.status, WcStatus::Success, "{done:?}");
            counts[done.wr_id as usize] += 1;
            match begun.elapsed() < time {
                true => post(done.wr_id as usize),
                false => outstanding -= 1,
            }
        }
        if found == 0 {
            from.cq.readable().wait(LIMIT).expect("a completion");
        }
    }
    counts
}

#[test]
fn a_thousand_queue_pairs_of_one_client_get_even_shares_of_four_shards() {
    const QUEUE_PAIRS: usize = 1000;
    let shards = Shards::new("thousand", 4, ["4", "4"]);
    let [a, b] = connected(&shards, QUEUE_PAIRS);
    assert_eq!(shards.of_each(0, "rnic_queue_pairs", ""), [250; 4]);
    assert_eq!(shards.of_each(1, "rnic_queue_pairs", ""), [250; 4]);
    let bytes = Pattern::bytes(5, PART * QUEUE_PAIRS);
    a.region.write(0, &bytes).expect("it has as many");
    let counts = write_for(&a, &b, Duration::from_secs(5));
    let (least, most) = (counts.iter().min(), counts.iter().max());
    let of_shards = shards.of_each(0, "rnic_work_requests_total", "result=\"success\"");
    println!("writes of each queue pair: {least:?} to {most:?}; of each shard: {of_shards:?}");
    let mean = of_shards.iter().sum::<u64>() / 4;
    for of_shard in &of_shards {
        assert!(
            of_shard.abs_diff(mean) <= mean / 5,
            "{of_shards:?} are not even"
        );
    }
    let each = counts.iter().sum::<u64>() / QUEUE_PAIRS as u64;
    for count in &counts {
        assert!(
            count.abs_diff(each) <= each / 5,
            "{least:?} to {most:?} are not even"
        );
    }
    // A Write completes when it is sent.
    rnic_tests::wait::until("all bytes are there", LIMIT, || {
        let there = b.region.to_vec(0..bytes.len()).expect("all of it");
        (there == bytes).then_some(())
    });
}

/// RFC 5041 section 8.3.1: when revoking returns, nothing is written any more, by any shard.
#[test]
fn a_region_is_out_of_reach_of_all_shards_once_it_is_revoked() {
    const QUEUE_PAIRS: usize = 16;
    const BYTES: usize = PART * QUEUE_PAIRS;
    let shards = Shards::new("revoked", 4, ["4", "4"]);
    for round in 0..5 {
        let [a, b] = connected(&shards, QUEUE_PAIRS);
        let memfd = memfd(BYTES);
        let region =
            b.pd.register_fd(&memfd, 0, BYTES, FULL_ACCESS)
                .expect("a region");
        let remote = region.remote(0..BYTES).expect("all of it");
        let (begun, under_way) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                for seed in 1.. {
                    let bytes = Pattern::bytes(seed, BYTES);
                    a.region.write(0, &bytes).expect("it has as many");
                    for (number, qp) in a.qps.iter().enumerate() {
                        // Each writes all of it: where they overlap does not matter.
                        let local = [a.region.slice(0..BYTES).expect("all of it")];
                        let write = WorkRequest::write(number as u64, &local, remote);
                        qp.post_send(write).expect("room");
                    }
                    let mut refused = 0;
                    let mut left = a.qps.len();
                    let mut done = [WorkCompletion::default(); 32];
                    while left > 0 {
                        let found = a.cq.poll(&mut done).expect("a sound completion queue");
                        let failed = done[..found]
                            .iter()
                            .filter(|it| it.status != WcStatus::Success);
                        refused += failed.count();
                        left -= found;
                        if found == 0 {
                            a.cq.readable().wait(LIMIT).expect("a completion");
                        }
                    }
                    if refused > 0 {
                        return;
                    }
                    let _ = begun.send(());
                }
            });
            under_way.recv_timeout(LIMIT).expect("a writer");
            std::thread::sleep(Duration::from_millis(7 * round));
            drop(region);
            let then = content(&memfd, BYTES);
            assert!(then.iter().any(|byte| *byte != 0), "nothing was written");
            std::thread::sleep(Duration::from_millis(100));
            assert!(
                content(&memfd, BYTES) == then,
                "written after it was revoked"
            );
            writing.join().expect("a writer");
            assert!(
                content(&memfd, BYTES) == then,
                "written after it was revoked"
            );
        });
    }
}

#[test]
fn a_client_that_dies_leaves_nothing_in_any_shard() {
    let shards = Shards::new("death", 4, ["4", "4"]);
    let [a, b] = connected(&shards, 8);
    let at = shards.hosts[1].address(Family::V4, PORT + 1);
    let many = ["many", "--queue-pairs=40"];
    let serve = rnic_tests::binary::path("rnic-perf");
    let start = |daemon: usize, more: &[&str]| {
        let daemon = &shards.daemons[daemon];
        let command = daemon.namespace().command(&serve).label("rnic-perf-many");
        command
            .args(many)
            .arg("--socket")
            .arg(daemon.socket())
            .args(more)
            .spawn()
    };
    let mut server = start(1, &["server", "--listen", &at.to_string()]);
    let listens = server.says("listening", tool::LISTEN_LIMIT);
    listens.unwrap_or_else(|error| panic!("{error}"));
    let mut client = start(
        0,
        &["client", "--connect", &at.to_string(), "--duration", "600"],
    );
    let sum = |end| {
        shards
            .of_each(end, "rnic_queue_pairs", "")
            .iter()
            .sum::<u64>()
    };
    rnic_tests::wait::until("all are connected", LIMIT, || {
        (sum(0) == 48 && sum(1) == 48).then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    client.kill();
    rnic_tests::wait::until("nothing is left of it", LIMIT, || {
        (sum(0) == 8).then_some(())
    });
    assert_eq!(
        shards.of_each(0, "rnic_memory_regions", "").iter().max(),
        Some(&1)
    );
    drop(server);
    rnic_tests::wait::until("nothing is left of its peer", LIMIT, || {
        (sum(1) == 8).then_some(())
    });
    all_write(&a, &b, 3);
}

fn memfd(bytes: usize) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("rnic-tests", flags).expect("a memfd");
    rustix::fs::ftruncate(&fd, bytes as u64).expect("memory");
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).expect("a seal");
    fd
}

fn content(memfd: &OwnedFd, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    let read = rustix::io::pread(memfd, &mut content, 0).expect("its bytes");
    assert_eq!(read, bytes);
    content
}

/// The processors on which each of a daemon's shards may run.
fn processors_of_shards(daemon: &Daemon) -> Vec<(String, String)> {
    let tasks = format!("/proc/{}/task", daemon.id());
    let tasks = std::fs::read_dir(tasks).expect("its threads");
    let mut found: Vec<_> = tasks
        .filter_map(|task| {
            let task = task.ok()?.path();
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            let status = std::fs::read_to_string(task.join("status")).ok()?;
            let allowed = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            name.starts_with("rnic-shard")
                .then(|| (name.trim().to_owned(), allowed.trim().to_owned()))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn each_shard_stays_on_the_processor_that_it_is_given() {
    let mut lab = Lab::new("cores");
    let link = LinkOptions {
        queues: 2,
        ..LinkOptions::default()
    };
    let (a, b) = lab.pair(&link);
    let start = |host: &Host, cores: &str| {
        let said = ["--shards", "2", "--cores", cores];
        let options = DaemonOptions {
            arguments: said.map(str::to_owned).to_vec(),
            ..DaemonOptions::default()
        };
        Daemon::start(&lab, host, &options)
    };
    let (on_list, anywhere) = (start(&a, "1,0"), start(&b, "any"));
    let shard = |name: &str, cores: &str| (name.to_owned(), cores.to_owned());
    assert_eq!(
        processors_of_shards(&on_list),
        [shard("rnic-shard", "1"), shard("rnic-shard-1", "0")]
    );
    let all = processors_of_shards(&anywhere);
    assert!(
        all.len() == 2 && all[0].1 == all[1].1 && all[0].1 != "1",
        "{all:?}"
    );
}
