//! What is to be reached: a figure, or one by another, and a bound for its median or for the ratio of
//! the medians.

use serde_json::{Value, json};

use super::results::Results;
use super::stats::{Summary, ratio_of_medians};
use super::{CPU, GBIT, GBIT_ALONE, MESSAGES, Napi, P50, P99};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// No less than this.
    AtLeast(f64),
    /// No more than this.
    AtMost(f64),
    /// None: it is told to say what a goal beside it asks.
    None,
}

impl Bound {
    fn holds(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(bound) => Some(value >= bound),
            Self::AtMost(bound) => Some(value <= bound),
            Self::None => None,
        }
    }

    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!("≥ {bound}"),
            Self::AtMost(bound) => format!("≤ {bound}"),
            Self::None => "-".into(),
        }
    }
}

/// A figure of one case: of these the one whose median is best, if there are several.
#[derive(Clone, Debug)]
pub struct Side {
    names: Vec<String>,
    figure: &'static str,
}

/// Something to be reached.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The figure, for people.
    pub what: String,
    pub bound: Bound,
    above: Side,
    below: Option<Side>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// What is held against the bound: the figure's median, or the ratio of the two medians.
    pub value: f64,
    /// The figure in each round, or the ratio of the two of the same round.
    pub rounds: Summary,
    /// Whether the goal is met; nothing when it has no bound.
    pub met: Option<bool>,
}

/// A goal and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Measured(Measured),
    /// It was not, and why.
    NotMeasured(String),
}

impl Goal {
    fn ratio(what: impl Into<String>, bound: Bound, above: Side, below: Side) -> Self {
        Self {
            what: what.into(),
            bound,
            above,
            below: Some(below),
        }
    }

    /// Whether a case of this name is part of it.
    #[must_use]
    pub fn concerns(&self, name: &str) -> bool {
        let mut sides = [Some(&self.above), self.below.as_ref()]
            .into_iter()
            .flatten();
        sides.any(|side| side.names.iter().any(|one| one == name))
    }

    #[must_use]
    pub fn verdict(&self, results: &Results) -> Verdict {
        match self.measured(results) {
            Ok((value, rounds)) => Verdict::Measured(Measured {
                value,
                rounds,
                met: self.bound.holds(value),
            }),
            Err(excuse) => Verdict::NotMeasured(excuse),
        }
    }

    fn measured(&self, results: &Results) -> Result<(f64, Summary), String> {
        let above = self.above.series(results)?;
        let measured = match &self.below {
            Some(below) => {
                let below = below.series(results)?;
                ratio_of_medians(&above, &below).zip(Summary::of_ratios(&above, &below))
            }
            None => Summary::of(above.into_iter().flatten()).map(|all| (all.median, all)),
        };
        measured.ok_or_else(|| "in no round both were measured".to_owned())
    }

    #[must_use]
    pub fn json(&self, results: &Results) -> Value {
        let (measured, why) = match self.verdict(results) {
            Verdict::Measured(measured) => (Some(measured), None),
            Verdict::NotMeasured(why) => (None, Some(why)),
        };
        json!({
            "figure": self.what,
            "goal": self.bound.text(),
            "measured": measured.map(|all| all.value),
            "rounds": measured.map(|all| all.rounds.json()),
            "met": measured.and_then(|all| all.met),
            "not_measured": why,
        })
    }
}

impl Side {
    fn of(name: impl Into<String>, figure: &'static str) -> Self {
        Self {
            names: vec![name.into()],
            figure,
        }
    }

    fn best_of(names: impl IntoIterator<Item = String>) -> Self {
        Self {
            names: names.into_iter().collect(),
            figure: GBIT,
        }
    }

