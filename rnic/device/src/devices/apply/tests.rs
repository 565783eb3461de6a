use std::time::Duration;

use rnic_prm::Credentials;

use super::{OTHERS, needs_reopen};
use crate::{
    ApplyOptions, Configured, CongestionControl, DeviceConfig, DeviceError, Devices, Kind,
    LoopbackUse, OnMissing, Polling, Rate, Runtime, SctpUdp, ShardCount, Value, XdpMode,
};

const HOW: ApplyOptions = ApplyOptions {
    reopen: false,
    drain: Duration::ZERO,
};

const SOMEBODY: Credentials = Credentials {
    uid: 1000,
    gid: 1000,
    pid: 1,
    superuser: false,
};

fn open() -> (Devices, DeviceConfig) {
    open_or(OnMissing::Fail)
}

fn open_or(on_missing: OnMissing) -> (Devices, DeviceConfig) {
    let config = DeviceConfig::loopback();
    let opened = Devices::open_then(
        vec![config.clone()],
        on_missing,
        || Ok::<_, DeviceError>(()),
    );
    (opened.unwrap().0, config)
}

#[test]
fn limits_timeouts_and_polling_change() {
    let (devices, mut config) = open();
    assert!(devices.all()[0].connect_client(SOMEBODY).is_ok());
    config.limits.users.others.clients = 0;
    config.polling = Polling::Event;
    config.user_timeout = Duration::from_secs(7);
    devices.apply(&[config], HOW).unwrap();
    assert_eq!(devices.clients_max(SOMEBODY), (256, 0));
    let refusal = devices.all()[0].connect_client(SOMEBODY).unwrap_err();
    assert!(refusal.message.contains("clients is 0"), "{refusal}");
    assert!(devices.are_alive());
    devices.shutdown();
}

#[test]
fn one_thing_that_cannot_change_keeps_all_as_it_was() {
    let (devices, config) = open();
    let mut asked = config.clone();
    asked.limits.users.others.clients = 0;
    asked.limits.clients = 1000;
    asked.frames *= 2;
    asked.user_timeout = Duration::from_millis(1);
    let faults = devices.apply(&[asked], HOW).unwrap_err();
    let [frames, user_timeout, clients] = &faults[..] else {
        panic!("{faults:?}");
    };
    assert!(frames.contains("another frames"), "{frames}");
    assert!(user_timeout.contains("user timeout"), "{user_timeout}");
    assert!(clients.contains("clients = 1000"), "{clients}");
    assert_eq!(devices.clients_max(SOMEBODY), (256, 64));
    let other = DeviceConfig::new("eth9");
    let faults = devices.apply(&[config.clone(), other], HOW).unwrap_err();
    let told = "started without waiting for interfaces";
    assert!(faults[0].contains(told), "{faults:?}");
    let twice = [config.clone(), config.clone()];
    let faults = devices.apply(&twice, HOW).unwrap_err();
    assert!(faults[0].contains("loopback, twice,"), "{faults:?}");
    devices.apply(&[config], HOW).unwrap();
    devices.shutdown();
}

#[test]
fn with_reopen_an_interface_is_opened_again_and_a_new_one_is_waited_for() {
    let (devices, config) = open_or(OnMissing::Wait);
    let frames = |devices: &Devices| devices.all()[0].core().interface.config.frames;
    let mut asked = config.clone();
    asked.frames *= 2;
    let faults = devices.apply(&[asked.clone()], HOW).unwrap_err();
    assert!(faults[0].contains("another frames"), "{faults:?}");
    assert_eq!(frames(&devices), config.frames);
    let how = ApplyOptions {
        reopen: true,
        ..HOW
    };
    let absent = DeviceConfig::new("rnic-absent");
    let all = [asked.clone(), absent];
    // No interface of the host's is called so, and the device goes on as it was.
    let told = devices.apply(&all, how).unwrap();
    let [line] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(line.contains("interface loopback asked"), "{line}");
    let known = devices.all_interfaces();
    let [(_, None), (name, Some(why))] = &known[..] else {
        panic!("{known:?}");
    };
    assert_eq!(name, "rnic-absent");
    assert!(why.contains("rnic-absent"), "{why}");
    devices.shutdown();
}

#[test]
fn an_answer_that_is_cut_off_says_so_and_a_shorter_one_is_whole() {
    let answer = |message: String| {
        let code = rnic_ipc::control::RefusalCode::WrongState;
        crate::bounded(rnic_ipc::control::Refusal { code, message }).message
    };
    let whole = "\u{e9}".repeat(1024);
    assert_eq!(answer(whole.clone()), whole);
    let cut = answer(whole + "x");
    assert!(cut.len() <= 2048, "{}", cut.len());
    assert!(cut.ends_with("the daemon's log has all)"), "{cut}");
}

