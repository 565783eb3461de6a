//! `rnicctl capture`: what it writes tshark can read, its filter and its limits hold, and whatever
//! becomes of it the RNIC goes on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rnic::WorkRequest;
use rnic_tests::binary;
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, Family, LinkOptions, Process, Signal};
use rnic_tests::pair::Pair;
use rnic_tests::tool;
use rnic_tests::tshark::{Dissection, field, values};
use rnic_tests::verbs::{Endpoint, connect};
use rnic_tests::wait;
use serde_json::Value;

const PORT: u16 = 18530;
const BYTES: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);
/// A user of whom the host need not know.
const USER: &str = "64322";
/// pcapng's directions in epb_flags.
const INBOUND: &str = "0x00000001";
const OUTBOUND: &str = "0x00000002";

fn pair(name: &str) -> Pair {
    let options = DaemonOptions {
        arguments: ["--socket-mode", "0666"].map(str::to_owned).to_vec(),
        ..DaemonOptions::default()
    };
    Pair::with(name, &LinkOptions::default(), &options)
}

fn connected(pair: &Pair, port: u16) -> (Endpoint, Endpoint) {
    let a = Endpoint::new(&pair.daemon_a, BYTES);
    let b = Endpoint::new(&pair.daemon_b, BYTES);
    a.fill(u64::from(port));
    connect(&a, &b, pair.b.address(Family::V4, port));
    (a, b)
}

/// Writes all of `a`'s region to `b`'s so many times, and sees that it came.
#[track_caller]
fn transfer((a, b): &(Endpoint, Endpoint), times: u64) {
    for id in 0..times {
        a.post(WorkRequest::write(
            id,
            &[a.element(0..BYTES)],
            b.remote().offset(0),
        ));
        assert_eq!(a.completion().wr_id, id);
    }
    // The answer to a Read comes when what was written before it is placed.
    a.post(WorkRequest::read(
        times,
        &[a.element(0..8)],
        b.remote().offset(0),
    ));
    assert_eq!(a.completion().wr_id, times);
    assert_eq!(a.content(), b.content());
}

fn said(command: Command, daemon: &Daemon, file: &Path, more: &[&str]) -> Command {
    let command = command.label("capture").arg("--socket");
    let command = command.arg(daemon.socket()).args(["--json", "capture"]);
    command.arg(file).args(more)
}

#[track_caller]
fn capture(daemon: &Daemon, file: &Path, more: &[&str]) -> Process {
    let command = daemon.namespace().command(binary::path("rnicctl"));
    let mut process = said(command, daemon, file, more).spawn();
    wait::until("rnicctl captures", PATIENCE, || {
        if let Some(status) = process.status() {
            panic!("rnicctl ended: {status}\n{}", process.stderr());
        }
        process.stderr().contains("capturing").then_some(())
    });
    process
}

/// What it says at its end.
#[track_caller]
fn report(process: Process) -> Value {
    tool::report(&process.finish(PATIENCE).success())
}

/// Ends it as Ctrl-C does.
#[track_caller]
fn interrupt(mut process: Process) -> Value {
    process.signal(Signal::INT);
    report(process)
}

fn path(pair: &Pair, name: &str) -> PathBuf {
    pair.lab.directory().join(name)
}

#[track_caller]
fn nothing_is_wrong(found: &Dissection) {
    assert_eq!(found.errors, [], "{found:?}");
    assert_eq!((found.good_crcs, found.bad_crcs), (found.fpdus, 0));
    assert_eq!(found.good_checksums, found.frames, "{found:?}");
}

