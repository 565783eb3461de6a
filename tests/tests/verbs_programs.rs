//! Debian's programs of the verbs, unmodified, between two daemons.

use rnic_tests::lab::{Family, INTERFACE};
use rnic_tests::programs::Programs;

#[test]
fn an_interface_is_a_device() {
    let programs = Programs::new("verbs-devices");
    let listed = programs.on_a("ibv_devices").run().success();
    assert!(
        listed.stdout.contains(&format!("rnic_{INTERFACE}")),
        "{listed}"
    );
    let told = programs.on_a("ibv_devinfo -v").run().success().stdout;
    let gid = programs.pair.a.v4.to_ipv6_mapped().segments();
    let gid: Vec<_> = gid.iter().map(|part| format!("{part:04x}")).collect();
    for truth in [
        "transport:\t\t\tiWARP (1)",
        "state:\t\t\tPORT_ACTIVE (4)",
        "link_layer:\t\tEthernet",
        "max_sge:\t\t\t32",
        &gid.join(":"),
    ] {
        assert!(told.contains(truth), "no {truth:?} in {told}");
    }
}

#[test]
fn without_a_daemon_there_is_no_device() {
    let programs = Programs::new("verbs-no-daemon");
    let line = "env RNIC_SOCKET=/nonexistent ibv_devinfo";
    let said = programs.on_a(line).run().failure();
    assert!(said.contains("/nonexistent"), "{said}");
}

#[test]
fn rping_checks_every_byte_that_comes_back() {
    let programs = Programs::new("verbs-rping");
    for family in [Family::V4, Family::V6] {
        let at = programs.pair.b.address(family, 0).ip();
        for size in [64, 1000, 65_000] {
            let client = format!("rping -c -a {at} -v -V -C 10 -S {size}");
            let both = programs.run(&format!("rping -s -a {at} -V -C 10 -S {size}"), &client);
            let both = both.success();
            assert_eq!(
                both.client.stdout.matches("ping data").count(),
                10,
                "{}",
                both.client
            );
        }
    }
}

#[test]
fn a_wildcard_is_every_address_of_the_device() {
    let programs = Programs::new("verbs-wildcard");
    for family in [Family::V4, Family::V6] {
        let at = programs.pair.b.address(family, 0).ip();
        let any = if at.is_ipv4() { "0.0.0.0" } else { "::" };
        let client = format!("rping -c -a {at} -C 3");
        let both = programs.run(&format!("rping -s -a {any} -C 3"), &client);
        drop(both.success());
    }
}

#[test]
fn who_connects_where_nobody_listens_is_told() {
    let programs = Programs::new("verbs-refused");
    let client = programs.on_a(&format!("rping -c -a {}", programs.address()));
    let said = client.run();
    let said = format!("{}{}", said.stdout, said.stderr);
    assert!(
        said.contains("RDMA_CM_EVENT_REJECTED, error -111"),
        "{said}"
    );
}

#[test]
fn endpoints_wait_for_what_they_begin() {
    let programs = Programs::new("verbs-endpoints");
    let both = programs.run(
        "rdma_server",
        &format!("rdma_client -s {}", programs.address()),
    );
    let both = both.success();
    assert!(both.client.stdout.contains("end 0"), "{}", both.client);
}

#[test]
fn many_connections_come_and_go() {
    let programs = Programs::new("verbs-many");
    let client = format!("ucmatose -c 20 -C 10 -S 1000 -s {}", programs.address());
    drop(
        programs
            .run("ucmatose -c 20 -C 10 -S 1000", &client)
            .success(),
    );
    let mut server = programs.on_b("cmtime").spawn();
    programs.wait_for_listener();
    let timed = programs.on_a(&format!("cmtime -c 100 -s {}", programs.address()));
    let timed = timed.run().success();
    assert!(timed.stdout.contains("disconnect"), "{timed}");
    // It serves for ever.
    assert!(server.running());
    server.kill();
}
