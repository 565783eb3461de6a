//! What an operator sees and orders by `rnicctl`, what an ordinary user doesn't, and what Prometheus
//! gets: of real daemons, with traffic.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rnic::{ConnectOptions, DisconnectReason, WorkRequest};
use rnic_tests::binary;
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, Family, Finished, Host, INTERFACE, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::verbs::{Endpoint, connect};
use rnic_tests::wait;
use serde_json::Value;

const PORT: u16 = 18520;
const BYTES: usize = 64 * 1024;
/// A user of whom the host need not know.
const USER: &str = "64321";

fn pair(name: &str) -> Pair {
    let options = DaemonOptions {
        arguments: ["--socket-mode", "0666"].map(str::to_owned).to_vec(),
        ..DaemonOptions::default()
    };
    Pair::with(name, &LinkOptions::default(), &options)
}

fn connected(pair: &Pair) -> (Endpoint, Endpoint) {
    let a = Endpoint::new(&pair.daemon_a, BYTES);
    let b = Endpoint::new(&pair.daemon_b, BYTES);
    a.fill(1);
    connect(&a, &b, pair.b.address(Family::V4, PORT));
    (a, b)
}

fn ask(daemon: &Daemon, question: &[&str]) -> Command {
    let command = daemon.namespace().command(binary::path("rnicctl"));
    said(command, daemon, question)
}

fn said(command: Command, daemon: &Daemon, question: &[&str]) -> Command {
    command
        .label("rnicctl")
        .args(["--socket"])
        .arg(daemon.socket())
        .args(question)
}

/// The same as an ordinary user, who can't reach what only root can: so with a copy of the program.
fn ask_as_user(pair: &Pair, program: &Path, question: &[&str]) -> Command {
    let command = pair.daemon_a.namespace().command("setpriv");
    let user = ["--reuid", USER, "--regid", USER, "--clear-groups", "--"];
    said(command.args(user).arg(program), &pair.daemon_a, question)
}

fn copy_for_all(pair: &Pair) -> PathBuf {
    let directory = pair.lab.directory();
    fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("the lab's directory");
    binary::copy("rnicctl", directory)
}

#[track_caller]
fn run(command: Command) -> Finished {
    command.run().success()
}

#[track_caller]
fn list(command: Command) -> Vec<Value> {
    let finished = run(command.arg("--json"));
    let value: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    value.as_array().expect("a list").clone()
}

#[test]
fn an_operator_is_told_at_the_start_what_would_hand_over_joined_frames() {
    let pair = pair("joined");
    let namespace = &pair.a.namespace;
    for line in [
        "ip link add mac0 link rnic0 type macvlan",
        "ip address add 198.18.77.1/24 dev mac0",
        "ip link set mac0 up",
        "ethtool -K rnic0 gro on",
    ] {
        let (program, arguments) = line.split_once(' ').expect("arguments");
        let command = namespace.command(program);
        run(command.args(arguments.split(' ')));
    }
    let generic = DaemonOptions {
        mode: Some("generic"),
        ..DaemonOptions::default()
    };
    let socket = pair.lab.directory().join("mac0.sock");
    let daemon = Daemon::serve(namespace, "mac0", &socket, &generic);
    let said = "interface mac0: rnic0, from which it gets frames, joins received frames (gro), and \
                such frames are lost: `ethtool -K rnic0 gro off`";
    assert!(daemon.log().contains(said), "{}", daemon.log());
    // In native mode on a veth nothing does.
    assert!(!pair.daemon_a.log().contains("frames are lost"));
}