    /// The figure in all rounds, or why there is none.
    fn series(&self, results: &Results) -> Result<Vec<Option<f64>>, String> {
        let rows: Vec<_> = self
            .names
            .iter()
            .filter_map(|name| results.row(name))
            .collect();
        let median = |row: &super::results::Row| row.summary(self.figure).map(|all| all.median);
        let best = rows.iter().filter_map(|row| Some((median(row)?, row)));
        let best = best.max_by(|(one, _), (other, _)| one.total_cmp(other));
        match (best, rows.first()) {
            (Some((_, row)), _) => Ok(row.series(self.figure)),
            (None, Some(row)) => Err(row.excuse()),
            (None, None) => Err(format!(
                "{} was not part of this run",
                self.names.join(", ")
            )),
        }
    }
}

#[must_use]
pub fn all() -> Vec<Goal> {
    let mut goals = Vec::new();
    goals.extend(streams());
    goals.extend(pings());
    goals.extend(memory());
    goals.extend(many());
    goals.extend(loopback());
    goals.extend(verbs());
    goals.extend(sctp());
    for (by, rnic_source) in [("", "embedded"), (" by BBR", "bbr-embedded")] {
        for (share, bound) in [("0.1", 1.2), ("1", 1.5)] {
            goals.push(Goal::ratio(
                format!(
                    "1 MiB Writes with Markers{by} / kernel TCP CUBIC, {share} % loss and reordering"
                ),
                Bound::AtLeast(bound),
                Side::of(
                    format!("write-1M-markers-{rnic_source}@1500-inline-loss-{share}"),
                    GBIT,
                ),
                Side::of(format!("kernel-plain@1500-inline-loss-{share}"), GBIT),
            ));
        }
    }
    for napi in [Napi::Rps, Napi::Threaded].map(Napi::name) {
        for (rnic_source, polling) in [("daemon", ""), ("daemon-event", " that sleeps at once")] {
            goals.push(Goal::ratio(
                format!(
                    "daemon{polling} / embedded, 64 KiB Writes, MTU 1500, RX on its own core ({napi})"
                ),
                Bound::AtLeast(0.9),
                Side::of(format!("write-64k-{rnic_source}@1500-{napi}"), GBIT),
                Side::of(format!("write-64k-embedded@1500-{napi}"), GBIT),
            ));
        }
    }
    goals
}

fn streams() -> Vec<Goal> {
    let mut goals = Vec::new();
    let places = || {
        Napi::ALL
            .iter()
            .flat_map(|napi| [1500, 3506].map(|mtu| (mtu, napi.name())))
    };
    // The others say what of the first is the copying and verifying.
    for (mtu, napi) in places() {
        let of = |what: &str| Side::of(format!("{what}@{mtu}-{napi}"), GBIT);
        let what = |what: &str| format!("{what}, MTU {mtu}, {napi}");
        goals.extend([
            Goal::ratio(
                what("RDMA Write, 1 MiB / raw AF_XDP"),
                Bound::AtLeast(0.9),
                of("write-1M-embedded"),
                of("raw"),
            ),
            Goal::ratio(
                what("raw AF_XDP with bytes copied, verified and copied / without"),
                Bound::None,
                of("raw-verified"),
                of("raw"),
            ),
            Goal::ratio(
                what("RDMA Write, 1 MiB / raw AF_XDP with bytes copied, verified and copied"),
                Bound::None,
                of("write-1M-embedded"),
                of("raw-verified"),
            ),
        ]);
    }
    for napi in [Napi::Inline, Napi::Rps].map(Napi::name) {
        goals.push(Goal::ratio(
            format!("RDMA Write, 1 MiB / kernel TCP without offloads, MTU 3506, {napi}"),
            Bound::AtLeast(2.0),
            Side::of(format!("write-1M-embedded@3506-{napi}"), GBIT),
            Side::of(format!("kernel-plain@3506-{napi}"), GBIT),
        ));
    }
    let best = |what: &str| {
        let mtus = [1500, 3506, 9000];
        let names = Napi::ALL
            .iter()
            .flat_map(|napi| mtus.map(|mtu| (mtu, napi.name())));
        let names = names.map(|(mtu, napi)| format!("{what}@{mtu}-{napi}"));
        Side::best_of(names.collect::<Vec<_>>())
    };
    goals.push(Goal::ratio(
        "RDMA Write, 1 MiB / kernel TCP with TSO and GRO, each where it is best",
        Bound::AtLeast(1.0),
        best("write-1M-embedded"),
        best("kernel-tso"),
    ));
    for mtu in [1500, 3506, 9000] {
        goals.push(Goal::ratio(
            format!("RDMA Write, 1 MiB / kernel TCP, a veth as it comes, MTU {mtu}"),
            Bound::AtLeast(1.0),
            Side::of(format!("write-1M-embedded@{mtu}-as-it-comes"), GBIT),
            Side::of(format!("kernel-tso@{mtu}-as-it-comes"), GBIT),
        ));
    }
    for (mtu, napi) in places() {
        goals.push(Goal::ratio(
            format!("Markers / none, 1 MiB Writes, MTU {mtu}, {napi}"),
            Bound::AtLeast(0.9),
            Side::of(format!("write-1M-markers-embedded@{mtu}-{napi}"), GBIT),
            Side::of(format!("write-1M-embedded@{mtu}-{napi}"), GBIT),
        ));
    }
    goals
}

