//! An interface that is deleted under a running daemon, or an address of it.

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

#[test]
fn connections_from_an_address_that_is_taken_away_end_and_others_go_on() {
    let pair = Pair::new("address-gone");
    let [v4, v6] = [Family::V4, Family::V6].map(|family| pair.b.address(family, PORT));
    let own = pair.a.address(Family::V4, 0).ip();
    let address = |word: &str| {
        let own = format!("{own}/24");
        pair.a
            .namespace
            .ip(&["address", word, &own, "dev", INTERFACE]);
    };
    let _servers = [v4, v6].map(|at| tool::server(&pair.daemon_b, "rnic-perf", at, &[]));
    let start = |at| tool::client(&pair.daemon_a, "rnic-perf", at, &["--duration", "600"]).spawn();
    let goes_on = || {
        let before = pair.daemon_b.counter("tcp_bytes_in");
        wait::until("bytes come", Duration::from_secs(30), || {
            (pair.daemon_b.counter("tcp_bytes_in") > before + (1 << 20)).then_some(())
        });
    };
    let mut client = start(v4);
    goes_on();
    let mut other = start(v6);
    // Changed, as a client of DHCP does it: nothing ends.
    address("del");
    std::thread::sleep(Duration::from_millis(500));
    address("add");
    std::thread::sleep(Duration::from_secs(4));
    assert!(client.running(), "{}", client.stderr());

    address("del");
    let told = format!("{own} was taken away from interface {INTERFACE}");
    wait::until(
        "the daemon names the address",
        Duration::from_secs(30),
        || pair.daemon_a.log().contains(&told).then_some(()),
    );
    let error = client.finish(Duration::from_secs(10)).failure();
    assert!(error.contains(&own.to_string()), "{error}");
    // It has the link alone now.
    goes_on();
    assert!(other.running(), "{}", other.stderr());
    address("add");
    let ping = tool::client(&pair.daemon_a, "rnic-perf", v4, &["--bytes", "1M"]);
    let _ = ping.run().success();
}
