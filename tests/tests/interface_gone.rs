//! An interface that is deleted under a running daemon.

use std::time::Duration;

use rnic_tests::lab::{Family, INTERFACE};
use rnic_tests::pair::Pair;
use rnic_tests::{tool, wait};

const PORT: u16 = 18515;

#[test]
fn a_daemon_whose_interface_is_deleted_says_so_and_ends_in_order() {
    let mut pair = Pair::new("interface-gone");
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let mut client = tool::client(&pair.daemon_a, "rnic-perf", at, &["--duration", "600"]).spawn();
    std::thread::sleep(Duration::from_secs(1));
    assert!(client.running(), "{}", client.stderr());
    pair.a.namespace.ip(&["link", "delete", "dev", INTERFACE]);
    wait::until(
        "the daemon names the interface",
        Duration::from_secs(30),
        || {
            let log = pair.daemon_a.log();
            (log.contains("nothing can be sent") && log.contains(INTERFACE)).then_some(())
        },
    );
    // A new client is told what there is, and a connection is refused.
    let error = tool::client(&pair.daemon_a, "rnic-ping", at, &[])
        .run()
        .failure();
    assert!(error.contains(INTERFACE), "{error}");
    pair.daemon_a.assert_alive();
    pair.daemon_b.assert_alive();
    let _ = pair.daemon_a.stop();
    let _ = pair.daemon_b.stop();
}
