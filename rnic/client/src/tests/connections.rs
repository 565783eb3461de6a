//! Connections: outcomes reach whom they concern.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rnic_ipc::control::{
    DisconnectReason, Event, MpaOptions, PeerDepths, Refusal, RefusalCode, Request,
};
use rnic_ipc::id::{ConnRequestId, ListenerId, QpNum};

use super::fake::{CHOSEN_PORT, Fake, queue_pair, refusal};
use crate::{
    AcceptOptions, ConnectOptions, ConnectionEvent, Context, Error, ListenOptions, Listener,
    QpState, block_on,
};

const SOON: Duration = Duration::from_secs(30);
const NOT_AT_ALL: Duration = Duration::ZERO;

fn remote() -> SocketAddr {
    "198.18.0.2:9000".parse().unwrap()
}

const PEER: Option<PeerDepths> = Some(PeerDepths {
    ird: 5,
    ord: 0x3fff,
});

fn established(qp: QpNum, private_data: &[u8]) -> Event {
    let mpa = MpaOptions {
        ird: 3,
        ..MpaOptions::default()
    };
    Event::Established {
        qp,
        mpa,
        peer: PEER,
        private_data: private_data.to_vec(),
    }
}

fn disconnected(qp: QpNum, reason: DisconnectReason) -> Event {
    Event::Disconnected {
        qp,
        reason,
        message: "it ended".into(),
    }
}

fn asks(listener: ListenerId, number: u32) -> Event {
    Event::ConnectRequest {
        listener,
        request: ConnRequestId(number),
        local: remote(),
        remote: remote(),
        mpa: MpaOptions::default(),
        private_data: number.to_be_bytes().to_vec(),
    }
}

fn listen(context: &Context, fake: &Fake) -> (Listener, ListenerId) {
    let listener = context
        .listen(remote(), ListenOptions::default().backlog(4))
        .unwrap();
    // The fake numbers what it grants.
    let id = ListenerId(fake.asked().len() as u32);
    (listener, id)
}

#[test]
fn connecting_ends_as_the_event_says() {
    let (fake, context) = Fake::start();
    let outcome = |event: &dyn Fn(QpNum) -> Event| {
        let (qp, _cq) = queue_pair(&context);
        fake.tell(&event(qp.num()));
        qp.connect(remote(), ConnectOptions::default()).wait(SOON)
    };
    let found = outcome(&|qp| established(qp, b"welcome")).unwrap();
    assert_eq!(found.peer, PEER);
    assert_eq!(
        (found.mpa.ird, found.private_data.as_slice()),
        (3, b"welcome".as_slice())
    );
    match outcome(&|qp| Event::Rejected {
        qp,
        peer: PEER,
        private_data: b"no".to_vec(),
    }) {
        Err(Error::Rejected { peer, private_data }) => {
            assert_eq!((peer, private_data.as_slice()), (PEER, b"no".as_slice()));
        }
        other => panic!("{other:?}"),
    }
    let failed = |qp| Event::ConnectFailed {
        qp,
        reason: DisconnectReason::NotMpa,
        message: "the peer speaks something else".into(),
    };
    match outcome(&failed) {
        Err(Error::ConnectFailed {
            reason: DisconnectReason::NotMpa,
            message,
        }) => {
            assert!(message.contains("something else"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_tells_where_it_is_from() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    assert_eq!(qp.local_addr(), None);
    let from = |local_port| {
        let options = ConnectOptions {
            local: Some("198.18.7.1".parse().unwrap()),
            local_port,
            ..Default::default()
        };
        qp.connect(remote(), options).detach().unwrap();
        let local = qp.local_addr();
        qp.reset().unwrap();
        assert_eq!(qp.local_addr(), None);
        local.unwrap().to_string()
    };
    assert_eq!(from(0), format!("198.18.7.1:{CHOSEN_PORT}"));
    assert_eq!(from(7), "198.18.7.1:7");
    let (listener, id) = listen(&context, &fake);
    fake.tell(&asks(id, 1));
    let request = listener.accept().wait(SOON).unwrap();
    request.accept(&qp, Default::default()).detach().unwrap();
    assert_eq!(qp.local_addr(), Some(remote()));
}

#[test]
fn an_attempt_without_outcome_is_aborted() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let timeout = Duration::from_millis(20);
    let error = qp
        .connect(remote(), ConnectOptions::default())
        .wait(timeout)
        .unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert_eq!(
        fake.asked().last(),
        Some(&Request::Disconnect {
            qp: qp.num(),
            abort: true
        })
    );
}

#[test]
fn an_end_is_known_to_all_who_ask_later() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    fake.tell(&established(qp.num(), b""));
    qp.connect(remote(), ConnectOptions::default())
        .wait(Duration::from_secs(10))
        .unwrap();
    assert!(matches!(
        qp.disconnected().wait(NOT_AT_ALL),
        Err(Error::Timeout { .. })
    ));
    assert_eq!(qp.take_event().unwrap(), None);
    fake.tell(&disconnected(qp.num(), DisconnectReason::Reset));
    for _ in 0..2 {
        assert!(matches!(
            qp.disconnected().wait(SOON),
            Err(Error::Disconnected {
                reason: DisconnectReason::Reset,
                ..
            })
        ));
    }
    assert!(matches!(
        qp.take_event().unwrap(),
        Some(ConnectionEvent::Disconnected {
            reason: DisconnectReason::Reset,
            ..
        })
    ));
    assert_eq!(qp.take_event().unwrap(), None);
}

#[test]
fn disconnecting_what_has_ended_in_order_is_fine() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let wrong_state = |request: &Request| -> Option<Refusal> {
        matches!(request, Request::Disconnect { .. }).then(|| refusal(RefusalCode::WrongState))
    };
    fake.refuse(wrong_state);
    assert!(
        matches!(qp.disconnect().wait(SOON), Err(Error::Refused(_))),
        "it never was connected"
    );
    fake.tell(&established(qp.num(), b""));
    qp.connect(remote(), ConnectOptions::default())
        .wait(Duration::from_secs(10))
        .unwrap();
    // The refusal may come before what it is refused for.
    let before = fake.asked().len();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| qp.disconnect().wait(SOON));
        while fake.asked().len() == before {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        fake.tell(&disconnected(qp.num(), DisconnectReason::Graceful));
        ended.join().unwrap().unwrap();
    });
    qp.disconnect().wait(SOON).unwrap();
    block_on(qp.disconnect()).unwrap();
}

