//! A measurement at several sizes: which they are, its table, its plot.

use std::fmt;

use serde::Serialize;

use super::client::Outcome;
use super::plan::{Figure, Operation};
use crate::size;
use crate::svg::{Line, Plot, Scale};

/// Each size is a connection of its own.
const SIZES_MAX: usize = 64;
/// Sizes that are written along the plot.
const MARKS_MAX: usize = 12;

/// The sizes of a sweep, in the order in which they are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Vec<u32>);

impl Sizes {
    /// The sizes, at least one.
    pub fn all(&self) -> &[u32] {
        &self.0
    }
}

/// Parses sizes of messages: `64,4k,1M`, or `64..1M`, in which each is twice the one before it, and the last one is
/// what the range ends with.
///
/// # Errors
///
/// What is wrong with the text.
pub fn sizes(text: &str) -> Result<Sizes, String> {
    let size = |text: &str| match size::message_bytes(text.trim())? {
        0 => Err(format!(
            "'{text}': messages of a sweep have at least 1 byte"
        )),
        size => Ok(size),
    };
    let all: Vec<u32> = match text.split_once("..") {
        None => text.split(',').map(size).collect::<Result<_, _>>()?,
        Some((first, last)) => {
            let (first, last) = (size(first)?, size(last)?);
            if first > last {
                return Err(format!("'{text}': the range ends before it begins"));
            }
            let doubled = std::iter::successors(Some(first), |size| size.checked_mul(2));
            let below = doubled.take_while(|size| *size < last);
            below.chain([last]).collect()
        }
    };
    if all.len() > SIZES_MAX {
        let found = all.len();
        return Err(format!(
            "{found} sizes, but a sweep has at most {SIZES_MAX}"
        ));
    }
    Ok(Sizes(all))
}

/// What was measured at each size, as JSON has it.
#[derive(Debug, Serialize)]
pub struct Report<'o> {
    /// In the order of the sizes.
    pub sizes: &'o [Outcome],
}

#[derive(Clone, Copy, Debug)]
pub struct Head(pub Figure);

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Figure::Bandwidth => write!(
                f,
                "{:>10} {:>12} {:>10} {:>12} {:>12}",
                "bytes", "messages", "Gbit/s", "messages/s", "verified"
            ),
            Figure::Latency => write!(
                f,
                "{:>10} {:>12} {:>10} {:>10} {:>10} {:>10}  us",
                "bytes", "samples", "min", "p50", "p99", "max"
            ),
        }
    }
}

/// What was measured at one size.
#[derive(Clone, Copy, Debug)]
pub struct Row<'o>(pub &'o Outcome);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.0;
        write!(f, "{:>10}", outcome.size)?;
        if let Some(goodput) = &outcome.goodput {
            let (gbit, rate) = (goodput.gbit_per_second, goodput.messages_per_second);
            write!(f, " {:>12} {gbit:>10.3} {rate:>12.0}", goodput.messages)?;
            let verified = outcome.verified_bytes.map_or("-".to_owned(), size::show);
            write!(f, " {verified:>12}")?;
        }
        if let Some(latency) = &outcome.latency {
            let (min, p50, p99, max) = (latency.min, latency.p50, latency.p99, latency.max);
            write!(
                f,
                " {:>12} {min:>10.1} {p50:>10.1} {p99:>10.1} {max:>10.1}",
                latency.samples
            )?;
        }
        Ok(())
    }
}

