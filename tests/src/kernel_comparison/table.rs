//! The table of a comparison: medians, ratios, and who is faster.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cell::Cell;
use super::{Endpoints, Outcome};
use crate::bench::stats;
use crate::lab::Family;

/// How many of ten links ours must be as fast on as the kernel.
const AS_FAST: usize = 8;
/// And what it must reach of the kernel's goodput on each.
const LEAST: f64 = 0.8;

/// Goodputs of many transfers of the same length.
#[derive(Clone, Debug)]
pub struct Table {
    bytes: u64,
    /// By link, version of IP (4 or 6) and endpoints: goodput at the receiving and at the sending
    /// end, Mbit/s.
    goodput: BTreeMap<(usize, u8, Endpoints), [Vec<f64>; 2]>,
}

/// Which end a goodput was measured at.
#[derive(Clone, Copy)]
enum End {
    Receiving = 0,
    Sending = 1,
}

impl Table {
    /// For transfers of so many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            goodput: BTreeMap::new(),
        }
    }

    pub fn add(&mut self, cell: &Cell, endpoints: Endpoints, family: Family, outcome: &Outcome) {
        let entry = self.goodput.entry((place(cell), number(family), endpoints));
        let goodputs = entry.or_default();
        for (all, took) in goodputs.iter_mut().zip([outcome.received, outcome.sent]) {
            all.extend(took.map(|took| mbit(self.bytes, took)));
        }
    }

    /// Our goodput by the kernel's on a link, as sender or as receiver, from medians; each is
    /// compared with what the kernel's transfer showed at the same end.
    #[must_use]
    pub fn ratio(&self, cell: &Cell, ours: Endpoints, family: Family) -> Option<f64> {
        let end = match ours {
            Endpoints::OursReceives => End::Sending,
            Endpoints::OursSends | Endpoints::Kernel => End::Receiving,
        };
        let of = |endpoints| self.median(cell, endpoints, family, end);
        let ratio = of(ours)? / of(Endpoints::Kernel)?;
        // What repeats to a hundredth is the same.
        Some((ratio * 100.0).round() / 100.0)
    }

    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| link | IP | kernel to kernel, Mbit/s | ours to kernel | ratio | kernel to ours | \
             ratio |\n|---|---|---|---|---|---|---|\n",
        );
        for (cell, family) in self.rows() {
            let of = |endpoints, end| match self.median(&cell, endpoints, family, end) {
                Some(goodput) => format!("{goodput:.1}"),
                None => "-".to_owned(),
            };
            let ratio = |ours| match self.ratio(&cell, ours, family) {
                Some(ratio) => format!("{ratio:.2}"),
                None => "-".to_owned(),
            };
            text += &format!(
                "| {} | v{} | {} | {} | {} | {} | {} |\n",
                cell.what,
                number(family),
                of(Endpoints::Kernel, End::Receiving),
                of(Endpoints::OursSends, End::Receiving),
                ratio(Endpoints::OursSends),
                of(Endpoints::OursReceives, End::Sending),
                ratio(Endpoints::OursReceives),
            );
        }
        text
    }

    /// What is not as good as it has to be; nothing when all is. What was left out is not judged.
    #[must_use]
    pub fn shortcomings(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (ours, role) in [
            (Endpoints::OursSends, "sender"),
            (Endpoints::OursReceives, "receiver"),
        ] {
            for family in Family::ALL {
                let ratios = Cell::ALL
                    .iter()
                    .filter_map(|cell| Some((cell, self.ratio(cell, ours, family)?)));
                let ratios: Vec<(&Cell, f64)> = ratios.collect();
                let of = format!("ours as {role} over IPv{}", number(family));
                for (cell, ratio) in &ratios {
                    if *ratio < LEAST {
                        all.push(format!("{of}, {}: {ratio:.2} of the kernel's", cell.name));
                    }
                }
                let slower = ratios.iter().filter(|(_, ratio)| *ratio < 1.0).count();
                if slower > Cell::ALL.len() - AS_FAST {
                    all.push(format!("{of}: slower than the kernel on {slower} links"));
                }
            }
        }
        all
    }

    fn rows(&self) -> Vec<(Cell, Family)> {
        let mut rows: Vec<(usize, u8)> = self.goodput.keys().map(|key| (key.0, key.1)).collect();
        rows.dedup();
        let family = |number| match number {
            4 => Family::V4,
            _ => Family::V6,
        };
        rows.into_iter()
            .map(|(place, number)| (Cell::ALL[place], family(number)))
            .collect()
    }

    fn median(&self, cell: &Cell, endpoints: Endpoints, family: Family, end: End) -> Option<f64> {
        let key = (place(cell), number(family), endpoints);
        let mut all = self.goodput.get(&key)?[end as usize].clone();
        all.sort_by(f64::total_cmp);
        stats::median(&all)
    }
}

/// 10^6 bits of payload a second.
#[must_use]
pub fn mbit(bytes: u64, took: Duration) -> f64 {
    bytes as f64 * 8e-6 / took.as_secs_f64().max(1e-9)
}

fn place(cell: &Cell) -> usize {
    let found = Cell::ALL.iter().position(|other| other.name == cell.name);
    found.expect("every cell is one of all")
}

fn number(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(milliseconds: u64) -> Outcome {
        let took = Some(Duration::from_millis(milliseconds));
        Outcome {
            received: took,
            sent: took,
            link: serde_json::Value::Null,
            ours: None,
            kernel_checksum_errors: 0,
        }
    }

    #[test]
    fn ratios_are_of_medians_and_two_slower_links_are_forgiven() {
        let mut table = Table::new(1_000_000);
        for (place, cell) in Cell::ALL.iter().enumerate() {
            for took in [900, 1000, 5000] {
                table.add(cell, Endpoints::Kernel, Family::V4, &outcome(took));
            }
            let ours = if place < 2 { 1200 } else { 1000 };
            table.add(cell, Endpoints::OursSends, Family::V4, &outcome(ours));
        }
        let ratio = |place: usize| table.ratio(&Cell::ALL[place], Endpoints::OursSends, Family::V4);
        assert_eq!((ratio(0), ratio(2)), (Some(0.83), Some(1.0)));
        assert_eq!(table.shortcomings(), Vec::<String>::new());
        table.add(
            &Cell::ALL[2],
            Endpoints::OursSends,
            Family::V4,
            &outcome(1100),
        );
        assert_eq!(table.shortcomings().len(), 1);
        table.add(
            &Cell::ALL[2],
            Endpoints::OursSends,
            Family::V4,
            &outcome(9999),
        );
        table.add(
            &Cell::ALL[2],
            Endpoints::OursSends,
            Family::V4,
            &outcome(9999),
        );
        assert_eq!(table.shortcomings().len(), 2);
        assert_eq!(table.markdown().lines().count(), 12);
    }
}
