//! Events that come late: of connections before a reset, and for objects that are gone. A daemon's
//! events come by another thread than its replies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rnic_ipc::control::{DisconnectReason, Event, MpaOptions, QpState, RefusalCode, Request};
use rnic_ipc::id::{ConnRequestId, CqId, ListenerId, QpNum, SrqId};

use super::fake::{Fake, queue_pair, refusal};
use crate::{ConnectOptions, ConnectionEvent, Context, Error, ListenOptions, SrqConfig};

const NOT_AT_ALL: Duration = Duration::ZERO;

fn address() -> SocketAddr {
    "198.18.0.2:9000".parse().unwrap()
}

fn failed(qp: QpNum, message: &str) -> Event {
    Event::ConnectFailed {
        qp,
        reason: DisconnectReason::Aborted,
        message: message.into(),
    }
}

/// Has the client take in what is on its event socket.
fn read_events(context: &Context) {
    drop(context.inner().events().inboxes());
}

#[test]
fn the_ends_of_all_connections_before_a_reset_are_dropped_and_no_more() {
    let (fake, context) = Fake::start();
    for cycles in 1..4 {
        let (qp, _cq) = queue_pair(&context);
        let connect = || qp.connect(address(), ConnectOptions::default()).detach();
        for _ in 0..cycles {
            connect().unwrap();
            qp.fail().unwrap();
            qp.reset().unwrap();
        }
        connect().unwrap();
        for _ in 0..cycles {
            fake.tell(&failed(qp.num(), "an old one"));
        }
        assert_eq!(qp.take_event().unwrap(), None, "{cycles} cycles");
        let waited = qp.disconnected().wait(NOT_AT_ALL);
        assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
        fake.tell(&failed(qp.num(), "the last"));
        let found = qp.take_event().unwrap();
        let Some(ConnectionEvent::ConnectFailed { message, .. }) = found else {
            panic!("{found:?} after {cycles} cycles");
        };
        assert_eq!(message, "the last");
    }
}

/// One thread connects and another resets, each as often as the RNIC lets it: there is an end to come
/// for each connection that was granted.
#[test]
fn a_reset_beside_a_connect_loses_count_of_no_connection() {
    const ROUNDS: u32 = 2000;
    let (fake, context) = Fake::start();
    let (qp, _cq) = queue_pair(&context);
    let idle = AtomicBool::new(true);
    let granted = Arc::new(AtomicU32::new(0));
    let count = granted.clone();
    fake.refuse(move |request| {
        let done = match request {
            Request::Connect { .. } if idle.swap(false, Ordering::Relaxed) => {
                count.fetch_add(1, Ordering::Relaxed);
                true
            }
            Request::ModifyQp { state, .. } => {
                *state == QpState::Idle && !idle.swap(true, Ordering::Relaxed)
            }
            _ => false,
        };
        (!done).then(|| refusal(RefusalCode::WrongState))
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                let _ = qp.connect(address(), ConnectOptions::default()).detach();
            }
        });
        for _ in 0..ROUNDS {
            let _ = qp.reset();
        }
    });
    fake.refuse(|_| None);
    qp.reset().unwrap();
    let granted = granted.load(Ordering::Relaxed);
    for _ in 0..granted {
        fake.tell(&failed(qp.num(), "an old one"));
        read_events(&context);
    }
    qp.connect(address(), ConnectOptions::default())
        .detach()
        .unwrap();
    fake.tell(&failed(qp.num(), "the last"));
    let found = qp.take_event().unwrap();
    assert!(
        matches!(&found, Some(ConnectionEvent::ConnectFailed { message, .. }) if message == "the last"),
        "{found:?} after {granted} connections"
    );
}

#[test]
fn what_comes_for_an_object_that_is_gone_is_not_told_to_the_next_of_its_number() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let last = || fake.with(|state| state.next);
    let again = || {
        read_events(&context);
        fake.with(|state| state.next -= 2);
    };

    let make = || pd.create_srq(SrqConfig::default()).unwrap();
    drop(make());
    fake.tell(&Event::SrqLimit {
        srq: SrqId(last() - 1),
    });
    again();
    assert!(!make().take_limit_event().unwrap());

    let make = || context.create_cq(4).unwrap();
    drop(make());
    fake.tell(&Event::CqError {
        cq: CqId(last() - 1),
    });
    again();
    let found = make().readable().wait(NOT_AT_ALL);
    assert!(matches!(found, Err(Error::Timeout { .. })), "{found:?}");

    let make = || {
        context
            .listen(address(), ListenOptions::default().backlog(4))
            .unwrap()
    };
    drop(make());
    fake.tell(&Event::ConnectRequest {
        listener: ListenerId(last() - 1),
        request: ConnRequestId(1),
        local: address(),
        remote: address(),
        mpa: MpaOptions::default(),
        private_data: Vec::new(),
    });
    again();
    let found = make().accept().wait(NOT_AT_ALL);
    assert!(matches!(found, Err(Error::Timeout { .. })), "{found:?}");
}