/// The curves over the sizes, as a document; `None` when nothing was measured.
pub fn svg(operation: Operation, figure: Figure, outcomes: &[Outcome]) -> Option<String> {
    let line = |name: &str, value: &dyn Fn(&Outcome) -> Option<f64>| {
        let points = outcomes.iter();
        let points = points.filter_map(|it| Some((f64::from(it.size), value(it)?)));
        let mut points: Vec<_> = points.collect();
        // A list of sizes may have any order.
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line {
            name: name.to_owned(),
            points,
        }
    };
    let (label, scale, lines) = match figure {
        Figure::Bandwidth => {
            let goodput = line("goodput", &|it| Some(it.goodput?.gbit_per_second));
            ("Gbit/s", Scale::Linear, vec![goodput])
        }
        Figure::Latency => {
            let median = line("median", &|it| Some(it.latency.as_ref()?.p50));
            let p99 = line("99th percentile", &|it| Some(it.latency.as_ref()?.p99));
            ("us", Scale::Logarithmic, vec![median, p99])
        }
    };
    let every = outcomes.len().div_ceil(MARKS_MAX).max(1);
    let marks = outcomes.iter().step_by(every);
    let plot = Plot {
        title: format!("{operation:?}"),
        labels: ["bytes of a message".to_owned(), label.to_owned()],
        scales: [Scale::Logarithmic, scale],
        marks: marks
            .map(|it| (f64::from(it.size), size::show(it.size.into())))
            .collect(),
        lines,
    };
    plot.svg()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::{Goodput, Samples};

    fn outcome(size: u32, figure: Figure) -> Outcome {
        let mut samples = Samples::default();
        samples.record(Duration::from_micros(7));
        let bytes = u64::from(size) * 10;
        Outcome {
            operation: Operation::Write,
            figure,
            size,
            depth: 1,
            goodput: (figure == Figure::Bandwidth)
                .then(|| Goodput::new(bytes, 10, Duration::from_secs(1))),
            latency: (figure == Figure::Latency)
                .then(|| samples.latency())
                .flatten(),
            verified_bytes: None,
        }
    }

    #[test]
    fn a_range_doubles_and_has_its_end() {
        let all = |text: &str| sizes(text).map(|sizes| sizes.all().to_vec());
        assert_eq!(all("64..1k"), Ok(vec![64, 128, 256, 512, 1024]));
        assert_eq!(all("100..250"), Ok(vec![100, 200, 250]));
        assert_eq!(all("7..7"), Ok(vec![7]));
        assert_eq!(all("4k, 64,1M"), Ok(vec![4096, 64, 1 << 20]));
        assert_eq!(all("1..4294967295").map(|all| all.len()), Ok(33));
    }

    #[test]
    fn what_is_no_sweep_is_refused_by_name() {
        let refused = |text: &str| sizes(text).expect_err(text);
        for (text, words) in [
            ("", "whole number"),
            ("0,1", "at least 1 byte"),
            ("4k..64", "ends before it begins"),
            ("64..", "whole number"),
            ("1..8G", "at most"),
            ("1,2,x", "'x'"),
        ] {
            assert!(refused(text).contains(words), "{text}: {}", refused(text));
        }
        let many = vec!["1"; SIZES_MAX + 1].join(",");
        assert!(refused(&many).contains("65 sizes"));
    }

    #[test]
    fn rows_stand_under_their_heads_and_each_size_is_in_the_plot() {
        for figure in [Figure::Bandwidth, Figure::Latency] {
            let outcomes = [64, 4096].map(|size| outcome(size, figure));
            let head = Head(figure).to_string();
            let row = Row(&outcomes[0]).to_string();
            let columns = head.trim_end_matches("  us").len();
            assert_eq!(row.len(), columns, "{head}\n{row}");
            let svg = svg(Operation::Write, figure, &outcomes).expect("there is something to show");
            assert!(svg.contains(">64 B<") && svg.contains(">4 KiB<"), "{svg}");
        }
        assert_eq!(svg(Operation::Read, Figure::Latency, &[]), None);
    }

    #[test]
    fn the_curve_goes_from_left_to_right_whatever_the_order_of_the_sizes() {
        let curve = |sizes: [u32; 3]| {
            let outcomes = sizes.map(|size| outcome(size, Figure::Bandwidth));
            let svg = svg(Operation::Write, Figure::Bandwidth, &outcomes);
            let svg = svg.expect("there is something to show");
            let line = svg.lines().find(|line| line.contains("<polyline"));
            line.expect("a curve").to_owned()
        };
        assert_eq!(curve([4096, 64, 512]), curve([64, 512, 4096]));
    }
}
