//! VLANs (IEEE 802.1Q) that the daemon was given: connections go out with the tag, and what comes by
//! another VLAN is nobody's. (A responder that was told nothing answers with the tag that it was asked
//! with: `transfers.rs`.)

use std::time::Duration;

use rnic::{ConnectOptions, Error, ListenOptions};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Cable, Family, Host, INTERFACE, Lab, LinkOptions};
use rnic_tests::verbs::Endpoint;
use rnic_tests::{tool, tshark, wait};

const PORT: u16 = 18540;
const VLAN: u16 = 7;

/// A daemon whose file says this of a VLAN of its interface.
fn daemon(lab: &Lab, host: &Host, vlan: &str) -> Daemon {
    daemon_in(lab, host, vlan, None)
}

/// The same in this mode, if one is given.
fn daemon_in(lab: &Lab, host: &Host, vlan: &str, mode: Option<&'static str>) -> Daemon {
    let name = host.namespace.name();
    let config = lab.directory().join(format!("{name}.toml"));
    let text = format!("[[interface]]\nname = \"{INTERFACE}\"\n[[interface.vlan]]\n{vlan}\n");
    std::fs::write(&config, text).expect("a file in the lab's directory");
    let options = DaemonOptions {
        capture: true,
        mode,
        arguments: vec!["--config".to_owned(), config.display().to_string()],
        ..DaemonOptions::default()
    };
    Daemon::start(lab, host, &options)
}

/// All addresses of a host are on this VLAN.
fn all_of(host: &Host, id: u16) -> String {
    format!(
        "id = {id}\naddresses = [\"{}/24\", \"{}/64\"]",
        host.v4, host.v6
    )
}

/// Moves and verifies bytes by a connection that `from` begins.
#[track_caller]
fn moves(from: &Daemon, to: (&Daemon, std::net::SocketAddr)) {
    let (server, at) = to;
    let _server = tool::server(server, "rnic-perf", at, &[]);
    let arguments = "--op write --size 100000 --depth 4 --iterations 20 --verify";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let client = tool::client(from, "rnic-perf", at, &arguments).spawn();
    let _ = client.finish(Duration::from_secs(60)).success();
}

/// The tags of all frames that a daemon's capture has, after its end.
#[track_caller]
fn tags(daemon: Daemon) -> Vec<String> {
    let capture = daemon.capture().to_path_buf();
    let _ = daemon.stop();
    let mut tags = tshark::field(&capture, "vlan.id");
    assert!(tags.len() > 100, "only {} frames were captured", tags.len());
    tags.sort();
    tags.dedup();
    tags
}

#[test]
fn connections_that_begin_on_a_trunk_port_reach_an_access_port_of_the_vlan() {
    let mut lab = Lab::new("vlan-trunk");
    let link = LinkOptions {
        cable: Some(Cable::Tagged(VLAN)),
        ..LinkOptions::default()
    };
    let (access, trunk) = lab.pair(&link);
    // The kernel of the host on the trunk port is not on the VLAN.
    access.knows(&trunk);
    trunk.knows(&access);
    let on_access = Daemon::start(
        &lab,
        &access,
        &DaemonOptions {
            capture: true,
            ..DaemonOptions::default()
        },
    );
    let on_trunk = daemon(&lab, &trunk, &all_of(&trunk, VLAN));
    for family in Family::ALL {
        moves(&on_trunk, (&on_access, access.address(family, PORT)));
        moves(&on_access, (&on_trunk, trunk.address(family, PORT)));
    }
    assert_eq!(tags(on_trunk), [VLAN.to_string()]);
    assert_eq!(tags(on_access), [""]);
}