#[test]
fn tshark_reads_what_was_captured_while_the_daemon_ran() {
    let pair = pair("live-capture");
    let file = path(&pair, "ping.pcapng");
    let running = capture(&pair.daemon_a, &file, &[]);
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-ping", at, &[]);
    let ping = tool::client(&pair.daemon_a, "rnic-ping", at, &["--count", "5"]);
    let _ = ping.run().success();
    let report = interrupt(running);
    let found = Dissection::of(&file);
    nothing_is_wrong(&found);
    assert_eq!((found.requests, found.replies), (1, 1), "{found:?}");
    assert_eq!(found.opcode("Read Request"), 5, "{found:?}");
    assert_eq!(report["frames"], found.frames);
    assert_eq!(report["lost"], 0);
    assert_eq!(report["files"][0], file.display().to_string());
    // Both directions, and each frame in its own.
    let sent = pair.a.address(Family::V4, 0).ip().to_string();
    let directions = field(&file, "frame.packet_flags_direction");
    for (source, direction) in field(&file, "ip.src").iter().zip(&directions) {
        let expected = if *source == sent { OUTBOUND } else { INBOUND };
        assert_eq!(direction, expected, "from {source}");
    }
    assert!(directions.iter().any(|direction| direction == INBOUND));
    assert_eq!(directions.len() as u64, found.frames);
}

/// tshark knows iWARP by the MPA start-up, which is not in such a file: docs/operations/capture.md says what to do.
#[test]
fn a_capture_begun_in_mid_connection_decodes_as_the_page_says() {
    let pair = pair("mid-capture");
    let ends = connected(&pair, PORT);
    transfer(&ends, 1);
    let file = path(&pair, "one.pcapng");
    let running = capture(&pair.daemon_a, &file, &[]);
    transfer(&ends, 1);
    let report = interrupt(running);
    assert_eq!(Dissection::of(&file).fpdus, 0, "tshark needs no help");

    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations/capture.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once("in mid-connection").expect("the section");
    let commands = section
        .lines()
        .filter_map(|line| line.strip_prefix("    $ "));
    let commands: Vec<_> = commands.collect();
    assert!(commands.len() == 6, "{commands:?}");
    // The first two lines are the page's example of addresses and ports.
    let ports = field(&file, "tcp.srcport");
    let own = ports.iter().find(|port| **port != PORT.to_string());
    let (ours, peers) = (pair.a.address(Family::V4, 0), pair.b.address(Family::V4, 0));
    let script = format!(
        "set -e\nours={} our_port={}\npeers={} peer_port={PORT}\n{}",
        ours.ip(),
        own.expect("it sent something"),
        peers.ip(),
        commands[2..].join("\n")
    );
    let done = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(pair.lab.directory())
        .output()
        .expect("bash");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{done:?}");
    let decoded = text.lines().filter(|line| line.contains(" DDP/RDMA "));
    let written = BYTES / 1500;
    assert!(decoded.count() >= written, "{text}");
    assert!(text.contains("Read Request"), "{text}");
    assert_eq!(report["lost"], 0);
}

/// `rnicctl capture -` in a shell's pipe, which has begun. Its exit status goes to the file `status`.
#[track_caller]
fn piped(pair: &Pair, reader: &str) -> Process {
    let rnicctl = binary::path("rnicctl");
    let line = format!(
        "({} --socket {} capture - ; echo $? >{}) | {reader}",
        rnicctl.display(),
        pair.daemon_a.socket().display(),
        path(pair, "status").display(),
    );
    let namespace = pair.daemon_a.namespace();
    let process = namespace.command("sh").args(["-c", &line]).spawn();
    wait::until("rnicctl captures", PATIENCE, || {
        process.stderr().contains("capturing").then_some(())
    });
    process
}

