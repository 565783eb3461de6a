//! One daemon with two interfaces: a device for each, and one Privileged Resource Manager for both.

use std::time::Duration;

use rnic::{
    ConnectOptions, Context, DeviceName, DisconnectReason, Error, QpConfig, RefusalCode, WcStatus,
    WorkRequest,
};
use rnic_tests::daemon::{Daemon, DaemonOptions, scrape};
use rnic_tests::lab::{FORKS, Family, Host, INTERFACE, Lab, LinkOptions};
use rnic_tests::programs::Library;
use rnic_tests::verbs::{Endpoint, connect};
use rnic_tests::{binary, tool, wait};
use serde_json::Value;

const PORT: u16 = 18530;
const BYTES: usize = 1 << 20;
const LIMIT: Duration = Duration::from_secs(30);

/// A daemon with two interfaces, and two with one each at their other ends. Dropped in this order.
struct Fork {
    middle: Daemon,
    far: [Daemon; 2],
    near_hosts: [Host; 2],
    far_hosts: [Host; 2],
    lab: Lab,
}

impl Fork {
    fn new(name: &str, limits: &str) -> Self {
        let mut lab = Lab::new(name);
        let [(near1, far1), (near2, far2)] = lab.forked(&LinkOptions::default());
        let config = lab.directory().join("rnicd.toml");
        let metrics = lab.directory().join("metrics.sock");
        let text = format!(
            "metrics = \"unix:{}\"\n[[interface]]\nname = \"{}\"\n{limits}",
            metrics.display(),
            FORKS[1]
        );
        std::fs::write(&config, text).expect("a file in the lab's directory");
        let options = DaemonOptions {
            arguments: vec![
                "--interface".to_owned(),
                FORKS[1].to_owned(),
                "--config".to_owned(),
                config.display().to_string(),
            ],
            ..DaemonOptions::default()
        };
        let socket = lab.directory().join("fork.sock");
        let middle = Daemon::serve(&near1.namespace, FORKS[0], &socket, &options);
        let far = [&far1, &far2].map(|host| Daemon::start(&lab, host, &DaemonOptions::default()));
        Self {
            middle,
            far,
            near_hosts: [near1, near2],
            far_hosts: [far1, far2],
            lab,
        }
    }

    fn context(&self, device: usize) -> Context {
        let name = DeviceName::Interface(FORKS[device].to_owned());
        rnic::Daemon::at(self.middle.socket())
            .and_then(|it| it.open(Some(&name)))
            .expect("the device")
    }

    /// Both ends of a connection over one of the interfaces, begun by the host that has two.
    fn connection(&self, device: usize, port: u16) -> (Endpoint, Endpoint) {
        let near = Endpoint::of(self.context(device), BYTES);
        let far = Endpoint::new(&self.far[device], BYTES);
        connect(
            &near,
            &far,
            self.far_hosts[device].address(Family::V4, port),
        );
        (near, far)
    }

    fn rnicctl(&self, question: &[&str]) -> Value {
        let command = self.middle.namespace().command(binary::path("rnicctl"));
        let command = command.label("rnicctl").args(["--socket"]);
        let command = command.arg(self.middle.socket()).args(question);
        let finished = command.arg("--json").run().success();
        serde_json::from_str(&finished.stdout).expect("JSON")
    }
}

/// Writes all of one region to the other, and sees it there.
#[track_caller]
fn moves(from: &Endpoint, to: &Endpoint, seed: u64) {
    from.fill(seed);
    to.post_recv(1, 0..0);
    let remote = to.remote();
    from.post(WorkRequest::write(2, &[from.element(0..BYTES)], remote).unsignaled());
    from.post(WorkRequest::send(3, &[]));
    let done = from.completion();
    assert_eq!((done.wr_id, done.status), (3, WcStatus::Success));
    let told = to.completion();
    assert_eq!((told.wr_id, told.status), (1, WcStatus::Success));
    assert!(to.holds(seed), "what was written is there");
}

