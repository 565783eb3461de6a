//! The benchmark as people read it (Markdown), and as programs do (JSON).

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::goals::{self, Verdict};
use super::machine::Machine;
use super::noise_guard::NoiseGuard;
use super::results::{Results, Row};
use super::stats::Summary;
use super::{CPU, GBIT, GBIT_ALONE, MESSAGES, P50, P90, P99, P999};

#[derive(Clone, Debug)]
pub struct Report<'a> {
    pub machine: &'a Machine,
    /// How long each run measured.
    pub duration: Duration,
    /// Whether runs waited for the cores to be calm.
    pub calm: Option<&'a NoiseGuard>,
    pub results: &'a Results,
}

impl Report<'_> {
    #[must_use]
    pub fn json(&self) -> Value {
        let goals = goals::all();
        json!({
            "machine": self.machine.json(),
            "seconds": self.duration.as_secs_f64(),
            "rounds": self.rounds(),
            "cases": self.results.json(),
            "goals": goals.iter().map(|goal| goal.json(self.results)).collect::<Value>(),
        })
    }

    fn rounds(&self) -> usize {
        let rounds = self.results.rows.iter().map(|row| row.rounds.len());
        rounds.max().unwrap_or(0)
    }

    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Machine {
            processor,
            cores,
            kernel,
            date,
        } = self.machine;
        writeln!(out, "# Benchmark of {date}\n")?;
        writeln!(
            out,
            "{cores} cores of {processor}, Linux {kernel}; {} rounds of {:?} each. Medians, with the \
             least and the greatest. A goal is held against the ratio of the medians; beside it and in \
             the tables are the ratios of figures of the same round.\n",
            self.rounds(),
            self.duration,
        )?;
        if let Some(calm) = self.calm {
            writeln!(out, "{}\n", calm.text())?;
        }
        self.goals(out)?;
        self.throughput(out)?;
        self.in_turns(out)?;
        self.latency(out)?;
        self.shares(out)?;
        self.failures(out)
    }

    fn goals(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "## Goals\n\n| figure | goal | measured | round by round | |\n|---|---|---|---|---|"
        )?;
        for goal in goals::all() {
            let (measured, rounds, met) = match goal.verdict(self.results) {
                Verdict::Measured(all) => {
                    let met = match all.met {
                        Some(true) => "met",
                        Some(false) => "**not met**",
                        None => "",
                    };
                    (number(all.value), range(&all.rounds), met)
                }
                Verdict::NotMeasured(why) => (why, "-".to_owned(), "not measured"),
            };
            let bound = goal.bound.text();
            writeln!(
                out,
                "| {} | {bound} | {measured} | {rounds} | {met} |",
                goal.what
            )?;
        }
        writeln!(out)
    }

    fn throughput(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "## Throughput\n\n\
             | case | Gbit/s of payload | by raw AF_XDP there | thousand messages (frames) a \
             second |\n|---|---|---|---|"
        )?;
        for row in &self.results.rows {
            let Some(goodput) = row.summary(GBIT) else {
                continue;
            };
            let messages = row
                .summary(MESSAGES)
                .map_or("-".into(), |messages| number(messages.median / 1e3));
            let ratio = self.by_raw(row).map_or("-".into(), |ratio| range(&ratio));
            let name = &row.case.name;
            writeln!(
                out,
                "| {name} | {} | {ratio} | {messages} |",
                range(&goodput)
            )?;
        }
        writeln!(out)
    }

    fn in_turns(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "## Many queue pairs, in turns with one of them alone, Gbit/s of payload\n\n\
             | case | all | one alone | all by one alone |\n|---|---|---|---|"
        )?;
        for row in &self.results.rows {
            let (Some(all), Some(alone)) = (row.summary(GBIT), row.summary(GBIT_ALONE)) else {
                continue;
            };
            let ratio = Summary::of_ratios(&row.series(GBIT), &row.series(GBIT_ALONE));
            writeln!(
                out,
                "| {} | {} | {} | {} |",
                row.case.name,
                range(&all),
                range(&alone),
                ratio.map_or("-".into(), |ratio| range(&ratio)),
            )?;
        }
        writeln!(out)
    }

    fn by_raw(&self, row: &Row) -> Option<Summary> {
        let raw = format!("raw@{}", row.case.place?);
        let raw = self.results.row(&raw).filter(|raw| raw.case != row.case)?;
        Summary::of_ratios(&row.series(GBIT), &raw.series(GBIT))
    }

    fn latency(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "## Round trip of 64 bytes, microseconds\n\n\
             | case | p50 | p90 | p99 | p99.9 |\n|---|---|---|---|---|"
        )?;
        for row in &self.results.rows {
            let Some(p50) = row.summary(P50) else {
                continue;
            };
            write!(out, "| {} | {} |", row.case.name, range(&p50))?;
            for figure in [P90, P99, P999] {
                let latency = row
                    .summary(figure)
                    .map_or("-".into(), |latency| range(&latency));
                write!(out, " {latency} |")?;
            }
            writeln!(out)?;
        }
        writeln!(out)
    }

    fn shares(&self, out: &mut String) -> std::fmt::Result {
        let shares = self.results.rows.iter();
        let shares = shares.filter_map(|row| Some((row, row.summary(CPU)?)));
        for (number, (row, share)) in shares.enumerate() {
            if number == 0 {
                writeln!(out, "## Hundredths of a core\n\n| case | |\n|---|---|")?;
            }
            writeln!(out, "| {} | {} |", row.case.name, range(&share))?;
        }
        writeln!(out)
    }

    fn failures(&self, out: &mut String) -> std::fmt::Result {
        let rows = || self.results.rows.iter();
        if rows().any(|row| row.unsupported.is_some()) {
            writeln!(out, "## Did not run\n")?;
            for row in rows().filter(|row| row.unsupported.is_some()) {
                writeln!(out, "- {}", row.excuse())?;
            }
            writeln!(out)?;
        }
        if self.results.failed() {
            writeln!(out, "## Failed\n")?;
            for row in rows() {
                for (round, error) in &row.failures {
                    let error = error.replace('\n', "\n    ");
                    writeln!(out, "- {}, round {round}:\n\n    {error}\n", row.case.name)?;
                }
            }
        }
        Ok(())
    }
}

