//! Queue pairs of one device that clients join by number, over the loopback.

use std::net::{IpAddr, Ipv4Addr};

use rnic_ipc::control::{JoinEnd, JoinNumbers, JoinSpec, MpaOptions, QpState};

use super::*;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn numbers(session: &ClientSession) -> JoinNumbers {
    match ask(session, Request::QueryJoinNumbers) {
        Ok(Response::JoinNumbers(numbers)) => numbers,
        reply => panic!("{reply:?}"),
    }
}

/// Joins a queue pair to another one of the device.
fn join(session: &ClientSession, qp: QpNum, other: QpNum) -> Reply {
    let number = numbers(session).number(other).unwrap();
    let remote = JoinEnd {
        address: ADDRESS,
        number,
    };
    let spec = JoinSpec {
        local: ADDRESS,
        remote,
        mpa: MpaOptions::default(),
    };
    ask(session, Request::Join { qp, spec })
}

/// In one test: in this network namespace two at a time would want the same port.
#[test]
fn a_join_is_over_with_its_connection_and_with_its_client() {
    for bench in both() {
        a_peer_ends_the_connection(&bench);
        a_client_goes(&bench);
    }
}

fn a_peer_ends_the_connection(bench: &Bench) {
    let [(session, _events), (other_session, _its_events)] =
        [0, 1].map(|_| bench.client_with_events());
    let sessions = [session, other_session];
    let [one, other] = [0, 1].map(|side| {
        let session = &sessions[side];
        qp(session, pd(session), cq(session))
    });
    let is_joined = |qp| bench.device.core().joins.lock().table.contains(qp);
    join(&sessions[0], one, other).unwrap();
    join(&sessions[1], other, one).unwrap();
    assert!(is_joined(one) && is_joined(other));
    for (session, qp) in sessions.iter().zip([one, other]) {
        bench.until("the connection", || {
            ask(session, Request::QueryQp { qp }) == Ok(Response::QpState(QpState::Rts))
        });
    }
    let abort = true;
    ask(&sessions[0], Request::Disconnect { qp: one, abort }).unwrap();
    bench.until("the end of both", || !is_joined(one) && !is_joined(other));
    let session = bench.client();
    let at = numbers(&session).slot;
    // The listener for joins has gone with the last.
    let port = rnic_ipc::control::JOIN_PORT + u16::from(at);
    listen(&session, &format!("127.0.0.1:{port}")).unwrap();
}

fn a_client_goes(bench: &Bench) {
    let (session, events) = bench.client_with_events();
    let (pd, cq) = (pd(&session), cq(&session));
    let (one, other) = (qp(&session, pd, cq), qp(&session, pd, cq));
    join(&session, one, other).unwrap();
    let joins = &bench.device.core().joins;
    assert!(joins.lock().table.contains(one));
    drop((session, events));
    bench.until("the end of the join", || {
        let joins = joins.lock();
        !joins.table.contains(one) && joins.listeners.is_empty()
    });
}

/// It uses the shards, which are stopped next.
#[test]
fn a_shutdown_waits_for_the_thread_that_joins() {
    let bench = Bench::new(Runtime::Thread);
    let core = bench.device.core();
    let joins = core.joins.lock();
    core.joins.send(crate::joins::Message::Added);
    std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| bench.device.shutdown());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!shutdown.is_finished());
        drop(joins);
    });
}
