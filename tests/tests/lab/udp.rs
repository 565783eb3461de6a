//! RNICs whose link is a UDP socket: `rnicd --udp`, of users who have no capability at all. Between hosts, and with an
//! RNIC of an interface that speaks SCTP in UDP.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rnic_tests::binary;
use rnic_tests::daemon::{Daemon, DaemonOptions, NO_CAPABILITIES};
use rnic_tests::lab::{Family, Host, Lab, LinkOptions};
use rnic_tests::linksim::{Linksim, count};
use rnic_tests::pair::Pair;
use rnic_tests::programs::Programs;
use rnic_tests::tool;
use rnic_tests::wait;

const PORT: u16 = 18515;
const OPERATIONS: [&str; 3] = ["write", "read", "send"];
/// Whom no capability was ever given.
const USER: u32 = 65_534;
/// How soon the other side must know.
const SOON: Duration = Duration::from_secs(90);

fn options(arguments: &[&str]) -> DaemonOptions {
    DaemonOptions {
        udp: true,
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        ..DaemonOptions::default()
    }
}

/// An RNIC of an interface that takes and sends SCTP in UDP at the registered port.
fn of_interface() -> DaemonOptions {
    let udp = ["--sctp-udp-port", "9899", "--sctp-udp-peer-port", "9899"];
    DaemonOptions {
        arguments: udp.map(str::to_owned).to_vec(),
        ..DaemonOptions::default()
    }
}

/// `rnic-ping`, and all operations of `rnic-perf` with bytes that are verified, from one host to the other.
#[track_caller]
fn all_operations(from: &Daemon, to: &Daemon, host: &Host, options: &[&str], bytes: u64) {
    for family in Family::ALL {
        let at = host.address(family, PORT);
        let _server = tool::server(to, "rnic-ping", at, options);
        let ping = [options, &["--count", "20", "--size", "60000"]].concat();
        let pinged = tool::client(from, "rnic-ping", at, &ping).run().success();
        assert_eq!(tool::report(&pinged)["rounds"], 20);
        let at = SocketAddr::new(at.ip(), PORT + 1);
        let _server = tool::server(to, "rnic-perf", at, options);
        for op in OPERATIONS {
            let bytes_said = bytes.to_string();
            let plan = ["--op", op, "--verify", "--bytes", &bytes_said];
            let client = tool::client(from, "rnic-perf", at, &[options, &plan].concat());
            let report = tool::report(&client.run().success());
            assert!(report["verified_bytes"].as_u64() >= Some(bytes), "{report}");
        }
    }
}

#[test]
fn users_without_any_capability_have_rnics_between_their_hosts() {
    let mut lab = Lab::new("udp-nobody");
    let (a, b) = lab.pair(&LinkOptions::default());
    let programs = lab.directory().join("bin");
    std::fs::create_dir(&programs).expect("the lab's directory is ours");
    for path in [lab.directory(), &programs] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("it is ours");
    }
    for program in ["rnic-run", "rnicd", "rnic-ping", "rnic-perf"] {
        let _ = binary::copy(program, &programs);
    }
    let runtime = lab.directory().join("run");
    std::fs::create_dir(&runtime).expect("the lab's directory is ours");
    std::fs::set_permissions(&runtime, PermissionsExt::from_mode(0o700)).expect("it is ours");
    std::os::unix::fs::chown(&runtime, Some(USER), Some(USER)).expect("root may");
    // In a shell, the private daemon of which tells what it may.
    let run = |host: &Host, line: &str| {
        let capabilities = "grep -h CapEff: /proc/$PPID/status /proc/self/status";
        host.namespace
            .command("setpriv")
            .label("rnic-run")
            .args([
                &format!("--reuid={USER}"),
                &format!("--regid={USER}"),
                "--clear-groups",
            ])
            .args(NO_CAPABILITIES)
            .args(["env", "-u", "RNIC_SOCKET"])
            .arg(format!("XDG_RUNTIME_DIR={}", runtime.display()))
            .arg(programs.join("rnic-run"))
            .args(["--udp", "sh", "-ec"])
            .arg(format!("cd {}; {capabilities}; {line}", programs.display()))
    };
    for family in Family::ALL {
        let at = b.address(family, PORT);
        let mut server = run(&b, &format!("./rnic-ping server --listen {at}")).spawn();
        server
            .says("listening", tool::LISTEN_LIMIT)
            .expect("it listens");
        let line = format!("./rnic-ping client --connect {at} --size 60000 --count 20");
        let done = run(&a, &line).run().success();
        assert!(done.stdout.contains("20 rounds"), "{done}");
        assert_eq!(
            done.stdout.matches("CapEff:\t0000000000000000").count(),
            2,
            "{done}"
        );
        drop(server.terminate());
        let mut server = run(&b, &format!("./rnic-perf server --listen {at}")).spawn();
        server
            .says("listening", tool::LISTEN_LIMIT)
            .expect("it listens");
        for op in OPERATIONS {
            let line = format!("./rnic-perf client --connect {at} --op {op} --bytes 5M --verify");
            let done = run(&a, &line).run().success();
            assert!(done.stdout.contains("verified equal"), "{done}");
        }
        drop(server.terminate());
    }
}

