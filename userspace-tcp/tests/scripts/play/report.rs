//! A failed script for a person: where, what was expected, what came, and the wire before it.

use std::fmt::Write as _;

use crate::machine::Outcome;
use crate::syntax::{Place, Script};

/// Lines of the wire that a report shows.
const WIRE_MAX: usize = 30;

/// Lines of the script around the failed one.
const AROUND: usize = 3;

/// `None` when the script holds.
pub fn report(script: &Script, text: &str, outcome: &Outcome) -> Option<String> {
    let failure = outcome.failure.as_ref()?;
    let step = script.steps.get(failure.step);
    let place = step.or(script.steps.last()).map(|step| &step.place);
    let mut out = String::new();
    match place {
        Some(place) => {
            let _ = writeln!(out, "{place}: {}", place.text);
            let mut by = place.by.as_deref();
            while let Some(place) = by {
                let _ = writeln!(out, "  by {place}: {}", place.text);
                by = place.by.as_deref();
            }
            excerpt(&mut out, text, place.outermost());
        }
        None => out += "an empty script\n",
    }
    if step.is_none() {
        out += "at the end of the script\n";
    }
    let _ = writeln!(out, "expected: {}", failure.expected);
    let _ = writeln!(out, "     got: {}", failure.got);
    let skipped = outcome.wire.len().saturating_sub(WIRE_MAX);
    let _ = writeln!(out, "the wire ({skipped} lines before are left out):");
    for line in &outcome.wire[skipped..] {
        let _ = writeln!(out, "  {line}");
    }
    Some(out)
}

fn excerpt(out: &mut String, text: &str, place: &Place) {
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if number.abs_diff(place.line) <= AROUND {
            let mark = if number == place.line { ">" } else { " " };
            let _ = writeln!(out, " {mark} {number:4} | {line}");
        }
    }
}
