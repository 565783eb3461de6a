//! A connection request that came to one shard of an interface and is accepted in another. All that the peer sends comes
//! to the shard where the request came.

use std::time::Duration;

use rnic_engine::command::{Answer, Command, CommandError, MovedRequest, ShardEvent};
use rnic_ipc::control::{Event, ListenSpec, MpaOptions, Transport};
use rnic_ipc::id::{ConnRequestId, QpNum};
use rnic_ipc::work::WrOpcode;
use userspace_net::Instant;

use crate::siblings::{Astray, LEN};
use crate::side::{CLIENT, LISTENER};
use crate::world::World;

/// The number, among its siblings, of the shard to which requests are moved.
const TO: u8 = 0;

/// Both shards listen, and the peer connects: the request came to the other shard.
fn requested(transport: Transport) -> (Astray, QpNum, ConnRequestId) {
    let mut it = Astray::new(transport, 1500);
    let now = it.world.now;
    it.world.b.listen(4, now);
    let (peers, local) = (it.world.b.peers.clone(), it.world.b.address);
    let listen = Command::Listen {
        client: CLIENT,
        listener: LISTENER,
        spec: ListenSpec {
            local,
            backlog: 4,
            transport,
        },
        peers,
    };
    it.other.execute(listen, now).unwrap();
    let theirs = it.world.start_connect(MpaOptions::default(), b"hello");
    let mut found = None;
    for _ in 0..1000 {
        it.step();
        while let Some(event) = it.other.poll_event() {
            if let ShardEvent::Client {
                event: Event::ConnectRequest { request, .. },
                ..
            } = event
            {
                found = Some(request);
            }
        }
    }
    (it, theirs, found.expect("a request came"))
}

fn take(it: &mut Astray, request: ConnRequestId) -> Result<Box<MovedRequest>, CommandError> {
    let command = Command::TakeRequest { request, to: TO };
    match it.other.execute(command, it.world.now)? {
        Answer::Request(moved) => Ok(moved),
        other => panic!("{other:?}"),
    }
}

fn put(it: &mut Astray, moved: Box<MovedRequest>) -> Result<(), CommandError> {
    let now = it.world.now;
    let put = Command::PutRequest(moved);
    it.world.b.shard.execute(put, now).map(|_| ())
}

fn accept(it: &mut Astray, request: ConnRequestId) -> QpNum {
    let qp = it.world.b.create_qp();
    let accept = Command::Accept {
        request,
        qp,
        mpa: MpaOptions::default(),
        private_data: b"welcome".to_vec(),
    };
    it.world.b.shard.execute(accept, it.world.now).unwrap();
    qp
}

fn counter(it: &mut Astray, name: &str) -> u64 {
    let Ok(Answer::Counters(all)) = it
        .world
        .b
        .shard
        .execute(Command::QueryCounters, Instant::ZERO)
    else {
        panic!("no counters");
    };
    all.iter().find(|(known, _)| known == name).unwrap().1
}

#[test]
fn a_moved_request_is_accepted_in_its_new_shard_and_bytes_go_both_ways() {
    let (mut it, theirs, request) = requested(Transport::Tcp);
    let moved = take(&mut it, request).unwrap();
    // What comes now is handed over, and answered by neither shard.
    for _ in 0..100 {
        it.step();
    }
    put(&mut it, moved).unwrap();
    let ours = accept(&mut it, request);
    it.steps(|it| it.world.a.is_established(theirs));
    it.world.a.fill(0, LEN, 3);
    it.world.b.fill(LEN, LEN, 4);
    let (at_a, at_b) = (it.world.a.stag, it.world.b.stag);
    let a = &mut it.world.a;
    a.post_work(theirs, WrOpcode::Write, 1, 0, (at_b, 0), LEN);
    it.steps(|it| it.world.a.completion(1).is_some());
    let b = &mut it.world.b;
    b.post_work(ours, WrOpcode::Write, 2, LEN, (at_a, LEN), LEN);
    it.steps(|it| {
        let is_there = |at| it.world.b.read(at, LEN) == it.world.a.read(at, LEN);
        is_there(0) && is_there(LEN)
    });
    assert!(it.other.handover().given > LEN as u64 / 1500);
    for name in ["tcp_resets_sent", "tcp_unknown_flow"] {
        assert_eq!(
            (it.of_other(name), counter(&mut it, name)),
            (0, 0),
            "{name}"
        );
    }
    assert_eq!(it.of_other("connections"), 0);
    // Its end is told where it is, and its flow is nobody's then.
    let disconnect = Command::Disconnect {
        qp: ours,
        abort: true,
    };
    it.world.b.shard.execute(disconnect, it.world.now).unwrap();
    it.steps(|it| it.world.a.disconnected(theirs).is_some());
    assert_eq!(counter(&mut it, "connections"), 0);
    it.steps(|it| it.world.b.shard.levels().frames_free == it.frames[0]);
    it.other.poll(it.world.now);
    assert_eq!(it.other.levels().frames_free, it.frames[1]);
}