#[test]
fn bytes_move_both_ways_and_leave_many_datagrams_at_a_time() {
    let pair = Pair::with("udp-both", &LinkOptions::default(), &options(&[]));
    all_operations(&pair.daemon_a, &pair.daemon_b, &pair.b, &[], 5 << 20);
    all_operations(&pair.daemon_b, &pair.daemon_a, &pair.a, &[], 5 << 20);
    // Within the host nothing of it goes to the socket.
    let sent = pair.daemon_a.counter("port0_transmitted");
    all_operations(&pair.daemon_a, &pair.daemon_a, &pair.a, &[], 1 << 20);
    assert_eq!(pair.daemon_a.counter("port0_transmitted"), sent);
    let together = pair.daemon_a.counter("port0_super_packet_segments_sent");
    assert!(
        together > sent / 2,
        "{together} of {sent} datagrams left together"
    );
    for daemon in [pair.daemon_a, pair.daemon_b] {
        let _ = daemon.stop();
    }
}

#[test]
fn an_rnic_of_an_interface_speaks_with_one_of_a_socket() {
    let pair = Pair::with_each(
        "udp-interface",
        &LinkOptions::default(),
        [&options(&[]), &of_interface()],
    );
    all_operations(
        &pair.daemon_a,
        &pair.daemon_b,
        &pair.b,
        &["--sctp"],
        2 << 20,
    );
    all_operations(
        &pair.daemon_b,
        &pair.daemon_a,
        &pair.a,
        &["--sctp"],
        2 << 20,
    );
}

#[test]
fn several_shards_share_the_port() {
    let shards = options(&["--shards", "2"]);
    let pair = Pair::with("udp-shards", &LinkOptions::default(), &shards);
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let plan = ["--op", "write", "--verify", "--bytes", "1M"];
    for _ in 0..8 {
        let client = tool::client(&pair.daemon_a, "rnic-perf", at, &plan);
        let report = tool::report(&client.run().success());
        assert!(
            report["verified_bytes"].as_u64() >= Some(1 << 20),
            "{report}"
        );
    }
}

#[test]
fn programs_of_the_verbs_run_as_they_are() {
    let of_socket = options(&[]);
    let programs = Programs::with_each("udp-verbs", [&of_socket, &of_socket]);
    for family in Family::ALL {
        let at = programs.pair.b.address(family, 0).ip();
        let end = |role: &str| format!("rping {role} -a {at} -V -C 10 -S 65000");
        drop(programs.run(&end("-s"), &end("-c")).success());
    }
    for program in [
        "ib_write_bw -R -n 200",
        "ib_read_bw -R -n 50 -q 4",
        "ib_send_lat -R -n 100",
        "ib_atomic_bw -R -n 100",
    ] {
        let both = programs.run_perftest(&format!("{program} -F")).success();
        assert!(both.client.stdout.contains("#bytes"), "{}", both.client);
    }
    for verb in ["write", "read"] {
        let common = "--ioengine=rdma --port=18600 --bs=64k --iodepth=8 --size=4m --verify=crc32c \
                      --verify_state_save=0";
        let server = format!("fio --name=server {common} --rw=read");
        let client = format!("fio --name=client {common} --rw=write --verb={verb}");
        let client = format!("{client} --hostname={}", programs.address());
        let both = programs.run(&server, &client).success();
        assert!(both.client.stdout.contains("err= 0"), "{}", both.client);
    }
    // Queue pairs that are joined by number.
    for line in [
        "ib_write_bw -n 200 -F -d rnic_udp",
        "ib_send_lat -n 100 -F -d rnic_udp",
    ] {
        let both = programs.run_by_number(line, &programs.address()).success();
        assert!(both.client.stdout.contains("#bytes"), "{}", both.client);
    }
    for daemon in [&programs.pair.daemon_a, &programs.pair.daemon_b] {
        assert_eq!(daemon.counter("tcp_segments_in"), 0);
        assert!(daemon.counter("sctp_packets_in") > 1000);
    }
}

