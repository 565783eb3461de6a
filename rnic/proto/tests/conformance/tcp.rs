//! The table of RFC 9293 in `docs/tcp/rfcs.md`: `| numbers | requirement | met | how | shown by |`. It has
//! every number of the RFC's appendix B once, and what shows a row exists and runs.
//!
//! What is cited is a test as nextest names it, or one of these below `userspace-tcp/tests`:
//!
//! - a script (`scripts/area/name`, or the beginning of several names and `*`), or an area of them
//!   (`scripts/area`);
//! - a module of rule tests, or one of them (`rules/module`, `rules/module::name`).
//!
//! A row with a MUST is shown through the whole product too. That is a script that the engine plays through a shard and
//! frames, all but those in `exceptions.txt` of its test. Or it is a test of the engine's two shards, of its simulation
//! or of the daemon. Or the row says why there is none, behind [`ALONE`].

use std::collections::BTreeSet;
use std::path::Path;

use crate::rows::{cells, quoted};
use crate::sources::Tests;

const HEADING: &str = "## RFC 9293, requirement by requirement";

/// Requirements of RFC 9293, appendix B: the prefix, and the greatest number behind it.
const REQUIREMENTS: [(&str, u32); 4] = [("MUST", 69), ("SHLD", 31), ("MAY", 18), ("REC", 1)];

/// States of a row that need nothing that shows it: not done, or by who is around TCP.
const NOT_DONE: [&str; 3] = ["no", "not done", "around"];

/// Begins the reason why no test of the whole product shows a row.
const ALONE: &str = "Crate alone: ";

/// Tests of the whole product, by how their names begin.
const PRODUCT: [&str; 3] = [
    "rnic-engine::two_shards ",
    "rnic-engine::simulation ",
    "rnic-tests::",
];

/// What is wrong with the table. `exceptions`: the scripts that are not played through a shard.
pub fn complaints(
    document: &str,
    tests: &Tests,
    scripts: &Path,
    exceptions: &BTreeSet<String>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    let section = document.split_once(HEADING).map_or("", |(_, rest)| rest);
    let section = section.split_once("\n## ").map_or(section, |(of, _)| of);
    let rows = section.lines().filter(|line| line.starts_with("| "));
    for line in rows.skip(1) {
        let cells = cells(line);
        let [numbers, _, state, how, shown_by] = cells[..] else {
            complaints.push(format!("{} cells, 5 wanted: {line}", cells.len()));
            continue;
        };
        for number in numbers_of(numbers) {
            if !seen.insert(number.clone()) {
                complaints.push(format!("{number} is there twice"));
            }
        }
        let cited = quoted(shown_by);
        let done = !NOT_DONE.contains(&state);
        if done && cited.is_empty() {
            complaints.push(format!("{numbers}: nothing shows it"));
        }
        let shown = |cited: &String| through_product(cited, scripts, exceptions);
        let shown = cited.iter().any(shown);
        if done && numbers.contains("MUST-") && shown == how.contains(ALONE) {
            complaints.push(match shown {
                true => format!("{numbers}: a test of the product shows it, though {ALONE:?} is there"),
                false => format!(
                    "{numbers}: no test of the product shows it; name one, or say why none after {ALONE:?}"
                ),
            });
        }
        if state != "yes" && how.is_empty() {
            complaints.push(format!("{numbers}: {state:?} needs its reason"));
        }
        let missing = cited.iter().filter(|cited| !exists(cited, tests, scripts));
        complaints.extend(missing.map(|cited| format!("{numbers}: there is no `{cited}`")));
    }
    let all = REQUIREMENTS.iter().flat_map(|&(prefix, last)| {
        let number = move |number| format!("{prefix}-{number}");
        (1..=last).map(number)
    });
    let all: BTreeSet<String> = all.collect();
    let absent = all.difference(&seen);
    complaints.extend(absent.map(|number| format!("{number} is not in the table")));
    let unknown = seen.difference(&all);
    complaints.extend(unknown.map(|number| format!("{number} is no requirement")));
    complaints
}

/// `MUST-8, 9, SHLD-1` and `MUST-24 to 29`.
fn numbers_of(cell: &str) -> Vec<String> {
    let mut prefix = "";
    let mut numbers = Vec::new();
    for part in cell.split(", ") {
        let range = match part.split_once('-') {
            Some((of, range)) => {
                prefix = of;
                range
            }
            None => part,
        };
        let (first, last) = range.split_once(" to ").unwrap_or((range, range));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) => {
                numbers.extend((first..=last).map(|number| format!("{prefix}-{number}")));
            }
            _ => numbers.push(part.to_string()),
        }
    }
    numbers
}

