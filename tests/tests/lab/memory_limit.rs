//! A daemon that the host gives no more memory refuses what needs some, and goes on.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rnic::{Error, ListenOptions, QpConfig, RefusalCode, SrqConfig};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, LIMIT, connect};
use rnic_tests::wait;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

const PORT: u16 = 18515;
/// Bytes of addresses that the daemon may have beyond those that it has.
const LEFT: u64 = 12 << 20;
/// Of each kind; more than fit into [`LEFT`].
const MANY: usize = 4000;

/// How long a phase may take. None takes a tenth of it.
const PHASE_LIMIT: Duration = Duration::from_secs(60);

/// Does `work`, whose calls have no limit of their own. Without it in time the daemon is killed, which ends
/// them, and the phase is named.
fn phase<T>(what: &str, daemon: Pid, work: impl FnOnce() -> T) -> T {
    phase_within(PHASE_LIMIT, what, daemon, work)
}

fn phase_within<T>(limit: Duration, what: &str, daemon: Pid, work: impl FnOnce() -> T) -> T {
    let (ends, has_ended) = channel::<()>();
    std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let late = has_ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if late {
                eprintln!("{what}: not done after {limit:?}, the daemon is killed");
                let _ = kill_process(daemon, Signal::KILL);
            }
            late
        });
        let ends = ends;
        let result = work();
        drop(ends);
        let late = watch.join().expect("it only waits");
        assert!(!late, "{what} took longer than {limit:?}");
        result
    })
}

#[test]
fn a_phase_that_hangs_is_named() {
    let hung = std::panic::catch_unwind(|| {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .expect("a process");
        let daemon = Pid::from_raw(child.id().cast_signed()).expect("not 0");
        phase_within(Duration::from_millis(50), "the sleep", daemon, || {
            child.wait().expect("it ends")
        })
    });
    let why = hung.expect_err("it is late");
    let why = why.downcast_ref::<String>().expect("a sentence");
    assert_eq!(why, "the sleep took longer than 50ms");
}

/// Bytes of addresses that the daemon has.
fn addresses(daemon: &Daemon) -> u64 {
    in_status(daemon, "VmSize:")
}

/// Bytes that the daemon's status in /proc says under a name.
fn in_status(daemon: &Daemon, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id()));
    let status = status.expect("the daemon runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    kilobytes
        .and_then(|text| text.parse::<u64>().ok())
        .expect("a number")
        << 10
}

/// Whether it says that memory, or anything else, is used up.
fn is_by_name(refusal: &rnic::Refusal) -> bool {
    matches!(refusal.code, RefusalCode::Host | RefusalCode::Limit)
}

/// Takes so many, or as many as there is room for, and gives them back; whether one was refused.
fn take<T>(what: &str, daemon: Pid, one: impl FnMut() -> Result<T, Error>) -> bool {
    phase(what, daemon, || take_all(what, one))
}

