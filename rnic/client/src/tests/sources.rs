//! Events of many objects, told in one place.

use std::time::{Duration, Instant};

use rnic_ipc::control::{Event, MpaOptions};
use rnic_ipc::id::{ConnRequestId, ListenerId};

use super::fake::Fake;
use crate::wait::LOOK_ROUND;
use crate::{ConnectOptions, Error, EventSource, QpConfig, SrqConfig};

const SOON: Duration = Duration::from_secs(60);

#[test]
fn each_event_has_its_source_in_the_order_in_which_they_came() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).unwrap();
    let make = || pd.create_qp(&cq, &cq, QpConfig::default()).unwrap();
    let (one, other) = (make(), make());
    let sources = context.event_sources();
    for qp in [&one, &other] {
        let to = "192.0.2.1:1".parse().unwrap();
        qp.connect(to, ConnectOptions::default()).detach().unwrap();
    }
    for qp in [&other, &one] {
        fake.tell(&Event::Rejected {
            qp: qp.num(),
            peer: None,
            private_data: Vec::new(),
        });
    }
    fake.tell(&Event::CqError { cq: cq.id() });
    for expected in [
        EventSource::QueuePair(other.num()),
        EventSource::QueuePair(one.num()),
        EventSource::CompletionQueue(cq.id()),
    ] {
        assert_eq!(sources.next().wait(SOON).unwrap(), expected);
    }
    let none = sources.next().wait(Duration::ZERO);
    assert!(matches!(none, Err(Error::Timeout { .. })), "{none:?}");
    assert!(
        one.take_event().unwrap().is_some(),
        "the events themselves are left"
    );
}

/// A daemon's events come by another thread than its replies.
#[test]
fn a_request_that_comes_before_its_listener_is_known_is_told_when_it_is() {
    let (fake, context) = Fake::start();
    let sources = context.event_sources();
    let events = context.inner().events();
    let listener = ListenerId(9);
    events.inboxes().begin_listen();
    fake.tell(&Event::ConnectRequest {
        listener,
        request: ConnRequestId(1),
        local: "192.0.2.1:1".parse().unwrap(),
        remote: "192.0.2.9:9".parse().unwrap(),
        mpa: MpaOptions::default(),
        private_data: Vec::new(),
    });
    let early = sources.next().wait(Duration::ZERO);
    assert!(matches!(early, Err(Error::Timeout { .. })), "{early:?}");
    events.inboxes().end_listen(Some(listener));
    let told = sources.next().wait(SOON).unwrap();
    assert_eq!(told, EventSource::Listener(listener));
}

/// One thread at a time reads what comes, for all that wait. None of them has to look round for it.
#[test]
fn who_waits_is_woken_by_what_another_thread_has_read() {
    const ROUNDS: u32 = 200;
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let srq = pd.create_srq(SrqConfig::default()).unwrap();
    let sources = context.event_sources();
    let begun = Instant::now();
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| sources.next().wait(SOON));
            // Mostly it waits by now.
            std::thread::sleep(Duration::from_millis(1));
            fake.tell(&Event::SrqLimit { srq: srq.id() });
            drop(context.inner().events().inboxes());
            let told = waits.join().unwrap();
            let expected = EventSource::SharedReceiveQueue(srq.id());
            assert_eq!(told.unwrap(), expected, "round {round}");
        });
    }
    assert!(begun.elapsed() < LOOK_ROUND * ROUNDS / 4);
}

#[test]
fn who_waits_for_sources_learns_that_the_daemon_is_gone() {
    let (mut fake, context) = Fake::start();
    let sources = context.event_sources();
    fake.kill();
    assert!(matches!(sources.next().wait(SOON), Err(Error::DaemonGone)));
}
