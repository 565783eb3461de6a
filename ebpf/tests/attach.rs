//! Attaching to real interfaces: modes, refusals, what is left behind, what the kernel still gets.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{LEFT, LEFT_V4, RIGHT, RIGHT_V4, RIGHT_V6, VethPair, enter, without_privilege};
use rnic_steering::{
    Feature, FeatureState, Features, Mode, ModePreference, Protocol, Steering, SteeringConfig,
    SteeringError, Tap, number_of_rx_queues,
};

const PORT: u16 = 7471;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Names the namespace for [`the_process_that_is_killed`].
const CHILD_NAMESPACE: &str = "RNIC_STEERING_TEST_NAMESPACE";

fn has_xdp(link: &str) -> bool {
    link.contains("xdp")
}

fn counter(steering: &Steering, name: &str) -> u64 {
    let counters = steering.counters();
    let found = counters.iter().find(|(of, _)| *of == name);
    found
        .unwrap_or_else(|| panic!("no counter {name} in {counters:?}"))
        .1
}

#[test]
fn a_veth_gets_native_mode_and_nothing_is_left_when_steering_is_dropped() {
    let pair = VethPair::new(1, 1);
    pair.enter_right();
    let steering = Steering::attach(
        RIGHT,
        ModePreference::NativeThenGeneric,
        &SteeringConfig::UNLIMITED,
    )
    .unwrap();
    assert_eq!(steering.mode(), Mode::Native);
    let link = pair.ip_right(&["link", "show", "dev", RIGHT]);
    assert!(has_xdp(&link) && !link.contains("xdpgeneric"), "{link}");
    drop(steering);
    let link = pair.ip_right(&["link", "show", "dev", RIGHT]);
    assert!(!has_xdp(&link), "{link}");
}

#[test]
fn features_are_what_ethtool_sets() {
    let pair = VethPair::new(1, 1);
    pair.enter_right();
    for (feature, set) in [
        (Feature::Gro, FeatureState::On),
        (Feature::Gro, FeatureState::Off),
        (Feature::Tso, FeatureState::Off),
        (Feature::Tso6, FeatureState::Off),
        (Feature::Tso, FeatureState::On),
        (Feature::Tso6, FeatureState::On),
    ] {
        let value = if set == FeatureState::On { "on" } else { "off" };
        let status = Command::new("ethtool")
            .args(["-K", RIGHT, feature.option(), value])
            .status();
        assert!(status.unwrap().success(), "{feature:?} {value}");
        assert_eq!(
            Features::of(RIGHT).unwrap().state(feature),
            set,
            "{feature:?}"
        );
    }
    // A veth joins nothing by itself.
    let features = Features::of(RIGHT).unwrap();
    assert_eq!(features.state(Feature::Lro), FeatureState::Off);
    assert_eq!(features.state(Feature::GroHw), FeatureState::Off);
    let error = Features::of("absent0").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
}

#[test]
fn a_large_mtu_does_not_keep_a_veth_from_native_mode() {
    let pair = VethPair::new(1, 1);
    pair.ip_left(&["link", "set", "dev", LEFT, "mtu", "9000"]);
    pair.ip_right(&["link", "set", "dev", RIGHT, "mtu", "9000"]);
    pair.enter_right();
    let steering = Steering::attach(
        RIGHT,
        ModePreference::NativeOnly,
        &SteeringConfig::UNLIMITED,
    )
    .unwrap();
    assert_eq!(steering.mode(), Mode::Native);
}

#[test]
fn generic_mode_is_taken_when_asked_for() {
    let pair = VethPair::new(1, 1);
    pair.enter_right();
    let steering = Steering::attach(
        RIGHT,
        ModePreference::GenericOnly,
        &SteeringConfig::UNLIMITED,
    )
    .unwrap();
    assert_eq!(steering.mode(), Mode::Generic);
    let link = pair.ip_right(&["link", "show", "dev", RIGHT]);
    assert!(link.contains("xdpgeneric"), "{link}");
}