/// Packets too large for the path are told by the kernel at once, and go as fragments; those after them fit.
#[test]
fn a_path_that_becomes_narrower_takes_smaller_packets() {
    let pair = Pair::with("udp-mtu", &LinkOptions::default(), &options(&[]));
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    for family in Family::ALL {
        let at = SocketAddr::new(pair.b.address(family, PORT).ip(), PORT + family as u16 + 1);
        let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
        let plan = ["--op", "write", "--verify", "--bytes", "20M"];
        let running = tool::client(&pair.daemon_a, "rnic-perf", at, &plan).spawn();
        wait::until("bytes move", SOON, || {
            (pair.daemon_a.counter("sctp_packets_out") > 1000).then_some(())
        });
        for host in [&pair.a, &pair.b] {
            host.namespace
                .ip(&["link", "set", rnic_tests::lab::INTERFACE, "mtu", "1300"]);
        }
        let report = tool::report(&running.finish(SOON).success());
        assert!(
            report["verified_bytes"].as_u64() >= Some(20 << 20),
            "{report}"
        );
    }
    let [told, ignored] = ["icmp_errors", "icmp_ignored"].map(|it| pair.daemon_a.counter(it));
    assert!(told > ignored, "{told} errors, {ignored} of them ignored");
}

#[test]
fn losses_reordering_and_duplicates_change_no_byte() {
    let mut lab = Lab::new("udp-loss");
    let (a, middle, b) = lab.over(&LinkOptions::default());
    let link = Linksim::start(
        &middle,
        &["--loss", "1%", "--duplicate", "1%", "--reorder", "2%"],
    );
    let of_socket = options(&[]);
    let [daemon_a, daemon_b] = [&a, &b].map(|host| Daemon::start(&lab, host, &of_socket));
    all_operations(&daemon_a, &daemon_b, &b, &[], 2 << 20);
    let report = link.stop();
    for what in ["lost", "duplicated"] {
        assert!(count(&report, &format!("to_right.{what}")) > 0, "{report}");
    }
}

#[test]
fn where_no_daemon_is_a_connection_is_refused_at_once() {
    let mut lab = Lab::new("udp-refused");
    let (a, b) = lab.pair(&LinkOptions::default());
    let daemon = Daemon::start(&lab, &a, &options(&[]));
    for family in Family::ALL {
        let at = b.address(family, PORT);
        let begun = Instant::now();
        let said = tool::client(&daemon, "rnic-ping", at, &[]).run().failure();
        assert!(begun.elapsed() < Duration::from_secs(5), "{said}");
        assert!(said.contains("takes it in UDP"), "{said}");
    }
}

/// The other side of a program or daemon that was killed knows, and serves the next one.
#[test]
fn who_is_killed_leaves_nothing_that_keeps_others_from_going_on() {
    let mut lab = Lab::new("udp-killed");
    let (a, b) = lab.pair(&LinkOptions::default());
    let daemon_a = Daemon::start(&lab, &a, &options(&["--user-timeout", "2000"]));
    let mut daemon_b = Daemon::start(&lab, &b, &options(&[]));
    let at = b.address(Family::V4, PORT);
    let plan = ["--op", "write", "--bytes", "100G"];
    for round in 0..4 {
        let server = tool::server(&daemon_b, "rnic-perf", at, &[]);
        let mut client = tool::client(&daemon_a, "rnic-perf", at, &plan).spawn();
        wait::until("bytes move", SOON, || {
            (daemon_b.counter("bytes_placed") > 1 << 20).then_some(())
        });
        if round % 2 == 0 {
            client.kill();
        } else {
            drop(server);
            daemon_b.kill();
            let _ = client.finish(SOON).failure();
            daemon_b = Daemon::start(&lab, &b, &options(&[]));
        }
        wait::until("no connection is left", SOON, || {
            let left = daemon_a.live_connections() + daemon_b.live_connections();
            (left == 0).then_some(())
        });
    }
}