#[test]
fn what_the_peer_sends_on_the_way_is_sent_again_and_not_reset() {
    let (mut it, theirs, request) = requested(Transport::Tcp);
    let moved = take(&mut it, request).unwrap();
    let given = it.other.handover().given;
    // The peer ends it: its FIN or reset finds no connection yet.
    let disconnect = Command::Disconnect {
        qp: theirs,
        abort: false,
    };
    it.world.a.shard.execute(disconnect, it.world.now).unwrap();
    for _ in 0..100 {
        it.step();
    }
    assert!(it.other.handover().given > given, "nothing came meanwhile");
    for name in ["tcp_resets_sent", "tcp_unknown_flow"] {
        assert_eq!(
            (it.of_other(name), counter(&mut it, name)),
            (0, 0),
            "{name}"
        );
    }
    put(&mut it, moved).unwrap();
}

#[test]
fn a_moved_request_is_rejected_in_its_new_shard() {
    let (mut it, theirs, request) = requested(Transport::Tcp);
    let moved = take(&mut it, request).unwrap();
    put(&mut it, moved).unwrap();
    let reject = Command::Reject {
        request,
        private_data: b"no".to_vec(),
    };
    it.world.b.shard.execute(reject, it.world.now).unwrap();
    it.steps(|it| {
        let mut events = it.world.a.client_events();
        events.any(|event| matches!(event, Event::Rejected { qp, .. } if *qp == theirs))
    });
}

#[test]
fn a_request_whose_listener_is_gone_waits_where_it_comes_to_until_its_client_goes() {
    let (mut it, theirs, request) = requested(Transport::Tcp);
    let moved = take(&mut it, request).unwrap();
    let listener = LISTENER;
    let unlisten = Command::Unlisten { listener };
    it.world.b.shard.execute(unlisten, it.world.now).unwrap();
    put(&mut it, moved).unwrap();
    assert_eq!(counter(&mut it, "connections"), 1);
    let goes = Command::RemoveClient { client: CLIENT };
    it.world.b.shard.execute(goes, it.world.now).unwrap();
    it.steps(|it| {
        let mut events = it.world.a.client_events();
        events.any(|event| matches!(event, Event::ConnectFailed { qp, .. } if *qp == theirs))
    });
    assert_eq!(counter(&mut it, "connections"), 0);
}

/// The connection's number is gone, and no segment of its flow is dropped for one that is to come.
#[test]
fn a_moved_connection_that_is_over_is_awaited_no_longer() {
    let (mut it, theirs, request) = requested(Transport::Tcp);
    let moved = take(&mut it, request).unwrap();
    put(&mut it, moved).unwrap();
    let qp = accept(&mut it, request);
    it.steps(|it| it.world.a.is_established(theirs));
    let abort = true;
    let disconnect = Command::Disconnect { qp, abort };
    it.world.b.shard.execute(disconnect, it.world.now).unwrap();
    assert_flow_is_nobodys(&mut it, theirs);
}

#[test]
fn a_moved_request_without_a_place_is_told_and_awaited_no_longer() {
    let (mut it, theirs, request) = requested(Transport::Tcp);
    let moved = take(&mut it, request).unwrap();
    fill_connections(&mut it);
    let refused = put(&mut it, moved).unwrap_err();
    assert!(matches!(refused, CommandError::Limit { .. }), "{refused}");
    let mut events = std::iter::from_fn(|| it.world.b.shard.poll_event());
    let gone =
        |event| matches!(event, ShardEvent::RequestGone { request: of, .. } if of == request);
    assert!(events.any(gone));
    assert_flow_is_nobodys(&mut it, theirs);
}