#[test]
fn generic_mode_is_taken_when_the_driver_has_no_xdp() {
    let pair = VethPair::new(1, 1);
    pair.enter_right();
    let error =
        Steering::attach("lo", ModePreference::NativeOnly, &SteeringConfig::UNLIMITED).unwrap_err();
    assert!(matches!(error, SteeringError::NoXdp { .. }), "{error}");
    let steering = Steering::attach(
        "lo",
        ModePreference::NativeThenGeneric,
        &SteeringConfig::UNLIMITED,
    )
    .unwrap();
    assert_eq!(steering.mode(), Mode::Generic);
}

#[test]
fn generic_mode_is_taken_when_the_peer_has_more_queues() {
    let pair = VethPair::new(2, 1);
    pair.enter_right();
    let error = Steering::attach(
        RIGHT,
        ModePreference::NativeOnly,
        &SteeringConfig::UNLIMITED,
    )
    .unwrap_err();
    assert!(
        matches!(error, SteeringError::TooFewQueues { .. }),
        "{error}"
    );
    let steering = Steering::attach(
        RIGHT,
        ModePreference::NativeThenGeneric,
        &SteeringConfig::UNLIMITED,
    )
    .unwrap();
    assert_eq!(steering.mode(), Mode::Generic);
}

#[test]
fn an_unknown_interface_is_named() {
    let pair = VethPair::new(1, 1);
    pair.enter_right();
    for name in ["nosuch0", LEFT, "", "a-name-longer-than-any-interface"] {
        let error = Steering::attach(
            name,
            ModePreference::NativeThenGeneric,
            &SteeringConfig::UNLIMITED,
        )
        .unwrap_err();
        assert!(
            matches!(&error, SteeringError::UnknownInterface { interface } if interface == name),
            "{error}"
        );
        assert!(number_of_rx_queues(name).is_err(), "{name}");
    }
}

#[test]
fn another_program_is_not_replaced() {
    let pair = VethPair::new(1, 1);
    pair.enter_right();
    for first in [ModePreference::NativeOnly, ModePreference::GenericOnly] {
        let _other = Steering::attach(RIGHT, first, &SteeringConfig::UNLIMITED).unwrap();
        for second in [
            ModePreference::NativeThenGeneric,
            ModePreference::GenericOnly,
        ] {
            let error = Steering::attach(RIGHT, second, &SteeringConfig::UNLIMITED).unwrap_err();
            assert!(
                matches!(error, SteeringError::Occupied { .. }),
                "{first:?}: {error}"
            );
        }
    }
}

#[test]
fn missing_privilege_is_named() {
    let pair = VethPair::new(1, 1);
    pair.enter_right();
    let error = without_privilege(|| {
        Steering::attach(
            RIGHT,
            ModePreference::NativeThenGeneric,
            &SteeringConfig::UNLIMITED,
        )
        .unwrap_err()
    });
    assert!(
        matches!(error, SteeringError::NoPrivilege { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("CAP_BPF"), "{error}");
}

#[test]
fn queues_are_counted_in_the_namespace_of_the_thread() {
    let pair = VethPair::new(3, 2);
    pair.enter_left();
    assert_eq!(number_of_rx_queues(LEFT).unwrap(), 3);
    pair.enter_right();
    assert_eq!(number_of_rx_queues(RIGHT).unwrap(), 2);
    assert_eq!(number_of_rx_queues("lo").unwrap(), 1);
}

/// Started by [`a_killed_process_leaves_nothing_attached`], not a test of its own.
#[test]
#[ignore = "the child of another test"]
fn the_process_that_is_killed() {
    let Ok(namespace) = std::env::var(CHILD_NAMESPACE) else {
        return;
    };
    enter(&namespace);
    let _steering = Steering::attach(
        RIGHT,
        ModePreference::NativeThenGeneric,
        &SteeringConfig::UNLIMITED,
    )
    .unwrap();
    println!("attached");
    // Until the parent ends or kills this.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_killed_process_leaves_nothing_attached() {
    let pair = VethPair::new(1, 1);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_process_that_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD_NAMESPACE, pair.right())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let attached = output
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains("attached"));
    let during = pair.ip_right(&["link", "show", "dev", RIGHT]);
    child.kill().unwrap();
    child.wait().unwrap();
    let after = pair.ip_right(&["link", "show", "dev", RIGHT]);
    assert!(attached && has_xdp(&during), "{during}");
    assert!(!has_xdp(&after), "{after}");
}