#[test]
fn queues_that_come_after_the_start_are_told_of_and_those_with_sockets_stay() {
    let mut lab = Lab::new("channels");
    let link = LinkOptions {
        queues: 2,
        ..LinkOptions::default()
    };
    let (a, b) = lab.pair(&link);
    let set = |host: &Host, kind: &str, number: &str| {
        let ethtool = host.namespace.command("ethtool");
        ethtool.args(["-L", INTERFACE, kind, number]).run()
    };
    // To have an XDP program, a veth needs as many of them as its peer sends from.
    for (host, kind) in [(&a, "tx"), (&b, "rx")] {
        let _ = set(host, kind, "1").success();
    }
    let daemon = Daemon::start(&lab, &b, &DaemonOptions::default());
    let unserved = |number: u64| {
        let name = format!("{number} unserved queues");
        wait::until(&name, Duration::from_secs(20), || {
            (daemon.counter("unserved_queues") == number).then_some(())
        });
    };
    unserved(0);
    let held = daemon.open();
    let _ = set(&b, "rx", "2").success();
    unserved(1);
    let said = "interface rnic0 has 2 RX queues now, of which 1 are served";
    assert!(daemon.log().contains(said), "{}", daemon.log());
    let _ = set(&b, "rx", "1").success();
    unserved(0);
    let said = "all RX queues of interface rnic0 are served again";
    assert!(daemon.log().contains(said), "{}", daemon.log());

    // When no program uses it, it is opened again with all of them.
    let _ = set(&b, "rx", "2").success();
    unserved(1);
    assert!(!daemon.log().contains("2 queue(s)"), "{}", daemon.log());
    drop(held);
    wait::until("it is opened again", Duration::from_secs(30), || {
        daemon.log().contains(", 2 queue(s)").then_some(())
    });
    unserved(0);
    let refusal = set(&b, "rx", "1").failure();
    assert!(refusal.contains("AF_XDP"), "{refusal}");
    let _ = daemon.stop().success();
}

#[test]
fn an_operator_sees_who_is_connected_to_whom_and_ends_it() {
    let pair = pair("operator");
    let (a, b) = connected(&pair);
    b.post_recv(1, 0..1000);
    a.post(WorkRequest::send(2, &[a.element(0..1000)]));
    assert_eq!(a.completion().wr_id, 2);
    assert_eq!(b.completion().wr_id, 1);

    let connections = list(ask(&pair.daemon_a, &["connections"]));
    let [connection] = &connections[..] else {
        panic!("one connection: {connections:?}");
    };
    let remote = pair.b.address(Family::V4, PORT).to_string();
    assert_eq!(connection["remote"], remote);
    assert_eq!(connection["stage"], "rdma");
    assert_eq!(connection["state"], "ESTABLISHED");
    assert_eq!(connection["qp"], a.qp.num().0);
    assert!(connection["bytes_out"].as_u64() >= Some(1000));
    assert!(connection["rtt_us"].as_u64().is_some());
    let qps = list(ask(&pair.daemon_a, &["qps"]));
    assert_eq!(qps[0]["state"], "Rts");
    assert_eq!(qps[0]["connection"][1], remote);
    let regions = list(ask(&pair.daemon_a, &["regions"]));
    assert_eq!(regions[0]["bytes"], BYTES);
    assert!(regions[0].get("key").is_none() && regions[0].get("stag").is_none());
    // This test's and rnicctl's own.
    let clients = list(ask(&pair.daemon_a, &["clients"]));
    assert_eq!(clients.len(), 2);
    assert!(clients.iter().any(|client| client["program"] == "rnicctl"));
    let table = run(ask(&pair.daemon_a, &["connections"]));
    assert!(table.stdout.contains(&remote), "{table}");
    let watch = ["counters", "--watch", "0.1", "--times", "2", "--json"];
    let lines = run(ask(&pair.daemon_a, &watch));
    assert_eq!(lines.stdout.lines().count(), 2);

    let number = connection["connection"].to_string();
    run(ask(&pair.daemon_a, &["drop", "connection", &number]));
    assert_eq!(a.ending(), DisconnectReason::Aborted);
    assert_eq!(b.ending(), DisconnectReason::Reset);
    let mine = a.context.client_id().to_string();
    run(ask(&pair.daemon_a, &["drop", "client", &mine]));
    wait::until("the client is told", Duration::from_secs(30), || {
        a.context.device_info().is_err().then_some(())
    });
    run(ask(&pair.daemon_a, &["log", "debug"]));
    wait::until("the daemon logs more", Duration::from_secs(30), || {
        run(ask(&pair.daemon_a, &["device"]));
        pair.daemon_a.log().contains("[DEBUG").then_some(())
    });
}

