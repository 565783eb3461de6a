//! Completion queues: no wake-up is lost.

use std::time::{Duration, Instant};

use rnic_ipc::control::Event;
use rustix::event::{PollFd, PollFlags};

use super::fake::Fake;
use crate::{Error, WorkCompletion};

const SOON: Duration = Duration::from_secs(60);

fn readable(fd: &impl std::os::fd::AsFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Default::default())).unwrap() > 0
}

#[test]
fn waiting_finds_what_is_there_already() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(4).unwrap();
    fake.complete(cq.id(), 7);
    cq.readable().wait(Duration::ZERO).unwrap();
    let mut out = [WorkCompletion::default(); 4];
    assert_eq!(cq.poll(&mut out).unwrap(), 1);
    assert_eq!(out[0].wr_id, 7);
    assert!(matches!(
        cq.readable().wait(Duration::from_millis(5)),
        Err(Error::Timeout { .. })
    ));
}

#[test]
fn every_completion_wakes_a_waiter_in_time() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(4).unwrap();
    const ROUNDS: u64 = 2000;
    let started = Instant::now();
    std::thread::scope(|scope| {
        let (taken, take) = std::sync::mpsc::channel();
        let waiter = scope.spawn({
            let cq = cq.clone();
            move || {
                let mut out = [WorkCompletion::default(); 1];
                for round in 0..ROUNDS {
                    cq.readable().wait(SOON).unwrap();
                    assert_eq!(cq.poll(&mut out).unwrap(), 1);
                    assert_eq!(out[0].wr_id, round);
                    taken.send(()).unwrap();
                }
            }
        });
        for round in 0..ROUNDS {
            fake.complete(cq.id(), round);
            take.recv().unwrap();
        }
        waiter.join().unwrap();
    });
    // With lost wake-ups rounds would last as long as the look-round interval.
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn the_descriptor_is_readable_once_per_arming() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(8).unwrap();
    fake.complete(cq.id(), 1);
    assert!(!readable(&cq.fd()), "nobody armed it");
    cq.arm(false);
    assert!(
        !readable(&cq.fd()),
        "what came before does not count: poll again"
    );
    fake.complete(cq.id(), 2);
    fake.complete(cq.id(), 3);
    assert!(readable(&cq.fd()));
    cq.arm(false);
    assert!(!readable(&cq.fd()), "arming takes earlier wake-ups off");
}

#[test]
fn a_notification_stays_until_it_is_taken_one_for_each_request() {
    let (mut fake, context) = Fake::start();
    let cq = context.create_cq(8).unwrap();
    for wr_id in 0..2 {
        cq.request_notification(false);
        fake.complete(cq.id(), wr_id);
    }
    cq.request_notification(false);
    assert!(readable(&cq.fd()), "asking anew takes none off");
    assert!(cq.take_notification().unwrap());
    assert!(cq.take_notification().unwrap());
    assert!(!cq.take_notification().unwrap());
    assert!(!readable(&cq.fd()));
    fake.kill();
    assert!(matches!(cq.take_notification(), Err(Error::DaemonGone)));
}

#[test]
fn an_overflow_is_told_after_the_last_completion() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(2).unwrap();
    fake.complete(cq.id(), 1);
    fake.tell(&Event::CqError { cq: cq.id() });
    cq.readable().wait(SOON).unwrap();
    let mut out = [WorkCompletion::default(); 4];
    assert_eq!(cq.poll(&mut out).unwrap(), 1);
    assert!(matches!(cq.readable().wait(SOON), Err(Error::CqOverflow)));
}

#[test]
fn an_overflow_ends_a_wait_that_is_under_way() {
    let (fake, context) = Fake::start();
    let cq = context.create_cq(2).unwrap();
    let id = cq.id();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cq.readable().wait(SOON));
        std::thread::sleep(Duration::from_millis(30));
        fake.tell(&Event::CqError { cq: id });
        assert!(matches!(waiter.join().unwrap(), Err(Error::CqOverflow)));
    });
}