fn pings() -> Vec<Goal> {
    let ours = |figure| Side::of("write-64-ping-embedded@1500-inline", figure);
    let kernel = |figure| Side::of("kernel-ping@1500-inline", figure);
    vec![
        Goal::ratio(
            "Write ping-pong, 64 bytes, embedded, p50 / raw AF_XDP with frames as long",
            Bound::AtMost(1.25),
            ours(P50),
            Side::of("raw-ping@1500-inline", P50),
        ),
        Goal::ratio(
            "Write ping-pong, 64 bytes, embedded, p50 / raw AF_XDP with frames of 64 bytes",
            Bound::None,
            ours(P50),
            Side::of("raw-ping-64@1500-inline", P50),
        ),
        Goal::ratio(
            "Write ping-pong, 64 bytes, embedded, p50 / kernel TCP",
            Bound::AtMost(0.6),
            ours(P50),
            kernel(P50),
        ),
        Goal::ratio(
            "Write ping-pong, 64 bytes, embedded, p99 / kernel TCP",
            Bound::AtMost(1.0),
            ours(P99),
            kernel(P99),
        ),
    ]
}

fn loopback() -> Vec<Goal> {
    let of = |what: &str, figure| Side::of(format!("loopback-{what}"), figure);
    let kernel = || of("kernel-ping", P50);
    let ping = |rnic_source: &str| of(&format!("write-64-ping-{rnic_source}"), P50);
    vec![
        Goal::ratio(
            "loopback, RDMA Write, 1 MiB, one daemon / iperf3 on lo",
            Bound::AtLeast(1.5),
            of("write-1M-daemon", GBIT),
            of("kernel-tso", GBIT),
        ),
        Goal::ratio(
            "loopback, RDMA Write, 64 KiB, one daemon / iperf3 on lo",
            Bound::None,
            of("write-64k-daemon", GBIT),
            of("kernel-tso", GBIT),
        ),
        Goal::ratio(
            "loopback, Write ping-pong, 64 bytes, embedded, p50 / kernel TCP on lo",
            Bound::AtMost(0.35),
            ping("embedded"),
            kernel(),
        ),
        Goal::ratio(
            "loopback, Write ping-pong, 64 bytes, one daemon that spins on its own core, p50 / kernel \
             TCP on lo",
            Bound::AtMost(1.0),
            ping("daemon-spin"),
            kernel(),
        ),
        Goal::ratio(
            "loopback, Write ping-pong, 64 bytes, one daemon, p50 / kernel TCP on lo",
            Bound::None,
            ping("daemon"),
            kernel(),
        ),
    ]
}

