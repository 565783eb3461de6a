//! On a link that loses and reorders, what comes out of order is placed when it comes (RFC 5044 section 4.3, RFC 5041
//! section 5.1). Markers or aligned segments (docs/extensions.md) tell the receiver where FPDUs begin; over SCTP each
//! chunk is one segment (RFC 5043 section 5.2).

use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, Lab, LinkOptions};
use rnic_tests::linksim::{Linksim, count};
use rnic_tests::tool;

const PORT: u16 = 18516;
/// Bytes that each run moves: some 20 % come out of order. Over IPv6 a quarter will do, because nothing that places bytes
/// sees which IP brought them.
const BYTES: u64 = 6 << 20;
const FEWER: u64 = BYTES / 4;
/// For a rate: long enough for the congestion window to find its size.
const OF_A_RATE: u64 = 12 << 20;
/// What moves them: a few long messages in flight, and of Sends many short ones.
const LONG: [&str; 2] = ["--size=64k", "--depth=16"];
const SHORT: [&str; 2] = ["--size=1k", "--depth=128"];
const LIMIT: Duration = Duration::from_secs(120);
/// A rate that the machine can do, and a round trip that does not come from its scheduler.
const LINK: [&str; 5] = [
    "--rate=200Mbit",
    "--queue=400p",
    "--delay=500us",
    "--loss=1%",
    "--reorder=2%",
];

/// Two RNICs with a bad link between them.
struct Net {
    sender: Daemon,
    receiver: Daemon,
    link: Linksim,
    to: Host,
    _from: Host,
    _lab: Lab,
}

/// What one run came to, in what the receiver of the data has counted.
#[derive(Debug)]
struct Run {
    mbit_per_second: f64,
    out_of_order: u64,
    placed_early: u64,
    copied: u64,
}

impl Net {
    fn new(name: &str, seed: u64) -> Self {
        Self::with(name, &LINK, seed, &DaemonOptions::default())
    }

    fn with(name: &str, link: &[&str], seed: u64, options: &DaemonOptions) -> Self {
        let mut lab = Lab::new(name);
        let (from, middle, to) = lab.over(&LinkOptions::default());
        let sender = Daemon::start(&lab, &from, options);
        let receiver = Daemon::start(&lab, &to, options);
        let seed = format!("--seed={seed}");
        let link = Linksim::start(&middle, &[link, &[&seed]].concat());
        Self {
            sender,
            receiver,
            link,
            to,
            _from: from,
            _lab: lab,
        }
    }

    /// Moves bytes from the client to the server (`write`, `send`) or back (`read`), verified.
    fn run(&self, family: Family, bytes: u64, op: &str, mpa: &[&str]) -> Run {
        let (sink, shape) = match op {
            "read" => (&self.sender, LONG),
            "send" => (&self.receiver, SHORT),
            _ => (&self.receiver, LONG),
        };
        let names = ["bytes_out_of_order", "bytes_placed_early", "bounced"];
        let before = names.map(|name| sink.counter(name));
        let at = self.to.address(family, PORT);
        let _server = tool::server(&self.receiver, "rnic-perf", at, mpa);
        let bytes = bytes.to_string();
        let plan = ["--op", op, "--bytes", &bytes, "--verify"];
        let more = [&plan[..], &shape, mpa].concat();
        let client = tool::client(&self.sender, "rnic-perf", at, &more);
        let finished = client.limit(LIMIT).run().success();
        let report = tool::report(&finished);
        let after = names.map(|name| sink.counter(name));
        let [out_of_order, placed_early, copied] = std::array::from_fn(|i| after[i] - before[i]);
        let gbit = &report["goodput"]["gbit_per_second"];
        let run = Run {
            mbit_per_second: gbit.as_f64().expect("a rate is a number") * 1000.0,
            out_of_order,
            placed_early,
            copied,
        };
        println!("{op} {family:?} {mpa:?}: {run:?}");
        run
    }

    fn stop(self) {
        let report = self.link.stop();
        for what in ["lost", "reordered"] {
            assert!(count(&report, &format!("to_right.{what}")) > 0, "{report}");
        }
    }
}

/// Over 99 % of what comes out of order, and no byte is copied anywhere before it is placed.
fn what_comes_out_of_order_is_placed(name: &str, family: Family, bytes: u64) {
    let net = Net::new(name, 1);
    for op in ["write", "read", "send"] {
        let off = net.run(family, bytes, op, &[]);
        assert_eq!(off.placed_early, 0, "no telling where an FPDU begins");
        // A chunk of SCTP is a whole segment: so there is nothing to find.
        for how in ["--markers", "--aligned", "--sctp"] {
            let on = net.run(family, bytes, op, &[how]);
            println!(
                "{op} over {family:?}: {:.1} Mbit/s with {how}, {:.1} without",
                on.mbit_per_second, off.mbit_per_second
            );
            for run in [&on, &off] {
                assert!(run.out_of_order > bytes / 25, "too good a link: {run:?}");
                assert_eq!(run.copied, 0, "{run:?}");
            }
            assert!(on.placed_early * 100 > on.out_of_order * 99, "{on:?}");
        }
    }
    net.stop();
}

#[test]
fn what_comes_out_of_order_is_placed_on_arrival_over_ipv4() {
    what_comes_out_of_order_is_placed("ooo4", Family::V4, BYTES);
}

#[test]
fn what_comes_out_of_order_is_placed_on_arrival_over_ipv6() {
    what_comes_out_of_order_is_placed("ooo6", Family::V6, FEWER);
}

/// What is lost by chance makes CUBIC slow, on a long way slower than it need be, and BBR not; what it
/// moves arrives as well.
#[test]
fn by_bbr_a_loss_costs_what_was_lost() {
    let link = LINK.map(|option| match option.starts_with("--delay") {
        true => "--delay=5ms",
        false => option,
    });
    let rate = |congestion: &str| {
        let options = DaemonOptions {
            arguments: vec!["--congestion".into(), congestion.into()],
            ..DaemonOptions::default()
        };
        let net = Net::with(congestion, &link, 1, &options);
        let run = net.run(Family::V4, OF_A_RATE, "write", &["--markers"]);
        net.stop();
        run.mbit_per_second
    };
    let (bbr, cubic) = (rate("bbr"), rate("cubic"));
    assert!(bbr > 2.0 * cubic, "{bbr:.1} and {cubic:.1} Mbit/s");
}
