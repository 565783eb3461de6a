//! `docs/conformance` holds against the requirements, against the tests of the workspace and against itself. No
//! requirement is left out. None is called met without a test that exists and runs. What is open is in a list
//! that has to be changed by hand.
//!
//! `mutable` holds the mutants that show the tables to be true (docs/conformance.md) against both.
//!
//! It reads files only: no network, no cargo, a second or two.

mod errors;
mod filters;
mod mutable;
mod mutants;
mod open;
mod required;
mod rows;
mod rules;
mod sources;
mod tcp;

use std::path::{Path, PathBuf};

use rows::{Row, State};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn document(name: &str) -> String {
    read(&root().join("docs").join(name))
}

/// All rows of one RFC's table.
fn rows_of(rfc: &str) -> Vec<Row> {
    let name = format!("conformance/rfc{rfc}.md");
    rows::parse(&name, &document(&name)).unwrap_or_else(|complaints| panic!("{complaints:#?}"))
}

#[test]
fn every_requirement_is_met_by_a_test_or_has_its_reason() {
    let tests = sources::tests_of(&root());
    let mut complaints = Vec::new();
    let mut open = Vec::new();
    for rfc in required::RFCS {
        let rows = rows_of(rfc);
        let required = required::of(rfc);
        complaints.extend(rules::complaints(&required, &rows, &tests));
        let is_open = |row: &&Row| row.state == State::Open;
        open.extend(rows.iter().filter(is_open).map(|row| row.id.clone()));
    }
    complaints.extend(rules::differences(open::OPEN, &open));
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn the_summary_counts_what_the_tables_have() {
    let summary = document("conformance.md");
    for rfc in required::RFCS {
        let line = rules::summary_line(rfc, &rows_of(rfc));
        assert!(
            summary.lines().any(|found| found == line),
            "docs/conformance.md lacks the line\n{line}"
        );
    }
}

#[test]
fn every_number_of_a_terminate_has_its_row_and_its_test() {
    let name = "conformance/errors.md";
    let tests = sources::tests_of(&root());
    let complaints = errors::complaints(&document(name), &tests);
    assert!(complaints.is_empty(), "{name}: {complaints:#?}");
}

#[test]
fn every_requirement_of_tcp_has_its_row_and_what_shows_it() {
    let name = "tcp/rfcs.md";
    let tests = sources::tests_of(&root());
    let scripts = root().join("userspace-tcp/tests/scripts");
    let list = read(&root().join("rnic/engine/tests/tcp_scripts/exceptions.txt"));
    let exceptions = tcp::exceptions(&list);
    let complaints = tcp::complaints(&document(name), &tests, &scripts, &exceptions);
    assert!(complaints.is_empty(), "{name}: {complaints:#?}");
}

#[test]
fn every_file_of_tests_is_a_module_of_its_binary() {
    let lost = sources::files_of_no_module(&root());
    assert!(lost.is_empty(), "no `mod` for {lost:#?}");
}

#[test]
fn every_filter_of_nextest_matches_a_test() {
    let config = read(&root().join(".config/nextest.toml"));
    let complaints = filters::complaints(&config, &sources::tests_of(&root()));
    assert!(complaints.is_empty(), "{complaints:#?}");
}
