//! `rnic-run`: a private daemon for the life of a program, and nothing of it afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, Host, INTERFACE, Lab, LinkOptions, Process, Signal};
use rnic_tests::{binary, wait};

const LIMIT: Duration = Duration::from_secs(30);

/// A host on which are `rnic-run` and, beside it, `rnicd`.
struct Bench {
    a: Host,
    programs: PathBuf,
    /// The user's runtime directory: where private daemons have their own.
    runtime: PathBuf,
    _lab: Lab,
}

impl Bench {
    fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        let (a, _) = lab.pair(&LinkOptions::default());
        let [programs, runtime] = ["programs", "runtime"].map(|name| {
            let path = lab.directory().join(name);
            fs::create_dir(&path).expect("the lab's directory is ours");
            path
        });
        for program in ["rnic-run", "rnicd"] {
            let _ = binary::copy(program, &programs);
        }
        Self {
            a,
            programs,
            runtime,
            _lab: lab,
        }
    }

    fn install(&self, name: &str, lines: &str) {
        let path = self.programs.join(name);
        fs::write(&path, lines).expect("the directory is ours");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("the file is ours");
    }

    /// A command on the first host, whose user has a runtime directory.
    fn run(&self, arguments: &[&str]) -> Command {
        let runtime = format!("XDG_RUNTIME_DIR={}", self.runtime.display());
        self.a
            .namespace
            .command("env")
            .label("rnic-run")
            .args(["-u", "RNIC_SOCKET", "-u", "LD_LIBRARY_PATH", &runtime])
            .arg(self.programs.join("rnic-run"))
            .args(arguments)
    }

    fn shell(&self, line: &str) -> Command {
        self.run(&["--loopback", "sh", "-c", line])
    }

    fn private_directories(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(&self.runtime).expect("it is there");
        let paths = all.map(|entry| entry.expect("an entry").path());
        paths.collect()
    }

    #[track_caller]
    fn assert_nothing_is_left(&self) {
        wait::until("the private daemon's directory is gone", LIMIT, || {
            self.private_directories().is_empty().then_some(())
        });
        let left = programs_with(&self.runtime);
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The processes that have a path of this directory among their arguments.
fn programs_with(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().expect("a path of ASCII letters");
    let all = fs::read_dir("/proc").expect("proc is mounted");
    let lines = all.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    let found = lines.filter(|line| line.contains("--socket") && line.contains(directory));
    found.collect()
}

/// Waits until a program under `rnic-run` has said that it is there.
fn started(command: Command) -> Process {
    let mut process = command.spawn();
    let says = process.says("there", LIMIT);
    says.unwrap_or_else(|error| panic!("{error}"));
    process
}

#[test]
fn a_program_gets_a_private_daemon_of_which_nothing_is_left() {
    let bench = Bench::new("run-private");
    let ping = binary::path("rnic-ping");
    let ping = ping.to_str().expect("a path of ASCII letters");
    // The server is the program's child, and finds the same daemon.
    let line = "$0 server & for i in $(seq 60); do \
                sleep 0.5; $0 client localhost && wait && exit; done; exit 1";
    let arguments = ["--loopback", "sh", "-c", line, ping];
    let done = bench.run(&arguments).run().success();
    assert!(done.stdout.contains("10 rounds"), "{done}");
    bench.assert_nothing_is_left();
}

#[test]
fn nobody_else_may_enter_the_private_daemons_directory() {
    let bench = Bench::new("run-directory");
    let done = bench.shell("stat -c %a $(dirname $RNIC_SOCKET); echo $RNIC_SOCKET");
    let done = done.run().success();
    let mut lines = done.stdout.lines();
    assert_eq!(lines.next(), Some("700"), "{done}");
    let socket = Path::new(lines.next().expect("the socket's path"));
    assert!(socket.starts_with(&bench.runtime), "{done}");
}

/// Directories that another user can change, as the environment names them after su(1).
#[test]
fn no_private_daemon_is_put_where_another_user_can_replace_it() {
    const OTHER: u32 = 61_010;
    let bench = Bench::new("run-others");
    let made = |name: &str, owner, mode| {
        let path = bench.runtime.join(name);
        fs::create_dir(&path).expect("the directory is ours");
        std::os::unix::fs::chown(&path, Some(owner), None).expect("root may");
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("root may");
        path
    };
    let theirs = made("theirs", OTHER, 0o700);
    let below = theirs.join("below");
    fs::create_dir(&below).expect("root may");
    let open = made("open", 0, 0o770);
    let link = bench.runtime.join("link");
    std::os::unix::fs::symlink(&theirs, &link).expect("the directory is ours");
    let line = ["--loopback", "sh", "-c", "echo $RNIC_SOCKET"];
    for bad in [theirs, below, open, link] {
        for variable in ["XDG_RUNTIME_DIR", "TMPDIR"] {
            let env = bench.a.namespace.command("env").label("rnic-run");
            let env = env.args(["-u", "XDG_RUNTIME_DIR", "-u", "TMPDIR", "-u", "RNIC_SOCKET"]);
            let env = env.arg(format!("{variable}={}", bad.display()));
            let run = env.arg(bench.programs.join("rnic-run")).args(line);
            let done = run.run().success();
            let socket = PathBuf::from(done.stdout.trim());
            assert!(socket.is_absolute(), "{done}");
            let bad = bad.display();
            assert!(
                !socket.starts_with(&bench.runtime),
                "{variable}={bad}: {done}"
            );
        }
    }
}

#[test]
fn the_programs_exit_status_and_its_signal_are_passed_on() {
    let bench = Bench::new("run-status");
    for (line, status) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let done = bench.shell(line).run();
        assert_eq!(done.status.code(), Some(status), "{line}: {done}");
    }
    let no_program = bench.programs.to_str().expect("a path of ASCII letters");
    for (arguments, status) in [
        (&["--loopback", "/nonexistent/program"][..], 127),
        (&["--loopback", no_program], 126),
        (&["--loopback", "--no-such-option"], 125),
        (&["--loopback"], 125),
        (&["--verbs-dir", "/nonexistent", "true"], 125),
        (&["--help"], 0),
    ] {
        let done = bench.run(arguments).run();
        assert_eq!(done.status.code(), Some(status), "{arguments:?}: {done}");
    }
    bench.assert_nothing_is_left();
}

