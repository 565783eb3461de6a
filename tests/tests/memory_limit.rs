//! A daemon that the host gives no more memory refuses what needs some, and goes on.

use rnic::{
    CompletionQueue, Context, Error, ProtectionDomain, QpConfig, QueuePair, RefusalCode,
    SharedReceiveQueue, SrqConfig,
};
use rnic_tests::daemon::Daemon;
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, LIMIT, connect};
use rnic_tests::wait;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

const PORT: u16 = 18515;
/// Bytes of addresses that the daemon may have beyond those that it has.
const LEFT: u64 = 12 << 20;
/// Of each kind; more than fit into [`LEFT`].
const MANY: usize = 4000;

/// Bytes of addresses that the daemon has.
fn addresses(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id()));
    let status = status.expect("the daemon runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    kilobytes
        .and_then(|text| text.parse::<u64>().ok())
        .expect("a number")
        << 10
}

/// Takes so many, or as many as there is room for, and gives them back; whether one was refused.
fn take<T>(what: &str, mut one: impl FnMut() -> Result<T, Error>) -> bool {
    let mut kept = Vec::new();
    for _ in 0..MANY {
        match one() {
            Ok(more) => kept.push(more),
            Err(Error::Refused(refusal)) => {
                let by_name = matches!(refusal.code, RefusalCode::Host | RefusalCode::Limit);
                assert!(by_name, "{what}: {refusal}");
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
    let context = Context::open(pair.daemon_a.socket()).expect("it serves");
    let pd = ProtectionDomain::alloc(&context).expect("a domain");
    let cq = CompletionQueue::create(&context, 4).expect("a queue");
    let pid = Pid::from_raw(pair.daemon_a.id().cast_signed());
    let limit = |current| {
        let maximum = None;
        prlimit(pid, Resource::As, Rlimit { current, maximum }).expect("root may");
    };
    limit(Some(addresses(&pair.daemon_a) + LEFT));

    let depth = context.device_info().expect("it answers").max_queue_depth;
    let (srq, config) = (
        SrqConfig { depth, max_sge: 4 },
        QpConfig {
            sq_depth: depth,
            rq_depth: depth,
            ..QpConfig::default()
        },
    );
    let large = take("large regions", || pd.register(1 << 20, FULL_ACCESS));
    assert!(large, "the limit has no effect");
    let refused = [
        take("small regions", || pd.register(4096, FULL_ACCESS)),
        take("completion queues", || {
            CompletionQueue::create(&context, depth)
        }),
        take("small completion queues", || {
            CompletionQueue::create(&context, 1)
        }),
        take("receive queues", || SharedReceiveQueue::create(&pd, srq)),
        take("queue pairs", || QueuePair::create(&pd, &cq, &cq, config)),
        take("clients", || Context::open(pair.daemon_a.socket())),
    ];
    assert_eq!(refused, [true; 6], "some were not refused");
    // What there is goes on.
    for seed in 0..20 {
        a.fill(seed);
        a.post(rnic::WorkRequest::write(
            1,
            &[a.element(0..50_000)],
            b.remote(),
        ));
        assert_eq!(a.completion().status, rnic::WcStatus::Success);
        a.post(rnic::WorkRequest::read(
            2,
            &[a.element(0..50_000)],
            b.remote(),
        ));
        assert_eq!(a.completion().status, rnic::WcStatus::Success);
        assert!(b.holds(seed));
    }
    limit(None);
    pair.daemon_a.assert_alive();
    wait::until("all that was taken is given back", LIMIT, || {
        (pair.daemon_a.counter("regions") == 1).then_some(())
    });
    pd.register(4 << 20, FULL_ACCESS)
        .expect("there is memory again");
}
