//! What the daemon may do: little as root, enough as nobody in particular.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, INTERFACE, Lab, LinkOptions};
use rnic_tests::{binary, tool, wait};

/// Below 1024: for the privileged.
const PORT: u16 = 715;
const PATIENCE: Duration = Duration::from_secs(30);

/// CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_BPF of linux/capability.h.
const NEEDED: u64 = 1 << 10 | 1 << 12 | 1 << 39;

/// CAP_NET_RAW, CAP_IPC_LOCK, CAP_PERFMON: what the thread that opens interfaces has beside these.
const TO_OPEN: u64 = NEEDED | 1 << 13 | 1 << 14 | 1 << 38;

/// One line of a thread's status.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {status}"));
    u64::from_str_radix(value.trim(), 16).unwrap()
}

/// Name and status of each thread.
fn threads(pid: u32) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let thread = |path: &Path| {
        let comm = fs::read_to_string(path.join("comm")).ok()?;
        let status = fs::read_to_string(path.join("status")).ok()?;
        Some((comm.trim().to_owned(), status))
    };
    tasks
        .filter_map(|task| thread(&task.unwrap().path()))
        .collect()
}

fn assert_ping_works(a: &Daemon, b: &Daemon, to: &Host) {
    for family in Family::ALL {
        let at = to.address(family, PORT);
        let _server = tool::server(b, "rnic-ping", at, &[]);
        let _ = tool::client(a, "rnic-ping", at, &["--count", "3"])
            .run()
            .success();
    }
}

/// Each thread of a daemon has what it needs and no more, and a program that it executed no more than
/// `executed`. Gives them.
#[track_caller]
fn assert_little_is_kept(daemon: &Daemon, executed: u64) -> Vec<(String, String)> {
    let threads = threads(daemon.id());
    for (name, status) in &threads {
        assert_eq!(field(status, "NoNewPrivs:"), 1, "{name}");
        let allowed = match name.as_str() {
            "rnic-shard" | "rnic-icmp" => 0,
            "rnic-open" => TO_OPEN,
            _ => NEEDED,
        };
        // 2 is a filter. Only the shard has one: the others do what no list of calls says.
        let filtered = if name == "rnic-shard" { 2 } else { 0 };
        assert_eq!(field(status, "Seccomp:"), filtered, "{name}");
        // What a program could have that is executed, which no_new_privs rules out in any case.
        assert_eq!(
            field(status, "CapBnd:") & !(executed | allowed),
            0,
            "{name}"
        );
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            let held = field(status, set);
            assert_eq!(held & !allowed, 0, "{name} has {set} {held:x}");
        }
    }
    threads
}

#[test]
fn a_daemon_of_roots_gives_up_what_it_does_not_need() {
    let mut lab = Lab::new("privileges");
    let (a, b) = lab.pair(&LinkOptions::default());
    let [daemon_a, daemon_b] =
        [&a, &b].map(|host| Daemon::start(&lab, host, &DaemonOptions::default()));
    assert_ping_works(&daemon_a, &daemon_b, &b);
    let threads = assert_little_is_kept(&daemon_b, NEEDED);
    for name in ["rnicd", "rnic-shard", "rnic-icmp", "rnic-host"] {
        assert!(
            threads.iter().any(|it| it.0 == name),
            "no {name}: {threads:?}"
        );
    }
}

#[test]
fn an_interface_that_is_opened_later_leaves_its_threads_no_more_than_one_of_the_start() {
    let mut lab = Lab::new("late-privileges");
    let host = lab.namespace("x");
    let socket = lab.directory().join("x.sock");
    let daemon = Daemon::serve(&host, "late0", &socket, &DaemonOptions::default());
    host.ip(&[
        "link", "add", "late0", "type", "veth", "peer", "name", "late1",
    ]);
    host.ip(&["address", "add", "198.18.77.1/24", "dev", "late0"]);
    host.ip(&["link", "set", "dev", "late0", "up"]);
    wait::until("the interface is open", PATIENCE, || {
        rnic::Daemon::at(&socket).and_then(|it| it.open(None)).ok()
    });
    // Without CAP_SETPCAP, which is given up, the bounding set is that of the thread that opens.
    let threads = assert_little_is_kept(&daemon, TO_OPEN);
    for name in ["rnic-shard", "rnic-icmp", "rnic-host", "rnic-events"] {
        assert!(
            threads.iter().any(|it| it.0 == name),
            "no {name}: {threads:?}"
        );
    }
}

