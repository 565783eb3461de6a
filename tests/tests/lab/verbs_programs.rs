//! Debian's programs of the verbs, unmodified, between two daemons.

use std::time::Duration;

use rnic_tests::lab::{Family, INTERFACE};
use rnic_tests::programs::Programs;

/// How long a program may take to say something.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn an_interface_is_a_device() {
    let programs = Programs::new("verbs-devices");
    let listed = programs.on_a("ibv_devices").run().success();
    assert!(
        listed.stdout.contains(&format!("rnic_{INTERFACE}")),
        "{listed}"
    );
    for (prefix, name) in [("siw_", "siw_"), ("rxe", "rxe"), ("a/b", "rnic_")] {
        let line = format!("env RNIC_DEVICE_PREFIX={prefix} ibv_devices");
        let listed = programs.on_a(&line).run().success();
        let found = listed.stdout.contains(&format!("{name}{INTERFACE}"));
        let is_told = listed.stderr.contains("RNIC_DEVICE_PREFIX");
        assert!(found && is_told == prefix.contains('/'), "{listed}");
    }
    let told = programs.on_a("ibv_devinfo -v").run().success().stdout;
    let gid = programs.pair.a.v4.to_ipv6_mapped().segments();
    let gid: Vec<_> = gid.iter().map(|part| format!("{part:04x}")).collect();
    for truth in [
        "transport:\t\t\tiWARP (1)",
        "state:\t\t\tPORT_ACTIVE (4)",
        // As veth tells it.
        "active_speed:\t\t10.0 Gbps (4)",
        "link_layer:\t\tEthernet",
        "max_sge:\t\t\t32",
        &gid.join(":"),
    ] {
        assert!(told.contains(truth), "no {truth:?} in {told}");
    }
    // A veth whose other end is down has no carrier.
    programs
        .pair
        .b
        .namespace
        .ip(&["link", "set", INTERFACE, "down"]);
    let told = programs.on_a("ibv_devinfo -v").run().success().stdout;
    assert!(told.contains("state:\t\t\tPORT_DOWN (1)"), "{told}");
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

/// perftest's programs, some with options: bandwidth with all sizes, with events, with several queue pairs,
/// with a shared receive queue, both ways; latency with inline data and with events.
const PERFTEST: [&str; 15] = [
    "ib_write_bw -n 200",
    "ib_write_bw -n 10 -a",
    "ib_write_bw -n 100 -q 4",
    "ib_write_bw -n 100 -b -s 4096",
    "ib_read_bw -n 200",
    "ib_read_bw -n 200 -e",
    "ib_send_bw -n 200",
    "ib_send_bw -n 200 -e -Q 1 -s 4096",
    "ib_send_bw -n 200 -r 16 --use-srq",
    "ib_write_lat -n 100 -I 64",
    "ib_read_lat -n 100 -e",
    "ib_send_lat -n 100 -s 8192",
    "ib_send_lat -n 100 -e",
    "ib_atomic_bw -n 100",
    "ib_atomic_lat -n 100 -A CMP_AND_SWAP",
];

#[test]
fn perftest_measures_over_connections_of_rdma_cm() {
    let programs = Programs::new("verbs-perftest");
    for program in PERFTEST {
        let both = programs.run_perftest(&format!("{program} -R -F")).success();
        assert!(both.client.stdout.contains("#bytes"), "{}", both.client);
    }
}

/// Programs that know nothing of SCTP: their environment has it in place of TCP, as long as both ends say so.
#[test]
fn programs_go_over_sctp_where_their_environment_says_so() {
    const SCTP: &str = "env RNIC_TRANSPORT=sctp";
    let programs = Programs::new("verbs-sctp");
    let counter = |name| programs.pair.daemon_b.counter(name);
    for family in [Family::V4, Family::V6] {
        let at = programs.pair.b.address(family, 0).ip();
        let end = |role: &str| format!("{SCTP} rping {role} -a {at} -V -C 10 -S 65000");
        drop(programs.run(&end("-s"), &end("-c")).success());
    }
    for program in [
        "ib_write_bw -n 200",
        "ib_read_bw -n 50 -q 4",
        "ib_send_bw -n 200 -e",
        "ib_write_lat -n 100 -I 64",
        "ib_atomic_bw -n 100",
    ] {
        let line = format!("{SCTP} {program} -R -F");
        let both = programs.run_perftest(&line).success();
        assert!(both.client.stdout.contains("#bytes"), "{}", both.client);
    }
    assert!(counter("sctp_packets_in") > 10_000);
    assert_eq!(counter("tcp_segments_in"), 0, "nothing went over TCP");

    let at = programs.address();
    let server = programs.on_b(&format!("{SCTP} rping -s -a {at}")).spawn();
    programs.wait_for_listener();
    let said = programs.on_a(&format!("rping -c -a {at}")).run();
    let said = format!("{}{}", said.stdout, said.stderr);
    assert!(said.contains("RDMA_CM_EVENT_REJECTED"), "{said}");
    drop(server);
    let said = programs.on_a(&format!("env RNIC_TRANSPORT=udp rdma_client -s {at}"));
    let said = said.run().failure();
    assert!(said.contains("tcp and sctp are known"), "{said}");
}

#[test]
fn fio_moves_data_by_writes_reads_and_sends() {
    let programs = Programs::new("verbs-fio");
    let common = "--ioengine=rdma --port=18600 --bs=64k --iodepth=8";
    // By Sends no more than the server has receives for: fio posts one again when it gets to it, and iWARP
    // knows no "receiver not ready".
    for (verb, size) in [("write", "4m"), ("read", "4m"), ("send", "512k")] {
        let common = format!("{common} --size={size} --verify=crc32c --verify_state_save=0");
        let server = format!("fio --name=server {common} --rw=read");
        let client = format!("fio --name=client {common} --rw=write --verb={verb}");
        let both = programs.run(
            &server,
            &format!("{client} --hostname={}", programs.address()),
        );
        let both = both.success();
        assert!(both.client.stdout.contains("err= 0"), "{}", both.client);
    }
}

#[test]
fn ibv_asyncwatch_is_told_of_a_daemon_that_is_gone() {
    let programs = Programs::new("verbs-asyncwatch");
    let line = format!("stdbuf -oL ibv_asyncwatch -d rnic_{INTERFACE}");
    let mut watch = programs.on_a(&line).spawn();
    watch
        .says("async event FD", LIMIT)
        .expect("it opens the device");
    programs.pair.daemon_a.kill();
    watch
        .says("IBV_EVENT_DEVICE_FATAL", LIMIT)
        .expect("it is told");
    watch.kill();
}

#[test]
fn qperf_forks_a_server_for_each_measurement() {
    let programs = Programs::new("verbs-qperf");
    programs.run_qperf(&[
        "rc_lat",
        "rc_bw",
        "rc_bi_bw",
        "rc_rdma_read_bw",
        "rc_rdma_write_bw",
        "rc_rdma_write_lat",
        "ver_rc_compare_swap",
        "ver_rc_fetch_add",
    ]);
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
