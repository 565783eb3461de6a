//! Debian's uDAPL over the verbs, unmodified, between two daemons.

use std::time::Duration;

use rnic_tests::lab::INTERFACE;
use rnic_tests::programs::Programs;
use rnic_tests::wait;

const LIMIT: Duration = Duration::from_secs(120);

/// The port at which its server tells a client by TCP where to connect.
const SIDE_PORT: &str = ":15828";

#[test]
fn udapl_connects_and_moves_messages_writes_and_reads() {
    let programs = Programs::new("dapl");
    let registry = programs.pair.lab.directory().join("dat.conf");
    let entry = format!(
        "rnic u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"{INTERFACE} 0\" \"\"\n"
    );
    std::fs::write(&registry, entry).expect("the lab's directory is ours");
    let dtest = format!(
        "env DAT_OVERRIDE={} dtest -P rnic -b 65536",
        registry.display()
    );
    let server = programs.on_b(&dtest).spawn();
    wait::until("the server waits for its client", LIMIT, || {
        let listening = programs.pair.b.namespace.command("ss").arg("-Hltn").run();
        listening.stdout.contains(SIDE_PORT).then_some(())
    });
    let client = programs.on_a(&format!("{dtest} -h {}", programs.address()));
    let client = client.limit(LIMIT).run().success();
    let server = server.finish(LIMIT).success();
    for end in [client, server] {
        assert!(end.stdout.contains("DAPL Test Complete. PASSED"), "{end}");
    }
    let placed = |daemon: &rnic_tests::daemon::Daemon| daemon.counter("bytes_placed");
    let [a, b] = [&programs.pair.daemon_a, &programs.pair.daemon_b].map(placed);
    assert!(a > 65_536 && b > 65_536, "{a} and {b}");
}
