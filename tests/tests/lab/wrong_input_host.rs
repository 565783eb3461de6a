//! What is wrong on the host gets a named error, and what was right goes on working.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use rnic_tests::daemon::{self, Daemon, DaemonOptions, assert_nothing_attached};
use rnic_tests::lab::{Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::{binary, stream, tool};

const PORT: u16 = 18515;

/// Panics unless the error names everything that a reader needs.
#[track_caller]
fn names(error: &str, parts: &[&str]) {
    let lower = error.to_lowercase();
    for part in parts {
        assert!(
            lower.contains(&part.to_lowercase()),
            "\"{part}\" is not named in:\n{error}"
        );
    }
}

/// One transfer from `a` to `b`.
#[track_caller]
fn ping(pair: &Pair, port: u16) {
    let at = pair.b.address(Family::V4, port);
    let _server = tool::server(&pair.daemon_b, "rnic-ping", at, &[]);
    let _ = tool::client(&pair.daemon_a, "rnic-ping", at, &["--count", "2"])
        .run()
        .success();
}

#[test]
fn an_unknown_interface_is_named() {
    let mut lab = Lab::new("unknown-interface");
    let namespace = lab.namespace("x");
    let socket = lab.directory().join("x.sock");
    let error = daemon::command(&namespace, "nosuch0", &socket)
        .arg("--no-wait")
        .run()
        .failure();
    names(&error, &["nosuch0", "interface"]);
    assert!(!socket.exists());
}

#[test]
fn an_mtu_that_no_frame_carries_is_refused_and_the_largest_named() {
    let mut lab = Lab::new("mtu-too-large");
    let namespace = lab.namespace("x");
    namespace.ip(&["link", "add", "wide0", "mtu", "65535", "type", "bridge"]);
    namespace.ip(&["addr", "add", "198.18.201.1/24", "dev", "wide0"]);
    namespace.ip(&["link", "set", "dev", "wide0", "up"]);
    let socket = lab.directory().join("x.sock");
    let error = daemon::command(&namespace, "wide0", &socket)
        .run()
        .failure();
    names(&error, &["wide0", "MTU", "65535", "11502"]);
    assert_nothing_attached(&namespace, "wide0");
}

#[test]
fn an_interface_without_native_xdp_is_named_and_serves_in_generic_mode() {
    let mut lab = Lab::new("no-native-xdp");
    let namespace = lab.namespace("x");
    namespace.ip(&["link", "add", "bridge0", "type", "bridge"]);
    namespace.ip(&["addr", "add", "198.18.200.1/24", "dev", "bridge0"]);
    namespace.ip(&["link", "set", "dev", "bridge0", "up"]);
    let socket = lab.directory().join("x.sock");
    let native = daemon::command(&namespace, "bridge0", &socket).args(["--mode", "native"]);
    names(&native.run().failure(), &["bridge0", "native"]);
    assert_nothing_attached(&namespace, "bridge0");

    let daemon = Daemon::serve(&namespace, "bridge0", &socket, &DaemonOptions::default());
    names(&daemon.log(), &["bridge0", "generic"]);
    let _ = daemon.stop();
    assert_nothing_attached(&namespace, "bridge0");
}

#[test]
fn an_interface_that_is_not_ethernet_is_named() {
    let mut lab = Lab::new("not-ethernet");
    let namespace = lab.namespace("x");
    let _ = namespace
        .command("ip")
        .args(["tuntap", "add", "dev", "tun0", "mode", "tun"])
        .run();
    namespace.ip(&["link", "set", "dev", "tun0", "up"]);
    let socket = lab.directory().join("x.sock");
    let error = daemon::command(&namespace, "tun0", &socket).run().failure();
    names(&error, &["tun0", "ethernet"]);
    assert_nothing_attached(&namespace, "tun0");
}

#[test]
fn an_interface_that_is_not_ready_is_named_with_what_to_do() {
    let mut lab = Lab::new("not-ready");
    let (a, _b) = lab.pair(&LinkOptions {
        mtu: 12000,
        queues: 2,
        ..LinkOptions::default()
    });
    let socket = lab.directory().join("x.sock");
    let error = |arguments: &[&str]| {
        daemon::command(&a.namespace, INTERFACE, &socket)
            .arg("--no-wait")
            .args(arguments)
            .run()
            .failure()
    };
    names(&error(&[]), &[INTERFACE, "mtu", "12000", "11502"]);
    a.namespace
        .ip(&["link", "set", "dev", INTERFACE, "mtu", "1500"]);
    names(&error(&["--queues", "1"]), &[INTERFACE, "queues", "2"]);
    names(&error(&["--queues", "3"]), &[INTERFACE, "queues", "2"]);
    let beyond = error(&["--dedicated-queues", "1-2"]);
    names(&beyond, &["an rx queue of 2", "rnic0 has 2 rx queue(s)"]);
    let many = error(&["--dedicated-queues", "1", "--shards", "2"]);
    names(&many, &["shards", "1 queue(s) serve"]);
    a.namespace.ip(&["link", "set", "dev", INTERFACE, "down"]);
    names(&error(&[]), &[INTERFACE, "down"]);
    a.namespace.ip(&["addr", "flush", "dev", INTERFACE]);
    a.namespace
        .ip(&["link", "set", "dev", INTERFACE, "addrgenmode", "none", "up"]);
    names(&error(&[]), &[INTERFACE, "address"]);
    assert_nothing_attached(&a.namespace, INTERFACE);
}

#[test]
fn an_interface_whose_xdp_hook_is_taken_is_named_and_its_owner_goes_on() {
    let pair = Pair::new("hook-taken");
    let socket = pair.lab.directory().join("second.sock");
    for mode in ["native", "generic", "auto"] {
        let second = daemon::command(&pair.a.namespace, INTERFACE, &socket).args(["--mode", mode]);
        names(&second.run().failure(), &[INTERFACE, "xdp"]);
    }
    ping(&pair, PORT);
}

#[test]
fn a_socket_that_another_daemon_serves_is_named_and_its_owner_goes_on() {
    let pair = Pair::new("socket-taken");
    let error = daemon::command(&pair.b.namespace, INTERFACE, pair.daemon_a.socket()).run();
    let path = pair.daemon_a.socket().display().to_string();
    names(&error.failure(), &[&path]);
    ping(&pair, PORT);
}

#[test]
fn a_daemon_without_privilege_says_which_it_needs() {
    let mut lab = Lab::new("no-privilege");
    let (a, _b) = lab.pair(&LinkOptions::default());
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(lab.directory(), open).unwrap();
    // A copy, as the directory of the build may be closed to others.
    let program = binary::copy("rnicd", lab.directory());
    let socket = lab.directory().join("x.sock");
    let nobody = [
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "--",
    ];
    let unprivileged = a.namespace.command("setpriv").args(nobody).arg(program);
    let unprivileged = unprivileged
        .args(["--interface", INTERFACE, "--socket"])
        .arg(socket);
    names(&unprivileged.run().failure(), &[INTERFACE, "CAP_NET_ADMIN"]);
    assert_nothing_attached(&a.namespace, INTERFACE);
}

#[test]
fn a_port_that_a_host_program_uses_is_refused_and_stays_the_programs() {
    let pair = Pair::new("port-in-use");
    for family in Family::ALL {
        let at = pair.b.address(family, PORT);
        let taken = pair
            .b
            .namespace
            .in_thread(|| TcpListener::bind(at).unwrap());
        let server = tool::command(&pair.daemon_b, "rnic-ping", "server");
        let error = server.args(["--listen", &at.to_string()]).run().failure();
        names(&error, &[&at.to_string(), "choose another port"]);
        drop(taken);
    }
    for family in Family::ALL {
        stream::exchange(&pair.a, &pair.b, family, 100_000);
    }
    ping(&pair, PORT);
}

#[test]
fn a_port_of_the_rnic_is_refused_to_other_clients_and_to_host_programs() {
    let pair = Pair::new("port-of-the-rnic");
    let at = pair.b.address(Family::V4, PORT);
    let server = tool::server(&pair.daemon_b, "rnic-ping", at, &[]);
    let second = tool::command(&pair.daemon_b, "rnic-ping", "server");
    let error = second.args(["--listen", &at.to_string()]).run().failure();
    names(&error, &[&at.to_string(), "choose another port"]);
    let bound = pair
        .b
        .namespace
        .in_thread(|| TcpListener::bind(at).map(drop));
    assert_eq!(bound.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    let _ = tool::client(&pair.daemon_a, "rnic-ping", at, &["--count", "2"])
        .run()
        .success();
    drop(server);
    ping(&pair, PORT);
}

#[test]
fn an_address_that_is_not_local_is_named() {
    let pair = Pair::new("not-local");
    for address in ["198.18.1.77", "2001:db8:1::77"] {
        let at = SocketAddr::new(address.parse().unwrap(), PORT).to_string();
        let server = tool::command(&pair.daemon_b, "rnic-ping", "server");
        names(
            &server.args(["--listen", &at]).run().failure(),
            &[address, "only"],
        );
    }
    ping(&pair, PORT);
}

#[test]
fn a_daemon_told_to_end_leaves_nothing_behind() {
    let pair = Pair::new("clean-end");
    let socket = pair.daemon_a.socket().to_path_buf();
    assert!(daemon::xdp_attached(&pair.a.namespace, INTERFACE));
    let _ = pair.daemon_a.stop();
    assert!(!socket.exists(), "the socket is still there");
    assert_nothing_attached(&pair.a.namespace, INTERFACE);
}