/// As many as the shard may have, to nobody.
fn fill_connections(it: &mut Astray) {
    let (now, path) = (it.world.now, it.world.b.path_to(&it.world.a));
    let nobody = (it.world.a.address.ip(), 9).into();
    let b = &mut it.world.b;
    let mut ports = 50_000..;
    while let Ok(qp) = b.try_create_qp() {
        let port = ports.next().unwrap();
        let mpa = MpaOptions::default();
        if b.connect(qp, port, nobody, path, mpa, b"", now).is_err() {
            return;
        }
    }
    panic!("there are more connections than queue pairs");
}

/// No more requests wait than the backlog says, wherever they came.
#[test]
fn a_moved_request_takes_a_place_where_it_comes_to_until_it_is_answered() {
    let (mut it, _, request) = requested(Transport::Tcp);
    let (now, listener) = (it.world.now, LISTENER);
    let unlisten = Command::Unlisten { listener };
    it.world.b.shard.execute(unlisten, now).unwrap();
    it.world.b.listen(1, now);
    let moved = take(&mut it, request).unwrap();
    put(&mut it, moved).unwrap();
    // From here on what the peer sends comes to the shard that has the request.
    let asks = |it: &mut Astray| {
        it.world.start_connect(MpaOptions::default(), b"second");
        let soon = Duration::from_millis(100);
        let comes = |world: &mut World| world.b.take_request().is_some();
        it.world.run_until(soon, comes)
    };
    assert!(!asks(&mut it));
    assert!(counter(&mut it, "backlog_full") > 0);
    accept(&mut it, request);
    assert!(asks(&mut it));
}

/// Its reset is lost, and what the peer sends is of no connection in the shard that it comes to.
fn assert_flow_is_nobodys(it: &mut Astray, theirs: QpNum) {
    it.world.b_to_a.cut = true;
    it.step();
    it.world.b_to_a.cut = false;
    let given = it.other.handover().given;
    let disconnect = Command::Disconnect {
        qp: theirs,
        abort: false,
    };
    it.world.a.shard.execute(disconnect, it.world.now).unwrap();
    it.steps(|it| it.world.a.shard.levels().connections == 0);
    // What it has sent is on its way.
    for _ in 0..100 {
        it.step();
    }
    assert_eq!(it.other.handover().given, given);
    assert!(it.of_other("tcp_unknown_flow") > 0);
}

#[test]
fn a_request_whose_client_goes_while_it_is_on_its_way_ends_where_it_comes_to() {
    let (mut it, theirs, request) = requested(Transport::Tcp);
    let moved = take(&mut it, request).unwrap();
    let goes = Command::RemoveClient { client: CLIENT };
    it.world.b.shard.execute(goes, it.world.now).unwrap();
    let refused = put(&mut it, moved).unwrap_err();
    let client = matches!(refused, CommandError::Unknown { what: "client" });
    assert!(client, "{refused}");
    // The peer is told, long before anybody's time to answer is over.
    let begun = it.world.now;
    it.steps(|it| {
        let mut events = it.world.a.client_events();
        events.any(|event| matches!(event, Event::ConnectFailed { qp, .. } if *qp == theirs))
    });
    assert!(it.world.now.saturating_duration_since(begun) < Duration::from_secs(1));
    assert_eq!(counter(&mut it, "connections"), 0);
}

#[test]
fn a_request_over_sctp_and_one_that_is_not_there_stay() {
    let (mut it, _, request) = requested(Transport::Sctp);
    let refused = take(&mut it, request).unwrap_err();
    assert!(
        matches!(refused, CommandError::WrongState { .. }),
        "{refused}"
    );
    let (mut it, _, request) = requested(Transport::Tcp);
    take(&mut it, request).unwrap();
    let refused = take(&mut it, request).unwrap_err();
    assert!(matches!(refused, CommandError::Unknown { .. }), "{refused}");
}
