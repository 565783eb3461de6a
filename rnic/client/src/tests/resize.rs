//! Completion queues that grow.

use std::time::Duration;

use rnic_ipc::control::{RefusalCode, Request};

use super::fake::{Fake, refusal};
use crate::{CompletionQueue, Error, WorkCompletion};

const LONG: Duration = Duration::from_secs(30);
const A_MOMENT: Duration = Duration::from_millis(50);

fn polled(cq: &CompletionQueue) -> Vec<u64> {
    let mut out = [WorkCompletion::default(); 32];
    let count = cq.poll(&mut out).unwrap();
    out[..count].iter().map(|wc| wc.wr_id).collect()
}

#[test]
fn completions_of_all_rings_come_in_order() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(4).unwrap();
    let mut wr_id = 0;
    for depth in [8, 16, 32] {
        for _ in 0..3 {
            fake.complete(cq.id(), wr_id);
            wr_id += 1;
        }
        cq.resize(depth).unwrap();
        assert_eq!(cq.depth(), depth);
        assert!(!cq.is_empty() && cq.has_completions().unwrap());
    }
    fake.complete(cq.id(), wr_id);
    assert_eq!(polled(&cq), (0..=wr_id).collect::<Vec<_>>());
    assert!(cq.is_empty() && !cq.has_completions().unwrap());
    let asked = fake.asked().len();
    cq.resize(32).unwrap();
    cq.resize(1).unwrap();
    assert_eq!(fake.asked().len(), asked, "it is deep enough");
}

#[test]
fn who_waits_is_woken_by_the_new_ring() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(4).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cq.readable().wait(LONG));
        std::thread::sleep(A_MOMENT);
        cq.resize(8).unwrap();
        fake.complete(cq.id(), 1);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(polled(&cq), [1]);
}

#[test]
fn a_refusal_leaves_the_queue_as_it_was() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(4).unwrap();
    fake.refuse(|asked| {
        matches!(asked, Request::ResizeCq { .. }).then(|| refusal(RefusalCode::Limit))
    });
    assert!(matches!(cq.resize(8), Err(Error::Refused(_))));
    assert_eq!(cq.depth(), 4);
    fake.complete(cq.id(), 1);
    assert_eq!(polled(&cq), [1]);
    cq.check_async_error().unwrap();
}

#[test]
fn a_ring_that_cannot_be_mapped_is_as_bad_as_an_overflow() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(4).unwrap();
    fake.complete(cq.id(), 1);
    fake.with(|state| state.spoils_rings = true);
    cq.resize(8).unwrap_err();
    fake.complete(cq.id(), 2);
    assert_eq!(polled(&cq), [1], "it was there before");
    let found = cq.readable().wait(LONG);
    assert!(matches!(found, Err(Error::CqOverflow)), "{found:?}");
}

/// One thread asks for more room and holds the rings, another looks for trouble: neither holds what the other
/// waits for.
#[test]
fn whoever_looks_for_trouble_does_not_hold_events_up() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(4).unwrap();
    fake.complete(cq.id(), 1);
    context.inner().events().inboxes().lose_cq(cq.id());
    std::thread::scope(|scope| {
        let rings = cq.hold_rings();
        let looking = scope.spawn(|| cq.check_async_error());
        std::thread::sleep(A_MOMENT);
        assert!(!context.inner().events().is_closed());
        drop(rings);
        looking.join().unwrap().unwrap();
    });
}
