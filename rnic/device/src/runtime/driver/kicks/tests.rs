//! A kick wakes the shard, and nothing that a client does with it holds or disturbs it.

use rnic_ipc::kick::Kick;
use rustix::event::{PollFd, PollFlags};

use super::*;

const CLIENT: ClientId = ClientId(7);

fn watched() -> (Kicks, Kick) {
    let kicks = Kicks::new().unwrap();
    let kick = Kick::new().unwrap();
    let ours = kick.as_fd().try_clone_to_owned().unwrap();
    kicks.add(CLIENT, ours).unwrap();
    (kicks, kick)
}

/// Whether a sleep would end at once.
fn wakes(kicks: &Kicks) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(kicks, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0
}

#[test]
fn each_kick_ends_one_sleep() {
    let (kicks, kick) = watched();
    assert!(!wakes(&kicks));
    for _ in 0..3 {
        kick.kick();
        kick.kick();
        assert!(wakes(&kicks));
        kicks.take();
        assert!(!wakes(&kicks));
    }
}

#[test]
fn a_full_or_blocking_kick_does_not_hold_the_shard() {
    let (kicks, kick) = watched();
    let blocking = rustix::fs::OFlags::empty();
    rustix::fs::fcntl_setfl(&kick, blocking).unwrap();
    rustix::io::write(&kick, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    assert!(wakes(&kicks));
    kicks.take();
    assert!(!wakes(&kicks));
    kicks.remove(CLIENT);
}

#[test]
fn a_kick_carries_no_descriptors() {
    let (_kicks, kick) = watched();
    let sent = rustix::net::send(&kick, &[1], rustix::net::SendFlags::empty());
    assert_eq!(sent, Err(rustix::io::Errno::NOTSOCK));
}

#[test]
fn a_client_that_is_gone_wakes_nobody() {
    let (kicks, kick) = watched();
    kick.kick();
    kicks.remove(CLIENT);
    assert!(!wakes(&kicks));
    kick.kick();
    assert!(!wakes(&kicks));
    let (kicks, kick) = watched();
    drop(kick);
    assert!(!wakes(&kicks));
}