/// INITs and other packets of no association, from as many ports as anybody has: what is more than the limits let through
/// is dropped before SCTP, and a connection goes on beside it.
#[test]
fn a_flood_of_strangers_is_bounded_and_a_connection_goes_on() {
    let limits = ["--syn-rate", "100", "--unknown-flow-rate", "100"];
    let pair = Pair::with("udp-flood", &LinkOptions::default(), &options(&limits));
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
    let plan = ["--op", "write", "--verify", "--bytes", "20M"];
    let client = tool::client(&pair.daemon_a, "rnic-perf", at, &plan).spawn();
    let mut packet = [0; 64];
    packet[..4].copy_from_slice(&[0x12, 0x34, 0x48, 0x53]);
    let flood = move || {
        let sockets: Vec<_> = (0..16)
            .map(|_| UdpSocket::bind("0.0.0.0:0").expect("a port is free"))
            .collect();
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            for socket in &sockets {
                // An INIT, DATA, and what is no SCTP packet at all.
                for (kind, len) in [(1, 64), (0, 64), (0, 3)] {
                    packet[12] = kind;
                    let _ = socket.send_to(&packet[..len], (at.ip(), 9899));
                }
            }
        }
    };
    pair.a.namespace.in_thread(flood);
    let report = tool::report(&client.finish(SOON).success());
    assert!(
        report["verified_bytes"].as_u64() >= Some(20 << 20),
        "{report}"
    );
    for dropped in ["rx_init_rate", "rx_unknown_flow_rate"] {
        assert!(pair.daemon_b.counter(dropped) > 1000, "{dropped}");
    }
    // A thousand at once, and a hundred a second.
    let taken = pair.daemon_b.counter("sctp_packets_in");
    let sent = pair.daemon_a.counter("sctp_packets_out");
    assert!(
        taken < sent + 2 * (1000 + 100 * 30),
        "{taken} of {sent} that were sent"
    );
}

/// A router tells that packets are too large, by ICMP: the kernel gives it to the socket's error queue.
#[test]
fn a_path_that_is_narrower_behind_a_router_takes_smaller_packets() {
    let mut lab = Lab::new("udp-router");
    let (a, b, routers) = lab.routed(&LinkOptions::default());
    let of_socket = options(&[]);
    let [daemon_a, daemon_b] = [&a, &b].map(|host| Daemon::start(&lab, host, &of_socket));
    routers.set_mtu(1300);
    all_operations(&daemon_a, &daemon_b, &b, &[], 1 << 20);
    for daemon in [&daemon_a, &daemon_b] {
        let [told, ignored] = ["icmp_errors", "icmp_ignored"].map(|name| daemon.counter(name));
        assert!(told > ignored, "{told} errors, {ignored} of them ignored");
    }
}

/// RFC 6951 section 5.4: the peer's packets come from another address and port than it has.
#[test]
fn a_peer_behind_a_nat_is_answered_where_its_packets_come_from() {
    let mut lab = Lab::new("udp-nat");
    let (a, b, routers) = lab.routed(&LinkOptions::default());
    routers.masquerade();
    let of_socket = options(&[]);
    let [daemon_a, daemon_b] = [&a, &b].map(|host| Daemon::start(&lab, host, &of_socket));
    let at = b.address(Family::V4, PORT);
    let _server = tool::server(&daemon_b, "rnic-perf", at, &[]);
    for op in OPERATIONS {
        let plan = ["--op", op, "--verify", "--bytes", "1M"];
        let client = tool::client(&daemon_a, "rnic-perf", at, &plan).run();
        let report = tool::report(&client.success());
        assert!(
            report["verified_bytes"].as_u64() >= Some(1 << 20),
            "{report}"
        );
    }
    let at = b.address(Family::V4, PORT + 1);
    let server = tool::server(&daemon_b, "rnic-ping", at, &[]);
    let _ = tool::client(&daemon_a, "rnic-ping", at, &[])
        .run()
        .success();
    let seen = server.terminate().stdout;
    assert!(seen.contains(": 10 rounds"), "{seen}");
    assert!(!seen.contains(&a.v4.to_string()), "{seen}");
}
