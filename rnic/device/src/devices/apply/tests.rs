use std::time::Duration;

use rnic_prm::Credentials;

use super::fixed;
use crate::{
    CongestionControl, DeviceConfig, DeviceError, Devices, LoopbackUse, OnMissing, Polling, Rate,
    Reconfiguring, Runtime, SctpUdp, ShardCount, XdpMode,
};

const HOW: Reconfiguring = Reconfiguring {
    reopen: false,
    patience: Duration::ZERO,
};

const SOMEBODY: Credentials = Credentials {
    uid: 1000,
    gid: 1000,
    pid: 1,
    superuser: false,
};

fn open() -> (Devices, DeviceConfig) {
    let config = DeviceConfig::loopback();
    let opened = Devices::open_then(vec![config.clone()], OnMissing::Fail, || {
        Ok::<_, DeviceError>(())
    });
    (opened.unwrap().0, config)
}

#[test]
fn limits_timeouts_and_polling_change() {
    let (devices, mut config) = open();
    assert!(devices.all()[0].connect_client(SOMEBODY).is_ok());
    config.limits.users.others.clients = 0;
    config.polling = Polling::Event;
    config.user_timeout = Duration::from_secs(7);
    devices.reconfigure(&[config], HOW).unwrap();
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
    let faults = devices.reconfigure(&[asked], HOW).unwrap_err();
    let [frames, user_timeout, clients] = &faults[..] else {
        panic!("{faults:?}");
    };
    assert!(frames.contains("another frames"), "{frames}");
    assert!(user_timeout.contains("user timeout"), "{user_timeout}");
    assert!(clients.contains("clients = 1000"), "{clients}");
    assert_eq!(devices.clients_max(SOMEBODY), (256, 64));
    let other = DeviceConfig::new("eth9");
    let faults = devices
        .reconfigure(&[config.clone(), other], HOW)
        .unwrap_err();
    let told = "started without waiting for interfaces";
    assert!(faults[0].contains(told), "{faults:?}");
    let twice = [config.clone(), config.clone()];
    let faults = devices.reconfigure(&twice, HOW).unwrap_err();
    assert!(faults[0].contains("loopback, twice,"), "{faults:?}");
    devices.reconfigure(&[config], HOW).unwrap();
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

/// What is left out here would change nothing, and nobody would be told.
#[test]
fn each_setting_of_the_opening_is_named_when_it_alone_differs() {
    type Change = fn(&mut DeviceConfig);
    let changes: [(&str, Change); 18] = [
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
        ("syn_rate, unknown_flow_rate or fragment_rate", |it| {
            it.flood_limits.fragments = Rate::of(9)
        }),
        ("frames", |it| it.frames *= 2),
        ("runtime", |it| it.runtime = Runtime::Caller),
        ("no_seccomp", |it| it.seccomp ^= true),
        ("congestion", |it| {
            it.congestion = CongestionControl::NewReno
        }),
        ("sctp_udp_port or sctp_udp_peer_port", |it| {
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
        let told = fixed(&opened, &asked);
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
    assert_eq!(fixed(&opened, &asked), [""; 0]);
}
