//! Waking never blocks and is never lost.

use super::*;

#[test]
fn a_wake_up_is_found_once() {
    let (sender, receiver) = pair().unwrap();
    assert_eq!(receiver.drain(), Drained::Quiet);
    assert_eq!(sender.wake(), Woken::Yes);
    assert_eq!(sender.wake(), Woken::Yes);
    assert_eq!(receiver.drain(), Drained::Woken);
    assert_eq!(receiver.drain(), Drained::Quiet);
}

#[test]
fn each_wake_up_can_be_taken_by_itself() {
    let (sender, receiver) = pair().unwrap();
    assert_eq!(receiver.take(), Drained::Quiet);
    sender.wake();
    sender.wake();
    assert_eq!(receiver.take(), Drained::Woken);
    assert_eq!(receiver.take(), Drained::Woken);
    assert_eq!(receiver.take(), Drained::Quiet);
}

#[test]
fn waking_one_who_never_listens_does_not_block() {
    let (sender, receiver) = pair().unwrap();
    for _ in 0..10_000 {
        assert_eq!(sender.wake(), Woken::Yes);
    }
    // One drain is bounded; the socket stays readable until all is taken.
    while receiver.drain() == Drained::Woken {}
    assert_eq!(receiver.drain(), Drained::Quiet);
    assert_eq!(sender.wake(), Woken::Yes);
    assert_eq!(receiver.drain(), Drained::Woken);
}

#[test]
fn either_side_learns_that_the_other_is_gone() {
    let (sender, receiver) = pair().unwrap();
    sender.wake();
    drop(sender);
    assert_eq!(receiver.drain(), Drained::Woken);
    assert_eq!(receiver.drain(), Drained::Gone);
    let (sender, receiver) = pair().unwrap();
    drop(receiver);
    assert_eq!(sender.wake(), Woken::Gone);
}

#[test]
fn a_receiver_can_send_nothing_back() {
    // What waits there when the sender is closed would be closed with it, and a descriptor may
    // take as long for that as the receiver likes.
    let (sender, receiver) = pair().unwrap();
    let sent = rustix::net::send(&receiver, &[1], SendFlags::NOSIGNAL);
    assert_eq!(sent, Err(Errno::PIPE));
    assert_eq!(sender.wake(), Woken::Yes);
    assert_eq!(receiver.drain(), Drained::Woken);
}
