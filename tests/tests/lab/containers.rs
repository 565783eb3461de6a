//! Daemon and clients may live in different containers.

use std::time::Duration;

use rnic::admin::{Kind, Object};
use rnic_tests::daemon::Daemon;
use rnic_tests::lab::{Command, Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::user::{open_to_all, run_as};
use rnic_tests::verbs::{Endpoint, connect};
use rnic_tests::{binary, wait};

const VICTIM: u32 = 61_020;

#[test]
fn a_client_whose_process_the_daemon_cannot_see_is_served() {
    let mut lab = Lab::new("pid-namespace");
    let (host, _) = lab.pair(&LinkOptions::default());
    let socket = lab.directory().join("rnicd.sock");
    let mut daemon = host
        .namespace
        .command("unshare")
        .args(["--pid", "--fork", "--kill-child"])
        .arg(binary::path("rnicd"))
        .args(["--interface", INTERFACE, "--socket"])
        .arg(&socket)
        .spawn();
    wait::until("rnicd is ready", Duration::from_secs(30), || {
        assert!(daemon.running(), "{}", daemon.stderr());
        daemon.stderr().contains("ready").then_some(())
    });
    let context = rnic::Daemon::at(&socket)
        .and_then(|it| it.open(None))
        .unwrap_or_else(|error| panic!("{error}\n{}", daemon.stderr()));
    assert_eq!(context.device_info().unwrap().interface, INTERFACE);
}

/// What makes a root of each kind that no operator is: no right, or rights in a namespace of its own.
const ROOTS: [&[&str]; 4] = [
    &["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
    // As a container runtime leaves it by default.
    &[
        "setpriv",
        "--inh-caps=-all",
        "--bounding-set=-all,+chown,+dac_override,+fowner,+setuid,+setgid,+setpcap,+net_raw,+net_bind_service",
    ],
    &["unshare", "--user", "--map-root-user"],
    &[
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--net",
        "--ipc",
        "--uts",
        "--pid",
        "--fork",
    ],
];

/// Root by its uid alone is no operator: it sees no other user's objects, takes none away, captures nothing.
#[test]
fn root_of_a_container_is_no_administrator() {
    let pair = Pair::new("container-root");
    open_to_all(&pair.daemon_a);
    let socket = pair.daemon_a.socket();
    let context = run_as(VICTIM, || {
        rnic::Daemon::at(socket).and_then(|it| it.open(None))
    })
    .expect("the daemon serves");
    let victim = Endpoint::of(context, 4096);
    let peer = Endpoint::new(&pair.daemon_b, 4096);
    connect(&victim, &peer, pair.b.address(Family::V4, 18515));
    let operator = rnic::Daemon::at(socket)
        .and_then(|it| it.open(None))
        .expect("the daemon serves");
    let all = operator
        .inspect(Kind::Connections)
        .expect("the operator may");
    let number = all.iter().find_map(|object| match object {
        Object::Connection(one) => Some(one.connection.to_string()),
        _ => None,
    });
    let number = number.expect("the victim's connection");
    let file = pair.lab.directory().join("theirs.pcapng");
    let rnicctl = binary::path("rnicctl");
    let as_root = |root: &[&str], arguments: &[&str]| -> Command {
        let command = pair.a.namespace.command("env").label("rnicctl");
        let command = command.args(root).arg(&rnicctl).arg("--socket").arg(socket);
        command.args(arguments)
    };
    let capture = file.to_str().expect("a path of ASCII letters");
    for root in ROOTS {
        // It is a client like another.
        let _ = as_root(root, &["device"]).run().success();
        for order in [
            &["capture", capture, "--duration", "1s"][..],
            &["log", "debug"],
            &["reload"],
        ] {
            let told = as_root(root, order).run().failure();
            for words in ["for administrators", "without CAP_SYS_ADMIN"] {
                assert!(told.contains(words), "{root:?} {order:?}: {told}");
            }
        }
        let _ = as_root(root, &["drop", "connection", &number])
            .run()
            .failure();
        let shown = as_root(root, &["connections"]).run().success();
        assert!(!shown.stdout.contains("18515"), "{root:?}: {shown}");
    }
    assert!(!file.exists());
    victim.fill(7);
    let done = as_root(&["setpriv"], &["capture", capture, "--duration", "10ms"]);
    let _ = done.run().success();
}

#[test]
fn root_of_the_host_is_an_administrator_of_a_daemon_in_a_pid_namespace() {
    let mut lab = Lab::new("container-daemon");
    let (host, _) = lab.pair(&LinkOptions::default());
    let socket = lab.directory().join("rnicd.sock");
    let command = host.namespace.command("unshare").label("rnicd");
    let command = command
        .args(["--pid", "--fork", "--kill-child"])
        .arg(binary::path("rnicd"));
    let command = command
        .args(["--interface", INTERFACE, "--socket"])
        .arg(&socket);
    let _daemon = Daemon::started(command, &host.namespace, &socket, None);
    let rnicctl = host
        .namespace
        .command(binary::path("rnicctl"))
        .arg("--socket");
    let _ = rnicctl.arg(&socket).args(["log", "debug"]).run().success();
}
