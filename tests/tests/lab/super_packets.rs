//! Packets of up to 64 KiB on a veth as it comes: when daemons choose them, and that they follow the link.

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, INTERFACE, Lab, LinkOptions};
use rnic_tests::pair::Pair;
use rnic_tests::tool;

const PORT: u16 = 18515;

fn as_it_comes() -> LinkOptions {
    LinkOptions {
        offloads: true,
        ..LinkOptions::default()
    }
}

/// A verified transfer both ways.
#[track_caller]
fn transfers_work(pair: &Pair) {
    for (family, port) in Family::ALL.into_iter().zip(PORT..) {
        let at = pair.b.address(family, port);
        let _server = tool::server(&pair.daemon_b, "rnic-perf", at, &[]);
        for op in ["write", "read"] {
            let more = "--size 1000000 --depth 4 --iterations 10 --verify --op";
            let more: Vec<&str> = more.split(' ').chain([op]).collect();
            let client = tool::client(&pair.daemon_a, "rnic-perf", at, &more);
            let _ = client.run().success();
        }
    }
}

#[test]
fn daemons_choose_them_where_the_link_has_them_and_say_why() {
    let two = LinkOptions {
        queues: 2,
        ..as_it_comes()
    };
    let off = LinkOptions {
        offloads: false,
        ..as_it_comes()
    };
    let line = |mode: &str| format!("interface {INTERFACE}: XDP in {mode}");
    for (link, mode, says) in [
        (
            as_it_comes(),
            None,
            "generic with super-packets mode (a veth with tso),",
        ),
        (
            off,
            None,
            "native mode (a veth, no super-packets: tso is off),",
        ),
        (
            two,
            None,
            "native mode (a veth, no super-packets: it has 2 queues),",
        ),
        (as_it_comes(), Some("native"), "native mode,"),
    ] {
        let mut lab = Lab::new("super-choice");
        let (host, _peer) = lab.pair(&link);
        let options = DaemonOptions {
            mode,
            ..DaemonOptions::default()
        };
        let log = Daemon::start(&lab, &host, &options).log();
        assert!(log.contains(&line(says)), "{says}: {log}");
    }
}

#[test]
fn a_daemon_that_chose_them_and_one_in_native_mode_reach_each_other() {
    let native = DaemonOptions {
        mode: Some("native"),
        ..DaemonOptions::default()
    };
    let both = [&DaemonOptions::default(), &native];
    let pair = Pair::with_each("super-native", &as_it_comes(), both);
    transfers_work(&pair);
    // The kernel cuts what an interface with a native program is sent.
    assert!(pair.daemon_a.counter("port0_super_packets_sent") > 0);
    assert_eq!(pair.daemon_b.counter("port0_chains_received"), 0);
    assert_eq!(pair.daemon_b.counter("port0_super_packets_sent"), 0);
    for daemon in [&pair.daemon_a, &pair.daemon_b] {
        assert_eq!(daemon.counter("rx_bad_tcp_checksum"), 0);
    }
}

#[test]
fn the_kernel_cuts_them_from_when_the_link_takes_them_no_more() {
    let pair = Pair::with("super-tso", &as_it_comes(), &DaemonOptions::default());
    let sent = || pair.daemon_a.counter("port0_super_packets_sent");
    let received = || pair.daemon_b.counter("port0_chains_received");
    transfers_work(&pair);
    let whole = received();
    assert!(whole > 0);
    // Without checksums there is no segmentation either.
    for (option, on) in [("tso", false), ("tso", true), ("tx", false), ("tx", true)] {
        let state = if on { "on" } else { "off" };
        let set = ["-K", INTERFACE, option, state];
        let ethtool = pair.a.namespace.command("ethtool").args(set);
        let _ = ethtool.run().success();
        let (sent_before, before) = (sent(), received());
        transfers_work(&pair);
        assert!(sent() > sent_before, "{option} {state}");
        assert_eq!(received() > before, on, "{option} {state}");
    }
    assert_eq!(pair.daemon_b.counter("rx_bad_tcp_checksum"), 0);
}
