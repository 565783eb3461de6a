//! A daemon that is told to end lets connections end in order, for a bounded time. Its clients get a named error of
//! every object, and no call hangs. Another daemon serves them again.

use std::time::Duration;

use rnic::{
    DisconnectReason, Error, ListenOptions, QpConfig, QpState, RefusalCode, WcStatus,
    WorkCompletion, WorkRequest,
};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, Lab, LinkOptions, Signal};
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, LIMIT, connect};
use rnic_tests::wait;

const PORT: u16 = 18515;
const MESSAGE: usize = 1 << 20;
const MESSAGES: usize = 8;

struct Scene {
    daemon_a: Daemon,
    daemon_b: Daemon,
    a: Host,
    b: Host,
    lab: Lab,
}

/// Two hosts; connections of the first daemon have so many milliseconds to end.
fn scene(name: &str, drain: &str) -> Scene {
    let mut lab = Lab::new(name);
    let (a, b) = lab.pair(&LinkOptions::default());
    let options = DaemonOptions {
        arguments: vec!["--drain".to_owned(), drain.to_owned()],
        ..DaemonOptions::default()
    };
    Scene {
        daemon_a: Daemon::start(&lab, &a, &options),
        daemon_b: Daemon::start(&lab, &b, &DaemonOptions::default()),
        a,
        b,
        lab,
    }
}

#[test]
fn what_was_posted_before_the_daemon_was_told_to_end_arrives() {
    let mut scene = scene("drained", "60000");
    let [a, b] =
        [&scene.daemon_a, &scene.daemon_b].map(|daemon| Endpoint::new(daemon, MESSAGES * MESSAGE));
    connect(&a, &b, scene.b.address(Family::V4, PORT));
    a.fill(7);
    for number in 0..MESSAGES {
        let range = number * MESSAGE..(number + 1) * MESSAGE;
        let there = b.region.remote(range.clone()).unwrap();
        a.qp.post_write(number as u64, &[a.element(range)], there)
            .unwrap();
    }
    scene.daemon_a.signal(Signal::TERM);
    for number in 0..MESSAGES {
        let completion = a.completion();
        let found = (completion.wr_id, completion.status);
        assert_eq!(found, (number as u64, WcStatus::Success));
    }
    assert_eq!(b.ending(), DisconnectReason::Graceful);
    assert!(b.holds(7), "not all of it arrived");
    let log = scene.daemon_a.stop().stderr;
    assert!(!log.contains("are reset"), "{log}");
}

#[test]
fn a_peer_that_does_not_answer_holds_the_end_up_for_so_long_only() {
    let mut scene = scene("drain-bound", "300");
    let [a, b] = [&scene.daemon_a, &scene.daemon_b].map(|daemon| Endpoint::new(daemon, 4096));
    connect(&a, &b, scene.b.address(Family::V4, PORT));
    scene.daemon_b.freeze();
    let log = scene.daemon_a.stop().stderr;
    scene.daemon_b.signal(Signal::CONT);
    assert!(log.contains("1 connections are reset"), "{log}");
    let _ = b.ending();
    drop(a);
}

/// Every call on every object ends with an error that says what happened.
fn assert_gone<T>(what: &str, result: Result<T, Error>) {
    match result {
        Err(Error::DaemonGone | Error::Disconnected { .. }) => {}
        Err(Error::SessionEnded(why)) => {
            assert_eq!(why.code, RefusalCode::ShuttingDown, "{what}: {why}")
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what} went well without a daemon"),
    }
}

#[test]
fn after_the_daemons_end_every_object_says_so_and_another_daemon_serves() {
    let scene = scene("stopped", "1000");
    let [a, b] = [&scene.daemon_a, &scene.daemon_b].map(|daemon| Endpoint::new(daemon, 4096));
    connect(&a, &b, scene.b.address(Family::V4, PORT));
    a.post_recv(1, 0..100);
    a.post_recv(2, 100..200);
    let idle = a.pd.create_qp(&a.cq, &a.cq, QpConfig::default()).unwrap();
    let local = scene.a.address(Family::V4, PORT + 1);
    let listener = a
        .context
        .listen(local, ListenOptions::default().backlog(4))
        .unwrap();
    let Scene {
        daemon_a,
        daemon_b,
        a: host,
        b: far,
        lab,
    } = scene;
    let stopped = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().wait(LIMIT).map(drop));
        let stopped = daemon_a.stop();
        assert_gone("an accept that waits", accepting.join().unwrap());
        stopped
    });
    assert!(stopped.took < LIMIT, "{stopped}");

    for wr_id in [1, 2] {
        let completion = a.completion();
        let found = (completion.wr_id, completion.status);
        assert_eq!(found, (wr_id, WcStatus::WorkRequestFlushed));
    }
    let mut out = [WorkCompletion::default()];
    // After some polls in vain.
    let error = wait::until("polling tells of the daemon's end", LIMIT, || {
        (0..1000).find_map(|_| a.cq.poll(&mut out).err())
    });
    assert_gone::<()>("polling", Err(error));
    assert_gone("waiting for a completion", a.cq.readable().wait(LIMIT));
    assert_gone("the device", a.context.device_info());
    assert_gone("counters", a.context.counters());
    assert_gone("a domain", a.context.alloc_pd());
    assert_gone("a region", a.pd.register(4096, FULL_ACCESS));
    assert_gone("a CQ", a.context.create_cq(4));
    let more = a.pd.create_qp(&a.cq, &a.cq, QpConfig::default());
    assert_gone("a queue pair", more);
    for qp in [&a.qp, &idle] {
        assert_gone("a send", qp.post_send(WorkRequest::send(1, &[])));
        assert_gone("a receive", qp.post_recv(WorkRequest::recv(1, &[])));
        assert_gone("a state", qp.state());
        assert_gone("an end", qp.disconnect().wait(LIMIT));
    }
    let to = far.address(Family::V4, PORT);
    assert_gone(
        "a connection",
        idle.connect(to, Default::default())
            .wait(Duration::from_secs(10)),
    );
    assert_gone(
        "a listener",
        a.context.listen(local, ListenOptions::default().backlog(4)),
    );
    assert_gone("a request", listener.accept().wait(LIMIT));

    let again = Daemon::start(&lab, &host, &DaemonOptions::default());
    assert_gone("the old client", a.context.device_info());
    drop((listener, idle, a));
    let [a, b] = [&again, &daemon_b].map(|daemon| Endpoint::new(daemon, 4096));
    connect(&a, &b, far.address(Family::V4, PORT + 2));
    assert_eq!(a.qp.state().unwrap(), QpState::Rts);
}
