//! Sockets over RDMA between two daemons: Debian's programs of rsockets, unmodified; a program of ordinary
//! sockets that librspreload.so puts on them; and what a program finds that makes the calls itself.

use std::io::Write;
use std::time::Duration;

use rnic_tests::lab::{Command, Family, Process, Signal};
use rnic_tests::programs::Programs;

/// By which programs of ordinary sockets run on rsockets.
const PRELOAD: &str = "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

const PORT: u16 = 18_600;

const LIMIT: Duration = Duration::from_secs(30);

/// Runs `program` with `options` at both ends, and `-s` with an address at the client's.
#[track_caller]
fn both_ends(programs: &Programs, family: Family, program: &str, options: &str) {
    let at = programs.pair.b.address(family, 0).ip();
    let listen = if at.is_ipv4() { "" } else { "-b ::" };
    let both = programs.run(
        &format!("{program} {listen} {options}"),
        &format!("{program} -s {at} {options}"),
    );
    // It ends with 0 when data was wrong, too.
    for end in [&both.client, &both.server] {
        let complete = end.stdout.lines().count() == 2 && end.stderr.is_empty();
        assert!(
            complete,
            "{program} {options}: {}\n{}",
            both.client, both.server
        );
    }
    drop(both.success());
}

#[test]
fn rstream_checks_every_byte_blocking_and_not_and_with_poll() {
    let programs = Programs::new("rsock-rstream");
    for mode in ["-T b", "-T n", "-T a", "-T a -T b", "-T r -T b"] {
        let options = format!("{mode} -T v -S 30000 -C 20 -I 5");
        both_ends(&programs, Family::V4, "rstream", &options);
    }
    for size in [1, 2047, 300_000] {
        let options = format!("-T b -T v -S {size} -C 20 -I 5");
        both_ends(&programs, Family::V4, "rstream", &options);
    }
    both_ends(
        &programs,
        Family::V6,
        "rstream",
        "-T b -T v -S 1000 -C 5 -I 5",
    );
    let small = "-T b -T v -B 5000 -S 100000 -C 5 -I 2";
    both_ends(&programs, Family::V4, "rstream", small);
}

#[test]
fn riostream_writes_into_memory_that_the_peer_has_mapped() {
    let programs = Programs::new("rsock-riostream");
    for mode in ["-T b", "-T n", "-T a"] {
        let options = format!("{mode} -T v -S 30000 -C 5 -I 5");
        both_ends(&programs, Family::V4, "riostream", &options);
    }
}

#[test]
fn rcopy_copies_files() {
    let programs = Programs::new("rsock-rcopy");
    let directory = programs.pair.lab.directory().to_owned();
    let from = directory.join("from");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(&from, &bytes).unwrap();
    let mut server = programs.on_b("rcopy").spawn();
    programs.wait_for_listener();
    for name in ["first", "second"] {
        let to = directory.join(name);
        let place = format!("{}:{}", programs.address(), to.display());
        let client = programs.on_a(&format!("rcopy {} {place}", from.display()));
        drop(client.run().success());
        assert!(std::fs::read(&to).unwrap() == bytes, "another file came");
    }
    server.kill();
}

#[test]
fn programs_end_with_an_error_when_their_daemon_is_killed() {
    for kills_server in [true, false] {
        let programs = Programs::new("rsock-daemon");
        // An end that only receives learns of a silent peer by keep-alive alone.
        // The client sends all the time, the server receives.
        let line = "rstream -k 1 -T b -S 100000 -C 100000 -I 100000";
        let server = programs.on_b(line).spawn();
        programs.wait_for_listener();
        let at = programs.address();
        let client = programs.on_a(&format!("{line} -s {at}")).spawn();
        std::thread::sleep(Duration::from_secs(1));
        let (own, other) = match kills_server {
            true => {
                programs.pair.daemon_b.kill();
                (server, client)
            }
            false => {
                programs.pair.daemon_a.kill();
                (client, server)
            }
        };
        let own = own.finish(LIMIT);
        let errors = own.stderr.lines().filter(|line| !line.contains("rnic: "));
        let errors: Vec<_> = errors.collect();
        let told = matches!(errors[..], [only] if only.contains("Input/output error"));
        assert!(told && own.took < Duration::from_secs(5), "{own}");
        let other = other.finish(LIMIT);
        let reasons = ["Connection reset by peer", "Connection timed out"];
        let told = reasons.iter().any(|reason| other.stderr.contains(reason));
        assert!(told && other.stderr.lines().count() == 1, "{other}");
    }
}