#[test]
fn a_reader_of_the_pipe_sees_frames_at_once_and_ends_the_capture_by_closing_it() {
    let pair = pair("piped-capture");
    let at = pair.b.address(Family::V4, PORT);
    let ping = || {
        let _server = tool::server(&pair.daemon_b, "rnic-ping", at, &[]);
        let client = tool::client(&pair.daemon_a, "rnic-ping", at, &["--count", "5"]);
        let _ = client.run().success();
    };
    // The reader leaves after so many bytes, long before a buffer is full of them.
    let file = path(&pair, "piped.pcapng");
    let running = piped(&pair, &format!("head -c 1000 >{}", file.display()));
    ping();
    wait::until("frames come through the pipe", PATIENCE, || {
        (fs::metadata(&file).ok()?.len() == 1000).then_some(())
    });
    // The next frame finds the pipe closed.
    ping();
    let ended = running.finish(PATIENCE).success();
    assert_eq!(fs::read_to_string(path(&pair, "status")).unwrap(), "0\n");
    assert!(ended.stderr.contains("frames written"), "{ended}");

    // As a file, but from the pipe.
    fs::remove_file(&file).unwrap();
    let reader = format!("tshark -c 4 -T fields -e ip.src -r - >{}", file.display());
    let running = piped(&pair, &reader);
    ping();
    // It writes when it ends. The frames of another ping, and not those of the first, find the pipe closed.
    wait::until("tshark has ended", PATIENCE, || {
        (fs::metadata(&file).ok()?.len() > 0).then_some(())
    });
    ping();
    let _ = running.finish(PATIENCE).success();
    let sources = fs::read_to_string(&file).unwrap();
    let ours = pair.a.address(Family::V4, 0).ip().to_string();
    assert_eq!(sources.lines().count(), 4, "{sources}");
    assert!(sources.lines().any(|source| source == ours), "{sources}");
}

#[test]
fn a_signal_ends_a_capture_within_a_second_when_nobody_reads_its_pipe() {
    let pair = pair("stuck-pipe");
    let ends = connected(&pair, PORT);
    for signal in [Signal::INT, Signal::TERM] {
        let command = pair.daemon_a.namespace().command(binary::path("rnicctl"));
        let command = said(command, &pair.daemon_a, Path::new("-"), &[]);
        let (mut process, _stdin, unread) = command.spawn_piped();
        let captures = process.says("capturing", PATIENCE);
        captures.unwrap_or_else(|error| panic!("{error}"));
        let before = pair.daemon_a.counter("capture_dropped");
        wait::until(
            "the pipe, the socket and all buffers are full",
            PATIENCE,
            || {
                transfer(&ends, 50);
                (pair.daemon_a.counter("capture_dropped") > before).then_some(())
            },
        );
        process.signal(signal);
        let ended = process.finish(Duration::from_secs(1));
        assert!(!ended.status.success(), "{ended}");
        let told = "read nothing for 500ms more: the capture is cut off";
        assert!(ended.stderr.contains(told), "{ended}");
        drop(unread);
    }
    transfer(&ends, 1);
}

#[test]
fn several_files_do_not_fit_a_pipe() {
    let pair = pair("piped-ring");
    let command = pair.daemon_a.namespace().command(binary::path("rnicctl"));
    let refused = said(command, &pair.daemon_a, Path::new("-"), &["--size", "1M"]).run();
    assert!(
        !refused.status.success() && refused.stdout.is_empty(),
        "{refused}"
    );
    assert!(
        refused.stderr.contains("--size makes several files"),
        "{refused}"
    );
}

