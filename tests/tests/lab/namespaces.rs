//! The lab itself: it is what the other tests believe in.

use std::path::Path;
use std::time::Duration;

use rnic_tests::lab::{Cable, Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::snmp::TcpCounters;
use rnic_tests::{stream, wait};

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

#[test]
fn hosts_reach_each_other_over_every_kind_of_link() {
    for options in [
        LinkOptions::default(),
        LinkOptions {
            mtu: 3506,
            ..LinkOptions::default()
        },
        LinkOptions {
            queues: 2,
            ..LinkOptions::default()
        },
        LinkOptions {
            offloads: true,
            ..LinkOptions::default()
        },
    ] {
        let mut lab = Lab::new("links");
        let (a, b) = lab.pair(&options);
        for family in Family::ALL {
            stream::exchange(&a, &b, family, 200_000);
        }
    }
}

#[test]
fn kernel_tcp_shows_in_the_kernels_counters() {
    let mut lab = Lab::new("counters");
    let (a, b) = lab.pair(&LinkOptions::default());
    let before = TcpCounters::read(&b.namespace);
    assert_eq!(
        before,
        TcpCounters::read(&b.namespace),
        "a quiet host counts nothing"
    );
    stream::exchange(&a, &b, Family::V4, 100_000);
    let after = TcpCounters::read(&b.namespace);
    assert!(
        after.in_segments > before.in_segments + 60,
        "{before:?} {after:?}"
    );
    assert!(
        after.out_segments > before.out_segments + 60,
        "{before:?} {after:?}"
    );
}

#[test]
fn a_panic_leaves_no_namespace_and_no_process() {
    let (names, process) = (std::sync::Mutex::new(Vec::new()), std::sync::Mutex::new(0));
    let result = std::panic::catch_unwind(|| {
        let mut lab = Lab::new("panic");
        let (a, b) = lab.pair(&LinkOptions::default());
        let sleep = a.namespace.command("sleep").arg("600").spawn();
        *process.lock().unwrap() = sleep.id();
        names
            .lock()
            .unwrap()
            .extend([&a, &b].map(|host| host.namespace.name().to_owned()));
        assert!(names.lock().unwrap().iter().all(|name| exists(name)));
        panic!("this panic is meant");
    });
    assert!(result.is_err());
    for name in names
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner())
    {
        assert!(!exists(&name), "{name} is still there");
    }
    let pid = process
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    assert!(
        !Path::new(&format!("/proc/{pid}")).exists(),
        "process {pid} still runs"
    );
}

#[test]
fn what_a_crashed_run_left_behind_goes_and_what_a_live_one_uses_stays() {
    let live = Lab::new("live").namespace("x").name().to_owned();
    assert!(!exists(&live), "a lab takes its namespaces with it");

    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let stale = format!("rniclab-{}-0-x", gone.id());
    let made = std::process::Command::new("ip")
        .args(["netns", "add", &stale])
        .status()
        .unwrap();
    assert!(made.success());
    let mut left = std::process::Command::new("ip")
        .args(["netns", "exec", &stale, "sleep", "600"])
        .spawn()
        .unwrap();
    // `ip` becomes the program once it has joined the namespace: before that nobody finds it there.
    let name = format!("/proc/{}/comm", left.id());
    wait::until(
        "a process runs in the namespace",
        Duration::from_secs(30),
        || (std::fs::read_to_string(&name).unwrap() == "sleep\n").then_some(()),
    );

    let mut first = Lab::new("first");
    let used = first.namespace("x").name().to_owned();
    let _second = Lab::new("second");
    assert!(!exists(&stale), "{stale} is still there");
    assert!(exists(&used), "a lab that is in use was removed");
    wait::until(
        "the process left in the namespace has ended",
        Duration::from_secs(30),
        || left.try_wait().unwrap(),
    );
}

#[test]
#[should_panic(expected = "did not end within")]
fn a_program_that_does_not_end_is_killed_and_reported() {
    let mut lab = Lab::new("limit");
    let namespace = lab.namespace("x");
    let _ = namespace
        .command("sleep")
        .arg("600")
        .limit(Duration::from_millis(200))
        .run();
}

#[test]
fn programs_run_inside_and_say_what_came_of_them() {
    let mut lab = Lab::new("programs");
    let (a, b) = lab.pair(&LinkOptions::default());
    let ping = |address: &str| {
        a.namespace
            .command("ping")
            .args(["-c1", "-W2", address])
            .run()
    };
    let _ = ping(&b.v4.to_string()).success();
    let _ = ping(&b.v6.to_string()).success();
    assert!(!ping("198.18.77.77").status.success());
    let sysfs = a
        .namespace
        .command("ls")
        .arg("/sys/class/net")
        .run()
        .success();
    assert_eq!(
        sysfs.stdout.split_whitespace().collect::<Vec<_>>(),
        ["lo", "rnic0"]
    );
}

#[test]
fn a_tagged_cable_tags_one_way_and_untags_the_other() {
    let mut lab = Lab::new("tagged");
    let options = LinkOptions {
        cable: Some(Cable::Tagged(7)),
        ..LinkOptions::default()
    };
    let (a, b) = lab.pair(&options);
    a.knows(&b);
    let capture = lab.directory().join("tagged.pcap");
    let sniff = b.namespace.command("tcpdump");
    let sniff = sniff
        .args(["-i", INTERFACE, "-c", "1", "-U", "-w"])
        .arg(&capture)
        .arg("vlan 7");
    let sniff = sniff.spawn();
    wait::until("tcpdump listens", Duration::from_secs(30), || {
        sniff.stderr().contains("listening").then_some(())
    });
    let ping = a
        .namespace
        .command("ping")
        .args(["-c1", "-W1", &b.v4.to_string()])
        .run();
    assert!(!ping.status.success(), "a host without the VLAN answered");
    let _ = sniff.finish(Duration::from_secs(30)).success();
}
