//! Memory of a client's heap, which the RNIC reaches by the client's `/proc/self/mem`.

use rnic::{Access, Error, RefusalCode, WcStatus, WorkRequest};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::{Endpoint, connect};

const PORT: u16 = 18515;
const LEN: usize = 1_000_000;
const ACCESS: Access = Access::READ_WRITE;

#[test]
fn memory_outside_of_memfds_takes_and_gives_what_any_does() {
    let mut lab = Lab::new("remote-memory");
    let (a, b) = lab.pair(&LinkOptions::default());
    let file = lab.directory().join("rnicd.toml");
    let lines = format!(
        "interface = \"{INTERFACE}\"\n[limits.client]\nremote_regions = 0\n[limits.user]\n\
         remote_regions = 0\n"
    );
    std::fs::write(&file, lines).expect("the directory is ours");
    let forbidding = DaemonOptions {
        arguments: vec!["--config".to_owned(), file.display().to_string()],
        ..DaemonOptions::default()
    };
    let daemon_a = Daemon::start(&lab, &a, &forbidding);
    let mut daemon_b = Daemon::start(&lab, &b, &DaemonOptions::default());
    let (peer, owner) = (Endpoint::new(&daemon_a, LEN), Endpoint::new(&daemon_b, 64));

    let refused = peer.pd.register_remote(LEN, ACCESS).map(drop);
    let Err(Error::Refused(refusal)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refusal.code, RefusalCode::Limit, "{refusal}");

    let region = owner
        .pd
        .register_remote(LEN, ACCESS)
        .expect("some are allowed");
    connect(&peer, &owner, b.address(Family::V4, PORT));
    let remote = region.remote(0..LEN).expect("all of it");
    let all = [peer.element(0..LEN)];
    // A Write, a Read, a Send that comes, a Write that goes.
    peer.fill(1);
    peer.post(WorkRequest::write(1, &all, remote));
    assert_eq!(peer.completion().status, WcStatus::Success);
    peer.fill(2);
    peer.post(WorkRequest::read(2, &all, remote));
    assert_eq!(peer.completion().status, WcStatus::Success);
    assert!(peer.holds(1));
    assert!(region.to_vec(0..LEN).expect("all") == Pattern::bytes(1, LEN));

    peer.fill(3);
    let place = [region.slice(0..LEN).expect("all")];
    owner
        .qp
        .post_recv(WorkRequest::recv(3, &place))
        .expect("room");
    peer.post(WorkRequest::send(3, &all));
    assert_eq!(peer.completion().status, WcStatus::Success);
    assert_eq!(owner.completion().status, WcStatus::Success);
    assert!(region.to_vec(0..LEN).expect("all") == Pattern::bytes(3, LEN));

    let bytes = Pattern::bytes(4, LEN);
    region.write(0, &bytes).expect("all");
    owner.post(WorkRequest::write(4, &place, peer.remote()));
    assert_eq!(owner.completion().status, WcStatus::Success);
    // The peer knows when it has its answer.
    peer.post(WorkRequest::read(5, &all[..0], remote));
    assert_eq!(peer.completion().status, WcStatus::Success);
    drop(region);
    assert_eq!(daemon_b.counter("held_remote_regions"), 0);
    assert_eq!(daemon_b.counter("memory_faults"), 0);
    daemon_b.assert_alive();
}
