use std::time::Duration;

use super::*;
use rnic_device::{
    CongestionControl, Cores, FloodLimits, HostIpsec, KeepAlive, Kind, Polling, Rate, SctpUdp,
    ShardCount, XdpMode,
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
    assert_eq!(settings.own.socket, PathBuf::from("/run/rnicd/rnicd.sock"));
    assert_eq!(settings.own.socket_mode, 0o660);
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
        own: Values::of::<DaemonConfig>(&[("loopback", "true")]),
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
        own: Values::of::<DaemonConfig>(&[
            ("no_seccomp", "true"),
            ("log", "debug"),
            ("drain", "1500"),
        ]),
        link: Values::of::<DeviceConfig>(&[
            ("capture", "a.pcapng"),
            ("shards", "2"),
            ("cores", "0,1"),
            ("queues", "2"),
            ("dedicated_queues", "1"),
            ("mode", "generic"),
            ("frames", "8192"),
            ("idle_spin", "7"),
            ("busy_poll", "9"),
            ("syn_rate", "3"),
            ("unknown_flow_rate", "2"),
            ("fragment_rate", "0"),
            ("user_timeout", "5000"),
            ("first_byte_timeout", "500"),
            ("answer_timeout", "7000"),
            ("keepalive_idle", "30"),
            ("keepalive_interval", "5"),
            ("keepalive_probes", "4"),
            ("congestion", "bbr"),
            ("sctp_udp_port", "9899"),
            ("sctp_udp_peer_port", "9900"),
            ("host_ipsec", "ignore"),
        ]),
        ..given()
    };
    let limits = Limits {
        clients: 3,
        ..Limits::default()
    };
    let file = File {
        limits,
        ..File::default()
    };
    let Settings { devices, own, .. } = Settings::of(given, file).unwrap();
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
    assert_eq!(own.log, log::LevelFilter::Debug);
    assert_eq!(own.drain, Duration::from_millis(1500));
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
        link: Values::of::<DeviceConfig>(&[("queues", "4")]),
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
fn a_udp_port_stands_for_an_interface() {
    let of = |file: &str| {
        let said = format!("udp = \"198.18.0.1\"\nsocket = \"/tmp/a.sock\"\n{file}");
        let file = config::parse(Path::new("t.toml"), &said).unwrap();
        Settings::of(Given::default(), file)
    };
    let file = "shards = 2\nsctp_udp_peer_port = 9900\nallowed_peers = [\"198.18.0.0/24\"]";
    let settings = of(file).unwrap();
    let [device] = &settings.devices[..] else {
        panic!("{settings:?}");
    };
    let link = "198.18.0.1:9899".parse().ok();
    assert_eq!((device.udp, device.loopback), (link, LoopbackUse::Only));
    assert_eq!(device.shards, ShardCount::Number(2));
    let udp = SctpUdp {
        port: 9899,
        peer_port: Some(9900),
    };
    assert_eq!(device.sctp_udp, Some(udp));
    assert!(device.limits.interface_peers.contains_key("udp"));
    assert_eq!(settings.own.socket_mode, SOCKET_MODE_OF_USER);
    for (wrong, words) in [
        ("mode = \"native\"", ["--udp", "mode"]),
        ("sctp_udp_port = 9900", ["--udp", "sctp_udp_port"]),
        ("interface = \"eth0\"", ["--udp", "eth0"]),
        ("loopback = true", ["loopback", "udp"]),
    ] {
        let error = of(wrong).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "no {word} in {error}");
        }
    }
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
    let faults = settings.needs_restart(&asked);
    let named: Vec<_> = faults
        .iter()
        .map(|fault| fault.split(' ').nth(1).unwrap())
        .collect();
    let of_the_start = ["socket", "socket_mode", "socket_group", "metrics"];
    assert_eq!(named, of_the_start);
    assert_eq!(settings.needs_restart(&settings), [""; 0]);
}

#[test]
fn a_setting_that_means_nothing_alone_names_what_is_missing() {
    let of = |file: &str| {
        let file = config::parse(Path::new("t.toml"), file).unwrap();
        Settings::of(given(), file)
    };
    let error = of("sctp_udp_peer_port = 3").unwrap_err().to_string();
    for words in ["eth0", "sctp_udp_peer_port without sctp_udp_port", "9899"] {
        assert!(error.contains(words), "no {words} in {error}");
    }
    for setting in DeviceConfig::SETTINGS {
        let Some(needs) = setting.needs else { continue };
        let all = DeviceConfig::SETTINGS;
        let place = |name| all.iter().position(|it| it.name == name);
        assert!(
            place(needs.setting) < place(setting.name),
            "{} is set too early",
            setting.name
        );
    }
}

