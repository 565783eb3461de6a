use super::*;
use rnic_device::{
    CongestionControl, Cores, FloodLimits, HostIpsec, Polling, Rate, SctpUdp, ShardCount, XdpMode,
};

fn given() -> Given {
    Given {
        interface: vec!["eth0".to_owned()],
        ..Given::default()
    }
}

fn settle(given: Given, file: &str) -> Settings {
    let file = config::parse(Path::new("t.toml"), file).unwrap();
    Settings::of(given, file).unwrap()
}

#[test]
fn an_interface_is_all_that_must_be_given() {
    let settings = Settings::of(given(), File::default()).unwrap();
    assert_eq!(settings.socket, PathBuf::from("/run/rnicd/rnicd.sock"));
    assert_eq!(settings.socket_mode, 0o660);
    assert_eq!(settings.devices[0].queues, None);
    assert_eq!(settings.devices[0].frames, 4096);
    assert!(settings.devices[0].seccomp);
    let error = Settings::of(Given::default(), File::default()).unwrap_err();
    assert!(error.to_string().contains("--interface"), "{error}");
}

#[test]
fn an_interface_has_its_own_allow_list_or_that_of_all() {
    let file =
        "allowed_peers = ['198.18.0.0/15']\n[[interface]]\nname = 'eth1'\nallowed_peers = []";
    let given = Given {
        interface: vec!["eth0".to_owned(), "eth1".to_owned()],
        ..Given::default()
    };
    let settings = settle(given, file);
    for device in &settings.devices {
        let lists = &device.limits.interface_peers;
        assert_eq!(lists["eth0"].to_string(), "198.18.0.0/15");
        assert_eq!(lists["eth1"].to_string(), "nobody");
    }
    let checked = crate::check::Effective(&settings).to_string();
    assert!(
        checked.contains("allowed_peers          198.18.0.0/15\n"),
        "{checked}"
    );
    assert!(
        checked.contains("allowed_peers          nobody\n"),
        "{checked}"
    );
    let loopback = Given {
        loopback: true,
        ..Given::default()
    };
    let file = config::parse(Path::new("t.toml"), "allowed_peers = []").unwrap();
    let error = Settings::of(loopback, file).unwrap_err().to_string();
    assert!(
        error.contains("only interfaces have allowed_peers"),
        "{error}"
    );
}

#[test]
fn everything_that_was_given_reaches_the_device() {
    let given = Given {
        link: LinkGiven {
            shards: Some(ShardCount::Number(2)),
            cores: Some(Cores::List(vec![0, 1])),
            queues: Some(2),
            dedicated_queues: Some("1".parse().unwrap()),
            mode: Some(Mode::Generic),
            capture: Some(PathBuf::from("a.pcapng")),
            frames: Some(8192),
            polling: None,
            idle_spin: Some(7),
            busy_poll: Some(9),
            syn_rate: Some(3),
            unknown_flow_rate: Some(2),
            fragment_rate: Some(0),
            user_timeout: Some(5000),
            first_byte_timeout: Some(500),
            answer_timeout: Some(7000),
            keepalive_idle: Some(30),
            keepalive_interval: Some(5),
            keepalive_probes: Some(4),
            congestion: Some(CongestionControl::Bbr),
            sctp_udp_port: Some(9899),
            sctp_udp_peer_port: Some(9900),
            host_ipsec: Some(HostIpsec::Ignore),
        },
        no_seccomp: true,
        log: Some(LevelFilter::Debug),
        drain: Some(1500),
        ..given()
    };
    let limits = Limits {
        clients: 3,
        ..Limits::default()
    };
    let Settings {
        devices,
        log,
        drain,
        ..
    } = Settings::of(
        given,
        File {
            limits,
            ..File::default()
        },
    )
    .unwrap();
    let [device] = &devices[..] else {
        panic!("{devices:?}");
    };
    assert_eq!(device.interface, "eth0");
    assert_eq!(device.shards, ShardCount::Number(2));
    assert_eq!(device.cores, Cores::List(vec![0, 1]));
    assert_eq!(device.queues, Some(2));
    assert_eq!(device.dedicated_queues, Some("1".parse().unwrap()));
    assert_eq!(device.mode, XdpMode::Generic);
    assert_eq!(device.capture, Some(PathBuf::from("a.pcapng")));
    assert_eq!(device.frames, 8192);
    assert_eq!(device.polling, Polling::Adaptive(Duration::from_micros(7)));
    assert_eq!(device.busy_poll, Some(9));
    let rates = FloodLimits {
        syns: Rate::of(3),
        unknown_flows: Rate::of(2),
        fragments: Rate::NONE,
    };
    assert_eq!(device.flood_limits, rates);
    assert_eq!(device.user_timeout, Duration::from_secs(5));
    assert_eq!(device.first_byte_timeout, Duration::from_millis(500));
    assert_eq!(device.answer_timeout, Duration::from_secs(7));
    let keepalive = KeepAlive {
        idle: Duration::from_secs(30),
        interval: Duration::from_secs(5),
        probes: 4,
    };
    assert_eq!(device.keepalive, Some(keepalive));
    assert_eq!(device.congestion, CongestionControl::Bbr);
    assert_eq!(device.host_ipsec, HostIpsec::Ignore);
    let udp = SctpUdp {
        port: 9899,
        peer_port: Some(9900),
    };
    assert_eq!(device.sctp_udp, Some(udp));
    assert!(!device.seccomp);
    assert_eq!(device.limits.clients, 3);
    assert_eq!(log, LevelFilter::Debug);
    assert_eq!(drain, Duration::from_millis(1500));
}