#[test]
fn without_its_seccomp_filter_a_daemon_runs_when_it_is_told_to() {
    let mut lab = Lab::new("no-seccomp");
    let (a, _) = lab.pair(&LinkOptions::default());
    let options = DaemonOptions {
        arguments: vec!["--no-seccomp".to_owned()],
        ..DaemonOptions::default()
    };
    let daemon = Daemon::start(&lab, &a, &options);
    for (name, status) in threads(daemon.id()) {
        assert_eq!(field(&status, "Seccomp:"), 0, "{name}");
    }
}

#[test]
fn a_system_user_with_a_few_capabilities_can_run_it() {
    let mut lab = Lab::new("system-user");
    let (a, b) = lab.pair(&LinkOptions::default());
    let daemon_a = Daemon::start(&lab, &a, &DaemonOptions::default());
    // As a service manager makes it: below /run, for the daemon's user.
    let directory = tempfile::Builder::new()
        .prefix("rniclab-")
        .tempdir_in("/run");
    let directory = directory.unwrap();
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for path in [lab.directory(), directory.path()] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    let program = binary::copy("rnicd", lab.directory());
    let socket = directory.path().join("rnicd.sock");
    let capabilities = capabilities();
    let command = b.namespace.command("setpriv").args([
        &format!("--reuid={USER}"),
        &format!("--regid={USER}"),
        "--clear-groups",
        &format!("--inh-caps=-all,{capabilities}"),
        &format!("--ambient-caps=-all,{capabilities}"),
        &format!("--bounding-set=-all,{capabilities}"),
    ]);
    let command = command
        .arg(&program)
        .args(["--interface", INTERFACE, "--socket"]);
    let daemon_b = Daemon::started(command.arg(&socket), &b.namespace, &socket, None);
    assert_ping_works(&daemon_a, &daemon_b, &b);
    let _ = daemon_b.stop();
}

#[test]
fn a_group_that_the_daemon_is_no_member_of_is_an_error_that_says_how_to_join_it() {
    let lab = Lab::new("foreign-group");
    let directory = lab.directory().join("run");
    fs::create_dir(&directory).unwrap();
    for path in [lab.directory(), &directory] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    let mut command = std::process::Command::new("setpriv");
    command.args([&format!("--reuid={USER}"), &format!("--regid={USER}")]);
    command.args(["--clear-groups", "--inh-caps=-all", "--"]);
    command.arg(binary::copy("rnicd", lab.directory()));
    command.args(["--loopback", "--socket-group", "0", "--socket"]);
    let socket = directory.join("rnicd.sock");
    let output = command.arg(&socket).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in [
        "of group 0",
        "SupplementaryGroups=",
        &socket.display().to_string(),
    ] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(!socket.exists(), "{told}");
}

#[test]
fn a_daemon_whose_socket_nobody_named_is_where_clients_look() {
    let mut lab = Lab::new("default-socket");
    let (a, _) = lab.pair(&LinkOptions::default());
    // An empty /run of its own, as after a boot, and a strict umask.
    let script = format!(
        "umask 077; mount -t tmpfs run /run && exec {} --interface {INTERFACE} --user {USER}",
        binary::copy("rnicd", lab.directory()).display()
    );
    let command = a.namespace.command("unshare").args(["--mount", "sh", "-c"]);
    let mut daemon = command.arg(script).spawn();
    let ready = format!("ready: listening on {}", rnic::find::DEFAULT_SOCKET);
    wait::until("rnicd is ready", PATIENCE, || {
        assert!(daemon.running(), "{}", daemon.stderr());
        daemon.stderr().contains(&ready).then_some(())
    });
    let run = PathBuf::from(format!("/proc/{}/root", daemon.id()));
    let socket = run.join(rnic::find::DEFAULT_SOCKET.trim_start_matches('/'));
    let directory = fs::metadata(socket.parent().unwrap()).unwrap();
    assert_eq!((directory.mode() & 0o777, directory.uid()), (0o755, 0));
    let client = a.namespace.command("nsenter").label("rnicctl");
    let client = client.args(["--mount", "--target", &daemon.id().to_string()]);
    let client = client.args(["env", "-u", "RNIC_SOCKET", "-u", "XDG_RUNTIME_DIR"]);
    let program = binary::copy("rnicctl", lab.directory());
    let shown = client.arg(program).arg("devices").run().success();
    assert!(shown.stdout.contains(INTERFACE), "{shown}");
}

