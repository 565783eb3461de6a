use super::*;

fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from([&["rnicd"], arguments].concat())
}

#[test]
fn an_interface_is_all_that_must_be_given() {
    let cli = parse(&["--interface", "eth0"]).unwrap();
    assert_eq!(cli.socket, PathBuf::from("/run/rnicd.sock"));
    assert_eq!(cli.socket_mode, 0o660);
    assert_eq!(cli.device().queues, None);
    assert!(parse(&[]).is_err());
}

#[test]
fn a_mode_is_octal_permissions() {
    let mode = |text| parse(&["--interface", "eth0", "--socket-mode", text]).map(|c| c.socket_mode);
    assert_eq!(mode("0666").unwrap(), 0o666);
    assert_eq!(mode("600").unwrap(), 0o600);
    for wrong in ["", "9", "1777", "rw"] {
        assert!(mode(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_option_reaches_the_device() {
    let cli = parse(&[
        "--interface",
        "eth0",
        "--queues",
        "2",
        "--mode",
        "generic",
        "--capture",
        "a.pcapng",
        "--frames",
        "8192",
        "--idle-spin",
        "7",
        "--log",
        "debug",
    ])
    .unwrap();
    let device = cli.device();
    assert_eq!(device.interface, "eth0");
    assert_eq!(device.queues, Some(2));
    assert_eq!(device.mode, XdpMode::Generic);
    assert_eq!(device.capture, Some(PathBuf::from("a.pcapng")));
    assert_eq!(device.frames, 8192);
    assert_eq!(device.idle_spin, Duration::from_micros(7));
    assert_eq!(cli.log, LevelFilter::Debug);
}