/// The host's own traffic works untouched beside a claim, over both families.
#[test]
fn unclaimed_traffic_reaches_the_kernel() {
    for preference in [ModePreference::NativeOnly, ModePreference::GenericOnly] {
        let pair = VethPair::new(1, 1);
        for right in [RIGHT_V4, RIGHT_V6] {
            let right: IpAddr = right.parse().unwrap();
            pair.enter_right();
            let mut steering =
                Steering::attach(RIGHT, preference, &SteeringConfig::UNLIMITED).unwrap();
            steering.claim(Protocol::Tcp, right, PORT).unwrap();
            let listener = TcpListener::bind((right, PORT + 1)).unwrap();
            let udp = UdpSocket::bind((right, PORT)).unwrap();
            udp.set_read_timeout(Some(PATIENCE)).unwrap();

            pair.enter_left();
            let mut client =
                TcpStream::connect_timeout(&(right, PORT + 1).into(), PATIENCE).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            let sent: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
            let mut received = vec![0; sent.len()];
            std::thread::scope(|scope| {
                scope.spawn(|| client.write_all(&sent).unwrap());
                server.read_exact(&mut received).unwrap();
            });
            assert_eq!(sent, received);

            let any: IpAddr = match right {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            };
            let sender = UdpSocket::bind((any, 0)).unwrap();
            sender.send_to(b"datagram", (right, PORT)).unwrap();
            let mut datagram = [0; 16];
            assert_eq!(udp.recv(&mut datagram).unwrap(), 8);

            // A claimed port without a socket on the queue: the kernel answers.
            let refused = TcpStream::connect_timeout(&(right, PORT).into(), PATIENCE).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            assert_eq!(counter(&steering, "redirected"), 0);
            assert!(counter(&steering, "pass_no_socket") >= 1);
            // Few, when the kernel sends its segments unsplit: SYN, ACK, and the data.
            assert!(
                counter(&steering, "pass_not_claimed") >= 4,
                "{:?}",
                steering.counters()
            );
            assert!(counter(&steering, "pass_other_protocol") >= 1);
            assert_eq!(counter(&steering, "pass_malformed"), 0);
        }
    }
}

#[test]
fn a_tap_leaves_the_kernel_nothing_and_goes_when_dropped() {
    let pair = VethPair::new(1, 1);
    pair.enter_right();
    let to = UdpSocket::bind((RIGHT_V4, PORT)).unwrap();
    pair.enter_left();
    let from = UdpSocket::bind((LEFT_V4, 0)).unwrap();
    let heard = |within| {
        from.send_to(b"heard?", (RIGHT_V4, PORT)).unwrap();
        to.set_read_timeout(Some(within)).unwrap();
        to.recv(&mut [0; 16]).is_ok()
    };
    assert!(heard(PATIENCE));
    pair.enter_right();
    let tap = Tap::attach(RIGHT, ModePreference::NativeOnly).unwrap();
    assert!(!heard(Duration::from_millis(200)));
    let counters = tap.counters();
    assert_eq!(counters[0], ("redirected", 0));
    assert!(counters[1].0 == "no_socket" && counters[1].1 > 0);
    drop(tap);
    assert!(heard(PATIENCE));
}