#[test]
fn requests_are_answered_by_accept_reject_or_drop() {
    let (fake, context) = Fake::start();
    let (listener, id) = listen(&context, &fake);
    assert!(matches!(
        listener.accept().wait(NOT_AT_ALL),
        Err(Error::Timeout { .. })
    ));
    for number in 1..=3 {
        fake.tell(&asks(id, number));
    }
    let (qp, _cq) = queue_pair(&context);
    fake.tell(&established(qp.num(), b""));
    let request = listener.accept().wait(SOON).unwrap();
    assert_eq!(request.private_data(), 1_u32.to_be_bytes());
    request
        .accept(&qp, AcceptOptions::default().private_data(b"hi"))
        .wait(SOON)
        .unwrap();
    listener
        .accept()
        .wait(SOON)
        .unwrap()
        .reject(b"busy")
        .unwrap();
    drop(listener.accept().wait(SOON).unwrap());
    let answers: Vec<_> = fake
        .asked()
        .into_iter()
        .filter(|asked| matches!(asked, Request::Accept { .. } | Request::Reject { .. }))
        .collect();
    let reject = |number, private_data: &[u8]| Request::Reject {
        request: ConnRequestId(number),
        private_data: private_data.to_vec(),
    };
    assert!(matches!(
        &answers[0],
        Request::Accept {
            request: ConnRequestId(1),
            ..
        }
    ));
    assert_eq!(answers[1..], [reject(2, b"busy"), reject(3, b"")]);
}

#[test]
fn an_accept_that_is_refused_rejects_the_peer() {
    let (fake, context) = Fake::start();
    let (listener, id) = listen(&context, &fake);
    fake.tell(&asks(id, 8));
    let (qp, _cq) = queue_pair(&context);
    fake.refuse(|request| {
        matches!(request, Request::Accept { .. }).then(|| refusal(RefusalCode::WrongState))
    });
    let request = listener.accept().wait(SOON).unwrap();
    assert!(matches!(
        request.accept(&qp, AcceptOptions::default()).wait(SOON),
        Err(Error::Refused(_))
    ));
    assert!(matches!(fake.asked().last(), Some(Request::Reject { .. })));
}

