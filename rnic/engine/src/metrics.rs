//! Counters, each declared once: its name, its value, and the metric that it is a sample of, with that one's help.
//!
//! From a declaration follow the counter's place in a structure, what `rnicctl` shows, Prometheus's text and the table of
//! `docs/operations/metrics.md`. Names of metrics are those of Prometheus's conventions: base units, `_total` for what
//! only grows.

/// A metric, and the counters that are its samples.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub name: &'static str,
    pub help: &'static str,
    /// The labels of samples that are no counters.
    pub labels: &'static [&'static str],
    /// For each counter that is a sample, its labels with their values, and its name.
    pub members: &'static [(&'static [(&'static str, &'static str)], &'static str)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows while the RNIC runs.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in classes.
    Histogram,
}

/// What has counters that are declared.
pub trait Counted {
    const FAMILIES: &'static [Family];

    /// Names and values of the counters that are there, in a fixed order.
    fn named(&self) -> Vec<(&'static str, u64)>;
}

impl Family {
    /// Told by the name.
    pub fn kind(&self) -> MetricKind {
        match self.name {
            name if name.ends_with("_total") => MetricKind::Counter,
            name if name.ends_with("_seconds") => MetricKind::Histogram,
            _ => MetricKind::Gauge,
        }
    }
}

impl MetricKind {
    /// As Prometheus's TYPE has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Declares counters as `"METRIC": "HELP.", NAME(LABEL = "VALUE"), ...;`: for a type that exists, each with `= VALUE`
/// (`u64`, or `Option<u64>` for what may not be there), or for a structure that has a field for each.
#[macro_export]
macro_rules! counters {
    ($(#[$doc:meta])* pub struct $Struct:ident; $(
        $family:literal: $help:literal,
        $($name:ident $(($($label:ident = $value:literal),+))?),+;
    )+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $Struct {
            $($(pub $name: u64,)+)+
        }

        impl std::ops::AddAssign for $Struct {
            fn add_assign(&mut self, other: Self) {
                $($(self.$name += other.$name;)+)+
            }
        }

        $crate::counters! { for c: $Struct; $(
            $family: $help, $($name $(($($label = $value),+))? = c.$name),+;
        )+ }
    };
    (for $c:ident: $Type:ty; $(
        $family:literal: $help:literal,
        $($name:ident $(($($label:ident = $value:literal),+))? = $count:expr),+;
    )+) => {
        impl $crate::metrics::Counted for $Type {
            const FAMILIES: &'static [$crate::metrics::Family] = &[$($crate::metrics::Family {
                name: $family,
                help: $help,
                labels: &[],
                members: &[$((&[$($((stringify!($label), $value)),+)?], stringify!($name))),+],
            }),+];

            fn named(&self) -> Vec<(&'static str, u64)> {
                let $c = self;
                let mut all = Vec::new();
                // Each by itself: what one has locked the next may lock.
                $($(all.extend(Option::<u64>::from($count).map(|count| (stringify!($name), count)));)+)+
                all
            }
        }
    };
}
