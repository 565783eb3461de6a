//! The table of what a Terminate can name: `| control | name | who sends it, where | tests |`.

use std::collections::BTreeSet;

use rnic_proto::rdmap::TerminateError;

use crate::rows::{cells, quoted};
use crate::sources::Tests;

/// What is wrong with the table: each number that the RFCs name is there once, with a test that
/// runs or a word on why there can be none.
pub fn complaints(text: &str, tests: &Tests) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut found = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("| `0x")) {
        let cells = cells(line);
        let [control, name, when, named] = cells[..] else {
            complaints.push(format!("{} cells, 4 wanted: {line}", cells.len()));
            continue;
        };
        let digits = control.trim_matches('`').trim_start_matches("0x");
        let Ok(control) = u16::from_str_radix(digits, 16) else {
            complaints.push(format!("{digits} is no number"));
            continue;
        };
        if !found.insert(control) {
            complaints.push(format!("{control:#06x} is there twice"));
        }
        let meant = TerminateError::from_control(control).to_string();
        if meant != name {
            complaints.push(format!("{control:#06x} is {meant:?}, not {name:?}"));
        }
        let named = quoted(named);
        if named.is_empty() && !when.starts_with("never sent: ") {
            complaints.push(format!("{control:#06x} names no test"));
        }
        let absent = named.iter().filter(|test| tests.get(*test) != Some(&true));
        complaints.extend(absent.map(|test| format!("there is no test `{test}` that runs")));
    }
    let known = (0..=u16::MAX).filter(|&control| is_canonical(control));
    let known: BTreeSet<u16> = known.collect();
    for control in known.symmetric_difference(&found) {
        complaints.push(format!("{control:#06x} is in one of table and code only"));
    }
    complaints
}

/// Whether an error has these numbers as its own: a local catastrophic one may come with any code.
fn is_canonical(control: u16) -> bool {
    let error = TerminateError::from_control(control);
    !matches!(error, TerminateError::Unknown { .. }) && error.control() == control
}
