use super::*;
use rnic_device::XdpMode;

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
    assert_eq!(settings.socket, PathBuf::from("/run/rnicd.sock"));
    assert_eq!(settings.socket_mode, 0o660);
    assert_eq!(settings.devices[0].queues, None);
    assert_eq!(settings.devices[0].frames, 4096);
    assert!(settings.devices[0].seccomp);
    let error = Settings::of(Given::default(), File::default()).unwrap_err();
    assert!(error.to_string().contains("--interface"), "{error}");
}

#[test]
fn everything_that_was_given_reaches_the_device() {
    let given = Given {
        link: LinkGiven {
            queues: Some(2),
            mode: Some(Mode::Generic),
            capture: Some(PathBuf::from("a.pcapng")),
            frames: Some(8192),
            idle_spin: Some(7),
            busy_poll: Some(9),
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
    assert_eq!(device.queues, Some(2));
    assert_eq!(device.mode, XdpMode::Generic);
    assert_eq!(device.capture, Some(PathBuf::from("a.pcapng")));
    assert_eq!(device.frames, 8192);
    assert_eq!(device.idle_spin, Duration::from_micros(7));
    assert_eq!(device.busy_poll, Some(9));
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
