use rnic_ipc::id::CqId;

use super::*;

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
    let queue = EventQueue::default();
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
    let queue = EventQueue::default();
    queue.open(ours);
    let overflow = (0..1_000_000).find_map(|number| queue.push(event(number)).err());
    assert_eq!(overflow, Some(Undeliverable::Overflow));
}

#[test]
fn a_closed_event_socket_is_noticed() {
    let (ours, theirs) = Channel::pair().unwrap();
    let queue = EventQueue::default();
    queue.open(ours);
    drop(theirs);
    assert_eq!(queue.push(event(0)), Err(Undeliverable::Closed));
}
