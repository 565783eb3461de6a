use super::*;
use rnic_device::XdpMode;

fn given() -> Given {
    Given {
        interface: Some("eth0".to_owned()),
        ..Given::default()
    }
}

#[test]
fn an_interface_is_all_that_must_be_given() {
    let settings = Settings::of(given(), Limits::default()).unwrap();
    assert_eq!(settings.socket, PathBuf::from("/run/rnicd.sock"));
    assert_eq!(settings.socket_mode, 0o660);
    assert_eq!(settings.device.queues, None);
    assert_eq!(settings.device.frames, 4096);
    let error = Settings::of(Given::default(), Limits::default()).unwrap_err();
    assert!(error.to_string().contains("--interface"), "{error}");
}

#[test]
fn everything_that_was_given_reaches_the_device() {
    let given = Given {
        queues: Some(2),
        mode: Some(Mode::Generic),
        capture: Some(PathBuf::from("a.pcapng")),
        frames: Some(8192),
        idle_spin: Some(7),
        busy_poll: Some(9),
        log: Some(LevelFilter::Debug),
        drain: Some(1500),
        ..given()
    };
    let limits = Limits {
        clients: 3,
        ..Limits::default()
    };
    let Settings {
        device, log, drain, ..
    } = Settings::of(given, limits).unwrap();
    assert_eq!(device.interface, "eth0");
    assert_eq!(device.queues, Some(2));
    assert_eq!(device.mode, XdpMode::Generic);
    assert_eq!(device.capture, Some(PathBuf::from("a.pcapng")));
    assert_eq!(device.frames, 8192);
    assert_eq!(device.idle_spin, Duration::from_micros(7));
    assert_eq!(device.busy_poll, Some(9));
    assert_eq!(device.limits.clients, 3);
    assert_eq!(log, LevelFilter::Debug);
    assert_eq!(drain, Duration::from_millis(1500));
}