#[test]
fn the_loopback_alone_has_no_setting_of_interfaces() {
    for setting in DeviceConfig::SETTINGS {
        let value = match setting.name {
            "mode" => "native",
            "host_ipsec" => "ignore",
            "cores" => "0",
            "polling" => "spin",
            "congestion" => "bbr",
            _ => "1000",
        };
        let value = if setting.read(value).is_ok() {
            value
        } else {
            "9"
        };
        let mut link = Values::of::<DeviceConfig>(&[(setting.name, value)]);
        if let Some(needs) = setting.needs {
            link = link.over(Values::of::<DeviceConfig>(&[(needs.setting, "30")]));
        }
        let given = Given {
            own: Values::of::<DaemonConfig>(&[("loopback", "true"), ("socket", "/tmp/a.sock")]),
            link,
            ..Given::default()
        };
        let settled = Settings::of(given, File::default());
        assert_eq!(
            settled.is_err(),
            setting.interface_only,
            "{}: {settled:?}",
            setting.name
        );
        if let Err(error) = settled {
            let words = format!("only interfaces have {}", setting.name);
            assert!(error.to_string().contains(&words), "{error}");
        }
    }
}

/// docs/operations/settings.md has every setting as it is declared. `RNIC_WRITE_DOCS=1` writes it.
#[test]
fn the_page_of_all_settings_is_the_declarations() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/operations/settings.md"
    );
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let (start, end) = ("<!-- generated: ", "<!-- end -->");
    let mut page = String::new();
    for (index, part) in found.split_inclusive(start).enumerate() {
        let rest = match index {
            0 => part,
            _ => {
                let (which, _) = part.split_once(" -->").unwrap();
                page += which;
                page += " -->\n\n";
                page += &match which {
                    "daemon" => table::<DaemonConfig>(),
                    "interface" => table::<DeviceConfig>(),
                    other => panic!("no table {other}"),
                };
                &part[part.find(end).unwrap()..]
            }
        };
        page += rest;
    }
    assert!(page.matches(end).count() == 2, "{path} lacks a table");
    if std::env::var_os("RNIC_WRITE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    assert!(
        found == page,
        "{path} differs from the declarations: run this test with RNIC_WRITE_DOCS=1"
    );
}

fn table<C: Configured>() -> String {
    let mut text = String::from(
        "| setting | value | default | after a reload | what it is |\n|---|---|---|---|---|\n",
    );
    for setting in C::SETTINGS {
        let value = match setting.kind {
            Kind::Flag => "true or false".to_owned(),
            Kind::Number(least, most) => format!("`{}`, {least} to {most}", setting.unit),
            Kind::Text => format!("`{}`", setting.unit),
            Kind::NumberOrText(least, most) => {
                format!("`{}`; as a number {least} to {most}", setting.unit)
            }
        };
        let change = match setting.change {
            Change::AtOnce => "holds at once",
            Change::NewConnections => "holds for new connections",
            Change::Reopen => "needs `--reopen`",
            Change::Restart => "needs a restart",
        };
        let needs = setting
            .needs
            .map_or(String::new(), |it| format!(". Needs `{}`", it.setting));
        text += &format!(
            "| `{}` | {value} | {} | {change} | {}{needs} |\n",
            setting.name,
            setting.default(),
            setting.help,
        );
    }
    text + "\n"
}

/// Tables of other pages, the manual and the limits that people read agree with the declarations.
#[test]
fn other_pages_say_the_same_ranges_and_defaults() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let read = |path: &str| std::fs::read_to_string(format!("{root}{path}")).unwrap();
    let network = read("docs/operations/network.md");
    let mut rows = 0;
    for setting in DeviceConfig::SETTINGS {
        let Kind::Number(least, most) = setting.kind else {
            continue;
        };
        let start = format!("| `{}` | ", setting.name);
        for row in network.lines().filter_map(|line| line.strip_prefix(&start)) {
            let cells: Vec<_> = row.split(" | ").collect();
            let (range, default) = match cells[0].contains(" to ") {
                true => (Some(cells[0]), cells[1]),
                false => (None, cells[0]),
            };
            // The ports of SCTP have a row without a default.
            if default.parse::<u64>().is_err() {
                continue;
            }
            rows += 1;
            assert_eq!(default, setting.default(), "{}", setting.name);
            let expected = format!("{least} to {most}");
            assert!(
                range.is_none_or(|it| it.ends_with(&expected)),
                "{}: {range:?}",
                setting.name
            );
        }
        let manual = read("dist/rnicd.toml.5");
        let words = format!("{} \" = ", setting.name);
        let (_, said) = manual
            .split_once(&words)
            .unwrap_or_else(|| panic!("no {words} in the manual"));
        let said = said.split(['"', ',']).next().unwrap();
        let placeholder = said.bytes().all(|byte| byte.is_ascii_uppercase());
        assert!(
            placeholder || said == setting.default(),
            "{}: {said}",
            setting.name
        );
    }
    assert!(rows >= 9, "network.md has its tables");
}
