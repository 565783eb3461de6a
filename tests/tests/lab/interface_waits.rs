//! Interfaces that are not ready when the daemon starts, and that come back after they were taken away.

use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, FORKS, Family, INTERFACE, Lab, LinkOptions, Namespace};
use rnic_tests::{binary, tool, wait};
use serde_json::Value;

const PORT: u16 = 18515;
const LIMIT: Duration = Duration::from_secs(30);

fn rnicctl(daemon: &Daemon, words: &[&str]) -> Command {
    let rnicctl = daemon.namespace().command(binary::path("rnicctl"));
    rnicctl.arg("--socket").arg(daemon.socket()).args(words)
}

/// The state of an interface as `rnicctl devices` has it: why it is waited for, or nothing when it is open.
fn waits(daemon: &Daemon, interface: &str) -> Option<String> {
    let told = rnicctl(daemon, &["devices", "--json"]).run().success();
    let all: Value = serde_json::from_str(&told.stdout).expect("JSON");
    let all = all.as_array().expect("a list");
    let one = all.iter().find(|one| one["interface"] == interface);
    let one = one.unwrap_or_else(|| panic!("no {interface} in {told:?}"));
    one["waits"].as_str().map(str::to_owned)
}

fn opened(daemon: &Daemon, interface: &str) {
    wait::until("the interface is open", LIMIT, || {
        waits(daemon, interface).is_none().then_some(())
    });
}

/// A veth pair between two namespaces, with addresses of the network `number`.
fn cable(ends: [(&Namespace, &str); 2], number: u8, mtu: u16) {
    let [(near, a), (far, b)] = ends;
    let (far_name, mtu) = (far.name(), mtu.to_string());
    near.ip(&[
        "link", "add", a, "mtu", &mtu, "type", "veth", "peer", "name", b, "mtu", &mtu, "netns",
        far_name,
    ]);
    for (host, (namespace, name)) in ends.into_iter().enumerate() {
        let address = format!("198.18.{number}.{}/24", host + 1);
        namespace.ip(&["address", "add", &address, "dev", name]);
        namespace.ip(&["link", "set", "dev", name, "up"]);
    }
}

#[test]
fn a_daemon_serves_before_its_interface_is_there_and_opens_it_when_it_is_ready() {
    let mut lab = Lab::new("interface-waits");
    let [near, far] = ["near", "far"].map(|role| lab.namespace(role));
    let serve = |namespace: &Namespace, name: &str| {
        let socket = lab.directory().join(format!("{name}.sock"));
        Daemon::serve(namespace, name, &socket, &DaemonOptions::default())
    };
    let daemon = serve(&near, "late0");
    let ping = || {
        tool::client(
            &daemon,
            "rnic-ping",
            "198.18.77.2:18515".parse().expect("an address"),
            &[],
        )
        .args(["--count", "2"])
        .run()
    };
    let reason = waits(&daemon, "late0").expect("it is waited for");
    assert!(reason.contains("no such interface"), "{reason}");
    let told = rnicctl(&daemon, &["devices"]).run().success().stdout;
    assert!(told.contains("waits        interface late0"), "{told}");
    for refused in [
        ping().failure(),
        rnicctl(&daemon, &["device"]).run().failure(),
        rnicctl(&daemon, &["device", "--device", "late0"])
            .run()
            .failure(),
    ] {
        assert!(refused.contains("waits for interface late0"), "{refused}");
    }

    near.ip(&[
        "link",
        "add",
        "late0",
        "type",
        "veth",
        "peer",
        "name",
        "other0",
        "netns",
        far.name(),
    ]);
    let reason = |words: &str| {
        wait::until(words, LIMIT, || {
            waits(&daemon, "late0").filter(|why| why.contains(words))
        });
    };
    reason("is down");
    near.ip(&["link", "set", "dev", "late0", "addrgenmode", "none", "up"]);
    reason("no IPv4 or IPv6 address");
    near.ip(&["address", "add", "198.18.77.1/24", "dev", "late0"]);
    opened(&daemon, "late0");
    far.ip(&["address", "add", "198.18.77.2/24", "dev", "other0"]);
    far.ip(&["link", "set", "dev", "other0", "up"]);
    let peer = serve(&far, "other0");
    let at = "198.18.77.2:18515".parse().expect("an address");
    let _server = tool::server(&peer, "rnic-ping", at, &[]);
    let _ = ping().success();
    let log = daemon.log();
    assert_eq!(
        log.matches("waiting for interface late0").count(),
        3,
        "{log}"
    );
    let _ = daemon.stop();
}

