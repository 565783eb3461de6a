//! Models of an internal link: loom runs each through every order of its atomics' effects.
//!
//! Each has few steps, because the orders are many. `scripts/loom` runs them.

use loom::thread;

use super::tests::{End, SMALL, link};
use crate::port::Port;

const FRAMES: u32 = 4;

impl End {
    fn prepare_sleep(&mut self) {
        self.port.prepare_sleep(&mut self.pool);
    }

    /// Whether a sleep ends.
    fn is_woken(&self) -> bool {
        self.port.inbound.bell.is_rung()
    }

    fn send_and_complete(&mut self, number: u8) {
        self.send(&[number]);
        assert_eq!(self.complete(), 1);
    }

    fn lost(&self) -> usize {
        self.port.statistics().send_dropped as usize
    }
}

/// Two frames over a link that holds one, to a receiver that looks meanwhile.
#[test]
fn each_frame_comes_once_and_in_order_or_is_counted_as_lost() {
    loom::model(|| {
        let [mut a, mut b] = link(SMALL, FRAMES, 1);
        let sending = thread::spawn(move || {
            for number in [1, 2] {
                a.send_and_complete(number);
            }
            a
        });
        let mut seen = b.receive();
        let mut a = sending.join().unwrap();
        seen.extend(b.receive());
        assert_eq!(seen.len() + a.lost(), 2, "{seen:?}");
        let sent: [&[u8]; 2] = [&[1], &[2]];
        assert!(seen == sent[..seen.len()] || seen == sent[1..], "{seen:?}");
        // The link carries as much as before, and no frame of either end is gone.
        a.send_and_complete(3);
        assert_eq!(b.receive(), [[3]]);
        let free = [&a, &b].map(|end| end.pool.available());
        assert_eq!(free, [FRAMES as usize; 2]);
    });
}

/// The place that a frame was received from is used again.
#[test]
fn what_was_received_makes_space_for_what_comes() {
    loom::model(|| {
        let [mut a, mut b] = link(SMALL, FRAMES, 1);
        a.send_and_complete(1);
        let sending = thread::spawn(move || {
            a.send_and_complete(2);
            a
        });
        let mut seen = b.receive();
        let mut a = sending.join().unwrap();
        seen.extend(b.receive());
        assert_eq!(seen.len() + a.lost(), 2, "{seen:?}");
        assert_eq!(seen[0], [1]);
        a.send_and_complete(3);
        assert_eq!(b.receive(), [[3]]);
    });
}

#[test]
fn a_frame_is_seen_before_sleeping_or_ends_the_sleep() {
    loom::model(|| {
        let [mut a, mut b] = link(SMALL, FRAMES, 1);
        let sending = thread::spawn(move || a.send(&[1]));
        b.prepare_sleep();
        sending.join().unwrap();
        assert!(b.is_woken(), "it would sleep for ever");
        assert_eq!(b.receive(), [[1]]);
    });
}

/// One that something else woke as well, perhaps.
#[test]
fn a_receiver_that_sleeps_again_misses_no_frame() {
    loom::model(|| {
        let [mut a, mut b] = link(SMALL, FRAMES, 2);
        let sending = thread::spawn(move || [1, 2].map(|number| a.send(&[number])));
        b.prepare_sleep();
        let mut seen = b.receive().len();
        b.prepare_sleep();
        sending.join().unwrap();
        assert!(seen == 2 || b.is_woken(), "{seen} seen, then it sleeps");
        seen += b.receive().len();
        assert_eq!(seen, 2);
        b.prepare_sleep();
        assert!(!b.is_woken(), "there is nothing, and it does not sleep");
    });
}

#[test]
fn a_receiver_that_goes_takes_nothing_of_its_sender_along() {
    loom::model(|| {
        let [mut a, mut b] = link(SMALL, FRAMES, 1);
        let going = thread::spawn(move || {
            b.prepare_sleep();
            drop(b);
        });
        for number in [1, 2] {
            a.send_and_complete(number);
        }
        going.join().unwrap();
        a.send_and_complete(3);
        assert_eq!(a.pool.available(), FRAMES as usize);
    });
}

#[test]
fn what_a_sender_that_goes_has_sent_is_received() {
    loom::model(|| {
        let [mut a, mut b] = link(SMALL, FRAMES, 1);
        let going = thread::spawn(move || {
            a.send_and_complete(1);
            drop(a);
        });
        b.prepare_sleep();
        going.join().unwrap();
        assert!(b.is_woken(), "it would sleep for ever");
        assert_eq!(b.receive(), [[1]]);
        b.prepare_sleep();
        assert!(!b.is_woken());
    });
}