/// RFC 5042 section 6.1: not that it is there, and not whether a guess was right.
#[test]
fn an_ordinary_user_sees_and_ends_nothing_of_others() {
    let pair = pair("ordinary");
    let (a, b) = connected(&pair);
    let program = copy_for_all(&pair);
    let ask = |question: &[&str]| ask_as_user(&pair, &program, question);
    for question in ["connections", "qps", "cqs", "regions", "listeners"] {
        let found = list(ask(&[question]));
        assert!(found.is_empty(), "{question}: {found:?}");
    }
    let clients = list(ask(&["clients"]));
    assert_eq!(clients.len(), 1);
    assert_eq!(clients[0]["uid"].to_string(), USER);
    let theirs = a.context.client_id().to_string();
    let refused = |number: &str| {
        let said = ask(&["drop", "client", number]).run().failure();
        said.replace(number, "N")
    };
    assert_eq!(refused(&theirs), refused("4000"));
    let said = ask(&["drop", "connection", "1"]).run().failure();
    assert!(said.contains("not yours to see"), "{said}");
    let said = ask(&["log", "trace"]).run().failure();
    assert!(said.contains("administrators"), "{said}");
    // All of it is as it was.
    b.post_recv(1, 0..1000);
    a.post(WorkRequest::send(2, &[a.element(0..1000)]));
    assert_eq!(a.completion().wr_id, 2);
    assert_eq!(b.completion().byte_len, 1000);
}

/// The daemon runs: to start another is not what helps.
#[test]
fn a_user_of_the_wrong_group_is_told_which_is_the_right_one() {
    let options = DaemonOptions {
        arguments: ["--socket-mode", "0660", "--socket-group", "64322"]
            .map(str::to_owned)
            .to_vec(),
        ..DaemonOptions::default()
    };
    let pair = Pair::with("wrong-group", &LinkOptions::default(), &options);
    let program = copy_for_all(&pair);
    let socket = pair.daemon_a.socket().display();
    let told = ask_as_user(&pair, &program, &["device"]).run().failure();
    let wanted =
        format!("{socket} is open to group 64322: have USER added to it, then log in again");
    assert!(told.contains(&wanted), "{told}");
    assert!(!told.contains("rnicd --interface"), "{told}");
}

fn scrape(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).expect("the endpoint is there");
    let limit = Some(Duration::from_secs(30));
    stream.set_read_timeout(limit).expect("a timeout");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: rnicd\r\n\r\n")
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body.to_owned()
}

/// The sum of the samples of one name whose labels contain this.
fn value(text: &str, name: &str, label: &str) -> f64 {
    let samples = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
    });
    let values = samples.map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.map(|value| value.expect("a number")).sum()
}

#[test]
fn prometheus_sees_the_counters_of_real_daemons_grow_while_hostile_scrapers_hang() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metrics.sock");
    let mut lab = rnic_tests::lab::Lab::new("metrics");
    let (a, b) = lab.pair(&LinkOptions::default());
    let options = DaemonOptions {
        arguments: vec!["--metrics".into(), format!("unix:{}", path.display())],
        ..DaemonOptions::default()
    };
    let daemon_a = Daemon::start(&lab, &a, &options);
    let daemon_b = Daemon::start(&lab, &b, &DaemonOptions::default());
    let hostile: Vec<UnixStream> = (0..20)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).expect("the endpoint is there");
            // It may have given way already.
            let _ = stream.write_all(b"GET /metr");
            stream
        })
        .collect();
    let before = scrape(&path);
    let names = families(&before);
    assert!(names.len() > 50, "{names:?}");
    {
        let pair = Pair {
            daemon_a,
            daemon_b,
            a,
            b,
            lab,
        };
        let (a, b) = connected(&pair);
        for round in 0..10 {
            a.post(WorkRequest::write(
                round,
                &[a.element(0..1000)],
                b.remote().offset(0),
            ));
            assert_eq!(a.completion().wr_id, round);
            a.post(WorkRequest::read(
                100 + round,
                &[a.element(0..8)],
                b.remote().offset(0),
            ));
            assert_eq!(a.completion().wr_id, 100 + round);
        }
        let after = wait::until("the text is made anew", Duration::from_secs(30), || {
            let text = scrape(&path);
            let reads = value(
                &text,
                "rnic_messages_total",
                "direction=\"received\",operation=\"read_response\"",
            );
            (reads >= 10.0).then_some(text)
        });
        let grown = |name: &str, label: &str, least: f64| {
            let growth = value(&after, name, label) - value(&before, name, label);
            assert!(growth >= least, "{name} {label} has grown by {growth}");
        };
        grown("rnic_memory_bytes_total", "gathered", 10_000.0);
        grown("rnic_client_memory_bytes_total", "gathered", 10_000.0);
        grown("rnic_work_requests_total", "success", 20.0);
        grown("rnic_work_request_duration_seconds_count", "\"read\"", 10.0);
        grown("rnic_work_request_duration_seconds_sum", "\"read\"", 1e-9);
        grown("rnic_connect_duration_seconds_count", "", 1.0);
        grown("rnic_registration_duration_seconds_count", "", 1.0);
        grown("rnic_connections_established_total", "", 1.0);
        grown("rnic_port_frames_total", "sent", 10.0);
        grown("rnic_steering_frames_total", "\"redirected\"", 10.0);
        assert!(value(&after, "rnic_client_holds", "queue_pairs") >= 1.0);
        drop(hostile);
        drop((a, b));
        let _ = pair.daemon_a.stop();
        assert!(!path.exists(), "the socket goes with the daemon");
    }
}