#[test]
fn a_signal_to_rnic_run_reaches_the_program() {
    let bench = Bench::new("run-signal");
    for (name, signal) in [("TERM", Signal::TERM), ("USR1", Signal::USR1)] {
        let line =
            format!("trap 'echo caught; exit 5' {name}; echo there; while :; do sleep 0.05; done");
        let mut process = started(bench.shell(&line));
        process.signal(signal);
        let done = process.finish(LIMIT);
        assert_eq!(done.status.code(), Some(5), "{done}");
        assert!(done.stdout.contains("caught"), "{done}");
    }
    bench.assert_nothing_is_left();
}

#[test]
fn the_program_has_the_signals_blocked_that_it_would_have_without_rnic_run() {
    let bench = Bench::new("run-blocked");
    let look = ["grep", "SigBlk", "/proc/self/status"];
    let alone = bench.a.namespace.command(look[0]).args(&look[1..]);
    let alone = alone.run().success().stdout;
    let arguments = [&["--loopback"], &look[..]].concat();
    let found = bench.run(&arguments).run().success().stdout;
    assert_eq!(found, alone);
    let mut process = started(bench.shell("echo there; exec sleep 60"));
    process.signal(Signal::TERM);
    let done = process.finish(LIMIT);
    assert_eq!(done.status.code(), Some(128 + 15), "{done}");
}

#[test]
fn the_private_daemon_ends_with_rnic_run_even_if_that_is_killed() {
    let bench = Bench::new("run-killed");
    let mut process = started(bench.shell("echo there; exec sleep 1.5"));
    assert_eq!(programs_with(&bench.runtime).len(), 1);
    process.kill();
    bench.assert_nothing_is_left();
}

