//! The kernel's answers, asked for in namespaces of the test's own: `near` and `far`, joined by a
//! veth pair, and an interface in `near` that leads nowhere.

use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use rnic_ipc::control::RefusalCode;
use rnic_net::PathDefaults;
use rnic_steering::Mode;
use rustix::thread::LinkNameSpaceType;

use super::address::{addresses, broadcasts};
use super::interface::Interface;
use super::joined_frames;
use super::neighbour;
use super::netlink::Netlink;
use super::route::Route;
use crate::HostError;

/// Two namespaces; the calling thread is in the first one. Removed when dropped.
struct Lab {
    near: String,
    far: String,
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status()
        .unwrap();
    assert!(status.success(), "ip {arguments}");
}

impl Lab {
    /// Panics unless run as root: a test that needs a lab is never skipped.
    fn new(test: &str) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test makes network namespaces: run it as root (scripts/test does)"
        );
        let pid = std::process::id();
        let lab = Self {
            near: format!("near-{test}-{pid}"),
            far: format!("far-{test}-{pid}"),
        };
        let (near, far) = (&lab.near, &lab.far);
        ip(&format!("netns add {near}"));
        ip(&format!("netns add {far}"));
        ip(&format!(
            "-n {near} link add veth0 type veth peer name veth0 netns {far}"
        ));
        for (netns, host) in [(near, 1), (far, 2)] {
            ip(&format!("-n {netns} link set dev lo up"));
            ip(&format!("-n {netns} link set dev veth0 up"));
            ip(&format!(
                "-n {netns} address add 198.18.0.{host}/24 dev veth0"
            ));
            ip(&format!(
                "-n {netns} address add 2001:db8::{host}/64 dev veth0 nodad"
            ));
        }
        ip(&format!(
            "-n {near} link add veth1 type veth peer name veth2"
        ));
        ip(&format!("-n {near} link set dev veth1 up"));
        ip(&format!("-n {near} address add 198.19.0.1/24 dev veth1"));
        ip(&format!(
            "-n {near} route add 198.18.9.0/24 via 198.18.0.2 mtu 1280 hoplimit 7"
        ));
        ip(&format!(
            "-n {near} route add 2001:db8:9::/64 via 2001:db8::2"
        ));
        let netns = std::fs::File::open(format!("/run/netns/{near}")).unwrap();
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&netns),
            Some(LinkNameSpaceType::Network),
        )
        .unwrap();
        lab
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for netns in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "delete", netns]).status();
        }
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_interface_is_found_by_name_and_others_are_named_errors() {
    let lab = Lab::new("interface");
    let netlink = Netlink::open().unwrap();
    let interface = Interface::find(&netlink, "veth0").unwrap();
    assert_eq!(interface.defaults, PathDefaults::new(1500));
    assert_ne!(interface.mac, [0; 6]);
    assert_eq!(interface.mac[0] & 1, 0);

    match Interface::find(&netlink, "eth77").unwrap_err() {
        HostError::UnknownInterface { interface, known } => {
            assert_eq!(interface, "eth77");
            assert!(known.contains(&"veth0".to_owned()), "{known:?}");
        }
        error => panic!("{error}"),
    }
    for name in ["", "a-name-that-is-too-long-for-any-interface"] {
        let error = Interface::find(&netlink, name).unwrap_err();
        assert!(
            matches!(error, HostError::UnknownInterface { .. }),
            "{name}: {error}"
        );
    }
    let error = Interface::find(&netlink, "lo").unwrap_err();
    assert!(matches!(error, HostError::NotEthernet { .. }), "{error}");
    let error = Interface::find(&netlink, "veth2").unwrap_err();
    assert!(matches!(error, HostError::InterfaceDown { .. }), "{error}");
    drop(lab);
}