/// What the verbs library costs a program: perftest by `rnic-perf`, both over daemons.
fn verbs() -> Vec<Goal> {
    let of = |what: &str, figure| Side::of(format!("{what}@1500-inline"), figure);
    vec![
        Goal::ratio(
            "perftest's ib_write_bw, 1 MiB / rnic-perf, over daemons",
            Bound::AtLeast(0.9),
            of("perftest-write-1M", GBIT),
            of("write-1M-daemon", GBIT),
        ),
        Goal::ratio(
            "perftest's ib_write_bw, 64 KiB / rnic-perf, over daemons",
            Bound::AtLeast(0.9),
            of("perftest-write-64k", GBIT),
            of("write-64k-daemon", GBIT),
        ),
        Goal::ratio(
            "perftest's ib_write_lat, 64 bytes, p50 / rnic-perf, over daemons",
            Bound::AtMost(1.3),
            of("perftest-write-64-ping", P50),
            of("write-64-ping-daemon", P50),
        ),
    ]
}

/// SCTP in place of TCP.
fn sctp() -> Vec<Goal> {
    let of = |what: &str, at: &str, figure| Side::of(format!("{what}-embedded@{at}"), figure);
    let here = "1500-inline";
    let mut goals = vec![
        Goal::ratio(
            "RDMA Write over SCTP / over TCP, 1 MiB, MTU 1500, inline",
            Bound::AtLeast(0.85),
            of("write-1M-sctp", here, GBIT),
            of("write-1M", here, GBIT),
        ),
        Goal::ratio(
            "Write ping-pong over SCTP / over TCP, 64 bytes, embedded, p50",
            Bound::AtMost(1.25),
            of("write-64-ping-sctp", here, P50),
            of("write-64-ping", here, P50),
        ),
    ];
    goals.extend(["0.1", "1"].map(|share| {
        let at = format!("{here}-loss-{share}");
        Goal::ratio(
            format!(
                "1 MiB Writes over SCTP / over TCP with Markers, {share} % loss and reordering"
            ),
            Bound::None,
            of("write-1M-sctp", &at, GBIT),
            of("write-1M-markers", &at, GBIT),
        )
    }));
    goals
}

fn many() -> Vec<Goal> {
    let of = |count: u32, rnic_source: &str, figure| {
        Side::of(
            format!("write-qps-{count}-{rnic_source}@1500-inline"),
            figure,
        )
    };
    let mut goals = Vec::new();
    for rnic_source in ["embedded", "daemon"] {
        for (count, bound) in [(1000, 0.95), (10_000, 0.9)] {
            let what = |what: &str| format!("{what}, Writes of 16 KiB, {rnic_source}");
            // What they cost by being there alone is in both sides of the first, and is the second.
            goals.extend([
                Goal::ratio(
                    what(&format!("{count} queue pairs / one of them alone")),
                    Bound::AtLeast(bound),
                    of(count, rnic_source, GBIT),
                    of(count, rnic_source, GBIT_ALONE),
                ),
                Goal::ratio(
                    what(&format!("one alone of {count} queue pairs / the only one")),
                    Bound::None,
                    of(count, rnic_source, GBIT_ALONE),
                    of(1, rnic_source, GBIT),
                ),
            ]);
        }
    }
    goals.push(Goal {
        what: "a daemon with 1000 idle connections, hundredths of a core".into(),
        bound: Bound::AtMost(2.0),
        above: Side::of("idle-qps-1000-daemon@1500-inline", CPU),
        below: None,
    });
    goals
}