fn take_all<T>(what: &str, mut one: impl FnMut() -> Result<T, Error>) -> bool {
    let mut kept = Vec::new();
    for _ in 0..MANY {
        match one() {
            Ok(more) => kept.push(more),
            Err(Error::Refused(refusal)) => {
                assert!(is_by_name(&refusal), "{what}: {refusal}");
                return true;
            }
            // A client for which there is no thread is told by its channel's end.
            Err(Error::DaemonGone) => return true,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    false
}

#[test]
fn a_limit_of_addresses_refuses_requests_and_ends_nothing() {
    let mut pair = Pair::new("memory-limit");
    let a = Endpoint::new(&pair.daemon_a, 50_000);
    let b = Endpoint::new(&pair.daemon_b, 50_000);
    connect(&a, &b, pair.b.address(Family::V4, PORT));
    let context = pair.daemon_a.open();
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(4).expect("a queue");
    let pid = Pid::from_raw(pair.daemon_a.id().cast_signed()).expect("not 0");
    let limit = |current| {
        let maximum = None;
        prlimit(Some(pid), Resource::As, Rlimit { current, maximum }).expect("root may");
    };
    limit(Some(addresses(&pair.daemon_a) + LEFT));

    let depth = context.device_info().expect("it answers").max_queue_depth;
    let (srq, config) = (
        SrqConfig::default().depth(depth).max_sge(4),
        QpConfig::default().sq_depth(depth).rq_depth(depth),
    );
    let large = take("large regions", pid, || pd.register(1 << 20, FULL_ACCESS));
    assert!(large, "the limit has no effect");
    let refused = [
        take("small regions", pid, || pd.register(4096, FULL_ACCESS)),
        take("completion queues", pid, || context.create_cq(depth)),
        take("small completion queues", pid, || context.create_cq(1)),
        take("receive queues", pid, || pd.create_srq(srq)),
        take("queue pairs", pid, || {
            pd.create_qp(&cq, &cq, config.clone())
        }),
        take("clients", pid, || {
            rnic::Daemon::at(pair.daemon_a.socket()).and_then(|it| it.open(None))
        }),
    ];
    assert_eq!(refused, [true; 6], "some were not refused");
    phase("what there is goes on", pid, || {
        for seed in 0..20 {
            a.fill(seed);
            let all = [a.element(0..50_000)];
            a.post(rnic::WorkRequest::write(1, &all, b.remote()));
            assert_eq!(a.completion().status, rnic::WcStatus::Success);
            a.post(rnic::WorkRequest::read(2, &all, b.remote()));
            assert_eq!(a.completion().status, rnic::WcStatus::Success);
            assert!(b.holds(seed));
        }
    });
    limit(None);
    pair.daemon_a.assert_alive();
    wait::until("all that was taken is given back", LIMIT, || {
        (pair.daemon_a.counter("regions") == 1).then_some(())
    });
    pd.register(4 << 20, FULL_ACCESS)
        .expect("there is memory again");
}

/// Requests as fast as they are answered.
const UNPACED: &str = "[limits.user]\nrequests_per_second = 1000000\n";
/// Clients that want as much as they can get, at the same time.
const GREEDY: usize = 4;
/// Of each kind, what one of them asks for in a round.
const EACH: usize = 60;
/// Bytes that the daemon may have beyond those that it has, in one round after the other: also such
/// that there is room for a part of what a new thread needs.
const ROOMS: [u64; 16] = [
    0,
    64 << 10,
    256 << 10,
    1 << 20,
    (2 << 20) - (64 << 10),
    2 << 20,
    (2 << 20) + (4 << 10),
    (2 << 20) + (8 << 10),
    (2 << 20) + (12 << 10),
    (2 << 20) + (16 << 10),
    (2 << 20) + (64 << 10),
    3 << 20,
    6 << 20,
    12 << 20,
    20 << 20,
    40 << 20,
];

/// As many of each kind as it gets, held until it returns; how often it was refused.
fn take_all_kinds(socket: &std::path::Path, at: SocketAddr) -> usize {
    let mut taken: Vec<Box<dyn Any>> = Vec::new();
    let mut refused = 0;
    let mut note = |made: Result<Box<dyn Any>, Error>| match made {
        Ok(one) => taken.push(one),
        Err(Error::Refused(refusal)) => {
            assert!(is_by_name(&refusal), "{refusal}");
            refused += 1;
        }
        Err(Error::DaemonGone) => refused += 1,
        Err(error) => panic!("{error}"),
    };
    fn any<T: 'static>(one: T) -> Box<dyn Any> {
        Box::new(one)
    }
    for _ in 0..EACH / 4 {
        note(
            rnic::Daemon::at(socket)
                .and_then(|it| it.open(None))
                .map(any),
        );
    }
    let Ok(context) = rnic::Daemon::at(socket).and_then(|it| it.open(None)) else {
        return refused + 1;
    };
    let Ok(pd) = context.alloc_pd() else {
        return refused + 1;
    };
    let depth = 4096;
    let deep = QpConfig::default().sq_depth(depth).rq_depth(depth);
    for _ in 0..EACH {
        note(context.alloc_pd().map(any));
        note(pd.register(4096, FULL_ACCESS).map(any));
        note(pd.register(1 << 20, FULL_ACCESS).map(any));
        let at = SocketAddr::new(at.ip(), 0);
        note(
            context
                .listen(at, ListenOptions::default().backlog(4))
                .map(any),
        );
        note(
            pd.create_srq(SrqConfig::default().depth(depth).max_sge(4))
                .map(any),
        );
        note(context.create_cq(1).map(any));
        match context.create_cq(depth) {
            Ok(cq) => note(pd.create_qp(&cq, &cq, deep.clone()).map(any)),
            Err(error) => note(Err(error)),
        }
    }
    refused
}

#[test]
fn clients_that_take_all_that_limits_allow_end_no_daemon() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rnicd.toml");
    std::fs::write(&file, UNPACED).expect("the directory is ours");
    let unpaced = DaemonOptions {
        arguments: vec!["--config".to_owned(), file.display().to_string()],
        ..DaemonOptions::default()
    };
    let mut pair = Pair::with("memory-limits", &LinkOptions::default(), &unpaced);
    let a = Endpoint::new(&pair.daemon_a, 50_000);
    let b = Endpoint::new(&pair.daemon_b, 50_000);
    connect(&a, &b, pair.b.address(Family::V4, PORT));
    let pid = Pid::from_raw(pair.daemon_a.id().cast_signed()).expect("not 0");
    let local = pair.a.address(Family::V4, 0);
    for (what, resource, name) in [
        ("addresses", Resource::As, "VmSize:"),
        ("data", Resource::Data, "VmData:"),
    ] {
        let limit = |current| {
            let maximum = None;
            prlimit(Some(pid), resource, Rlimit { current, maximum }).expect("root may");
        };
        let mut refused = 0;
        for (round, room) in ROOMS.into_iter().enumerate() {
            limit(Some(in_status(&pair.daemon_a, name) + room));
            let named = format!("round {round} with {room} bytes more of {what}");
            let greedy_clients = || {
                std::thread::scope(|scope| {
                    let greedy = || take_all_kinds(pair.daemon_a.socket(), local);
                    let all: Vec<_> = (0..GREEDY).map(|_| scope.spawn(greedy)).collect();
                    // What there is goes on.
                    for seed in 0..5 {
                        a.fill(seed);
                        let all = [a.element(0..50_000)];
                        a.post(rnic::WorkRequest::write(1, &all, b.remote()));
                        assert_eq!(a.completion().status, rnic::WcStatus::Success);
                        // What it reads is what was placed before.
                        a.post(rnic::WorkRequest::read(2, &all, b.remote()));
                        assert_eq!(a.completion().status, rnic::WcStatus::Success);
                        assert!(a.holds(seed) && b.holds(seed), "{what}, round {round}");
                    }
                    refused += all
                        .into_iter()
                        .map(|one| one.join().expect("refused by name"))
                        .sum::<usize>();
                });
            };
            phase(&named, pid, greedy_clients);
            pair.daemon_a.assert_alive();
            limit(None);
            // What they had is given back, and there is memory again for whoever asks.
            phase(&format!("after {named}"), pid, || {
                wait::until("a client is served again", LIMIT, || {
                    let context = rnic::Daemon::at(pair.daemon_a.socket())
                        .and_then(|it| it.open(None))
                        .ok()?;
                    let pd = context.alloc_pd().ok()?;
                    pd.register(1 << 20, FULL_ACCESS).ok()
                })
            });
            wait::until("all is given back", LIMIT, || {
                (pair.daemon_a.counter("regions") == 1).then_some(())
            });
        }
        println!(
            "{refused} requests refused with {} limits of {what}",
            ROOMS.len()
        );
        assert!(refused > 0);
    }
    println!(
        "the reserve was used {} times",
        pair.daemon_a.counter("memory_reserve_used")
    );
    assert!(pair.daemon_a.counter("memory_reserve_used") > 0);
}