#[test]
fn a_device_of_the_verbs_is_named_by_its_interface_or_an_address_of_it() {
    let fork = Fork::new("named", "");
    let library = Library::new(&fork.lab);
    for (name, host) in FORKS.into_iter().zip(&fork.near_hosts) {
        for asked in [
            name.to_owned(),
            host.address(Family::V4, 0).ip().to_string(),
        ] {
            let line = format!("env RNIC_DEVICE={asked} ibv_devices");
            let listed = library.command(&fork.middle, &line).run().success();
            let all = FORKS.map(|of| listed.stdout.contains(&format!("rnic_{of}")));
            assert_eq!(all, FORKS.map(|of| of == name), "{asked}: {listed}");
        }
    }
}

#[test]
fn one_program_uses_both_interfaces_at_once() {
    let fork = Fork::new("both", "");
    let socket = fork.middle.socket();
    assert_eq!(
        rnic::Daemon::at(socket)
            .and_then(|it| it.devices())
            .expect("devices"),
        FORKS
    );
    let (a, a_far) = fork.connection(0, PORT);
    let (b, b_far) = fork.connection(1, PORT);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..8).for_each(|seed| moves(&a, &a_far, seed)));
        scope.spawn(|| {
            for seed in 10..14 {
                moves(&b, &b_far, seed);
                moves(&b_far, &b, 10 + seed);
            }
        });
    });

    // A device goes by its interface, by an address of it, and by where it leads.
    for (device, interface) in FORKS.into_iter().enumerate() {
        let names = [
            DeviceName::Interface(interface.to_owned()),
            DeviceName::Address(fork.near_hosts[device].v6.into()),
            DeviceName::Toward(fork.far_hosts[device].v4.into()),
        ];
        for name in names {
            let context = rnic::Daemon::at(socket)
                .and_then(|it| it.open(Some(&name)))
                .expect("the device");
            let info = context.device_info().expect("the device");
            assert_eq!(info.interface, interface, "{name}");
        }
    }
    let first = rnic::Daemon::at(socket)
        .and_then(|it| it.open(None))
        .and_then(|context| context.device_info());
    assert_eq!(first.expect("the first device").interface, FORKS[0]);
    for (name, code) in [
        ("eth77", RefusalCode::UnknownObject),
        ("192.0.2.1", RefusalCode::AddressNotLocal),
    ] {
        let Ok(name) = name.parse();
        match rnic::Daemon::at(socket).and_then(|it| it.open(Some(&name))) {
            Err(Error::Refused(refusal)) => {
                assert_eq!(refusal.code, code);
                assert!(refusal.message.contains(FORKS[1]), "{refusal}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    // Each device's connections go over its own interface, and no other's.
    let astray = Endpoint::of(fork.context(0), 4096);
    let at = fork.far_hosts[1].address(Family::V4, PORT);
    match astray
        .qp
        .connect(at, ConnectOptions::default())
        .wait(Duration::from_secs(10))
    {
        Err(Error::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::Unreachable),
        other => panic!("{other:?}"),
    }
    // What one device's client has means nothing to another's.
    let cq = astray.pd.create_qp(&b.cq, &b.cq, QpConfig::default());
    assert!(matches!(cq, Err(Error::WrongContext { .. })), "{cq:?}");

    let shown = fork.rnicctl(&["connections"]);
    let mut interfaces: Vec<_> = shown.as_array().expect("a list").iter().collect();
    interfaces.retain(|one| one["stage"] == "rdma");
    let interfaces: Vec<_> = interfaces.iter().map(|one| &one["interface"]).collect();
    assert_eq!(interfaces, FORKS);
    let devices = fork.rnicctl(&["devices"]);
    assert_eq!(devices[1]["interface"], FORKS[1]);
    let qps = fork.rnicctl(&["qps", "--device", FORKS[1]]);
    let qps = qps.as_array().expect("a list");
    assert!(qps.len() == 1 && qps[0]["interface"] == FORKS[1], "{qps:?}");
    let counters = fork.rnicctl(&["counters"]);
    let key = format!("{}:connections", FORKS[1]);
    assert_eq!(counters[&key], 1);

    let text = scrape(&fork.lab.directory().join("metrics.sock"));
    for interface in FORKS {
        let series = format!("rnic_queue_pairs{{shard=\"0\",interface=\"{interface}\"}} ");
        assert!(text.contains(&series), "no {series} in {text}");
    }
    // Counted once, for both.
    assert_eq!(text.matches("\nrnic_clients ").count(), 1);
}

#[test]
fn an_interface_that_is_deleted_takes_its_own_connections_and_no_others() {
    let mut fork = Fork::new("one-gone", "");
    let (a, _a_far) = fork.connection(0, PORT);
    let (b, b_far) = fork.connection(1, PORT);
    moves(&b, &b_far, 1);
    let late = Endpoint::of(fork.context(0), 4096);
    let near = &fork.near_hosts[0].namespace;
    near.ip(&["link", "delete", "dev", FORKS[0]]);
    match a.qp.disconnected().wait(Duration::from_secs(30)) {
        Err(Error::Disconnected { reason, message }) => {
            assert_eq!(reason, DisconnectReason::InterfaceGone);
            assert!(message.contains(FORKS[0]), "{message}");
        }
        other => panic!("{other:?}"),
    }
    moves(&b, &b_far, 2);
    moves(&b_far, &b, 3);
    // Nothing begins there any more, and everything elsewhere.
    let at = fork.far_hosts[0].address(Family::V4, PORT);
    match late
        .qp
        .connect(at, ConnectOptions::default())
        .wait(Duration::from_secs(10))
    {
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::Host, "{refusal}");
            assert!(refusal.message.contains(FORKS[0]), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    let name = DeviceName::Interface(FORKS[0].to_owned());
    let refused = wait::until("the interface is waited for", LIMIT, || {
        rnic::Daemon::at(fork.middle.socket())
            .and_then(|it| it.open(Some(&name)))
            .err()
    });
    let told = format!("waits for interface {}", FORKS[0]);
    assert!(refused.to_string().contains(&told), "{refused}");
    let at = fork.far_hosts[1].address(Family::V6, PORT + 1);
    let _server = tool::server(&fork.far[1], "rnic-ping", at, &[]);
    // Which of the two devices leads there, the tool finds.
    let ping = tool::client(&fork.middle, "rnic-ping", at, &[]);
    let _ = ping.run().success();
    fork.middle.assert_alive();
    drop((a, b, late));
    let _ = fork.middle.stop();
}

#[test]
fn limits_are_of_all_interfaces_together() {
    let limits = "[limits.user]\nqueue_pairs = 3\nclients = 4\n";
    let fork = Fork::new("limits", limits);
    let a = Endpoint::of(fork.context(0), 4096);
    let b = Endpoint::of(fork.context(1), 4096);
    let create = |of: &Endpoint| of.pd.create_qp(&of.cq, &of.cq, QpConfig::default());
    let third = create(&b).expect("a third queue pair");
    for end in [&a, &b] {
        match create(end) {
            Err(Error::Refused(refusal)) => {
                assert_eq!(refusal.code, RefusalCode::Limit);
                assert!(refusal.message.contains("queue_pairs"), "{refusal}");
            }
            other => panic!("{other:?}"),
        }
    }
    drop(third);
    let _room = create(&a).expect("what one device's client let go is the other's");
    let _more = [fork.context(0), fork.context(1)];
    let name = DeviceName::Interface(FORKS[0].to_owned());
    match rnic::Daemon::at(fork.middle.socket()).and_then(|it| it.open(Some(&name))) {
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::Limit);
            assert!(refusal.message.contains("clients"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    // The far ends have one interface each, and no other device to choose from.
    let far = rnic::Daemon::at(fork.far[0].socket())
        .and_then(|it| it.devices())
        .expect("devices");
    assert_eq!(far, [INTERFACE]);
}
