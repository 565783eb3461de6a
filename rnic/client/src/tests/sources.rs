//! Events of many objects, told in one place.

use std::time::Duration;

use rnic_ipc::control::Event;

use super::fake::Fake;
use crate::{ConnectOptions, Error, EventSource, QpConfig};

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

#[test]
fn who_waits_for_sources_learns_that_the_daemon_is_gone() {
    let (mut fake, context) = Fake::start();
    let sources = context.event_sources();
    fake.kill();
    assert!(matches!(sources.next().wait(SOON), Err(Error::DaemonGone)));
}
