//! The configuration is read again while the daemon runs, and what goes on goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rnic::{Context, Error};
use rnic_tests::daemon::{Daemon, DaemonOptions, configuration, configure};
use rnic_tests::lab::{Command, Family, Host, INTERFACE, Lab, LinkOptions, Signal};
use rnic_tests::user::run_as;
use rnic_tests::verbs::{Endpoint, connect};
use rnic_tests::{binary, tool, wait};

const PORT: u16 = 18515;
const NOBODY: u32 = 65_534;
const LIMIT: Duration = Duration::from_secs(20);

struct Bench {
    daemon: Daemon,
    file: PathBuf,
    a: Host,
    b: Host,
    lab: Lab,
}

impl Bench {
    fn new(name: &str, lines: &str) -> Self {
        let mut lab = Lab::new(name);
        let (a, b) = lab.pair(&LinkOptions::default());
        let (file, options) = configuration(&lab, &for_all(lines));
        let daemon = Daemon::start(&lab, &a, &options);
        Self {
            daemon,
            file,
            a,
            b,
            lab,
        }
    }

    fn write(&self, lines: &str) {
        configure(&self.file, &for_all(lines));
    }

    fn rnicctl(&self, word: &str) -> Command {
        let rnicctl = self.a.namespace.command(binary::path("rnicctl"));
        rnicctl.arg("--socket").arg(self.daemon.socket()).arg(word)
    }

    /// Waits until the daemon has logged this so many times.
    fn logged(&self, words: &str, times: usize) {
        wait::until(words, LIMIT, || {
            (self.daemon.log().matches(words).count() >= times).then_some(())
        });
    }

    fn connect(&self) -> Result<Context, Error> {
        run_as(NOBODY, || {
            rnic::Daemon::at(self.daemon.socket()).and_then(|it| it.open(None))
        })
    }
}

fn for_all(lines: &str) -> String {
    format!("socket_mode = \"0666\"\n{lines}")
}

#[test]
fn sighup_applies_limits_and_the_log_level_and_ends_nothing() {
    let mut bench = Bench::new("reload", "");
    let peer = Daemon::start(&bench.lab, &bench.b, &DaemonOptions::default());
    let at = bench.b.address(Family::V4, PORT);
    let server = tool::server(&peer, "rnic-perf", at, &[]);
    let writing = ["--duration", "4s", "--verify"];
    let client = tool::client(&bench.daemon, "rnic-perf", at, &writing).spawn();
    let before = bench.connect().unwrap();

    bench.write(&format!("log = \"debug\"\n[user.{NOBODY}]\nclients = 1"));
    bench.daemon.signal(Signal::HUP);
    bench.logged("is reloaded", 1);
    let error = bench.connect().unwrap_err().to_string();
    assert!(error.contains("limit clients is 1"), "{error}");
    let _ = bench.rnicctl("device").run().success();
    bench.logged("[DEBUG", 1);
    // Who was there before stays, though there are as many as there may be.
    before.device_info().unwrap();

    bench.write("");
    bench.daemon.signal(Signal::HUP);
    bench.logged("is reloaded", 2);
    drop(bench.connect().unwrap());

    let _ = client.finish(LIMIT).success();
    let _ = server.terminate();
    bench.daemon.assert_alive();
}

#[test]
fn a_fault_is_told_and_nothing_changes() {
    let bench = Bench::new("reload-fault", "");
    let reload = || bench.rnicctl("reload").run();
    let limit = format!("[user.{NOBODY}]\nclients = 0");

    bench.write(&format!("{limit}\nclient = 1"));
    let error = reload().failure();
    let place = format!("{}:6:1: key `client` is unknown", bench.file.display());
    assert!(error.contains(&place), "{error}");

    bench.write(&format!("frames = 8192\nmode = \"generic\"\n{limit}"));
    let error = reload().failure();
    assert!(error.contains("another frames asked"), "{error}");
    assert!(error.contains("another mode asked"), "{error}");

    std::fs::remove_file(&bench.file).expect("it is ours");
    let error = reload().failure();
    assert!(error.contains("can't read the configuration"), "{error}");
    let _client = bench.connect().unwrap();

    bench.write(&limit);
    let _ = reload().success();
    bench.connect().unwrap_err();
    assert_eq!(
        bench.daemon.log().matches("is not reloaded").count(),
        3,
        "{}",
        bench.daemon.log()
    );
}

