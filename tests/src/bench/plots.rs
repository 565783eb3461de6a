//! Which plots there are.

use super::many::Traffic;
use super::place::{Link, Napi, Place};
use super::raw::RawPing;
use super::results::{Results, Row};
use super::rnic::{Operation, RnicRun, size_name};
use super::{GBIT, P50, P90, P99, P999, Work};
use rnic_tools::svg::{Line, Plot, Scale};

/// All plots that there are figures for, with the names of their files.
#[must_use]
pub fn all(results: &Results) -> Vec<(&'static str, String)> {
    let plots = [
        ("throughput-by-size.svg", by_size(results)),
        ("throughput-by-queue-pairs.svg", by_queue_pairs(results)),
        ("latency.svg", latency(results)),
    ];
    plots
        .into_iter()
        .filter_map(|(name, plot)| Some((name, plot.svg()?)))
        .collect()
}

/// Goodput of Writes by the size of messages.
fn by_size(results: &Results) -> Plot {
    let mut lines: Vec<Line> = Vec::new();
    let mut sizes = Vec::new();
    for row in &results.rows {
        let (Work::Rnic(run), Some(place)) = (&row.case.work, row.case.place) else {
            continue;
        };
        let plain = RnicRun::bandwidth(Operation::Write, run.size, run.rnic_source);
        let plain = *run == plain && place.link == Link::Cable;
        let (true, Some(goodput)) = (plain, row.summary(GBIT)) else {
            continue;
        };
        let name = format!(
            "Write, {}, MTU {}, {}",
            run.rnic_source.name(),
            place.mtu,
            place.napi.name()
        );
        add(&mut lines, name, (f64::from(run.size), goodput.median));
        sizes.push(run.size);
    }
    sizes.sort_unstable();
    sizes.dedup();
    // One size is no line.
    lines.retain(|line| line.points.len() > 1);
    Plot {
        title: "Goodput by size of message".into(),
        labels: ["bytes of a message".into(), "Gbit/s".into()],
        scales: [Scale::Logarithmic, Scale::Linear],
        marks: sizes
            .iter()
            .map(|size| (f64::from(*size), size_name(*size)))
            .collect(),
        lines,
    }
}

/// Goodput of Writes by the number of queue pairs.
fn by_queue_pairs(results: &Results) -> Plot {
    let mut lines: Vec<Line> = Vec::new();
    let mut counts = Vec::new();
    for row in &results.rows {
        let (Work::Many(run), Some(place)) = (&row.case.work, row.case.place) else {
            continue;
        };
        let (Traffic::Writes(size), Some(goodput)) = (run.traffic, row.summary(GBIT)) else {
            continue;
        };
        let name = format!(
            "Write, {size} bytes, {}, MTU {}",
            run.rnic_source.name(),
            place.mtu
        );
        let count = f64::from(run.queue_pairs);
        add(&mut lines, name, (count, goodput.median));
        counts.push(count);
    }
    Plot {
        title: "Goodput by number of queue pairs".into(),
        labels: ["queue pairs".into(), "Gbit/s".into()],
        scales: [Scale::Logarithmic, Scale::Linear],
        marks: counts
            .iter()
            .map(|count| (*count, count.to_string()))
            .collect(),
        lines,
    }
}

/// Percentiles of all round trips.
fn latency(results: &Results) -> Plot {
    let percentiles = [(P50, "p50"), (P90, "p90"), (P99, "p99"), (P999, "p99.9")];
    let mut lines = Vec::new();
    for row in &results.rows {
        for (at, (figure, _)) in percentiles.iter().enumerate() {
            if let Some(latency) = row.summary(figure) {
                add(&mut lines, ping_name(row), (at as f64, latency.median));
            }
        }
    }
    let shown = |at: usize| lines.iter().any(|line: &Line| line.points.len() > at);
    let marks = percentiles.iter().enumerate().filter(|(at, _)| shown(*at));
    Plot {
        title: "Round trip of 64 bytes".into(),
        labels: ["percentile".into(), "microseconds".into()],
        scales: [Scale::Linear, Scale::Linear],
        marks: marks
            .map(|(at, (_, name))| (at as f64, (*name).to_owned()))
            .collect(),
        lines,
    }
}

/// A round trip in words, where it is one of those that are compared first; else the case's name.
fn ping_name(row: &Row) -> String {
    let compared = row.case.place == Some(Place::cable(1500, Napi::Inline));
    match &row.case.work {
        Work::RawPing(RawPing::AS_WRITE) if compared => "raw AF_XDP frames",
        Work::Rnic(run) if compared && run.name() == "write-64-ping-embedded" => {
            "RDMA Write, RNIC embedded"
        }
        Work::Rnic(run) if compared && run.name() == "write-64-ping-daemon" => {
            "RDMA Write, RNIC in daemons"
        }
        Work::KernelPing if compared => "kernel TCP",
        _ => &row.case.name,
    }
    .to_owned()
}

/// Adds a point to the line of a name, from left to right.
fn add(lines: &mut Vec<Line>, name: String, point: (f64, f64)) {
    let index = lines
        .iter()
        .position(|line| line.name == name)
        .unwrap_or_else(|| {
            lines.push(Line {
                name,
                points: Vec::new(),
            });
            lines.len() - 1
        });
    let points = &mut lines[index].points;
    let place = points.partition_point(|other| other.0 < point.0);
    points.insert(place, point);
}

#[cfg(test)]
mod tests {
    use super::super::results::testing::results;
    use super::*;

    #[test]
    fn sizes_are_in_order_and_every_percentile_has_a_point() {
        let results = results(&[
            ("write-1M-embedded@1500-inline", GBIT, &[9.0]),
            ("write-64-embedded@1500-inline", GBIT, &[1.0]),
            ("write-1M-markers-embedded@1500-inline", GBIT, &[8.0]),
            ("raw-ping@1500-inline", P50, &[4.0]),
            ("write-qps-16-daemon@1500-inline", GBIT, &[7.0]),
            ("write-qps-1-daemon@1500-inline", GBIT, &[8.0]),
        ]);
        let lines = by_size(&results).lines;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0].points, [(64.0, 1.0), (1_048_576.0, 9.0)]);
        let latency = latency(&results);
        assert_eq!(latency.lines[0].points, [(0.0, 4.0)]);
        assert_eq!(latency.lines[0].name, "raw AF_XDP frames");
        assert_eq!(latency.marks.len(), 1, "{:?}", latency.marks);
        let points = &by_queue_pairs(&results).lines[0].points;
        assert_eq!(*points, [(1.0, 8.0), (16.0, 7.0)]);
        assert_eq!(all(&results).len(), 3);
    }
}