/// A cable is pulled, or somebody takes the interface down, while the daemon runs.
#[test]
fn an_operator_sees_a_lost_link_and_peers_that_vanish_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("metrics.sock");
    let options = DaemonOptions {
        arguments: vec![
            "--metrics".into(),
            format!("unix:{}", path.display()),
            "--user-timeout".into(),
            "2000".into(),
        ],
        ..DaemonOptions::default()
    };
    let mut lab = Lab::new("lost-link");
    let (a, b) = lab.pair(&LinkOptions::default());
    let daemon_a = Daemon::start(&lab, &a, &options);
    let daemon_b = Daemon::start(&lab, &b, &DaemonOptions::default());
    let pair = Pair {
        daemon_a,
        daemon_b,
        a,
        b,
        lab,
    };
    let remote = pair.b.address(Family::V4, PORT);
    let logged = |words: &str| {
        wait::until(words, Duration::from_secs(30), || {
            pair.daemon_a.log().contains(words).then_some(())
        });
    };
    let metric = |name: &str, label: &str, wanted: f64| {
        wait::until(name, Duration::from_secs(30), || {
            let found = value(&scrape(&path), name, label);
            ((found - wanted).abs() < f64::EPSILON).then_some(())
        });
    };
    let open = |wanted| metric("rnic_interface_open", "interface=\"rnic0\"", wanted);
    let set = |host: &Host, state: &str| {
        let words = ["link", "set", "dev", INTERFACE, state];
        host.namespace.ip(&words);
    };
    open(1.0);
    let (end_a, end_b) = connected(&pair);

    // The far end of a veth that is down takes the carrier away.
    set(&pair.b, "down");
    logged("interface rnic0 has no link (no carrier)");
    open(0.0);
    let other = Endpoint::new(&pair.daemon_a, BYTES);
    let connect = || {
        let connected = other
            .qp
            .connect(remote, ConnectOptions::default())
            .wait(Duration::from_secs(10));
        connected.expect_err("no frame leaves").to_string()
    };
    let error = connect();
    assert!(error.contains("interface rnic0 has no carrier"), "{error}");
    // Whoever is waited for meanwhile is given up, and the operator is told whom.
    end_a.post(WorkRequest::write(
        1,
        &[end_a.element(0..1000)],
        end_b.remote().offset(0),
    ));
    assert_eq!(end_a.ending(), DisconnectReason::TimedOut);
    logged(&format!("{remote} was waited for and silent for 2s"));
    let ended = "rnic_connections_ended_total";
    metric(ended, "reason=\"timed_out\"", 1.0);
    set(&pair.b, "up");
    logged("interface rnic0 has its link again");
    open(1.0);

    set(&pair.a, "down");
    logged("interface rnic0 is down");
    open(0.0);
    let error = connect();
    assert!(error.contains("interface rnic0 is down"), "{error}");
    let info = other.context.device_info().expect("it answers");
    assert!(!info.link_up);
    set(&pair.a, "up");
    open(1.0);
}

/// The families, each of which comes once, with its help and type before its samples.
fn families(text: &str) -> Vec<String> {
    let mut families: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().unwrap_or_default().to_owned();
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
            assert!(!families.contains(&name), "{name} comes twice");
            families.push(name);
        } else if !line.starts_with('#') {
            let family = families.last().expect("a TYPE comes first");
            assert!(line.starts_with(family.as_str()), "{line} behind {family}");
        }
    }
    families
}