#[test]
fn interfaces_that_join_frames_before_generic_xdp_sees_them_are_named() {
    let lab = Lab::new("joined");
    let netlink = Netlink::open().unwrap();
    ip(&format!(
        "-n {} link add mac0 link veth0 type macvlan",
        lab.near
    ));
    ip(&format!("-n {} link add bridge0 type bridge", lab.near));
    ip(&format!("-n {} link set veth2 master bridge0", lab.near));
    for name in ["mac0", "bridge0"] {
        ip(&format!("-n {} link set {name} up", lab.near));
    }
    let ethtool = |arguments: &str| {
        let status = Command::new("ethtool")
            .args(arguments.split_whitespace())
            .status();
        assert!(status.unwrap().success(), "ethtool {arguments}");
    };
    let found = |name: &str, mode| {
        let interface = Interface::find(&netlink, name).unwrap();
        joined_frames::find(&netlink, &interface, mode)
    };
    for (name, set_on, set_off) in [
        // What a macvlan is of, a port of a bridge, and the other end of a veth.
        ("mac0", "-K veth0 gro on", "-K veth0 gro off"),
        ("bridge0", "-K veth2 gro on", "-K veth2 gro off"),
        ("veth1", "-K veth2 tso on", "-K veth2 tso off"),
    ] {
        ethtool(set_on);
        let lines = found(name, Mode::Generic);
        assert!(
            lines.len() == 1 && lines[0].contains(&format!("`ethtool {set_off}`")),
            "{name}: {lines:?}"
        );
        ethtool(set_off);
        assert_eq!(found(name, Mode::Generic), Vec::<String>::new(), "{name}");
    }
    // Its other end is in the other namespace. A veth's own GRO comes after XDP.
    ethtool("-K veth0 gro on");
    assert_eq!(found("veth0", Mode::Native), Vec::<String>::new());
    let lines = found("veth0", Mode::Generic);
    assert!(
        lines.len() == 1 && lines[0].contains("another network namespace"),
        "{lines:?}"
    );
    drop(lab);
}

#[test]
fn hop_limits_are_the_kernels_settings() {
    let lab = Lab::new("hops");
    let netlink = Netlink::open().unwrap();
    std::fs::write("/proc/sys/net/ipv4/ip_default_ttl", "3").unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/veth0/hop_limit", "200").unwrap();
    let interface = Interface::find(&netlink, "veth0").unwrap();
    for (destination, hop_limit) in [("198.18.0.2", 3), ("2001:db8::2", 200)] {
        let route = Route::find(&netlink, &interface, address(destination), None).unwrap();
        assert_eq!(route.hop_limit, hop_limit, "{destination}");
    }
    drop(lab);
}

#[test]
fn all_addresses_of_the_interface_and_no_others_are_found() {
    let lab = Lab::new("address");
    let netlink = Netlink::open().unwrap();
    let interface = Interface::find(&netlink, "veth0").unwrap();
    let found = addresses(&netlink, interface.index).unwrap();
    assert!(found.contains(&address("198.18.0.1")), "{found:?}");
    assert!(found.contains(&address("2001:db8::1")), "{found:?}");
    assert!(!found.contains(&address("198.19.0.1")), "{found:?}");
    drop(lab);
}

/// The kernel takes the last address of each subnet for a broadcast address, whoever added it.
#[test]
fn the_broadcast_addresses_of_all_subnets_are_found() {
    let lab = Lab::new("broadcast");
    let netlink = Netlink::open().unwrap();
    let interface = Interface::find(&netlink, "veth0").unwrap();
    ip("addr add 198.18.40.1/22 dev veth0");
    ip("addr add 198.18.50.1/24 brd 198.18.50.77 dev veth0");
    ip("addr add 198.18.60.1/31 dev veth0");
    let found = broadcasts(&netlink, interface.index).unwrap();
    for each in ["198.18.43.255", "198.18.50.77", "198.18.50.255"] {
        assert!(found.contains(&each.parse().unwrap()), "{each}: {found:?}");
    }
    assert!(
        !found.contains(&"198.18.60.1".parse().unwrap()),
        "{found:?}"
    );
    drop(lab);
}

#[test]
fn the_socket_stays_in_the_namespace_it_was_opened_in() {
    let home = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
    let lab = Lab::new("stay");
    let netlink = Netlink::open().unwrap();
    rustix::thread::move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&home),
        Some(LinkNameSpaceType::Network),
    )
    .unwrap();
    assert!(Interface::find(&netlink, "veth0").is_ok());
    drop(lab);
}