#[test]
fn a_daemon_that_answers_is_used_unless_a_private_one_is_asked_for() {
    let bench = Bench::new("run-there");
    let socket = bench.runtime.join("rnicd.sock");
    let options = DaemonOptions::default();
    let daemon = Daemon::serve(&bench.a.namespace, INTERFACE, &socket, &options);
    let line = ["sh", "-c", "echo $RNIC_SOCKET"];
    let shared = bench.run(&line).run().success().stdout;
    assert_eq!(Path::new(shared.trim()), socket);
    drop(daemon);
    let alone = bench.run(&line).run().success().stdout;
    assert_ne!(Path::new(alone.trim()), socket);
    let _ = fs::remove_file(&socket);
    bench.assert_nothing_is_left();
}

#[test]
fn a_daemon_that_was_named_and_does_not_answer_is_not_replaced() {
    let bench = Bench::new("run-named");
    let env = bench.a.namespace.command("env").label("rnic-run");
    let env = env.arg("RNIC_SOCKET=/nonexistent/rnicd.sock");
    let run = env.arg(bench.programs.join("rnic-run")).arg("true");
    let error = run.run();
    assert_eq!(error.status.code(), Some(125), "{error}");
    for part in ["/nonexistent/rnicd.sock (from RNIC_SOCKET)", "--loopback"] {
        assert!(error.stderr.contains(part), "{error}");
    }
}

#[test]
fn a_private_daemon_that_does_not_start_is_told_with_its_log() {
    let bench = Bench::new("run-broken");
    bench.install("rnicd", "#!/bin/sh\necho 'no memory today' >&2\nexit 3\n");
    let error = bench.shell("true").run();
    assert_eq!(error.status.code(), Some(125), "{error}");
    assert!(error.stderr.contains("no memory today"), "{error}");
    bench.assert_nothing_is_left();
}

#[test]
fn the_verbs_libraries_beside_rnic_run_are_in_front_of_others() {
    let bench = Bench::new("run-verbs");
    let line = "echo $LD_LIBRARY_PATH";
    let without = bench.shell(line).run().success();
    assert_eq!(without.stdout.trim(), "");
    for words in ["libibverbs.so.1 of this RNIC is not in", "--verbs-dir"] {
        assert!(without.stderr.contains(words), "{without}");
    }
    bench.install("libibverbs.so.1", "");
    let found = bench.shell(line).run().success();
    let programs = bench.programs.canonicalize().expect("it is there");
    assert_eq!(Path::new(found.stdout.trim()), programs);
    assert!(!found.stderr.contains("libibverbs"), "{found}");
}

/// Nobody is there to be protected: 3000 connections in turn need some 50,000 requests.
#[test]
fn a_private_daemon_has_no_limits_for_users_and_says_that_it_is_private() {
    const REQUESTS: u32 = 20_000;
    let bench = Bench::new("run-limits");
    let mut process = started(bench.shell("echo $RNIC_SOCKET; echo there; exec sleep 60"));
    let socket = process.stdout();
    let socket = Path::new(socket.lines().next().expect("the socket's path"));
    let told = process.stderr();
    assert!(told.contains("private RNIC daemon"), "{told}");
    let context = rnic::Daemon::at(socket)
        .and_then(|it| it.open(None))
        .expect("the daemon serves");
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        let _ = context.device_info().expect("it answers");
    }
    // By `requests_per_second` of a daemon of many users it takes nine seconds.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    // More than a user's or a client's share of another daemon.
    let domains = (0..3000).map(|_| context.alloc_pd());
    let domains: Result<Vec<_>, _> = domains.collect();
    let _domains = domains.expect("all that tables are made for");
    process.signal(Signal::TERM);
    let ended = wait::until("the session ends", LIMIT, || context.device_info().err());
    assert!(!ended.to_string().contains("again"), "{ended}");
    bench.assert_nothing_is_left();
}
