//! Mutants and tables fit: each mutant applies to the sources as they are and is of rows that are met,
//! and no fewer rows have one than before.

use std::collections::BTreeSet;

use crate::mutants::{self, Edit, Mutants};
use crate::rows::{Row, State};
use crate::{read, required, root, rows_of};

/// The rows with a mutant, at least. Raise it with those that you add.
const ROWS_MIN: usize = 245;

fn complaints(mutants: &Mutants, rows: &[Row]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut check_row = |id: &String| {
        let row = rows.iter().find(|row| row.id == *id);
        if !row.is_some_and(|row| row.state == State::Met && !row.tests.is_empty()) {
            complaints.push(format!("{id}: no row that is met has this name"));
        }
    };
    for mutant in &mutants.mutant {
        mutant.rows.iter().for_each(&mut check_row);
    }
    for exempt in &mutants.exempt {
        check_row(&exempt.row);
    }
    let without_reason = mutants.exempt.iter().filter(|exempt| exempt.why.len() < 12);
    complaints.extend(without_reason.map(|exempt| format!("{}: and why?", exempt.row)));
    for mutant in &mutants.mutant {
        if mutant.rows.is_empty() || mutant.breaks.is_empty() {
            complaints.push(format!("{}: a mutant of no row or reason", mutant.file));
        }
        for edit in mutant.edits() {
            if let Err(why) = edit.apply(&read(&root().join(&edit.file))) {
                complaints.push(format!("{:?}: {}: {why}", mutant.rows, edit.file));
            }
        }
    }
    complaints
}

#[test]
fn every_mutant_applies_to_the_sources_and_is_of_a_row_that_is_met() {
    let mutants = mutants::load(&root()).unwrap_or_else(|error| panic!("{error}"));
    let rows: Vec<Row> = required::RFCS.iter().flat_map(|rfc| rows_of(rfc)).collect();
    let complaints = complaints(&mutants, &rows);
    assert!(complaints.is_empty(), "{complaints:#?}");
    let with_one: BTreeSet<&String> = mutants.mutant.iter().flat_map(|m| &m.rows).collect();
    assert!(with_one.len() >= ROWS_MIN, "{} rows", with_one.len());
}

#[test]
fn a_change_is_made_at_one_place_or_not_at_all() {
    let edit = |after: &str, find: &str, replace: &str| Edit {
        file: String::new(),
        after: after.to_string(),
        find: find.to_string(),
        replace: replace.to_string(),
    };
    let text = "fn a() { 1 }\nfn b() { 1 }\n";
    let in_b = edit("fn b", "1", "2").apply(text);
    assert_eq!(in_b.as_deref(), Ok("fn a() { 1 }\nfn b() { 2 }\n"));
    let only = edit("", "a()", "c()").apply(text);
    assert_eq!(only.as_deref(), Ok("fn c() { 1 }\nfn b() { 1 }\n"));
    for (wrong, told) in [
        (edit("", "1", "2"), "2 times"),
        (edit("", "3", "2"), "no \"3\""),
        (edit("fn", "1", "2"), "2 times"),
        (edit("fn b", "3", "2"), "after"),
        (edit("", "a()", "a()"), "changes nothing"),
        (edit("", "", "a()"), "changes nothing"),
    ] {
        let found = wrong.apply(text).expect_err("no change");
        assert!(found.contains(told), "{found}");
    }
}

#[test]
fn rows_are_drawn_in_an_order_of_the_seed() {
    let order = |seed| {
        let mut ids: Vec<String> = (0..20).map(|n| format!("RFC1-1-{n}")).collect();
        ids.sort_by_key(|id| mutants::lot(seed, id));
        ids
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}
