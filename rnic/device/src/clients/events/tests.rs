use std::net::{Ipv4Addr, SocketAddr};

use rnic_ipc::control::MpaOptions;
use rnic_ipc::id::{CqId, ListenerId};

use super::*;

const MOST: usize = 100;
const LISTENER: ListenerId = ListenerId(1);

fn event(number: u32) -> Event {
    Event::CqError { cq: CqId(number) }
}

fn read(channel: &Channel) -> Option<Event> {
    channel
        .try_recv::<Event>()
        .ok()
        .flatten()
        .map(|(event, _)| event)
}

#[test]
fn events_come_in_order_also_from_behind_a_full_socket() {
    let (ours, theirs) = Channel::pair().unwrap();
    let queue = EventQueue::new(MOST);
    queue.open(ours);
    let mut sent = 0;
    while !queue.is_waiting() {
        queue.push(event(sent)).unwrap();
        sent += 1;
    }
    queue.push(event(sent)).unwrap();
    sent += 1;
    let mut seen = 0;
    while seen < sent {
        assert_eq!(read(&theirs), Some(event(seen)));
        seen += 1;
        queue.flush().unwrap();
    }
    assert!(!queue.is_waiting());
}

#[test]
fn a_client_that_reads_nothing_overflows() {
    let (ours, _theirs) = Channel::pair().unwrap();
    let queue = EventQueue::new(MOST);
    queue.open(ours);
    let overflow = (0..1_000_000).find_map(|number| queue.push(event(number)).err());
    assert_eq!(overflow, Some(Undeliverable::Overflow { most: MOST }));
}

fn asks(number: u32) -> Event {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    Event::ConnectRequest {
        listener: LISTENER,
        request: ConnRequestId(number),
        local: address,
        remote: address,
        mpa: MpaOptions::default(),
        private_data: vec![7; 512],
    }
}

fn gone(number: u32) -> Event {
    Event::RequestGone {
        listener: LISTENER,
        request: ConnRequestId(number),
    }
}

#[test]
fn requests_that_come_and_go_do_not_fill_a_queue_that_nobody_reads() {
    let (ours, theirs) = Channel::pair().unwrap();
    let queue = EventQueue::new(MOST);
    queue.open(ours);
    let mut told = 0;
    for number in 0..10_000 {
        queue.push(asks(number)).unwrap();
        told += u32::from(!queue.is_waiting());
        if number >= 4 {
            // Never more than five are there.
            queue.push(gone(number - 4)).unwrap();
        }
    }
    // What was sent is taken back by a word of its own, in its turn.
    let mut requests = std::collections::VecDeque::new();
    while let Some(event) = read(&theirs) {
        match event {
            Event::ConnectRequest { request, .. } => requests.push_back(request.0),
            Event::RequestGone { request, .. } => requests.retain(|other| *other != request.0),
            other => panic!("{other:?}"),
        }
        queue.flush().unwrap();
    }
    assert!((10..1000).contains(&told), "{told} were sent");
    assert_eq!(requests, [9996, 9997, 9998, 9999]);
}

#[test]
fn as_many_events_may_wait_as_peers_can_cause_of_all_objects() {
    let mut held = Quota::PER_CLIENT;
    held.set(Resource::QueuePairs, 10);
    held.set(Resource::CompletionQueues, 3);
    assert_eq!(events_max(&held), OWN_EVENTS + 10 + 3);
}

#[test]
fn what_was_read_makes_room_also_beside_requests() {
    let (ours, theirs) = Channel::pair().unwrap();
    let queue = EventQueue::new(MOST);
    queue.open(ours);
    let mut number = 0;
    for _ in 0..3 {
        let refused = loop {
            number += 1;
            queue.push(asks(number)).unwrap();
            if let Err(refused) = queue.push(event(number)) {
                break refused;
            }
        };
        assert_eq!(refused, Undeliverable::Overflow { most: MOST });
        // All that waits.
        while read(&theirs).is_some() {
            queue.flush().unwrap();
        }
        assert!(!queue.is_waiting());
    }
}

#[test]
fn a_closed_event_socket_is_noticed() {
    let (ours, theirs) = Channel::pair().unwrap();
    let queue = EventQueue::new(MOST);
    queue.open(ours);
    drop(theirs);
    assert_eq!(queue.push(event(0)), Err(Undeliverable::Closed));
}
