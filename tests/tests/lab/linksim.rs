//! linksim between two kernels: what they say to each other arrives, changed as was asked for and
//! in no other way, and its counters agree with what was seen.

use std::process::Command;
use std::time::Duration;

use rnic_tests::lab::{Family, Host, Lab, LinkOptions, Namespace};
use rnic_tests::linksim::{Linksim, count};
use rnic_tests::{stream, tshark};
use serde_json::Value;

/// Bytes of each stream, each way.
const STREAM: usize = 2_000_000;

fn hosts(name: &str) -> (Lab, Host, Namespace, Host) {
    hosts_of_mtu(name, 1500)
}

fn hosts_of_mtu(name: &str, mtu: u32) -> (Lab, Host, Namespace, Host) {
    let mut lab = Lab::new(name);
    let link = LinkOptions {
        mtu,
        ..LinkOptions::default()
    };
    let (a, middle, b) = lab.over(&link);
    (lab, a, middle, b)
}

/// Kernel TCP both ways over both versions of IP, on a link with these options; what the link
/// counted.
fn streams(name: &str, options: &[&str]) -> Value {
    streams_of_mtu(name, 1500, options)
}

/// The same where interfaces have this MTU.
fn streams_of_mtu(name: &str, mtu: u32, options: &[&str]) -> Value {
    let (_lab, a, middle, b) = hosts_of_mtu(name, mtu);
    let link = Linksim::start(&middle, options);
    for family in Family::ALL {
        stream::exchange(&a, &b, family, STREAM);
    }
    let report = link.stop();
    for side in ["carrier_left", "carrier_right"] {
        assert_eq!(count(&report, &format!("{side}.receive")), 0, "{report}");
        assert_eq!(count(&report, &format!("{side}.send")), 0, "{report}");
    }
    report
}

/// A count of both directions together.
fn both(report: &Value, name: &str) -> u64 {
    count(report, &format!("to_right.{name}")) + count(report, &format!("to_left.{name}"))
}

/// Whether a count is near this share of the packets that came.
#[track_caller]
fn assert_share(report: &Value, name: &str, share: f64) {
    let expected = both(report, "arrived") as f64 * share;
    let found = both(report, name) as f64;
    assert!(
        (found - expected).abs() < 6.0 * expected.sqrt() + 1.0,
        "{name}: {found} instead of about {expected}: {report}"
    );
}

#[test]
fn a_clean_link_loses_and_changes_nothing() {
    let (_lab, a, middle, b) = hosts("clean");
    let mut link = Linksim::start(&middle, &[]);
    for address in [b.v4.to_string(), b.v6.to_string()] {
        let ping = a.namespace.command("ping");
        let _ = ping
            .args(["-c", "20", "-i", "0.02", "-W", "2", &address])
            .run()
            .success();
    }
    let report = link.report();
    assert!(count(&report, "to_right.arrived") >= 40, "{report}");
    for family in Family::ALL {
        stream::exchange(&a, &b, family, 4 * STREAM);
    }
    let report = link.stop();
    assert_eq!(count(&report, "carrier_lost"), 0, "{report}");
    for direction in ["to_right", "to_left"] {
        let of = |name: &str| count(&report, &format!("{direction}.{name}"));
        assert_eq!(of("arrived"), of("forwarded"));
        assert_eq!(of("arrived_bytes"), of("forwarded_bytes"));
        assert!(of("arrived_bytes") > 8 * STREAM as u64);
    }
}

#[test]
fn a_delayed_ping_takes_the_delay_twice() {
    let (_lab, a, middle, b) = hosts("delay");
    let link = Linksim::start(&middle, &["--delay=20ms"]);
    let ping = a.namespace.command("ping");
    let ping = ping
        .args(["-q", "-c", "30", "-i", "0.02", "-W", "2", &b.v4.to_string()])
        .run()
        .success();
    let times = ping.stdout.split("rtt min/avg/max/mdev = ").nth(1);
    let least = times.and_then(|times| times.split('/').next()?.parse::<f64>().ok());
    let least = least.unwrap_or_else(|| panic!("no times: {ping}"));
    assert!((40.0..60.0).contains(&least), "{ping}");
    let _ = link.stop();
}

#[test]
fn streams_survive_loss() {
    let report = streams("loss", &["--loss=1%"]);
    assert_share(&report, "lost", 0.01);
    let report = streams("bursts", &["--burst-loss=0.2%:50%"]);
    assert_eq!(both(&report, "lost"), both(&report, "lost_in_bursts"));
    assert!(both(&report, "lost") > 0, "{report}");
}

#[test]
fn large_frames_pass_as_they_were() {
    let report = streams_of_mtu("jumbo", 9000, &[]);
    assert_eq!(count(&report, "to_right.no_frame"), 0, "{report}");
    let report = streams_of_mtu("jumbo-loss", 9000, &["--loss=1%", "--split=10%"]);
    assert!(both(&report, "lost") > 0, "{report}");
    assert!(both(&report, "resegmented") > 0, "{report}");
}

