//! Prometheus's text format 0.0.4: families with HELP and TYPE, each once, their samples behind them.

use std::fmt::Write;

use rnic_engine::histogram::Histogram;
use rnic_engine::metrics::MetricKind;

/// Writes the format. Writing to a string can't fail.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a family; its samples follow.
    pub(super) fn family(&mut self, name: &str, help: &str, kind: MetricKind) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}");
        let _ = writeln!(self.0, "# TYPE {name} {}", kind.name());
    }

    /// A sample; `labels` come from [`labels`], or are empty.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    /// All samples of a histogram, in seconds.
    pub(super) fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (longest, count) in histogram.cumulative() {
            let _ = writeln!(
                self.0,
                "{name}_bucket{{{labels}{comma}le=\"{}\"}} {count}",
                longest.as_secs_f64()
            );
        }
        let count = histogram.count();
        let _ = writeln!(
            self.0,
            "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}"
        );
        let braced = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let sum = histogram.sum().as_secs_f64();
        let _ = writeln!(self.0, "{name}_sum{braced} {sum}");
        let _ = writeln!(self.0, "{name}_count{braced} {count}");
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Labels as they stand between braces, their values escaped.
pub(super) fn labels(pairs: &[(&str, &str)]) -> String {
    let one = |(name, value): &(&str, &str)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{}\"", value.replace('\n', "\\n"))
    };
    pairs.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn buckets_have_their_bound_behind_the_other_labels() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_millis(3));
        for (labels, bucket, count) in [
            ("", "all_bucket{le=\"+Inf\"} 1\n", "all_count 1\n"),
            (
                "a=\"b\"",
                "all_bucket{a=\"b\",le=\"+Inf\"} 1\n",
                "all_count{a=\"b\"} 1\n",
            ),
        ] {
            let mut text = Text::default();
            text.histogram("all", labels, &histogram);
            let text = text.finish();
            assert!(text.contains(bucket) && text.ends_with(count), "{text}");
        }
    }
}