/// `9.12 (8.7 to 9.4)`
fn range(of: &Summary) -> String {
    let [median, min, max] = [of.median, of.min, of.max].map(number);
    format!("{median} ({min} to {max})")
}

/// With three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        small if small >= 0.1 || small == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::testing::results;
    use super::*;

    fn machine() -> Machine {
        Machine {
            processor: "Z80".into(),
            cores: 2,
            kernel: "6".into(),
            date: "2000-01-01".into(),
        }
    }

    #[test]
    fn a_report_has_ratios_verdicts_excuses_and_what_failed() {
        let mut results = results(&[
            ("raw@1500-inline", GBIT, &[10.0, 20.0]),
            ("write-1M-embedded@1500-inline", GBIT, &[9.5, 18.0]),
            ("raw-ping@1500-inline", P50, &[4.0, 4.0]),
            ("write-qps-16-daemon@1500-inline", GBIT, &[3.0, 4.0]),
        ]);
        for round in results.rows[3].rounds.iter_mut().flatten() {
            round.insert(GBIT_ALONE, 4.0);
        }
        results.rows[2].add(Err("no frame\ncame".into()));
        let machine = machine();
        let report = Report {
            machine: &machine,
            duration: Duration::from_millis(300),
            calm: None,
            results: &results,
        };
        let text = report.markdown();
        for line in [
            "| RDMA Write, 1 MiB / raw AF_XDP, MTU 1500, inline | ≥ 0.9 | 0.92 | 0.93 (0.90 to 0.95) | met |",
            "| write-1M-embedded@1500-inline | 13.8 (9.50 to 18.0) | 0.93 (0.90 to 0.95) | - |",
            "| write-qps-16-daemon@1500-inline | 3.50 (3.00 to 4.00) | 4.00 (4.00 to 4.00) | 0.88 (0.75 to 1.00) |",
            "| raw-ping@1500-inline | 4.00 (4.00 to 4.00) | - | - | - |",
            "- raw-ping@1500-inline, round 3:",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        assert!(
            text.contains("-1M-embedded@3506-inline was not part of this run | - | not measured |"),
            "{text}"
        );
        let json = report.json();
        assert_eq!(json["goals"][0]["met"], true);
        assert_eq!(json["rounds"], 3);
    }
}
