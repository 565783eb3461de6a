//! Streams of completions and of peers' requests, and the iterator that blocks.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as Task, Poll, Waker};

use futures_core::stream::{FusedStream, Stream};
use rnic_ipc::control::{Event, MpaOptions};
use rnic_ipc::id::{ConnRequestId, ListenerId};

use super::fake::{Fake, queue_pair};
use crate::{Error, ListenOptions, Listener, block_on};

/// The next element, for an executor without helpers.
fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    block_on(poll_fn(|task| Pin::new(&mut *stream).poll_next(task)))
}

fn is_pending<S: Stream + Unpin>(stream: &mut S) -> bool {
    let mut task = Task::from_waker(Waker::noop());
    matches!(Pin::new(stream).poll_next(&mut task), Poll::Pending)
}

fn somewhere() -> SocketAddr {
    "198.18.0.2:9000".parse().unwrap()
}

fn listener(fake: &Fake, context: &crate::Context) -> (Listener, ListenerId) {
    let listener = context
        .listen(somewhere(), ListenOptions::default().backlog(8))
        .unwrap();
    // The fake numbers what it grants.
    (listener, ListenerId(fake.asked().len() as u32))
}

fn ask(fake: &Fake, listener: ListenerId, number: u32) {
    fake.tell(&Event::ConnectRequest {
        listener,
        request: ConnRequestId(number),
        local: somewhere(),
        remote: somewhere(),
        mpa: MpaOptions::default(),
        private_data: number.to_string().into_bytes(),
    });
}

#[test]
fn a_stream_gives_completions_in_their_order_and_leaves_the_rest() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(8).unwrap();
    {
        let mut stream = cq.completions();
        assert!(is_pending(&mut stream));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..5).for_each(|wr_id| fake.complete(cq.id(), wr_id)));
            for wr_id in 0..3 {
                assert_eq!(next(&mut stream).unwrap().unwrap().wr_id, wr_id);
            }
        });
        assert!(!stream.is_terminated());
    }
    assert_eq!(block_on(cq.next()).unwrap().wr_id, 3);
    let mut stream = cq.completions();
    assert_eq!(next(&mut stream).unwrap().unwrap().wr_id, 4);
    assert!(is_pending(&mut stream));
}

#[test]
fn a_stream_of_requests_waits_for_each() {
    let (fake, context) = Fake::start();
    let (listener, id) = listener(&fake, &context);
    let mut stream = listener.requests();
    assert!(is_pending(&mut stream));
    std::thread::scope(|scope| {
        scope.spawn(|| (1..4).for_each(|number| ask(&fake, id, number)));
        for number in 1..4_u32 {
            let request = next(&mut stream).unwrap().unwrap();
            assert_eq!(request.private_data(), number.to_string().as_bytes());
        }
    });
    assert!(is_pending(&mut stream) && !stream.is_terminated());
}

#[test]
fn an_error_is_the_last_element() {
    let (mut fake, context) = Fake::start();
    let (listener, _) = listener(&fake, &context);
    let (_qp, cq) = queue_pair(&context);
    let mut completions = cq.completions();
    let mut requests = listener.requests();
    assert!(is_pending(&mut completions) && is_pending(&mut requests));
    fake.kill();
    assert!(matches!(
        next(&mut completions),
        Some(Err(Error::DaemonGone))
    ));
    assert!(matches!(next(&mut requests), Some(Err(Error::DaemonGone))));
    assert!(next(&mut completions).is_none() && completions.is_terminated());
    assert!(next(&mut requests).is_none() && requests.is_terminated());
}
