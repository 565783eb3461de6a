//! What a table must keep to.

use std::collections::BTreeSet;

use crate::required::{self, Required};
use crate::rows::{Row, State};
use crate::sources::Tests;

/// A reason shorter than this is none.
const REASON_MIN: usize = 12;

/// What is wrong with one RFC's table.
pub fn complaints(required: &[Required], rows: &[Row], tests: &Tests) -> Vec<String> {
    let ids = |ids: Vec<&String>| ids.into_iter().cloned().collect::<Vec<_>>();
    let wanted = ids(required.iter().map(|required| &required.id).collect());
    let found = ids(rows.iter().map(|row| &row.id).collect());
    let mut complaints = missing_or_unknown(&wanted, &found);
    if complaints.is_empty() && wanted != found {
        complaints.push("the rows are not in the order of the requirements".to_string());
    }
    for row in rows {
        let required = required.iter().find(|required| required.id == row.id);
        if required.is_some_and(|required| required.level != row.level) {
            complaints.push(format!("{}: {} is not its level", row.id, row.level));
        }
        complaints.extend(of_row(row, tests));
    }
    complaints
}

fn of_row(row: &Row, tests: &Tests) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |what: &str| complaints.push(format!("{}: {what}", row.id));
    if row.text.len() < REASON_MIN {
        complain("says nothing of the requirement");
    }
    match row.state {
        State::Met if row.tests.is_empty() => complain("is called met and names no test"),
        State::Planned if !row.id.starts_with("RFC9260-") => {
            complain("only parts of RFC 9260 are planned");
        }
        State::Met => {}
        _ if row.reason.len() < REASON_MIN => complain("has a state that needs its reason"),
        _ => {}
    }
    for test in &row.tests {
        match tests.get(test) {
            None => complain(&format!("there is no test `{test}`")),
            Some(false) => complain(&format!("`{test}` is not run by default")),
            Some(true) => {}
        }
    }
    complaints
}

/// What is in one of two lists only.
pub fn differences(listed: &[&str], found: &[String]) -> Vec<String> {
    let listed: Vec<String> = listed.iter().map(|id| id.to_string()).collect();
    let complaints = missing_or_unknown(&listed, found).into_iter();
    complaints
        .map(|what| format!("open rows: {what}"))
        .collect()
}

fn missing_or_unknown(wanted: &[String], found: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    let wanted_set: BTreeSet<&String> = wanted.iter().collect();
    let mut seen = BTreeSet::new();
    for id in found {
        if !wanted_set.contains(id) {
            complaints.push(format!("{id} is in the table and not in the list"));
        }
        if !seen.insert(id) {
            complaints.push(format!("{id} is there twice"));
        }
    }
    let absent = wanted_set.difference(&seen);
    complaints.extend(absent.map(|id| format!("{id} is in the list and not in the table")));
    complaints
}

/// The summary's line about one RFC.
pub fn summary_line(rfc: &str, rows: &[Row]) -> String {
    let count = |state| rows.iter().filter(|row| row.state == state).count();
    let counts = State::ALL.map(|state| count(state).to_string()).join(" | ");
    let total = rows.len();
    format!("| [RFC {rfc}](conformance/rfc{rfc}.md) | {total} | {counts} |")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;

    fn verdict(table: &str) -> Vec<String> {
        let required = required::parse(
            "id\tlevel\ttext\nRFC1-1-1\tMUST\tIt MUST.\nRFC1-1-2\tSHOULD\tIt SHOULD.\n",
        )
        .expect("three cells each");
        let tests = Tests::from([("a b::runs".into(), true), ("a b::rests".into(), false)]);
        match rows::parse("table", table) {
            Ok(rows) => complaints(&required, &rows, &tests),
            Err(complaints) => complaints,
        }
    }

    const SECOND: &str = "| RFC1-1-2 | SHOULD | some other thing is kept | met | `a b::runs` |";

    #[test]
    fn a_table_that_keeps_the_rules_has_no_complaint() {
        let first = "| RFC1-1-1 | MUST | something is always done | met | `a b::runs` |";
        assert!(verdict(&format!("{first}\n{SECOND}")).is_empty());
        let first = "| RFC1-1-1 | MUST | something is always done | exception: it is forbidden | |";
        assert!(verdict(&format!("{first}\n{SECOND}")).is_empty());
    }

    #[test]
    fn each_broken_rule_is_told() {
        for (first, told) in [
            ("", "RFC1-1-1 is in the list and not in the table"),
            (
                "| RFC1-1-1 | MUST | something is done | met | |",
                "names no test",
            ),
            (
                "| RFC1-1-1 | MUST | something is done | met | `a b::none` |",
                "no test `a b::none`",
            ),
            (
                "| RFC1-1-1 | MUST | something is done | met | `a b::rests` |",
                "not run by default",
            ),
            (
                "| RFC1-1-1 | MAY | something is done | met | `a b::runs` |",
                "MAY is not its level",
            ),
            ("| RFC1-1-1 | MUST | | met | `a b::runs` |", "says nothing"),
            (
                "| RFC1-1-1 | MUST | something is done | exception | |",
                "needs its reason",
            ),
            (
                "| RFC1-1-1 | MUST | something is done | planned | |",
                "only parts of RFC 9260",
            ),
            (
                "| RFC1-1-1 | MUST | something is done | done | |",
                "no state is called \"done\"",
            ),
            (
                "| RFC1-1-1 | MUST | something is done | met |",
                "4 cells, 5 wanted",
            ),
            (SECOND, "RFC1-1-2 is there twice"),
        ] {
            let found = verdict(&format!("{first}\n{SECOND}"));
            assert!(
                found.iter().any(|what| what.contains(told)),
                "{first}: {found:?}"
            );
        }
        let first = "| RFC1-1-1 | MUST | something is done | met | `a b::runs` |";
        let found = verdict(&format!("{SECOND}\n{first}"));
        assert!(found[0].contains("not in the order"), "{found:?}");
    }

    #[test]
    fn what_is_open_neither_grows_nor_shrinks_unseen() {
        let open = ["RFC1-1-1".to_string()];
        assert!(differences(&["RFC1-1-1"], &open).is_empty());
        assert_eq!(differences(&[], &open).len(), 1);
        assert_eq!(differences(&["RFC1-1-1", "RFC1-1-2"], &open).len(), 1);
    }
}
