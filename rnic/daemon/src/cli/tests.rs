use std::process::Command;

use super::*;

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
    let mode = |text| parse(&["--socket-mode", text]).map(|cli| cli.given.socket_mode);
    assert_eq!(mode("0666").unwrap(), Some(0o666));
    assert_eq!(mode("600").unwrap(), Some(0o600));
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
        link: LinkGiven {
            mode: Some(Mode::Generic),
            queues: Some(2),
            ..LinkGiven::default()
        },
        log: Some(LevelFilter::Debug),
        ..Given::default()
    };
    let expected = Given {
        interface: vec!["eth0".to_owned()],
        link: LinkGiven {
            mode: Some(Mode::Native),
            frames: Some(8192),
            queues: Some(2),
            ..LinkGiven::default()
        },
        log: Some(LevelFilter::Debug),
        ..Given::default()
    };
    assert_eq!(cli.given.over(file), expected);
}
