//! Interfaces are added to a running daemon and taken from it, and opened again by order or because their MTU
//! was raised. Others don't notice.

use std::path::PathBuf;
use std::time::Duration;

use rnic::{Context, DeviceName, Error, ListenOptions};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, FORKS, Family, Host, INTERFACE, Lab, LinkOptions, Process};
use rnic_tests::{binary, tool, wait};
use rustix::process::Signal;

const PORT: u16 = 18515;
const LIMIT: Duration = Duration::from_secs(30);

/// A daemon at one end of two links, that serves what its file names, and a daemon at the other end of each.
/// Dropped in this order.
struct Bench {
    daemon: Daemon,
    far: [Daemon; 2],
    near: Host,
    /// The same host, by its other interface.
    near_too: Host,
    far_hosts: [Host; 2],
    file: PathBuf,
    _lab: Lab,
}

impl Bench {
    fn new(name: &str, interfaces: &[&str]) -> Self {
        let mut lab = Lab::new(name);
        let [(near, far1), (near_too, far2)] = lab.forked(&LinkOptions::default());
        let file = lab.directory().join("rnicd.toml");
        write(&file, interfaces, "");
        let words = ["--config".to_owned(), file.display().to_string()];
        let socket = lab.directory().join("fork.sock");
        let daemon = rnicd(&near, &socket, &words);
        let far = [&far1, &far2].map(|host| Daemon::start(&lab, host, &DaemonOptions::default()));
        Self {
            daemon,
            far,
            near,
            near_too,
            far_hosts: [far1, far2],
            file,
            _lab: lab,
        }
    }

    fn rnicctl(&self, words: &[&str]) -> Command {
        let rnicctl = self.near.namespace.command(binary::path("rnicctl"));
        rnicctl
            .arg("--socket")
            .arg(self.daemon.socket())
            .args(words)
    }

    fn devices(&self) -> Vec<String> {
        rnic::Daemon::at(self.daemon.socket())
            .and_then(|it| it.devices())
            .expect("it answers")
    }

    fn open(&self, interface: &str) -> Result<Context, Error> {
        let device = DeviceName::Interface(interface.to_owned());
        rnic::Daemon::at(self.daemon.socket()).and_then(|it| it.open(Some(&device)))
    }

    /// Verified traffic over one of the links, for so many seconds.
    fn traffic(&self, link: usize, seconds: &str) -> (Process, Process) {
        let at = self.far_hosts[link].address(Family::V4, PORT);
        let server = tool::server(&self.far[link], "rnic-perf", at, &[]);
        let words = ["--duration", seconds, "--verify"];
        let mut client = tool::client(&self.daemon, "rnic-perf", at, &words).spawn();
        std::thread::sleep(Duration::from_millis(500));
        assert!(client.running(), "{}", client.stderr());
        (client, server)
    }

    /// Another connection over one of the links.
    #[track_caller]
    fn ping(&self, link: usize) {
        let at = self.far_hosts[link].address(Family::V4, PORT + 1);
        let _server = tool::server(&self.far[link], "rnic-ping", at, &[]);
        let client = tool::client(&self.daemon, "rnic-ping", at, &["--count", "2"]);
        let _ = client.run().success();
    }

    /// A connection from each interface of the daemon to the other, by no wire.
    #[track_caller]
    fn ping_within(&self) {
        let hosts = [&self.near, &self.near_too];
        for (from, to) in [(0, 1), (1, 0)] {
            let transmitted = || {
                let counters = self.open(FORKS[from]).expect("it is open").counters();
                let counters = counters.expect("the daemon tells its counters");
                // Queues come first, one for each of these interfaces.
                ["port0_transmitted", "port1_transmitted"].map(|wanted| {
                    let found = counters.iter().find(|(name, _)| name == wanted);
                    found.map_or(0, |(_, count)| *count)
                })
            };
            let before = transmitted();
            let at = hosts[to].address(Family::V4, PORT + 2);
            let server = ["--device", FORKS[to]];
            let _server = tool::server(&self.daemon, "rnic-ping", at, &server);
            let client = ["--device", FORKS[from], "--count", "2"];
            let client = tool::client(&self.daemon, "rnic-ping", at, &client);
            let _ = client.run().success();
            let after = transmitted();
            assert_eq!(after[0], before[0], "the interface has some of it");
            assert!(after[1] > before[1], "{before:?}, {after:?}");
        }
    }