/// What is left out here would change nothing, without a message.
#[test]
fn each_setting_of_the_opening_is_named_when_it_alone_differs() {
    type Change = fn(&mut DeviceConfig);
    let changes: [(&str, Change); 21] = [
        ("loopback", |it| it.loopback = LoopbackUse::Off),
        ("shards", |it| it.shards = ShardCount::Number(3)),
        ("cores", |it| it.cores = "1".parse().unwrap()),
        ("queues", |it| it.queues = Some(3)),
        ("dedicated_queues", |it| {
            it.dedicated_queues = Some("1".parse().unwrap())
        }),
        ("vlan", |it| {
            it.vlans = vec![crate::VlanConfig {
                id: rnic_net::VlanId::new(7).unwrap(),
                addresses: Vec::new(),
                interface: None,
            }];
        }),
        ("mode", |it| it.mode = XdpMode::Generic),
        ("capture", |it| it.capture = Some("/tmp/a.pcapng".into())),
        ("busy_poll", |it| it.busy_poll = Some(20)),
        ("fragment_rate", |it| {
            it.flood_limits.fragments = Rate::of(9)
        }),
        // The rate alone is not all of it.
        ("syn_rate", |it| it.flood_limits.syns.burst += 1),
        ("unknown_flow_rate", |it| {
            it.flood_limits.unknown_flows.burst += 1
        }),
        ("fragment_rate", |it| it.flood_limits.fragments.burst += 1),
        ("frames", |it| it.frames *= 2),
        ("runtime", |it| it.runtime = Runtime::Caller),
        ("no_seccomp", |it| it.seccomp ^= true),
        ("congestion", |it| {
            it.congestion = CongestionControl::NewReno
        }),
        ("sctp_udp_port", |it| {
            it.sctp_udp = Some(SctpUdp {
                port: 9899,
                peer_port: None,
            });
        }),
        ("resolve_timeout", |it| it.resolve_timeout *= 2),
        ("flush_timeout", |it| it.flush_timeout *= 2),
        ("linger_max", |it| it.linger_max *= 2),
    ];
    let opened = DeviceConfig::new("eth0");
    for (name, change) in changes {
        let mut asked = opened.clone();
        change(&mut asked);
        let told = needs_reopen(&opened, &asked);
        let [line] = &told[..] else {
            panic!("{name}: {told:?}");
        };
        assert!(
            line.starts_with(&format!("interface eth0: another {name} asked")),
            "{line}"
        );
    }
    // Those that hold at once.
    let mut asked = opened.clone();
    asked.limits.clients = 9;
    asked.administrators.gid = Some(7);
    asked.polling = Polling::Event;
    asked.user_timeout *= 2;
    asked.first_byte_timeout *= 2;
    asked.answer_timeout *= 2;
    asked.keepalive = Some(crate::KeepAlive::default());
    assert_eq!(needs_reopen(&opened, &asked), [""; 0]);
}

/// A new field that neither a setting shows nor `OTHERS` compares would be reloaded without effect.
#[test]
fn each_field_is_of_a_setting_or_compared_or_the_daemons() {
    let defaults = format!("{:#?}", DeviceConfig::new(""));
    let fields = |text: &str| -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for line in text.lines() {
            match line
                .strip_prefix("    ")
                .filter(|rest| !rest.starts_with([' ', '}', ']', ')']))
            {
                Some(field) => {
                    let (name, value) = field.split_once(':').unwrap_or((field, ""));
                    found.push((name.to_owned(), value.to_owned()));
                }
                None => found
                    .iter_mut()
                    .last()
                    .into_iter()
                    .for_each(|it| it.1 += line),
            }
        }
        found
    };
    let before = fields(&defaults);
    assert!(before.len() > 20, "{before:?}");
    // These each apply on their own, or say which interface it is.
    let mut known = vec!["interface", "limits", "administrators"];
    let others = OTHERS.map(|(name, _)| match name {
        "vlan" => "vlans",
        "no_seccomp" => "seccomp",
        name => name,
    });
    known.extend(others);
    let mut changed: Vec<String> = known.into_iter().map(str::to_owned).collect();
    for setting in DeviceConfig::SETTINGS {
        let mut config = DeviceConfig::new("");
        config.keepalive = Some(crate::KeepAlive::default());
        config.sctp_udp = Some(SctpUdp {
            port: 1,
            peer_port: None,
        });
        let shown = (setting.show)(&config);
        let start = fields(&format!("{config:#?}"));
        let value = match setting.kind {
            Kind::Number(least, most) | Kind::NumberOrText(least, most) => {
                let other = [least, most].into_iter().find(|it| it.to_string() != shown);
                Value::Number(other.unwrap())
            }
            Kind::Text | Kind::Flag => Value::Text(
                match setting.name {
                    "mode" => "generic",
                    "polling" => "event",
                    "congestion" => "bbr",
                    "host_ipsec" => "ignore",
                    _ => "3",
                }
                .to_owned(),
            ),
        };
        (setting.set)(&mut config, &value).unwrap();
        assert_ne!(
            (setting.show)(&config),
            shown,
            "{} is not shown",
            setting.name
        );
        let end = fields(&format!("{config:#?}"));
        let differs = start.iter().zip(&end).filter(|(a, b)| a != b);
        let differs: Vec<_> = differs.map(|(a, _)| a.0.clone()).collect();
        assert_eq!(differs.len(), 1, "{}: {differs:?}", setting.name);
        changed.extend(differs);
    }
    for (field, _) in before {
        assert!(changed.contains(&field), "{field} is in no table");
    }
}