fn memory() -> Vec<Goal> {
    let engine = |mtu: u32| Side::of(format!("memory-engine-1M@{mtu}"), GBIT);
    let of = |case: &str, (mtu, bytes): (u32, u32)| {
        Side::of(format!("memory-{case}-{bytes}@{mtu}"), GBIT)
    };
    // What was wrong is not to be placed, so that a receiver goes over it twice, and over the TCP
    // checksum too: the second and third figure say what that alone leaves of the first.
    let receive = |size: (u32, u32), bound| {
        let what = |what: &str| format!("memory only, FPDUs of {} bytes, {what}", size.1);
        [
            Goal::ratio(
                what("receive side / bare CRC and copy"),
                Bound::AtLeast(bound),
                engine(size.0),
                of("bare", size),
            ),
            Goal::ratio(
                what("checksum and CRC verified before the copy / bare CRC and copy"),
                Bound::None,
                of("verified", size),
                of("bare", size),
            ),
            Goal::ratio(
                what("receive side / checksum and CRC verified before the copy"),
                Bound::None,
                engine(size.0),
                of("verified", size),
            ),
        ]
    };
    let mut goals = Vec::from(receive((1500, 1460), 0.6));
    goals.extend(receive((3506, 3466), 0.8));
    goals.push(Goal {
        what: "memory only, messages of 64 bytes a second, both sides on one core".into(),
        bound: Bound::AtLeast(5e6),
        above: Side::of("memory-engine-64@1500", MESSAGES),
        below: None,
    });
    goals
}

#[cfg(test)]
mod tests {
    use super::super::matrix;
    use super::super::results::testing::results;
    use super::*;

    #[test]
    fn every_goal_is_of_cases_that_there_are() {
        let all: Vec<String> = matrix::full().into_iter().map(|one| one.name).collect();
        for goal in super::all() {
            for side in [Some(&goal.above), goal.below.as_ref()]
                .into_iter()
                .flatten()
            {
                let known = side.names.iter().any(|name| all.contains(name));
                assert!(known, "{}: {:?}", goal.what, side.names);
            }
        }
    }

    fn by_raw(bound: Bound) -> Goal {
        Goal::ratio("", bound, Side::of("ours", GBIT), Side::of("raw", GBIT))
    }

    fn measured(verdict: Verdict) -> Measured {
        match verdict {
            Verdict::Measured(measured) => measured,
            Verdict::NotMeasured(why) => panic!("not measured: {why}"),
        }
    }

    #[test]
    fn the_ratio_of_the_medians_decides() {
        let met = |ours: &[f64]| {
            let results = results(&[("ours", GBIT, ours), ("raw", GBIT, &[10.0, 20.0, 12.0])]);
            let measured = measured(by_raw(Bound::AtLeast(0.9)).verdict(&results));
            assert_eq!(measured.rounds.median, 1.0, "round by round");
            measured.met
        };
        assert_eq!(met(&[10.0, 20.0, 11.0]), Some(true));
        assert_eq!(met(&[10.0, 10.0, 12.0]), Some(false));
    }

    #[test]
    fn what_one_side_lacks_is_told() {
        let alone = results(&[("ours", GBIT, &[1.0])]);
        let verdict = by_raw(Bound::AtLeast(0.9)).verdict(&alone);
        assert!(matches!(verdict, Verdict::NotMeasured(why) if why.contains("raw")));
    }

    #[test]
    fn a_figure_without_a_bound_is_neither_met_nor_missed() {
        let goal = by_raw(Bound::None);
        let results = results(&[("ours", GBIT, &[1.0]), ("raw", GBIT, &[2.0])]);
        assert_eq!(measured(goal.verdict(&results)).met, None);
        let json = goal.json(&results);
        assert_eq!(
            (&json["met"], &json["measured"]),
            (&Value::Null, &json!(0.5))
        );
    }

    #[test]
    fn each_side_is_taken_where_it_is_best() {
        let best = Side::best_of(["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        let results = results(&[("a", GBIT, &[1.0, 9.0, 1.0]), ("b", GBIT, &[2.0, 2.0, 2.0])]);
        assert_eq!(best.series(&results), Ok(vec![Some(2.0); 3]));
    }
}