const TWO: &str = r#"
    frames = 8192
    queues = 2
    capture = "/tmp/a.pcapng"
    [[interface]]
    name = "eth0"
    [[interface]]
    name = "eth1"
    frames = 16384
    capture = "/tmp/b.pcapng"
    [limits]
    clients = 3
"#;

#[test]
fn what_a_table_says_of_its_interface_goes_before_what_the_file_says_of_all() {
    let Settings { devices, .. } = settle(Given::default(), TWO);
    let [a, b] = &devices[..] else {
        panic!("{devices:?}");
    };
    assert_eq!((&*a.interface, &*b.interface), ("eth0", "eth1"));
    assert_eq!((a.frames, b.frames), (8192, 16384));
    assert_eq!((a.queues, b.queues), (Some(2), Some(2)));
    assert_eq!(a.capture, Some(PathBuf::from("/tmp/a-eth0.pcapng")));
    assert_eq!(b.capture, Some(PathBuf::from("/tmp/b.pcapng")));
    assert_eq!((a.limits.clients, b.limits.clients), (3, 3));
}

#[test]
fn the_command_line_says_which_interfaces_and_goes_before_their_tables() {
    let given = Given {
        interface: vec!["eth1".to_owned(), "eth2".to_owned()],
        link: LinkGiven {
            queues: Some(4),
            ..LinkGiven::default()
        },
        ..Given::default()
    };
    let Settings { devices, .. } = settle(given, TWO);
    let [b, c] = &devices[..] else {
        panic!("{devices:?}");
    };
    assert_eq!((&*b.interface, &*c.interface), ("eth1", "eth2"));
    assert_eq!((b.frames, c.frames), (16384, 8192));
    assert_eq!((b.queues, c.queues), (Some(4), Some(4)));
}

#[test]
fn idle_peers_are_asked_when_somebody_said_after_what_time() {
    let of = |file: &str| {
        let file = config::parse(Path::new("t.toml"), file).unwrap();
        Settings::of(given(), file)
    };
    let [plain] = &of("").unwrap().devices[..] else {
        panic!("one interface");
    };
    assert_eq!(plain.keepalive, None);
    assert_eq!(plain.congestion, CongestionControl::Cubic);
    assert_eq!(plain.host_ipsec, HostIpsec::Refuse);
    assert_eq!(plain.user_timeout, Duration::from_secs(100));
    let [asking] = &of("keepalive_idle = 20").unwrap().devices[..] else {
        panic!("one interface");
    };
    let expected = KeepAlive {
        idle: Duration::from_secs(20),
        ..KeepAlive::default()
    };
    assert_eq!(asking.keepalive, Some(expected));
    let off = "keepalive_idle = 20\nkeepalive_probes = 3\n[[interface]]\nname = 'eth0'\nkeepalive_idle = 0";
    assert_eq!(of(off).unwrap().devices[0].keepalive, None);
    for what in ["keepalive_interval", "keepalive_probes"] {
        let error = of(&format!("{what} = 3")).unwrap_err().to_string();
        for words in ["eth0", what, "without keepalive_idle"] {
            assert!(error.contains(words), "no {words} in {error}");
        }
    }
}

#[test]
fn polling_is_chosen_by_name_and_only_adaptive_polling_has_a_time() {
    let of = |file: &str| {
        let file = config::parse(Path::new("t.toml"), file).unwrap();
        Settings::of(given(), file).unwrap().devices[0].polling
    };
    assert_eq!(of(""), Polling::Adaptive(Duration::from_micros(50)));
    assert_eq!(of("polling = 'adaptive'"), of(""));
    let nine = Polling::Adaptive(Duration::from_micros(9));
    assert_eq!(of("idle_spin = 9"), nine);
    assert_eq!(of("polling = 'spin'\nidle_spin = 9"), Polling::Spin);
    assert_eq!(of("polling = 'event'"), Polling::Event);
}

#[test]
fn what_is_of_the_start_is_told_by_name_when_it_changes() {
    let settings = settle(given(), "socket_mode = \"0600\"");
    let asked = settle(
        given(),
        "socket = \"/run/other.sock\"\nsocket_mode = \"0660\"\nsocket_group = 7\n\
         metrics = \"unix:/run/m.sock\"\nlog = \"debug\"\ndrain = 1",
    );
    let faults = settings.fixed(&asked);
    let named: Vec<_> = faults
        .iter()
        .map(|fault| fault.split(' ').nth(1).unwrap())
        .collect();
    let of_the_start = ["socket", "socket_mode", "socket_group", "metrics"];
    assert_eq!(named, of_the_start);
    assert_eq!(settings.fixed(&settings), [""; 0]);
}