#[test]
fn a_filter_keeps_what_it_names_and_nothing_else() {
    let pair = pair("filter");
    let one = connected(&pair, PORT);
    let other = connected(&pair, PORT + 1);
    let context = &one.0.context;
    let connections = context.inspect(rnic::admin::Kind::Connections);
    let number = connections
        .expect("the daemon tells")
        .iter()
        .find_map(|object| {
            let rnic::admin::Object::Connection(found) = object else {
                return None;
            };
            (found.remote.port() == PORT).then_some(found.connection.to_string())
        });
    let number = number.expect("the connection is there");
    let qp = one.0.qp.num().0.to_string();
    let port = PORT.to_string();
    let stranger = pair.a.address(Family::V4, 0).ip().to_string();
    let peer = pair.b.address(Family::V4, 0).ip().to_string();
    let captures: [(&str, &[&str]); 4] = [
        ("connection", &["--connection", &number]),
        ("qp", &["--qp", &qp, "--in"]),
        ("port", &["--port", &port, "--peer", &peer, "--snap", "60"]),
        ("nobody", &["--peer", &stranger]),
    ];
    let running = captures.map(|(name, more)| {
        let file = path(&pair, &format!("{name}.pcapng"));
        (capture(&pair.daemon_a, &file, more), file)
    });
    transfer(&one, 3);
    transfer(&other, 3);
    let files = running.map(|(process, file)| {
        let report = interrupt(process);
        assert_eq!(report["lost"], 0);
        (report["frames"].as_u64().expect("a number"), file)
    });
    let [connection, qp, ports, nobody] = &files;
    assert_eq!(nobody.0, 0);
    for (frames, file) in &files[..3] {
        let ports = field(file, "tcp.port");
        assert_eq!(ports.len() as u64, *frames);
        let ours = |ports: &String| ports.split(',').any(|one| one == port);
        assert!(*frames > 0 && ports.iter().all(ours), "{ports:?}");
    }
    assert!(connection.0 > qp.0, "both directions, and one of them");
    // What is small may be sent, or sent again, before all captures have begun, or after the first has
    // ended. Full segments are the transfer's.
    let full_segments = |file: &Path| {
        let lengths = values(file, "tcp.len").into_iter();
        lengths.filter(|len| len == "1448").count()
    };
    assert!(full_segments(&connection.1) > 0);
    assert_eq!(full_segments(&connection.1), full_segments(&ports.1));
    let inbound = field(&qp.1, "frame.packet_flags_direction");
    assert!(inbound.iter().all(|direction| direction == INBOUND));
    let kept = values(&ports.1, "frame.cap_len");
    assert!(kept.iter().all(|len| len == "60"), "{kept:?}");
    assert!(
        values(&ports.1, "frame.len")
            .iter()
            .any(|len| len == "1514")
    );
}

#[test]
fn a_ring_of_files_stays_within_its_limit_and_a_count_ends_it() {
    let pair = pair("ring");
    let ends = connected(&pair, PORT);
    let file = path(&pair, "ring.pcapng");
    let ring = ["--size", "128k", "--files", "2"];
    let running = capture(&pair.daemon_a, &file, &ring);
    transfer(&ends, 20);
    let ended = interrupt(running);
    let files = ended["files"].as_array().expect("a list").clone();
    assert_eq!(files.len(), 2, "{ended}");
    // More than two were begun.
    assert!(ended["bytes"].as_u64() > Some(3 * 128 * 1024), "{ended}");
    let entries = fs::read_dir(pair.lab.directory()).expect("the lab's directory");
    let left = entries.filter(|entry| {
        let name = entry.as_ref().expect("an entry").file_name();
        name.to_string_lossy().starts_with("ring-")
    });
    assert_eq!(left.count(), 2);
    for file in &files {
        let file = Path::new(file.as_str().expect("a path"));
        let bytes = file.metadata().expect("it is there").len();
        assert!(bytes <= 128 * 1024, "{bytes}");
        assert!(Dissection::of(file).frames > 0);
    }
    let file = path(&pair, "count.pcapng");
    let running = capture(&pair.daemon_a, &file, &["--count", "7"]);
    transfer(&ends, 1);
    assert_eq!(report(running)["frames"], 7);
    assert_eq!(Dissection::of(&file).frames, 7);
    let file = path(&pair, "duration.pcapng");
    let running = capture(&pair.daemon_a, &file, &["--duration", "200ms"]);
    assert_eq!(report(running)["lost"], 0);
}

#[test]
fn a_capture_that_is_stopped_or_killed_holds_nothing_up() {
    let pair = pair("stopped");
    let ends = connected(&pair, PORT);
    let file = path(&pair, "stopped.pcapng");
    let mut stopped = capture(&pair.daemon_a, &file, &[]);
    stopped.signal(Signal::STOP);
    // More frames than buffers and socket hold.
    wait::until("frames are lost", PATIENCE, || {
        transfer(&ends, 50);
        (pair.daemon_a.counter("capture_dropped") > 1000).then_some(())
    });
    stopped.signal(Signal::CONT);
    let report = interrupt(stopped);
    let lost = report["lost"].as_u64().expect("a number");
    assert!(lost > 1000, "{report}");
    let taken = pair.daemon_a.counter("capture_frames");
    assert_eq!(report["frames"], taken);
    assert_eq!(pair.daemon_a.counter("capture_dropped"), lost);
    let found = Dissection::of(&file);
    assert_eq!(found.frames, taken);
    assert!(statistics(&file).ends_with(&[lost]));
    // Each leaves its place to the next: there are four.
    for number in 0..6 {
        let file = path(&pair, &format!("killed-{number}.pcapng"));
        let mut killed = capture(&pair.daemon_a, &file, &[]);
        transfer(&ends, 1);
        killed.kill();
        wait::until("the client is taken away", PATIENCE, || {
            // This program's own, twice.
            let clients = pair.daemon_a.counter("device_clients");
            (clients <= 2).then_some(())
        });
    }
    transfer(&ends, 1);
}