#[test]
fn only_administrators_order_it_and_only_where_there_is_a_file() {
    let bench = Bench::new("reload-order", "");
    let order = |socket: &Path| {
        let daemon = rnic::Daemon::at(socket).unwrap();
        daemon.order(rnic::admin::DaemonOrder::Reload { reopen: false })
    };
    let refused = run_as(NOBODY, || order(bench.daemon.socket()));
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("this is for administrators"), "{error}");
    let peer = Daemon::start(&bench.lab, &bench.b, &DaemonOptions::default());
    let refused = order(peer.socket());
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("no configuration file"), "{error}");
}

#[test]
fn each_setting_that_needs_the_interface_opened_again_is_named_in_the_answer_and_in_the_log() {
    let bench = Bench::new("reload-named", "");
    let capture = bench.lab.directory().join("a.pcapng");
    let lines = format!(
        "socket_mode = \"0666\"\nidle_spin = 30\nuser_timeout = 50000\nkeepalive_idle = 9\nqueues = 1\ndedicated_queues = \"0\"\n\
         mode = \"generic\"\ncapture = \"{}\"\nbusy_poll = 20\nsyn_rate = 9\nframes = 8192\n\
         no_loopback = true\nno_seccomp = true\ncongestion = \"newreno\"\nno_wait = false\n\
         [[interface]]\nname = \"{INTERFACE}\"\n[[interface.vlan]]\nid = 7\naddresses = [\"198.51.100.0/24\"]\n",
        capture.display()
    );
    std::fs::write(&bench.file, lines).expect("the directory is ours");
    let error = bench.rnicctl("reload").run().failure();
    let log = bench.daemon.log();
    let named = [
        "loopback",
        "queues",
        "dedicated_queues",
        "vlan",
        "mode",
        "capture",
        "busy_poll",
        "syn_rate",
        "frames",
        "no_seccomp",
        "congestion",
    ];
    for setting in named {
        let words = format!("interface {INTERFACE}: another {setting} asked");
        for told in [&error, &log] {
            assert_eq!(told.matches(&words).count(), 1, "{words}: {told}");
        }
    }
    // Those that hold at once are no faults.
    assert_eq!(error.matches("another ").count(), named.len(), "{error}");
    assert_eq!(error.matches("--reopen").count(), named.len(), "{error}");
    assert!(!capture.exists());

    // More would be cut off in the answer.
    bench.write("shards = 2\ncores = \"0\"\nsctp_udp_port = 9899");
    let error = bench.rnicctl("reload").run().failure();
    let named = ["shards", "cores", "sctp_udp_port"];
    for setting in named {
        let words = format!("interface {INTERFACE}: another {setting} asked");
        assert_eq!(error.matches(&words).count(), 1, "{words}: {error}");
    }
    assert_eq!(error.matches("another ").count(), named.len(), "{error}");
}

#[test]
fn each_setting_that_needs_a_restart_is_named_in_the_answer_and_in_the_log() {
    let bench = Bench::new("reload-restart", "");
    let lines = format!(
        "interface = \"{INTERFACE}\"\nsocket_mode = \"0660\"\nsocket_group = 0\nmetrics = \"127.0.0.1:9401\"\n\
         no_wait = true\nidle_spin = 20\n"
    );
    std::fs::write(&bench.file, lines).expect("the directory is ours");
    let error = bench.rnicctl("reload").run().failure();
    let log = bench.daemon.log();
    for setting in ["socket_mode", "socket_group", "metrics", "no_wait"] {
        let words = format!("another {setting} asked, which holds from the start on");
        for told in [&error, &log] {
            assert_eq!(told.matches(&words).count(), 1, "{words}: {told}");
        }
    }
}

/// A peer that is stopped closes nothing, so the daemon's end takes as long as it waits for that.
#[test]
fn the_time_for_connections_to_end_in_is_that_of_the_last_reload() {
    let bench = Bench::new("reload-drain", "drain = 100");
    let mut peer = Daemon::start(&bench.lab, &bench.b, &DaemonOptions::default());
    let at = bench.b.address(Family::V4, PORT);
    let ours = Endpoint::new(&bench.daemon, 4096);
    let theirs = Endpoint::new(&peer, 4096);
    connect(&ours, &theirs, at);
    bench.write("drain = 4000");
    let _ = bench.rnicctl("reload").run().success();
    peer.signal(Signal::STOP);
    let begun = Instant::now();
    let _ = bench.daemon.stop();
    let lasted = begun.elapsed();
    peer.signal(Signal::CONT);
    assert!(lasted >= Duration::from_millis(3500), "{lasted:?}");
}
