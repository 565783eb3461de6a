//! `rnic-perf raw`: what the benchmark holds the RNIC against does what it says.

use rnic_tests::binary;
use rnic_tests::lab::INTERFACE;

#[test]
fn no_option_of_rnic_perf_is_silently_without_effect() {
    let raw = ["raw", "--interface", INTERFACE];
    let client = ["client", "--connect", "198.18.0.1:7471"];
    let cases: [(&[&str], &[&str], &str); 7] = [
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
