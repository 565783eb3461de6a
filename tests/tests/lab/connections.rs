//! Connections as programs make them: private data, rejection, the end, and many at once.

use std::thread;
use std::time::Duration;

use rnic::{
    AcceptOptions, ConnectOptions, DisconnectReason, Error, ListenOptions, MpaOptions, WcStatus,
    WorkRequest,
};
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::{Endpoint, LIMIT, connect};

const PORT: u16 = 18515;

#[test]
fn private_data_arrives_both_ways_in_both_revisions() {
    let pair = Pair::new("private-data");
    for (revision, most) in [(1, 512), (2, 508)] {
        let lengths = [0, 1, 256, most];
        for (length, family) in lengths.into_iter().zip(Family::ALL.into_iter().cycle()) {
            let (asked, answered) = (Pattern::bytes(1, length), Pattern::bytes(2, length));
            let mpa = MpaOptions {
                revision,
                ..MpaOptions::default()
            };
            let (a, b) = (
                Endpoint::new(&pair.daemon_a, 64),
                Endpoint::new(&pair.daemon_b, 64),
            );
            let at = pair.b.address(family, PORT);
            let listener = b
                .context
                .listen(at, ListenOptions::default().backlog(4))
                .unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let request = listener.accept().wait(LIMIT).unwrap();
                    assert_eq!(request.private_data(), asked);
                    assert_eq!(request.mpa().revision, revision);
                    assert_eq!(request.local(), at);
                    let private_data = answered.clone();
                    let options = AcceptOptions::default().private_data(private_data).mpa(mpa);
                    request
                        .accept(&b.qp, options)
                        .wait(Duration::from_secs(10))
                        .unwrap();
                });
                let private_data = asked.clone();
                let options = ConnectOptions::default()
                    .private_data(private_data)
                    .mpa(mpa);
                let established =
                    a.qp.connect(at, options)
                        .wait(Duration::from_secs(10))
                        .unwrap();
                assert_eq!(established.private_data, answered);
                assert_eq!(established.mpa.revision, revision);
            });
        }
    }
}

#[test]
fn a_rejection_arrives_with_its_private_data_and_the_listener_goes_on() {
    let pair = Pair::new("reject");
    let at = pair.b.address(Family::V4, PORT);
    let context = rnic::Daemon::at(pair.daemon_b.socket())
        .unwrap()
        .open(None)
        .unwrap();
    let listener = context
        .listen(at, ListenOptions::default().backlog(4))
        .unwrap();
    let lengths = [
        (1, 0),
        (1, 1),
        (1, 256),
        (1, 512),
        (2, 0),
        (2, 1),
        (2, 256),
        (2, 508),
    ];
    for (revision, length) in lengths {
        let reason = Pattern::bytes(3, length);
        let a = Endpoint::new(&pair.daemon_a, 64);
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener.accept().wait(LIMIT).unwrap();
                request.reject(&reason).unwrap();
            });
            let mpa = MpaOptions {
                revision,
                ..MpaOptions::default()
            };
            match a
                .qp
                .connect(at, ConnectOptions::default().mpa(mpa))
                .wait(Duration::from_secs(10))
            {
                Err(Error::Rejected { private_data, .. }) => assert_eq!(private_data, reason),
                other => panic!("not rejected: {other:?}"),
            }
        });
    }
    drop(listener);
    let (a, b) = (
        Endpoint::new(&pair.daemon_a, 64),
        Endpoint::new(&pair.daemon_b, 64),
    );
    connect(&a, &b, at);
}

#[test]
fn a_disconnect_is_graceful_at_both_ends_and_delivers_what_was_sent_before() {
    let pair = Pair::new("disconnect");
    let (a, b) = (
        Endpoint::new(&pair.daemon_a, 4096),
        Endpoint::new(&pair.daemon_b, 4096),
    );
    connect(&a, &b, pair.b.address(Family::V4, PORT));
    a.fill(5);
    b.post_recv(3, 0..4096);
    a.post(WorkRequest::send(4, &[a.element(0..4096)]));
    let received = b.completion();
    assert_eq!((received.wr_id, received.status), (3, WcStatus::Success));
    assert_eq!(received.byte_len, 4096);
    assert!(b.holds(5));
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(b.ending(), DisconnectReason::Graceful));
        a.qp.disconnect().wait(LIMIT).unwrap();
    });
}

#[test]
fn an_abort_flushes_what_was_posted_and_the_peer_hears_of_it() {
    let pair = Pair::new("abort");
    let (a, b) = (
        Endpoint::new(&pair.daemon_a, 64),
        Endpoint::new(&pair.daemon_b, 64),
    );
    connect(&a, &b, pair.b.address(Family::V4, PORT));
    a.post_recv(1, 0..64);
    b.post_recv(2, 0..64);
    a.qp.abort().unwrap();
    assert_eq!(a.ending(), DisconnectReason::Aborted);
    assert_eq!(b.ending(), DisconnectReason::Reset);
    for (end, wr_id) in [(&a, 1), (&b, 2)] {
        let completion = end.completion();
        assert_eq!(
            (completion.wr_id, completion.status),
            (wr_id, WcStatus::WorkRequestFlushed)
        );
    }
}

#[test]
fn bytes_of_many_connections_of_one_program_do_not_mix() {
    const CONNECTIONS: usize = 24;
    const BYTES: usize = 50_000;
    let pair = Pair::new("many");
    let ends: Vec<(Endpoint, Endpoint)> = (0..CONNECTIONS)
        .map(|number| {
            let family = Family::ALL[number % 2];
            let a = Endpoint::new(&pair.daemon_a, BYTES);
            let b = Endpoint::new(&pair.daemon_b, BYTES);
            let port = PORT + u16::try_from(number).unwrap();
            connect(&a, &b, pair.b.address(family, port));
            a.fill(number as u64);
            (a, b)
        })
        .collect();
    for (a, b) in &ends {
        b.post_recv(1, 0..1);
        let bytes = [a.element(0..BYTES)];
        a.post(WorkRequest::write(2, &bytes, b.remote()));
        // A Send after the Write: when it is delivered, all of the Write was placed.
        a.post(WorkRequest::send(3, &[]));
    }
    for (number, (a, b)) in ends.iter().enumerate() {
        let received = b.completion();
        assert_eq!(
            (received.status, received.byte_len),
            (WcStatus::Success, 0),
            "{number}"
        );
        assert!(b.holds(number as u64), "connection {number}");
        for wr_id in [2, 3] {
            let completion = a.completion();
            assert_eq!(
                (completion.wr_id, completion.status),
                (wr_id, WcStatus::Success)
            );
        }
    }
}