#[test]
fn iperf3_runs_on_rsockets_by_librspreload() {
    let programs = Programs::new("rsock-iperf3");
    for options in ["", "-R", "-P 3", "--bidir", "-l 100"] {
        let client = format!("{PRELOAD} iperf3 -c {} -t 1 {options}", programs.address());
        let both = programs.run(&format!("{PRELOAD} iperf3 -s -1"), &client);
        let both = both.success();
        assert!(
            both.client.stdout.contains("iperf Done."),
            "{}",
            both.client
        );
    }
}

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/lab/rsocket_programs/calls.py"
);

/// The server that echoes, which listens, and a client of it.
fn served(programs: &Programs, case: &str) -> (Process, Command) {
    let serve = format!("python3 {SCRIPT} serve 0.0.0.0 {PORT}");
    let server = programs.on_b(&serve).spawn();
    programs.wait_for_listener();
    let at = programs.address();
    let client = programs.on_a(&format!("python3 {SCRIPT} {case} {at} {PORT}"));
    (server, client)
}

#[test]
fn calls_do_what_those_of_sockets_do() {
    let programs = Programs::new("rsock-calls");
    let at = programs.address();
    let (mut server, killed) = served(&programs, "stay");
    let mut killed = killed.spawn();
    killed.says("here", LIMIT).unwrap();
    killed.kill();
    server.says("a peer went away", LIMIT).unwrap();
    for case in [
        "halves",
        "flags",
        "poll",
        "selected",
        "options",
        "threads",
        "refused",
        "signals",
        "closed_meanwhile",
        "sizes",
        "many",
    ] {
        let client = programs.on_a(&format!("python3 {SCRIPT} {case} {at} {PORT}"));
        drop(client.run().success());
    }
    server.kill();
    let both = programs.on_b(&format!("python3 {SCRIPT} gone {at} {PORT}"));
    drop(both.run().success());
}

#[test]
fn a_failure_is_told_once_and_after_what_was_transferred_before() {
    let programs = Programs::new("rsock-cut");
    let (mut server, _) = served(&programs, "cut");
    let at = programs.address();
    let line = format!("env RNIC_LOG=info python3 {SCRIPT} cut {at} {PORT}");
    let mut client = programs.on_a(&line).spawn();
    client.says("waits", LIMIT).unwrap();
    server.kill();
    let log = client.finish(LIMIT).success().stderr;
    let ends = log.matches("an rsocket's connection ended: ").count();
    assert_eq!(ends, 3, "{log}");
}

#[test]
fn keep_alive_finds_out_that_the_peer_is_gone() {
    let programs = Programs::new("rsock-alive");
    let (_server, client) = served(&programs, "alive");
    let mut client = client.spawn();
    client.says("waits", LIMIT).unwrap();
    programs.pair.daemon_b.kill();
    drop(client.finish(LIMIT).success());
}

#[test]
fn a_listener_is_told_that_its_daemon_is_gone() {
    let programs = Programs::new("rsock-listens");
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/lab/rsocket_programs/calls.py"
    );
    let listen = format!("python3 {script} listens 0.0.0.0 {PORT}");
    let mut listener = programs.on_b(&listen).spawn();
    listener.says("listens", LIMIT).unwrap();
    programs.pair.daemon_b.kill();
    drop(listener.finish(LIMIT).success());
}

#[test]
fn closing_waits_for_a_silent_peer_for_as_long_as_so_linger_says() {
    let mut programs = Programs::new("rsock-silent");
    let (_server, client) = served(&programs, "silent");
    let (mut client, mut input, _output) = client.spawn_piped();
    client.says("full", LIMIT).unwrap();
    programs.pair.daemon_b.freeze();
    input.write_all(b"silent\n").unwrap();
    let ended = client.finish(LIMIT);
    programs.pair.daemon_b.signal(Signal::CONT);
    drop(ended.success());
}
