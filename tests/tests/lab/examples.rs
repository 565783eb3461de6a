//! The examples of the crate `rnic`, run as their heads say, and their results.

use rnic_tests::binary;
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Command, Family, Host, INTERFACE, Lab, LinkOptions, Process};
use rnic_tests::pair::Pair;
use rnic_tests::pattern::Pattern;
use rnic_tests::{tool, wait};

const PORT: u16 = 7000;

/// An example on a host, with a daemon's socket or an interface as its first argument.
fn example(host: &Host, name: &str, place: &str, more: &[&str]) -> Command {
    host.namespace
        .command(binary::example(name))
        .label(&format!("{name}-{}", more[0]))
        .arg(place)
        .args(more)
}

fn listening(command: Command) -> Process {
    let mut process = command.spawn();
    wait::until("the example listens", tool::LISTEN_LIMIT, || {
        assert!(process.running(), "it ended: {}", process.stderr());
        process.stdout().contains("listening").then_some(())
    });
    process
}

fn place(daemon: &Daemon) -> &str {
    daemon.socket().to_str().expect("a path of ASCII letters")
}

fn embedded() -> String {
    format!("embedded:{INTERFACE}")
}

#[test]
fn ping_pong_goes_to_and_fro_between_two_daemons() {
    let pair = Pair::new("example-ping");
    let at = pair.b.address(Family::V4, PORT).to_string();
    let server = example(
        &pair.b,
        "ping_pong",
        place(&pair.daemon_b),
        &["server", &at],
    );
    let server = listening(server);
    let client = example(
        &pair.a,
        "ping_pong",
        place(&pair.daemon_a),
        &["client", &at],
    );
    let done = client.run().success();
    assert!(done.stdout.contains("a round"), "{done}");
    let _ = server.finish(tool::LISTEN_LIMIT).success();
}

#[test]
fn what_is_put_into_kv_store_is_read_by_others() {
    let pair = Pair::new("example-kv");
    let at = pair.b.address(Family::V4, PORT).to_string();
    let server = example(&pair.b, "kv_store", place(&pair.daemon_b), &["server", &at]);
    let mut server = listening(server);
    let client = |commands: &[&str]| {
        let more = [&["client", &at], commands].concat();
        let done = example(&pair.a, "kv_store", place(&pair.daemon_a), &more).run();
        done.success().stdout
    };
    assert_eq!(client(&["get", "colour"]), "colour is not there\n");
    let before = pair.daemon_b.counter("bytes_placed");
    let words = [
        "put", "colour", "blue", "put", "colour", "red", "put", "x", "",
    ];
    assert_eq!(client(&words), "");
    assert!(pair.daemon_b.counter("bytes_placed") > before);
    let found = client(&["get", "colour", "get", "x", "get", "y"]);
    assert_eq!(found, "colour: red\nx: \ny is not there\n");
    let more = ["client", &at, "put", "long", &"x".repeat(300)];
    let refused = example(&pair.a, "kv_store", place(&pair.daemon_a), &more);
    assert!(refused.run().failure().contains("bytes"));
    assert!(server.running(), "{}", server.stderr());
}

#[test]
fn kv_store_works_embedded_on_both_sides() {
    let mut lab = Lab::new("example-kv-embedded");
    let (a, b) = lab.pair(&LinkOptions::default());
    let at = b.address(Family::V6, PORT).to_string();
    let _server = listening(example(&b, "kv_store", &embedded(), &["server", &at]));
    let more = ["client", &at, "put", "a", "b", "get", "a"];
    let done = example(&a, "kv_store", &embedded(), &more).run().success();
    assert_eq!(done.stdout, "a: b\n");
}

#[test]
fn file_copy_copies_every_byte_and_shows_its_progress() {
    let mut lab = Lab::new("example-file");
    let (a, b) = lab.pair(&LinkOptions::default());
    let daemon = Daemon::start(&lab, &a, &DaemonOptions::default());
    let (from, to) = (lab.directory().join("file"), lab.directory().join("copy"));
    // Many times round all pieces and a little; nothing at all; less than a piece.
    for (number, length) in [(16 << 20) + 12_345, 0, 1].into_iter().enumerate() {
        let bytes = Pattern::bytes(number as u64, length);
        std::fs::write(&from, &bytes).expect("the lab's directory takes a file");
        let at = b.address(Family::V4, PORT + number as u16).to_string();
        let names = [&to, &from].map(|path| path.to_str().expect("a path of ASCII letters"));
        let receiver = example(&b, "file_copy", &embedded(), &["receive", &at, names[0]]);
        let receiver = listening(receiver);
        let sender = example(&a, "file_copy", place(&daemon), &["send", &at, names[1]]);
        let sent = sender.run().success();
        let received = receiver.finish(tool::LISTEN_LIMIT).success();
        assert!(
            std::fs::read(&to).expect("a copy") == bytes,
            "{length}: other bytes"
        );
        assert!(received.stderr.contains("100 %"), "{received}");
        assert!(
            sent.stdout.contains(&format!("sent {length} bytes")),
            "{sent}"
        );
        assert!(
            received
                .stdout
                .contains(&format!("received {length} bytes"))
        );
    }
}

#[test]
fn all_examples_work_over_the_loopback_of_one_daemon() {
    let mut lab = Lab::new("example-loopback");
    let (a, _) = lab.pair(&LinkOptions::default());
    let socket = lab.directory().join("rnicd.sock");
    let rnicd = a.namespace.command(binary::path("rnicd"));
    let rnicd = rnicd.args(["--loopback", "--socket"]).arg(&socket);
    let daemon = Daemon::started(rnicd, &a.namespace, &socket, None);
    for (number, host) in ["127.0.0.1", "[::1]"].into_iter().enumerate() {
        let at = |port: u16| format!("{host}:{}", PORT + port);
        let run = |name: &str, more: &[&str]| example(&a, name, place(&daemon), more);

        let server = listening(run("ping_pong", &["server", &at(0)]));
        let done = run("ping_pong", &["client", &at(0)]).run().success();
        assert!(done.stdout.contains("a round"), "{done}");
        let _ = server.finish(tool::LISTEN_LIMIT).success();

        let _server = listening(run("kv_store", &["server", &at(1)]));
        let words = ["client", &at(1), "put", "a", "b", "get", "a"];
        let done = run("kv_store", &words).run().success();
        assert_eq!(done.stdout, "a: b\n");

        let (from, to) = (lab.directory().join("file"), lab.directory().join("copy"));
        let bytes = Pattern::bytes(number as u64, (4 << 20) + 12_345);
        std::fs::write(&from, &bytes).expect("the lab's directory takes a file");
        let [to_name, from_name] =
            [&to, &from].map(|path| path.to_str().expect("a path of ASCII letters"));
        let receiver = listening(run("file_copy", &["receive", &at(2), to_name]));
        let sent = run("file_copy", &["send", &at(2), from_name]).run();
        let _ = sent.success();
        let _ = receiver.finish(tool::LISTEN_LIMIT).success();
        assert!(std::fs::read(&to).expect("a copy") == bytes, "other bytes");
    }
}