#[test]
fn a_daemon_of_roots_that_becomes_a_user_keeps_nothing_of_root() {
    let mut lab = Lab::new("becomes-user");
    let (a, b) = lab.pair(&LinkOptions::default());
    let daemon_a = Daemon::start(&lab, &a, &DaemonOptions::default());
    let options = DaemonOptions {
        arguments: vec![
            "--user".to_owned(),
            USER.to_string(),
            "--no-wait".to_owned(),
        ],
        ..DaemonOptions::default()
    };
    let daemon_b = Daemon::start(&lab, &b, &options);
    assert_ping_works(&daemon_a, &daemon_b, &b);
    let user = USER.to_string();
    for (name, status) in threads(daemon_b.id()) {
        // Real, effective, saved, and of file systems.
        for ids in ["Uid:", "Gid:"] {
            let line = status.lines().find_map(|line| line.strip_prefix(ids));
            let found: Vec<_> = line.unwrap_or_default().split_whitespace().collect();
            assert_eq!(found, [&user; 4], "{name}: {ids}");
        }
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        assert_eq!(groups.map(str::trim), Some(""), "{name}");
        assert_eq!(field(&status, "NoNewPrivs:"), 1, "{name}");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            let held = field(&status, set);
            assert_eq!(held & !NEEDED, 0, "{name} has {set} {held:x}");
        }
    }
    let refused = b.namespace.command(binary::path("rnicd"));
    let refused = refused.args(["--interface", INTERFACE, "--user", "root"]);
    let error = refused.run().failure();
    assert!(error.contains("user root is root"), "{error}");
}

/// A user that no host has.
const USER: u32 = 64_715;
/// The capabilities that the systemd unit gives, as setpriv(1) wants them.
fn capabilities() -> String {
    let unit = include_str!("../../../dist/rnicd@.service");
    let given = |line: &'static str| line.strip_prefix("AmbientCapabilities=");
    let given = unit.lines().find_map(given).expect("the unit gives some");
    let name = |name: &str| format!("+{}", name.trim_start_matches("CAP_").to_lowercase());
    given.split(' ').map(name).collect::<Vec<_>>().join(",")
}

#[test]
fn the_unit_leaves_no_core_and_gives_the_daemon_time_and_memory_before_others() {
    let unit = include_str!("../../../dist/rnicd@.service");
    for setting in [
        "LimitCORE=0",
        "Nice=-10",
        "CPUWeight=1000",
        "OOMScoreAdjust=-900",
    ] {
        assert!(unit.lines().any(|line| line == setting), "no {setting}");
    }
}

#[test]
fn both_units_confine_the_daemon_alike() {
    let settings = |unit: &'static str| -> Vec<_> {
        let service = unit.split_once("[Service]").unwrap().1;
        let lines = service.split_once("[Install]").unwrap().0.lines();
        let own = ["#", "ExecStart=", "ExecReload=", "RuntimeDirectory="];
        lines
            .filter(|line| !own.iter().any(|own| line.starts_with(own)))
            .collect()
    };
    let all = settings(include_str!("../../../dist/rnicd.service"));
    let one = settings(include_str!("../../../dist/rnicd@.service"));
    assert!(all.len() > 30, "{all:?}");
    assert_eq!(all, one);
}

#[test]
fn the_journal_gets_priorities_and_nobody_else_does() {
    let lab = Lab::new("journal");
    let log = lab.directory().join("log");
    // With `--check` it would log nothing; without a directory for its socket it fails after some lines.
    let run = |named: &dyn Fn(&fs::Metadata) -> String, socket: &str| {
        let file = fs::File::create(&log).unwrap();
        let stream = named(&file.metadata().unwrap());
        let mut daemon = std::process::Command::new(binary::path("rnicd"))
            .args(["--loopback", "--socket", socket])
            .env("JOURNAL_STREAM", stream)
            .stderr(file)
            .spawn()
            .unwrap();
        let end = std::time::Instant::now() + PATIENCE;
        let text = loop {
            let text = fs::read_to_string(&log).unwrap();
            if text.contains("ready") || daemon.try_wait().unwrap().is_some() {
                break text;
            }
            assert!(std::time::Instant::now() < end, "{text}");
            std::thread::sleep(Duration::from_millis(10));
        };
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        fs::read_to_string(&log).unwrap().max(text)
    };
    let journal = |file: &fs::Metadata| format!("{}:{}", file.dev(), file.ino());
    let another = |file: &fs::Metadata| format!("{}:{}", file.dev(), file.ino() + 1);
    let socket = lab.directory().join("rnicd.sock");
    let socket = socket.to_str().unwrap();
    let text = run(&journal, socket);
    assert!(
        text.contains("\n<6>[INFO ") || text.starts_with("<6>[INFO "),
        "{text}"
    );
    assert!(text.lines().all(|line| line.starts_with('<')), "{text}");
    let text = run(&another, socket);
    assert!(text.starts_with('['), "{text}");
    let text = run(&journal, "/nonexistent/rnicd.sock");
    assert!(text.contains("<3>rnicd: "), "{text}");
}