    fn logged(&self, words: &str, times: usize) {
        wait::until(words, LIMIT, || {
            (self.daemon.log().matches(words).count() >= times).then_some(())
        });
    }
}

/// A daemon that takes its interfaces from its file.
fn rnicd(host: &Host, socket: &std::path::Path, words: &[String]) -> Daemon {
    let rnicd = host.namespace.command(binary::path("rnicd"));
    let command = rnicd.arg("--socket").arg(socket).args(words);
    Daemon::started(command, &host.namespace, socket, None)
}

fn write(file: &PathBuf, interfaces: &[&str], lines: &str) {
    let tables = interfaces
        .iter()
        .map(|name| format!("[[interface]]\nname = \"{name}\"\n"));
    let text = format!("idle_spin = 20\n{}{lines}\n", tables.collect::<String>());
    std::fs::write(file, text).expect("the directory is ours");
}

/// What a daemon has of the kernel.
#[derive(Debug)]
struct Held {
    threads: usize,
    files: usize,
    mappings: usize,
}

impl Held {
    fn by(daemon: &Daemon) -> Self {
        Self {
            threads: daemon.threads(),
            files: daemon.open_files(),
            mappings: daemon.shared_mappings(),
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        self.threads <= other.threads
            && self.files <= other.files
            && self.mappings <= other.mappings
    }
}

#[test]
fn flaps_mtu_changes_deletions_and_reloads_under_load_end_and_leak_nothing_else() {
    let bench = Bench::new("changes", &FORKS);
    let ends = [
        (&bench.near, FORKS[1], 1),
        (&bench.far_hosts[1], INTERFACE, 2),
    ];
    let cable = |mtu: &str| {
        let far = bench.far_hosts[1].namespace.name();
        let near_end = ["link", "add", FORKS[1], "mtu", mtu, "type", "veth"];
        let far_end = ["peer", "name", INTERFACE, "mtu", mtu, "netns", far];
        bench.near.namespace.ip(&[&near_end[..], &far_end].concat());
        for (host, name, number) in ends {
            let address = format!("198.18.2.{number}/24");
            host.namespace
                .ip(&["address", "add", &address, "dev", name]);
            host.namespace.ip(&["link", "set", "dev", name, "up"]);
        }
    };
    let (mut steady, _server) = bench.traffic(0, "3600");
    let (mut shaken, _other) = bench.traffic(1, "3600");
    let held = Held::by(&bench.daemon);
    let set = |words: &[&str]| {
        let link = ["link", "set", "dev", FORKS[1]];
        bench.near.namespace.ip(&[&link, words].concat());
    };
    let pause = |millis| std::thread::sleep(Duration::from_millis(millis));
    for _ in 0..20 {
        set(&["down"]);
        pause(50);
        set(&["up"]);
        pause(200);
    }
    for round in 0..10 {
        set(&["mtu", if round % 2 == 0 { "1400" } else { "1500" }]);
        pause(100);
    }
    for round in 0..40 {
        write(
            &bench.file,
            &FORKS,
            &format!("[limits.user]\nclients = {}", 40 + round % 2),
        );
        let _ = bench.rnicctl(&["reload"]).run().success();
    }
    let before = shaken.stderr();
    wait::until("the shaken connection goes on", LIMIT, || {
        (shaken.stderr() != before).then_some(())
    });
    assert!(shaken.running(), "{}", shaken.stderr());
    let _ = shaken.terminate();

    for round in 0..8 {
        bench
            .near
            .namespace
            .ip(&["link", "delete", "dev", FORKS[1]]);
        cable(if round % 2 == 0 { "9000" } else { "1500" });
        let words = format!("interface {}: XDP in", FORKS[1]);
        bench.logged(&words, round + 2);
    }
    let before = steady.stderr();
    wait::until("the other connection goes on", LIMIT, || {
        (steady.stderr() != before).then_some(())
    });
    assert!(steady.running(), "{}", steady.stderr());
    let now = wait::until("what the daemon holds", LIMIT, || {
        let now = Held::by(&bench.daemon);
        now.is_within(&held).then_some(now)
    });
    assert!(now.is_within(&held), "{now:?} after {held:?}");
    let _ = steady.terminate();
    let _ = bench.daemon.stop();
}

#[test]
fn a_reload_adds_interfaces_and_takes_them_away_and_others_go_on() {
    let bench = Bench::new("reload-interfaces", &[FORKS[0]]);
    let (client, _server) = bench.traffic(0, "8");
    let reload = || bench.rnicctl(&["reload"]).run();
    assert_eq!(bench.devices(), [FORKS[0]]);

    // One that can't be opened at all keeps the other from being added as well.
    write(&bench.file, &[FORKS[0], FORKS[1], "lo"], "");
    let error = reload().failure();
    assert!(error.contains("lo is no Ethernet interface"), "{error}");
    assert_eq!(bench.devices(), [FORKS[0]]);

    // The one that was there becomes the second; one that is not ready is waited for.
    write(&bench.file, &[FORKS[1], FORKS[0], "late0"], "");
    let _ = reload().success();
    assert_eq!(bench.devices(), [FORKS[1], FORKS[0]]);
    let error = bench
        .open("late0")
        .expect_err("it is not there")
        .to_string();
    assert!(error.contains("waits for interface late0"), "{error}");
    bench.ping(1);

    let context = bench.open(FORKS[1]).expect("it is open");
    write(&bench.file, &[FORKS[0]], "");
    let _ = reload().success();
    assert_eq!(bench.devices(), [FORKS[0]]);
    let error = context
        .device_info()
        .expect_err("its device is closed")
        .to_string();
    let told = format!(
        "interface {} was taken out of the RNIC's configuration",
        FORKS[1]
    );
    assert!(error.contains(&told), "{error}");
    // Its addresses are the kernel's alone again.
    rnic_tests::daemon::assert_nothing_attached(&bench.near.namespace, FORKS[1]);
    let error = bench
        .open(FORKS[1])
        .expect_err("it is not served")
        .to_string();
    assert!(error.contains("only the interfaces"), "{error}");

    // And once more, by another number.
    write(&bench.file, &[FORKS[0], FORKS[1]], "");
    let _ = reload().success();
    bench.ping(1);
    let _ = client.finish(LIMIT).success();
    let _ = bench.daemon.stop();
}

#[test]
fn settings_of_the_opening_are_taken_by_opening_again_and_only_if_that_is_said() {
    let bench = Bench::new("reload-reopen", &FORKS);
    let (client, _server) = bench.traffic(0, "6");
    let context = bench.open(FORKS[1]).expect("it is open");
    let both = [FORKS[0], FORKS[1]];
    write(&bench.file, &both, "mode = \"generic\"");
    let error = bench.rnicctl(&["reload"]).run().failure();
    assert!(error.contains("another mode asked"), "{error}");
    assert!(error.contains("--reopen"), "{error}");
    let _ = context.device_info().expect("nothing has changed");

    let _ = bench.rnicctl(&["reload", "--reopen"]).run().success();
    let again = bench.open(FORKS[1]).expect("it is open again");
    let info = again.device_info().expect("it answers");
    assert_eq!(info.xdp_mode, "generic");
    let error = context
        .device_info()
        .expect_err("its device is closed")
        .to_string();
    assert!(
        error.contains("is opened again: open the device again"),
        "{error}"
    );
    bench.ping(1);
    let _ = client.finish(LIMIT).success();
    let _ = bench.daemon.stop();
}

#[test]
fn a_raised_mtu_is_taken_by_order_or_when_no_client_is_there() {
    let bench = Bench::new("reopen", &FORKS);
    let (client, _server) = bench.traffic(0, "12");
    let raise = |mtu: &str| {
        for (host, interface) in [(&bench.near, FORKS[1]), (&bench.far_hosts[1], INTERFACE)] {
            host.namespace
                .ip(&["link", "set", "dev", interface, "mtu", mtu]);
        }
    };
    let opened = |mtu: u32, times| {
        let words = format!("interface {}: XDP in", FORKS[1]);
        wait::until("it is opened with its MTU", LIMIT, || {
            let log = bench.daemon.log();
            let mut lines = log.lines().filter(|line| line.contains(&words));
            let found = lines.clone().count() >= times;
            let found = found && lines.next_back()?.contains(&format!("MTU {mtu},"));
            found.then_some(())
        });
    };

    let held = bench.open(FORKS[1]).expect("it is open");
    raise("3000");
    bench.logged("MTU 3000, was", 1);
    std::thread::sleep(Duration::from_secs(1));
    let _ = held.device_info().expect("a client is there");
    let error = bench.rnicctl(&["reopen", "eth9"]).run().failure();
    assert!(error.contains("only the interfaces"), "{error}");
    let _ = bench.rnicctl(&["reopen", FORKS[1]]).run().success();
    opened(3000, 2);
    let error = held
        .device_info()
        .expect_err("its device is closed")
        .to_string();
    assert!(
        error.contains("is opened again: open the device again"),
        "{error}"
    );
    drop(held);
    bench.ping(1);

    // Without clients it is opened again by itself. Whoever comes meanwhile waits.
    raise("9000");
    bench.logged("is being opened again", 2);
    bench.ping(1);
    opened(9000, 3);

    // It stays as it is with an MTU that no frames carry.
    raise("12000");
    let error = bench.rnicctl(&["reopen", FORKS[1]]).run().failure();
    assert!(error.contains("MTU of 12000 bytes"), "{error}");
    bench.ping(1);
    raise("9000");

    // Down it does too.
    bench
        .near
        .namespace
        .ip(&["link", "set", "dev", FORKS[1], "down"]);
    let error = bench.rnicctl(&["reopen", FORKS[1]]).run().failure();
    assert!(error.contains("is down"), "{error}");
    bench
        .near
        .namespace
        .ip(&["link", "set", "dev", FORKS[1], "up"]);
    bench.ping(1);
    let _ = client.finish(LIMIT).success();
    let _ = bench.daemon.stop();
}

#[test]
fn an_interface_that_is_opened_later_or_again_is_joined_with_the_others() {
    let bench = Bench::new("joined-late", &[FORKS[0]]);
    write(&bench.file, &FORKS, "");
    let _ = bench.rnicctl(&["reload"]).run().success();
    bench.ping_within();
    for _ in 0..2 {
        for interface in FORKS {
            let _ = bench.rnicctl(&["reopen", interface]).run().success();
            bench.ping_within();
        }
    }
    // Taken away and back, by another number.
    write(&bench.file, &[FORKS[1]], "");
    let _ = bench.rnicctl(&["reload"]).run().success();
    write(&bench.file, &FORKS, "");
    let _ = bench.rnicctl(&["reload"]).run().success();
    bench.ping_within();
    let _ = bench.daemon.stop();
}

/// The tables of a device go back to the host with it, and those of the next take no pages that nobody uses.
#[test]
fn an_interface_that_is_opened_again_takes_no_more_memory_than_before() {
    const MORE: u64 = 24 << 20;
    let bench = Bench::new("memory-again", &[FORKS[0]]);
    let before = bench.daemon.resident_bytes();
    for _ in 0..6 {
        let _ = bench.rnicctl(&["reopen", FORKS[0]]).run().success();
    }
    let _context = bench.open(FORKS[0]).expect("it is open");
    let after = bench.daemon.resident_bytes();
    println!("{before} bytes before, {after} after");
    assert!(
        after < before + MORE,
        "{before} bytes before, {after} after"
    );
    let _ = bench.daemon.stop();
}

/// Connections have time to end, and what would begin meanwhile is told why it can't.
#[test]
fn what_would_begin_at_an_interface_that_is_about_to_close_is_told_why() {
    let mut bench = Bench::new("draining", &FORKS);
    for (interfaces, order, words) in [
        (
            &FORKS[..],
            &["reopen", FORKS[1]][..],
            "is opened again: open the device again",
        ),
        (
            &FORKS[..1],
            &["reload"],
            "was taken out of the RNIC's configuration",
        ),
    ] {
        let context = bench.open(FORKS[1]).expect("it is open");
        let (_client, _server) = bench.traffic(1, "3600");
        bench.far[1].freeze();
        write(&bench.file, interfaces, "");
        let done = bench.rnicctl(order).spawn();
        let at = bench.near_too.address(Family::V4, PORT + 3);
        let error = wait::until("it is refused", Duration::from_secs(4), || {
            context
                .listen(at, ListenOptions::default().backlog(1))
                .err()
        });
        assert!(error.to_string().contains(words), "{error}");
        bench.far[1].signal(Signal::CONT);
        let _ = done.finish(LIMIT).success();
    }
    let _ = bench.daemon.stop();
}
