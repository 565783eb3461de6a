//! Control groups with limits of memory: a client pays for its memory itself, and a daemon whose group
//! has no more refuses requests, since the kernel would kill it.
//!
//! Where the machine has no such groups for the user that runs this, each test says so: `NOT TESTED`.

use rnic::{WcStatus, WorkRequest};
use rnic_tests::binary;
use rnic_tests::cgroup::Cgroup;
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, Family, INTERFACE, Lab, LinkOptions, Namespace};
use rnic_tests::verbs::{Endpoint, LIMIT, connect};
use rnic_tests::wait;

const PORT: u16 = 18515;
const MIB: u64 = 1 << 20;
/// What the client's group may have.
const CLIENT: u64 = 64 * MIB;
/// What the daemon's group may have beyond what the daemon has with one connection: it keeps 16 MiB.
const MORE: u64 = 24 * MIB;

fn inside(group: &Cgroup, namespace: &Namespace, program: &str) -> Command {
    let shell = namespace.command("sh").label(program);
    let script = group.script();
    shell.args(["-c", &script, "sh"]).arg(binary::path(program))
}

fn daemon_inside(group: &Cgroup, lab: &Lab, namespace: &Namespace) -> Daemon {
    let socket = lab.directory().join(format!("{}.sock", namespace.name()));
    let command = inside(group, namespace, "rnicd")
        .args(["--interface", INTERFACE, "--socket"])
        .arg(&socket);
    Daemon::started(command, namespace, &socket, None)
}

#[test]
fn a_client_pays_for_its_memory_with_its_own_group() {
    let name = "a client's memory is charged to its own cgroup";
    let (Some(of_daemon), Some(of_client)) = (Cgroup::new(name), Cgroup::new(name)) else {
        return;
    };
    let mut lab = Lab::new("client-group");
    let (host, _) = lab.pair(&LinkOptions::default());
    let mut daemon = daemon_inside(&of_daemon, &lab, &host.namespace);
    of_client.limit(CLIENT);
    let (charged, resident) = (of_daemon.usage(), daemon.resident_bytes());
    let client = inside(&of_client, &host.namespace, "memory-client")
        .arg("sparse")
        .arg(daemon.socket());
    let ended = client.run();
    println!("{}", ended.stdout);
    assert!(ended.stdout.contains("64 refused without pages"), "{ended}");
    // Its group's limit ends it: 64 MiB, with what it needs beside memory.
    let registered = ended
        .stdout
        .lines()
        .filter(|line| line.ends_with("registered"));
    let registered = registered.count();
    assert!((3..8).contains(&registered), "{ended}");
    assert!(!ended.status.success(), "{ended}");
    daemon.assert_alive();
    let charged = of_daemon.usage().saturating_sub(charged);
    let resident = daemon.resident_bytes().saturating_sub(resident);
    println!("the daemon's group is charged {charged} bytes more; {resident} more are resident");
    assert!(
        charged < 4 * MIB && resident < 4 * MIB,
        "{charged} and {resident}"
    );
}

#[test]
fn a_daemon_whose_group_has_no_more_memory_refuses_and_lives() {
    let Some(group) = Cgroup::new("a daemon in a cgroup with a limit refuses and lives") else {
        return;
    };
    let mut lab = Lab::new("daemon-group");
    let (host, other) = lab.pair(&LinkOptions::default());
    let mut daemon = daemon_inside(&group, &lab, &host.namespace);
    let peer = Daemon::start(&lab, &other, &DaemonOptions::default());
    let a = Endpoint::new(&daemon, 50_000);
    let b = Endpoint::new(&peer, 50_000);
    connect(&a, &b, other.address(Family::V4, PORT));
    group.limit(group.usage() + MORE);
    for round in 0..3 {
        // What it takes is charged to the daemon's group too.
        let client = inside(&group, &host.namespace, "memory-client")
            .arg("rings")
            .arg(daemon.socket());
        let ended = client.run();
        println!("{}", ended.stdout);
        assert!(ended.stdout.contains("no memory left"), "{ended}");
        daemon.assert_alive();
        a.fill(round);
        let all = [a.element(0..50_000)];
        a.post(WorkRequest::write(1, &all, b.remote()));
        assert_eq!(a.completion().status, WcStatus::Success);
        a.post(WorkRequest::read(2, &all, b.remote()));
        assert_eq!(a.completion().status, WcStatus::Success);
        assert!(a.holds(round) && b.holds(round));
        wait::until("there is memory again", LIMIT, || {
            let context = rnic::Daemon::at(daemon.socket())
                .and_then(|it| it.open(None))
                .ok()?;
            context.create_cq(16).ok()
        });
    }
    assert!(daemon.counter("refused_for_memory") >= 3);
}
