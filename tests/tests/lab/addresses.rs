//! How people name where to listen and whom to connect to: names, the default port, all addresses, scopes.

use std::net::IpAddr;

use rnic_tests::daemon::Daemon;
use rnic_tests::lab::{Command, Family, INTERFACE, Namespace, Process};
use rnic_tests::pair::Pair;
use rnic_tests::{binary, tool, wait};

/// The server of `b`, with words of its own.
fn server(pair: &Pair, words: &[&str]) -> Process {
    let command = tool::command(&pair.daemon_b, "rnic-ping", "server");
    let mut process = command.args(["--persistent"]).args(words).spawn();
    let listens = process.says("listening", tool::LISTEN_LIMIT);
    listens.unwrap_or_else(|error| panic!("{error}"));
    process
}

fn client(pair: &Pair, words: &[&str]) -> Command {
    tool::command(&pair.daemon_a, "rnic-ping", "client")
        .args(["--count", "1"])
        .args(words)
}

#[track_caller]
fn pings(pair: &Pair, words: &[&str]) {
    let done = client(pair, words).run().success();
    assert!(done.stdout.contains("1 rounds"), "{words:?}: {done}");
}

/// The addresses whose duplicate address detection is not done, as `ip` tells them.
fn tentative(namespace: &Namespace) -> String {
    namespace.ip(&["-6", "address", "show", "dev", INTERFACE, "tentative"])
}

fn wait_for_detection(namespace: &Namespace) {
    wait::until("no address is tentative", tool::LISTEN_LIMIT, || {
        tentative(namespace).is_empty().then_some(())
    });
}

fn link_local(daemon: &Daemon) -> IpAddr {
    wait_for_detection(daemon.namespace());
    let context = daemon.open();
    let info = context
        .device_info()
        .expect("the daemon tells its addresses");
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    };
    let found = info.addresses.into_iter().find(is_link_local);
    found.expect("the kernel gives each interface a link-local address")
}

#[test]
fn a_server_that_is_told_nothing_listens_on_all_addresses_at_the_default_port() {
    let pair = Pair::new("wildcard");
    let server = server(&pair, &[]);
    for family in [Family::V4, Family::V6] {
        let address = pair.b.address(family, 0).ip().to_string();
        assert!(server.stdout().contains(&address), "{}", server.stdout());
        pings(&pair, &[&address]);
        pings(&pair, &["--connect", &address]);
    }
    pings(&pair, &[&pair.b.address(Family::V6, 18515).to_string()]);
}

#[test]
fn a_wildcard_of_ipv4_has_no_address_of_ipv6() {
    let pair = Pair::new("wildcard-v4");
    let _server = server(&pair, &["--listen", "0.0.0.0:7471"]);
    pings(&pair, &[&pair.b.address(Family::V4, 7471).to_string()]);
    let v6 = pair.b.address(Family::V6, 7471).to_string();
    let refused = client(&pair, &[&v6]).run().failure();
    assert!(refused.contains("the connection failed"), "{refused}");
}

#[test]
fn a_host_is_reached_by_its_name_at_the_address_that_works() {
    let pair = Pair::new("names");
    let _server = server(&pair, &["--listen", ":7471"]);
    let hosts = pair.lab.directory().join("hosts");
    let good = pair.b.address(Family::V4, 0).ip();
    // The first has no route, the second is nobody's.
    let lines = format!("2001:db8:ffff::9 peer\n198.18.0.99 peer\n{good} peer\n");
    std::fs::write(&hosts, lines).expect("the directory is ours");
    // What `ip netns exec` starts has mounts of its own.
    let ping = |name: &str| {
        let shell = pair.a.namespace.command("sh").label("ping-by-name");
        let line = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        shell
            .args(["-c", line])
            .arg(&hosts)
            .arg(binary::path("rnic-ping"))
            .args(["client", name, "--count", "1", "--socket"])
            .arg(pair.daemon_a.socket())
    };
    let done = ping("peer:7471").run().success();
    assert!(done.stdout.contains("1 rounds"), "{done}");
    let unknown = ping("rnic.invalid:7471").run();
    assert_eq!(unknown.status.code(), Some(2), "{unknown}");
    let told = "the name rnic.invalid does not resolve";
    assert!(unknown.stderr.contains(told), "{unknown}");
}

#[test]
fn a_link_local_address_has_its_interface_as_scope() {
    let pair = Pair::new("scope");
    let at = link_local(&pair.daemon_b);
    let _ = link_local(&pair.daemon_a);
    let scoped = format!("[{at}%{INTERFACE}]");
    let _server = server(&pair, &["--listen", &scoped]);
    pings(&pair, &[&scoped]);
    pings(&pair, &[&format!("{scoped}:18515")]);
    // The device of the only interface leads there; another's does not exist.
    let other = client(&pair, &[&format!("[{at}%lo]")]).run().failure();
    assert!(other.contains(INTERFACE), "{other}");
}

#[test]
fn a_listener_has_an_address_before_duplicate_address_detection_is_done() {
    let pair = Pair::new("tentative");
    let host = &pair.b.namespace;
    // A second for each: long enough for a server to listen on a busy machine.
    host.sysctl(&format!("net.ipv6.conf.{INTERFACE}.dad_transmits"), "10");
    for (address, listen) in [
        ("2001:db8:1::98", "[::]:7471"),
        ("2001:db8:1::99", "[2001:db8:1::99]:7472"),
    ] {
        let _ = host.ip(&["address", "add", &format!("{address}/64"), "dev", INTERFACE]);
        let server = server(&pair, &["--listen", listen]);
        let stderr = server.stderr();
        assert!(!stderr.contains("not listening"), "{stderr}");
        assert!(
            tentative(host).contains(address),
            "detection was done first"
        );
        wait_for_detection(host);
        let port = listen.rsplit(':').next().expect("a port");
        pings(&pair, &[&format!("[{address}]:{port}")]);
    }
}