#[test]
fn an_interface_that_is_deleted_and_comes_back_is_opened_again_and_others_go_on() {
    let mut lab = Lab::new("interface-flaps");
    let [(near, far), (_, steady)] = lab.forked(&LinkOptions::default());
    let options = DaemonOptions {
        arguments: vec!["--interface".to_owned(), FORKS[1].to_owned()],
        ..DaemonOptions::default()
    };
    let socket = lab.directory().join("fork.sock");
    let daemon = Daemon::serve(&near.namespace, FORKS[0], &socket, &options);
    let peer = Daemon::start(&lab, &steady, &DaemonOptions::default());
    let at = steady.address(Family::V4, PORT);
    let _server = tool::server(&peer, "rnic-perf", at, &[]);
    let client = tool::client(
        &daemon,
        "rnic-perf",
        at,
        &["--duration", "3600", "--verify"],
    );
    let mut client = client.spawn();
    std::thread::sleep(Duration::from_secs(1));
    let threads = daemon.threads();

    let far = &far.namespace;
    let mut held = Vec::new();
    for round in 0..5_u8 {
        let device = rnic::DeviceName::Interface(FORKS[0].to_owned());
        held.push(
            rnic::Daemon::at(&socket)
                .and_then(|it| it.open(Some(&device)))
                .expect("it is open"),
        );
        near.namespace.ip(&["link", "set", "dev", FORKS[0], "down"]);
        near.namespace.ip(&["link", "set", "dev", FORKS[0], "up"]);
        near.namespace.ip(&["link", "delete", "dev", FORKS[0]]);
        let mtu = if round % 2 == 0 { 9000 } else { 1500 };
        cable([(&near.namespace, FORKS[0]), (far, INTERFACE)], 90, mtu);
        let again = format!("interface {} is closed", FORKS[0]);
        wait::until("the old device is closed", LIMIT, || {
            (daemon.log().matches(&again).count() > usize::from(round)).then_some(())
        });
        opened(&daemon, FORKS[0]);
        let now = rnic::Daemon::at(&socket)
            .and_then(|it| it.open(Some(&device)))
            .expect("it is open again");
        assert_eq!(now.device_info().expect("it answers").mtu, u32::from(mtu));
        let refused = held[usize::from(round)].device_info().map(|_| ());
        let refused = refused.expect_err("its device is closed").to_string();
        assert!(
            refused.contains("is opened again: open the device again"),
            "{refused}"
        );
        assert!(client.running(), "{}", client.stderr());
    }
    drop(held);
    let socket = lab.directory().join("far.sock");
    let peer = Daemon::serve(far, INTERFACE, &socket, &DaemonOptions::default());
    let at = "198.18.90.2:18516".parse().expect("an address");
    let _back = tool::server(&peer, "rnic-ping", at, &[]);
    let _ = tool::client(&daemon, "rnic-ping", at, &["--count", "2"])
        .run()
        .success();
    let before = client.stderr();
    wait::until("the other interface's connection goes on", LIMIT, || {
        (client.stderr() != before).then_some(())
    });
    assert!(client.running(), "{}", client.stderr());
    let _ = client.terminate();
    wait::until("no thread is left over", LIMIT, || {
        (daemon.threads() <= threads).then_some(())
    });
    let _ = daemon.stop();
}
