//! Debian's libfabric over the verbs, unmodified, between two daemons.

use std::time::Duration;

use rnic_tests::programs::Programs;
use rnic_tests::wait;

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn libfabric_moves_messages_by_verbs_and_by_rxm_over_them() {
    let programs = Programs::new("fabric-pingpong");
    let listed = programs.on_a("fi_info -p verbs").run().success();
    assert!(listed.stdout.contains("FI_PROTO_IWARP"), "{listed}");
    for (provider, kind) in [("verbs", "msg"), ("verbs;ofi_rxm", "rdm")] {
        let pingpong = format!("fi_pingpong -p {provider} -e {kind} -I 10 -c");
        let server = programs.on_b(&pingpong).spawn();
        wait::until(
            "the server waits for its client's TCP connection",
            LIMIT,
            || {
                let listening = programs.pair.b.namespace.command("ss").arg("-Hltn").run();
                listening.stdout.contains(":47592").then_some(())
            },
        );
        let client = programs.on_a(&format!("{pingpong} {}", programs.address()));
        let client = client.run().success();
        assert!(client.stdout.contains("1m"), "{client}");
        let _ = server.finish(LIMIT).success();
    }
}

/// libfabric asks for the address of `localhost`, and takes a device that has it. A device of the kernel has
/// none, so that it lists the addresses of the interfaces, at which peers find them.
#[test]
fn libfabric_tells_addresses_that_peers_reach() {
    let programs = Programs::new("fabric-addresses");
    let told = programs.on_a("fi_info -v -p verbs").run().success().stdout;
    let address = format!("src_addr: fi_sockaddr_in://{}:0", programs.pair.a.v4);
    assert!(told.contains(&address), "no {address} in {told}");
    assert!(!told.contains("://127.0.0.1"), "{told}");
}