#[test]
fn threads_that_wait_for_different_things_each_get_their_own() {
    let (fake, context) = Fake::start();
    let (listener, id) = listen(&context, &fake);
    let started = Instant::now();
    const ROUNDS: u32 = 200;
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            for round in 0..ROUNDS {
                let request = listener.accept().wait(SOON).unwrap();
                assert_eq!(request.private_data(), round.to_be_bytes());
                request.reject(b"").unwrap();
            }
        });
        let connecting: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let (qp, _cq) = queue_pair(&context);
                        let options = ConnectOptions::default();
                        qp.connect(remote(), options).wait(SOON).unwrap();
                    }
                })
            })
            .collect();
        let (mut seen, mut connected, mut asked) = (0, 0, 0);
        while connected < 2 * ROUNDS {
            let requests = fake.with(|state| state.asked.split_off(seen.min(state.asked.len())));
            seen = 0;
            for request in requests {
                if let Request::Connect { qp, .. } = request {
                    fake.tell(&established(qp, b""));
                    connected += 1;
                    if asked < ROUNDS {
                        fake.tell(&asks(id, asked));
                        asked += 1;
                    }
                }
            }
            std::thread::yield_now();
        }
        accepting.join().unwrap();
        for thread in connecting {
            thread.join().unwrap();
        }
    });
    // With lost wake-ups each round would last as long as the look-round interval.
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn after_a_reset_nothing_of_the_last_connection_is_told() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let num = qp.num();
    let ended = |reason| disconnected(num, reason);
    let established = established(num, b"");
    let connect = || {
        let options = ConnectOptions::default();
        qp.connect(remote(), options).detach().unwrap();
    };
    // Whether the old connection's end comes before the reset or after it.
    for late in [false, true] {
        connect();
        fake.tell(&established);
        if !late {
            fake.tell(&ended(DisconnectReason::Aborted));
            assert!(qp.disconnected().wait(SOON).is_err());
        }
        qp.reset().unwrap();
        let asked = Request::ModifyQp {
            qp: num,
            state: QpState::Idle,
        };
        assert_eq!(fake.asked().last(), Some(&asked));
        if late {
            fake.tell(&ended(DisconnectReason::Aborted));
        }
        assert!(qp.take_event().unwrap().is_none());
        connect();
        fake.tell(&established);
        let event = qp.take_event().unwrap();
        assert!(matches!(event, Some(ConnectionEvent::Established(_))));
        let waited = qp.disconnected().wait(NOT_AT_ALL);
        assert!(matches!(waited, Err(Error::Timeout { .. })));
        fake.tell(&ended(DisconnectReason::Graceful));
        qp.disconnected().wait(SOON).unwrap();
        qp.reset().unwrap();
    }
}

#[test]
fn a_change_of_state_that_is_refused_changes_nothing() {
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    fake.refuse(|request| {
        let modify = matches!(request, Request::ModifyQp { .. });
        modify.then(|| refusal(RefusalCode::WrongState))
    });
    for refused in [qp.terminate(), qp.fail(), qp.reset()] {
        match refused {
            Err(Error::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::WrongState),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_request_that_is_gone_is_not_given_to_the_program() {
    let (fake, context) = Fake::start();
    let (listener, id) = listen(&context, &fake);
    let (other, other_id) = listen(&context, &fake);
    for number in 1..=3 {
        fake.tell(&asks(id, number));
    }
    fake.tell(&asks(other_id, 4));
    let gone = |listener, number| Event::RequestGone {
        listener,
        request: ConnRequestId(number),
    };
    for event in [gone(id, 1), gone(id, 3), gone(id, 3), gone(id, 4)] {
        fake.tell(&event);
    }
    let request = listener.accept().wait(SOON).unwrap();
    assert_eq!(request.private_data(), 2_u32.to_be_bytes());
    assert!(matches!(
        listener.accept().wait(NOT_AT_ALL),
        Err(Error::Timeout { .. })
    ));
    assert!(other.accept().wait(SOON).is_ok());
}

#[test]
fn a_request_is_not_accepted_with_a_queue_pair_of_another_context() {
    let ((fake, context), (_other, elsewhere)) = (Fake::start(), Fake::start());
    let (qp, _cq) = queue_pair(&elsewhere);
    let (listener, id) = listen(&context, &fake);
    fake.tell(&asks(id, 1));
    let request = listener.accept().wait(SOON).unwrap();
    let error = request
        .accept(&qp, AcceptOptions::default())
        .wait(SOON)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the queue pair is of another context than the connection request"),
        "{error}"
    );
}