#[test]
fn streams_survive_reordering_and_duplication() {
    let options = ["--reorder=2%", "--reorder-by=20", "--duplicate=2%"];
    let report = streams("reorder", &options);
    assert_share(&report, "held_back", 0.02);
    assert_share(&report, "duplicated", 0.02);
    assert!(both(&report, "reordered") > 0, "{report}");
}

#[test]
fn streams_survive_corruption() {
    let report = streams("corrupt", &["--corrupt=1%"]);
    assert_share(&report, "corrupted", 0.01);
}

#[test]
fn streams_survive_other_segment_boundaries() {
    let options = ["--split=20%", "--pieces=5", "--join=20%"];
    let report = streams("resegment", &options);
    assert!(both(&report, "resegmented") > 500, "{report}");
}

#[test]
fn a_rate_is_kept_and_a_full_queue_drops() {
    let (_lab, a, middle, b) = hosts("rate");
    let link = Linksim::start(&middle, &["--rate=50Mbit", "--queue=32p"]);
    let begin = std::time::Instant::now();
    stream::exchange(&a, &b, Family::V4, 2 * STREAM);
    let seconds = begin.elapsed().as_secs_f64();
    let report = link.stop();
    let bytes =
        count(&report, "to_right.forwarded_bytes") + 24 * count(&report, "to_right.forwarded");
    let most = 50e6 / 8.0 * (seconds + 0.05);
    assert!((bytes as f64) < most, "{bytes} bytes in {seconds} s");
    assert!((bytes as f64) > 0.05 * most, "{bytes} bytes in {seconds} s");
    assert!(both(&report, "queue_full") > 0, "{report}");
    assert_eq!(count(&report, "carrier_lost"), 0, "{report}");
}

#[test]
fn streams_survive_an_mtu_that_shrinks_in_mid_stream() {
    let options = ["--change=after=500,mtu=1300"];
    let report = streams("mtu", &options);
    assert!(both(&report, "icmp_sent") > 0, "{report}");
    assert_eq!(both(&report, "icmp_sent"), both(&report, "too_big"));
    assert_eq!(both(&report, "changes"), 2);
}

#[test]
fn a_capture_has_what_was_forwarded_and_says_why_the_rest_was_dropped() {
    let (lab, a, middle, b) = hosts("capture");
    let file = lab.directory().join("link.pcapng");
    let options = ["--loss=2%", "--mtu=1300", "--corrupt=1%"];
    let link = Linksim::captured(&middle, &options, &file);
    for family in Family::ALL {
        stream::exchange(&a, &b, family, STREAM / 4);
    }
    let report = link.stop();
    let comments = tshark::field(&file, "frame.comment");
    let of = |text: &str| comments.iter().filter(|comment| *comment == text).count() as u64;
    assert_eq!(of("dropped: lost"), both(&report, "lost"));
    assert_eq!(of("dropped: too big"), both(&report, "too_big"));
    let sent = both(&report, "forwarded") + both(&report, "icmp_sent");
    assert_eq!(of(""), sent, "{report}");

    // What tshark thinks of the answers: right checksums, and the MTU where it belongs.
    let only = |filter: &str, field: &str| {
        let output = Command::new("tshark")
            .args(["-o", "ip.check_checksum:TRUE", "-T", "fields", "-e", field])
            .args(["-Y", filter, "-r"])
            .arg(&file)
            .output()
            .expect("tshark is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let v4 = "icmp.type == 3 && icmp.code == 4";
    assert!(only(v4, "icmp.mtu").iter().any(|mtu| mtu == "1300"));
    assert!(
        only(
            &format!("{v4} && icmp.checksum.status != 1"),
            "frame.number"
        )
        .is_empty()
    );
    let v6 = "icmpv6.type == 2";
    assert!(only(v6, "icmpv6.mtu").iter().any(|mtu| mtu == "1300"));
    assert!(
        only(
            &format!("{v6} && icmpv6.checksum.status != 1"),
            "frame.number"
        )
        .is_empty()
    );
}

#[test]
fn what_it_cannot_do_it_says_and_what_to_do_instead() {
    let (_lab, _a, middle, _b) = hosts("errors");
    let refused = |options: &[&str]| {
        let command = middle.command(rnic_tests::binary::path("linksim"));
        let command = command.args(options).limit(Duration::from_secs(30));
        command.run().failure()
    };
    let sides = ["--left", "end1", "--right", "end2"];
    for (options, says) in [
        (&[][..], "--left"),
        (&["--left", "end1"], "--right"),
        (&["--left", "end1", "--right", "end1"], "two interfaces"),
        (&["--left", "end1", "--right", "nowhere"], "ip link"),
        (&["--config", "/nowhere.toml"], "/nowhere.toml"),
        (&[&sides[..], &["--rate", "5"]].concat(), "500Mbit"),
        (&[&sides[..], &["--to-left", "los=1%"]].concat(), "los"),
        (&[&sides[..], &["--change", "loss=1%"]].concat(), "at=TIME"),
        (&[&sides[..], &["--ecn", "5p"]].concat(), "rate"),
    ] {
        let error = refused(options);
        assert!(error.contains(says), "{options:?}: {error}");
    }
}