#[test]
fn routes_on_the_link_and_through_a_gateway_are_found() {
    let lab = Lab::new("route");
    let netlink = Netlink::open().unwrap();
    let interface = Interface::find(&netlink, "veth0").unwrap();
    let find = |destination: &str, source: Option<&str>| {
        Route::find(
            &netlink,
            &interface,
            address(destination),
            source.map(address),
        )
        .unwrap()
    };
    let on_link = Route {
        next_hop: address("198.18.0.2"),
        source: address("198.18.0.1"),
        mtu: 1500,
        hop_limit: 64,
    };
    assert_eq!(find("198.18.0.2", None), on_link);
    assert_eq!(find("198.18.0.2", Some("198.18.0.1")), on_link);
    let gateway = find("198.18.9.9", None);
    assert_eq!(
        (gateway.next_hop, gateway.mtu, gateway.hop_limit),
        (address("198.18.0.2"), 1280, 7)
    );
    let on_link = find("2001:db8::2", None);
    assert_eq!(on_link.next_hop, address("2001:db8::2"));
    assert_eq!(on_link.source, address("2001:db8::1"));
    assert_eq!(find("2001:db8:9::9", None).next_hop, address("2001:db8::2"));
    drop(lab);
}

#[test]
fn no_route_over_our_interface_is_unreachable() {
    let lab = Lab::new("noroute");
    let netlink = Netlink::open().unwrap();
    let interface = Interface::find(&netlink, "veth0").unwrap();
    for (destination, found) in [
        ("198.19.0.2", "another interface"),
        ("198.51.100.1", "no route"),
        ("2001:db8:ffff::1", "no route"),
        ("198.18.0.1", "own"),
        ("198.18.0.255", "broadcast"),
    ] {
        let refusal = Route::find(&netlink, &interface, address(destination), None).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Unreachable, "{found}: {refusal}");
        assert!(refusal.message.contains(destination), "{refusal}");
    }
    drop(lab);
}

#[test]
fn an_unknown_neighbour_is_looked_for_and_found() {
    let lab = Lab::new("neighbour");
    let netlink = Netlink::open().unwrap();
    let interface = Interface::find(&netlink, "veth0").unwrap();
    let show = Command::new("ip")
        .args(["-n", &lab.far, "-brief", "link", "show", "dev", "veth0"])
        .output()
        .unwrap();
    let text = String::from_utf8(show.stdout).unwrap();
    let patience = Duration::from_secs(30);
    for peer in ["198.18.0.2", "2001:db8::2"] {
        for _ in 0..2 {
            let mac =
                neighbour::resolve(&netlink, &interface, address(peer), Some(patience)).unwrap();
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            assert!(text.contains(&mac), "{peer} is at {mac}, but {text}");
        }
    }
    drop(lab);
}

#[test]
fn a_neighbour_set_by_hand_is_used() {
    let lab = Lab::new("permanent");
    ip(&format!(
        "-n {} neighbour add 198.18.0.7 lladdr 02:00:00:00:00:07 dev veth0 nud permanent",
        lab.near
    ));
    let netlink = Netlink::open().unwrap();
    let interface = Interface::find(&netlink, "veth0").unwrap();
    let mac = neighbour::resolve(
        &netlink,
        &interface,
        address("198.18.0.7"),
        Some(Duration::ZERO),
    )
    .unwrap();
    assert_eq!(mac, [2, 0, 0, 0, 0, 7]);
    drop(lab);
}

#[test]
fn a_silent_neighbour_is_unreachable_in_time() {
    let lab = Lab::new("silent");
    let netlink = Netlink::open().unwrap();
    let interface = Interface::find(&netlink, "veth0").unwrap();
    for peer in ["198.18.0.77", "2001:db8::77"] {
        let begin = Instant::now();
        let patience = Duration::from_millis(200);
        let refusal =
            neighbour::resolve(&netlink, &interface, address(peer), Some(patience)).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Unreachable);
        assert!(refusal.message.contains(peer), "{refusal}");
        // The kernel gives up by itself after three seconds, and then the message is another.
        assert!(refusal.message.contains("in 200 ms"), "{refusal}");
        assert!(begin.elapsed() >= patience);
    }
    drop(lab);
}