#[test]
fn both_ends_keep_to_their_vlan_also_when_the_path_changes() {
    let mut lab = Lab::new("vlan-both");
    let (a, b) = lab.pair(&LinkOptions::default());
    let [on_a, on_b] = [&a, &b].map(|host| daemon(&lab, host, &all_of(host, VLAN)));
    for family in Family::ALL {
        moves(&on_a, (&on_b, b.address(family, PORT)));
        moves(&on_b, (&on_a, a.address(family, PORT)));
    }
    let at = b.address(Family::V4, PORT + 1);
    let _server = tool::server(&on_b, "rnic-perf", at, &[]);
    let mut client = tool::client(&on_a, "rnic-perf", at, &["--duration", "600"]).spawn();
    std::thread::sleep(Duration::from_secs(1));
    let narrow = ["link", "set", "dev", INTERFACE, "mtu", "1300"];
    a.namespace.ip(&narrow);
    wait::until("the connection moves", Duration::from_secs(30), || {
        assert!(client.running(), "{}", client.stderr());
        (on_a.counter("path_moves") > 0).then_some(())
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(client.running(), "{}", client.stderr());
    drop(client);
    for daemon in [on_a, on_b] {
        assert_eq!(daemon.counter("rx_wrong_vlan"), 0);
        assert_eq!(tags(daemon), [VLAN.to_string()]);
    }
}

#[test]
fn super_packets_keep_their_tag() {
    let mut lab = Lab::new("vlan-super");
    let link = LinkOptions {
        offloads: true,
        ..LinkOptions::default()
    };
    let (a, b) = lab.pair(&link);
    let start = |host| daemon_in(&lab, host, &all_of(host, VLAN), Some("super-packets"));
    let [on_a, on_b] = [&a, &b].map(start);
    for family in Family::ALL {
        moves(&on_a, (&on_b, b.address(family, PORT)));
        moves(&on_b, (&on_a, a.address(family, PORT)));
    }
    for daemon in [on_a, on_b] {
        assert!(daemon.counter("port0_super_packets_sent") > 0);
        assert!(daemon.counter("port0_chains_received") > 0);
        assert_eq!(daemon.counter("rx_wrong_vlan"), 0);
        assert_eq!(daemon.counter("rx_bad_tcp_checksum"), 0);
        assert_eq!(tags(daemon), [VLAN.to_string()]);
    }
}

#[test]
fn what_comes_by_another_vlan_is_nobodys() {
    let mut lab = Lab::new("vlan-other");
    let (a, b) = lab.pair(&LinkOptions::default());
    let on_a = daemon(&lab, &a, &all_of(&a, VLAN + 1));
    let on_b = daemon(&lab, &b, &all_of(&b, VLAN));
    let [near, far] = [&on_a, &on_b].map(|daemon| Endpoint::new(daemon, 4096));
    let at = b.address(Family::V4, PORT);
    let listener = far
        .context
        .listen(at, ListenOptions::default().backlog(4))
        .expect("a free address");
    let options = ConnectOptions::default();
    let connected = near.qp.connect(at, options).wait(Duration::from_secs(2));
    assert!(
        matches!(connected, Err(Error::Timeout { .. })),
        "{connected:?}"
    );
    let asked = listener.accept().wait(Duration::ZERO);
    assert!(asked.is_err(), "a request came through");
    assert!(on_b.counter("rx_wrong_vlan") > 0);
}

/// The kernel has its own interface for the VLAN, with other addresses and routes. Here another veth
/// pair stands in for it, as the kernel of the lab may be built without VLANs.
#[test]
fn the_kernels_interface_of_a_vlan_says_which_way_its_frames_go() {
    const LAN: &str = "lan7";
    let mut lab = Lab::new("vlan-kernel");
    let (a, b) = lab.pair(&LinkOptions::default());
    let far = ["peer", "name", LAN, "netns", b.namespace.name()];
    let near = ["link", "add", LAN, "type", "veth"];
    a.namespace.ip(&[&near[..], &far].concat());
    for (host, address) in [(&a, "198.18.77.1/24"), (&b, "198.18.77.2/24")] {
        // A VLAN's interface has the Ethernet address of the one that it is on.
        let set = ["link", "set", "dev", LAN, "address", &host.mac(), "up"];
        host.namespace.ip(&set);
        host.namespace.ip(&["addr", "add", address, "dev", LAN]);
    }
    let vlan = format!("id = {VLAN}\ninterface = \"{LAN}\"");
    let [on_a, on_b] = [&a, &b].map(|host| daemon(&lab, host, &vlan));
    let tagged = |host| std::net::SocketAddr::from(([198, 18, 77, host], PORT));
    moves(&on_a, (&on_b, tagged(2)));
    moves(&on_b, (&on_a, tagged(1)));
    // The interface's own network is as ever.
    moves(&on_a, (&on_b, b.address(Family::V4, PORT)));
    assert_eq!(tags(on_a), ["".to_owned(), VLAN.to_string()]);
    assert_eq!(tags(on_b), ["".to_owned(), VLAN.to_string()]);
}
