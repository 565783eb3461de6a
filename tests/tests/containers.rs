//! Daemon and clients may live in different containers.

use std::time::Duration;

use rnic_tests::lab::{INTERFACE, Lab, LinkOptions};
use rnic_tests::{binary, wait};

#[test]
fn a_client_whose_process_the_daemon_cannot_see_is_served() {
    let mut lab = Lab::new("pid-namespace");
    let (host, _) = lab.pair(&LinkOptions::default());
    let socket = lab.directory().join("rnicd.sock");
    let mut daemon = host
        .namespace
        .command("unshare")
        .args(["--pid", "--fork", "--kill-child"])
        .arg(binary::path("rnicd"))
        .args(["--interface", INTERFACE, "--socket"])
        .arg(&socket)
        .spawn();
    wait::until("rnicd is ready", Duration::from_secs(30), || {
        assert!(daemon.running(), "{}", daemon.stderr());
        daemon.stderr().contains("ready").then_some(())
    });
    let context =
        rnic::Context::open(&socket).unwrap_or_else(|error| panic!("{error}\n{}", daemon.stderr()));
    assert_eq!(context.device_info().unwrap().interface, INTERFACE);
}