fn exists(cited: &str, tests: &Tests, scripts: &Path) -> bool {
    let runs = |name: &str| tests.get(name) == Some(&true);
    if let Some(place) = cited.strip_prefix("scripts/") {
        let (area, script) = place.split_once('/').unwrap_or((place, "*"));
        return runs(&format!("userspace-tcp::scripts {area}"))
            && has_script(&scripts.join(area), script);
    }
    let Some(place) = cited.strip_prefix("rules/") else {
        return runs(cited);
    };
    let beginning = format!("userspace-tcp::rules {place}");
    runs(&beginning)
        || tests
            .iter()
            .any(|(name, runs)| *runs && name.starts_with(&format!("{beginning}::")))
}

/// Whether what is cited goes through shard and frames.
fn through_product(cited: &str, scripts: &Path, exceptions: &BTreeSet<String>) -> bool {
    let Some(place) = cited.strip_prefix("scripts/") else {
        return PRODUCT.iter().any(|product| cited.starts_with(product));
    };
    let (area, script) = place.split_once('/').unwrap_or((place, "*"));
    let played = |name: &String| !exceptions.contains(&format!("{area}/{name}"));
    scripts_named(&scripts.join(area), script)
        .iter()
        .any(played)
}

/// The scripts that the engine's test does not play through a shard, by `area/name`.
pub fn exceptions(list: &str) -> BTreeSet<String> {
    let names = list.lines().filter(|line| !line.starts_with('#'));
    names.map(str::to_owned).collect()
}

/// Whether there is a script of this name, or, with `*` at its end, one that begins with it.
fn has_script(area: &Path, name: &str) -> bool {
    !scripts_named(area, name).is_empty()
}

fn scripts_named(area: &Path, wanted: &str) -> Vec<String> {
    let fits = |name: &str| match wanted.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == wanted,
    };
    let entries = std::fs::read_dir(area).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(".tcp").map(str::to_owned))
        .filter(|name| fits(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_listed_and_ranges_filled() {
        let found = numbers_of("MUST-8, 9, SHLD-14 to 16, MAY-1");
        let all = ["MUST-8", "MUST-9", "SHLD-14", "SHLD-15", "SHLD-16", "MAY-1"];
        assert_eq!(found, all);
    }

    #[test]
    fn each_broken_rule_is_told() {
        let scripts = crate::root().join("userspace-tcp/tests/scripts");
        let tests = Tests::from([
            ("userspace-tcp::scripts rto".into(), true),
            ("userspace-tcp::rules open::a".into(), true),
            ("rnic-engine::two_shards a::b".into(), true),
            ("a b::rests".into(), false),
        ]);
        let of = |row: &str| {
            let table = format!("{HEADING}\n\n| number | | | | |\n|---|---|---|---|---|\n{row}\n");
            let exceptions = BTreeSet::from(["rto/karn".to_string()]);
            complaints(&table, &tests, &scripts, &exceptions)
        };
        for row in [
            "| MUST-1 | x | yes | Crate alone: it is seen by nobody. | `scripts/rto/karn` |",
            "| MUST-1 | x | yes | | `scripts/rto/ka*`, `scripts/rto`, `rules/open`, `rules/open::a` |",
            "| MUST-1 | x | yes | | `rules/open`, `rnic-engine::two_shards a::b` |",
            "| SHLD-1 | x | yes | | `rules/open` |",
            "| MUST-1 | x | no | nobody needs it | |",
        ] {
            let found = of(row);
            let others = found.iter().all(|what| what.ends_with("not in the table"));
            assert!(others && !found.is_empty(), "{found:?}");
            let (number, _) = row[2..].split_once(' ').unwrap();
            assert!(
                !found
                    .iter()
                    .any(|what| what.starts_with(&format!("{number} ")))
            );
        }
        for (row, told) in [
            ("| MUST-1 | x | yes | |", "4 cells"),
            ("| MUST-1, 1 | x | no | why | |", "MUST-1 is there twice"),
            ("| MUST-70 | x | no | why | |", "MUST-70 is no requirement"),
            ("| MUST-2 | x | no | why | |", "MUST-1 is not in the table"),
            ("| MUST-1 | x | yes | | |", "nothing shows it"),
            ("| MUST-1 | x | no | | |", "needs its reason"),
            (
                "| MUST-1 | x | yes | | `scripts/rto/karn` |",
                "MUST-1: no test of the product",
            ),
            (
                "| MUST-1 | x | yes | | `rules/open` |",
                "MUST-1: no test of the product",
            ),
            (
                "| MUST-1 | x | yes | Crate alone: why | `scripts/rto` |",
                "MUST-1: a test of the product",
            ),
            ("| MUST-1 | x | yes | | `scripts/rto/none` |", "there is no"),
            ("| MUST-1 | x | yes | | `scripts/none` |", "there is no"),
            ("| MUST-1 | x | yes | | `rules/ope` |", "there is no"),
            ("| MUST-1 | x | yes | | `a b::rests` |", "there is no"),
        ] {
            let found = of(row);
            assert!(found.iter().any(|what| what.contains(told)), "{found:?}");
        }
    }
}
