use std::process::Command;

use rnic_device::DeviceConfig;

use super::*;
use crate::settings::{DaemonConfig, Given, Values};

fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from([&["rnicd"], arguments].concat())
}

#[test]
fn every_option_is_in_the_manual() {
    rnic_pages::assert_documented(<Cli as clap::CommandFactory>::command(), 8);
}

#[test]
fn the_version_names_the_commit_of_sources_with_history() {
    let version = <Cli as clap::CommandFactory>::command().render_version();
    let number = env!("CARGO_PKG_VERSION");
    let git = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let head = git.ok().filter(|ran| ran.status.success());
    let head = head.map(|ran| String::from_utf8(ran.stdout).unwrap());
    let Some(head) = head.filter(|_| std::env::var_os("RNIC_COMMIT").is_none()) else {
        assert!(version.starts_with(&format!("rnicd {number}")), "{version}");
        return;
    };
    assert_eq!(version.trim(), format!("rnicd {number} ({})", &head[..9]));
}

#[test]
fn a_mode_is_octal_permissions() {
    let mode = |text| parse(&["--socket-mode", text]).map(|cli| cli.given.own);
    for text in ["0666", "600"] {
        let expected = Values::of::<DaemonConfig>(&[("socket_mode", text)]);
        assert_eq!(mode(text).unwrap(), expected);
    }
    for wrong in ["", "9", "1777", "rw"] {
        assert!(mode(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_command_line_goes_before_the_file() {
    let cli = parse(&[
        "--interface",
        "eth0",
        "--frames",
        "8192",
        "--mode",
        "native",
    ])
    .unwrap();
    let file = Given {
        interface: vec!["eth1".to_owned()],
        own: Values::of::<DaemonConfig>(&[("log", "debug")]),
        link: Values::of::<DeviceConfig>(&[("mode", "generic"), ("queues", "2")]),
    };
    let expected = Given {
        interface: vec!["eth0".to_owned()],
        own: Values::of::<DaemonConfig>(&[("log", "debug")]),
        link: Values::of::<DeviceConfig>(&[
            ("mode", "native"),
            ("frames", "8192"),
            ("queues", "2"),
        ]),
    };
    assert_eq!(cli.given.over(file), expected);
}

#[test]
fn a_wrong_value_is_told_with_what_was_asked_and_what_may_be() {
    for (arguments, words) in [
        (
            ["--answer-timeout", "999"],
            &["'999'", "--answer-timeout <MS>", "give 1000 to 3600000"][..],
        ),
        (["--frames", "0"], &["'0'", "give 1 to 4294967295"]),
        (
            ["--mode", "fast"],
            &["'fast'", "give auto, native, generic or super-packets"],
        ),
        (["--shards", "65"], &["'65'", "give 1 to 64"]),
        (
            ["--shards", "all"],
            &["'all'", "give a number from 1 to 64, or `auto`"],
        ),
        (["--log", "loud"], &["'loud'", "debug"]),
    ] {
        let error = parse(&arguments).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "no {word} in {error}");
        }
    }
    assert!(parse(&["--loopback", "--no-loopback"]).is_err());
    assert!(
        parse(&["--private"]).is_err(),
        "only with --loopback or --udp"
    );
    for udp in ["--udp", "--udp=:9900", "--udp=198.18.0.1"] {
        assert!(parse(&[udp, "--private"]).is_ok(), "{udp}");
        assert!(parse(&[udp, "--loopback"]).is_err(), "{udp}");
        assert!(parse(&[udp, "--no-loopback"]).is_err(), "{udp}");
    }
    assert!(parse(&["--udp", "198.18.0.1:9900"]).is_ok());
    assert!(parse(&["--udp", "eth0"]).is_err());
}
