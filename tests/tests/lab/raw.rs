//! `rnic-perf raw`: what the benchmark holds the RNIC against does what it says.

use rnic_tests::lab::{Command, Host, INTERFACE, Lab, LinkOptions};
use rnic_tests::linksim::{Linksim, count};
use rnic_tests::{binary, tool};

fn raw(host: &Host, role: &str, options: &[&str]) -> Command {
    host.namespace
        .command(binary::path("rnic-perf"))
        .label(&format!("rnic-perf-raw-{role}"))
        .args(["raw", role, "--interface", INTERFACE])
        .args(["--timeout", "20s"])
        .args(options)
}

#[test]
fn the_least_transport_moves_all_bytes_in_order_over_a_link_that_loses_and_damages() {
    let mut lab = Lab::new("raw-least");
    let (a, middle, b) = lab.over(&LinkOptions::default());
    let harm = [
        "--loss=1%",
        "--corrupt=1%",
        "--reorder=1%",
        "--duplicate=1%",
    ];
    let link = Linksim::start(&middle, &harm);
    let mut receiver = raw(&b, "receive", &["--least", "--waiting", "poll"]).spawn();
    receiver
        .says("listening", tool::LISTEN_LIMIT)
        .expect("it takes its interface");
    let send = ["--least", "--waiting", "poll", "--duration", "1s"];
    let sent = tool::report(&raw(&a, "send", &send).run().success());
    let received = tool::report(&receiver.finish(tool::LISTEN_LIMIT).success());
    let link = link.stop();

    // It ends only when all has arrived, and the sink takes only what is next.
    let frames = sent["frames"].as_u64().expect("a number");
    assert!(frames > 1000, "{sent}");
    assert_eq!(received["frames"], sent["frames"], "{received}");
    let bytes = received["payload_bytes"].as_u64().expect("a number");
    assert!(bytes > frames / 735 * (1 << 20), "{received}");
    assert!(bytes <= frames * 1428, "{received}");
    assert!(sent["again"].as_u64() > Some(0), "{sent}");
    assert!(count(&link, "to_right.lost") > 0, "{link}");
}

#[test]
fn the_least_transport_says_when_nobody_is_there() {
    let mut lab = Lab::new("raw-alone");
    let (a, _b) = lab.pair(&LinkOptions::default());
    let send = ["--least", "--duration", "100ms", "--timeout", "300ms"];
    let command = a.namespace.command(binary::path("rnic-perf"));
    let interface = ["raw", "send", "--interface", INTERFACE];
    let ended = command.args(interface).args(send).run();
    assert!(!ended.status.success(), "{ended}");
    assert!(ended.stderr.contains("nothing was acknowledged"), "{ended}");
}

#[test]
fn no_option_of_rnic_perf_is_silently_without_effect() {
    let raw = ["raw", "--interface", INTERFACE];
    let client = ["client", "--connect", "198.18.0.1:7471"];
    let cases: [(&[&str], &[&str], &str); 8] = [
        (
            &raw,
            &["receive", "--duration", "1s"],
            "--duration is for send and ping",
        ),
        (
            &raw,
            &["pong", "--duration", "1s"],
            "--duration is for send and ping",
        ),
        (
            &raw,
            &["send", "--timeout", "1s"],
            "--timeout has no effect",
        ),
        (
            &raw,
            &["ping", "--verified"],
            "--verified is for send and receive",
        ),
        (
            &raw,
            &["pong", "--least"],
            "--least is for send and receive",
        ),
        (
            &client,
            &["--latency", "--depth", "4"],
            "cannot be used with",
        ),
        (
            &client,
            &["--bytes", "1M", "--duration", "1s"],
            "cannot be used with",
        ),
        (
            &["tcp"],
            &["pong", "--listen", "127.0.0.1:0", "--duration", "1s"],
            "unexpected argument",
        ),
    ];
    for (mode, options, words) in cases {
        let ran = std::process::Command::new(binary::path("rnic-perf"))
            .args(mode)
            .args(options)
            .output()
            .expect("it can be run");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(
            !ran.status.success() && said.contains(words),
            "{options:?}: {said}"
        );
    }
}