/// The last two numbers of the last block, interface statistics: frames taken and lost.
fn statistics(file: &Path) -> Vec<u64> {
    const INTERFACE_STATISTICS: u32 = 5;
    const OPTION_LENGTH: u16 = 8;
    let bytes = fs::read(file).expect("the capture can be read");
    let at = bytes.len() - 52;
    assert_eq!(bytes[at..at + 4], INTERFACE_STATISTICS.to_le_bytes());
    let options = bytes[at + 20..at + 44].chunks(12);
    options
        .map(|option| {
            assert_eq!(option[2..4], OPTION_LENGTH.to_le_bytes());
            u64::from_le_bytes(option[4..].try_into().expect("eight bytes"))
        })
        .collect()
}

#[test]
fn an_ordinary_user_may_not_capture_and_is_told_so() {
    let pair = pair("forbidden");
    let directory = pair.lab.directory();
    fs::set_permissions(directory, Permissions::from_mode(0o777)).expect("the lab's directory");
    let program = binary::copy("rnicctl", directory);
    let file = path(&pair, "forbidden.pcapng");
    let command = pair.daemon_a.namespace().command("setpriv");
    let user = ["--reuid", USER, "--regid", USER, "--clear-groups", "--"];
    let command = command.args(user).arg(&program);
    let refused = said(command, &pair.daemon_a, &file, &[]).run().failure();
    assert!(refused.contains("administrators"), "{refused}");
    assert!(refused.contains(USER), "{refused}");
    assert!(!file.exists());
}

/// What was at the path is nobody's way to read the capture: an open file, a link, a mode of before.
#[test]
fn nobody_else_can_read_a_capture_whatever_was_there_before() {
    let options = DaemonOptions {
        capture: true,
        ..DaemonOptions::default()
    };
    let pair = Pair::with("capture-mode", &LinkOptions::default(), &options);
    let mode = |path: &Path| {
        fs::symlink_metadata(path)
            .expect("a file")
            .permissions()
            .mode()
    };
    assert_eq!(mode(pair.daemon_a.capture()) & 0o777, 0o600);
    let file = path(&pair, "there.pcapng");
    fs::write(&file, "of before").expect("the directory is ours");
    std::os::unix::fs::chown(&file, Some(64_322), None).expect("root may");
    let brief = ["--duration", "10ms"];
    let to = |file: &Path| {
        let command = pair.daemon_a.namespace().command(binary::path("rnicctl"));
        said(command, &pair.daemon_a, file, &brief)
    };
    let told = to(&file).run().failure();
    assert!(told.contains("a file of user 64322 is there"), "{told}");
    assert_eq!(fs::read(&file).expect("it is there"), b"of before");
    std::os::unix::fs::chown(&file, Some(0), None).expect("root may");
    fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("root may");
    let opened = fs::File::open(&file).expect("it is there");
    let _ = to(&file).run().success();
    assert_eq!(mode(&file) & 0o777, 0o600);
    assert_eq!(opened.metadata().expect("it is open").len(), 9);
    let link = path(&pair, "link.pcapng");
    std::os::unix::fs::symlink(path(&pair, "theirs"), &link).expect("the directory is ours");
    let told = to(&link).run().failure();
    assert!(told.contains("a link is there"), "{told}");
    assert!(!path(&pair, "theirs").exists());
}
