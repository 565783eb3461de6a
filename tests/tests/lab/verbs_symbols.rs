//! The library has every symbol, in its version, that Debian 12's programs and libraries ask for.
//!
//! `verbs/symbols.txt` has those of Debian 12's libibverbs and librdmacm, the private ones among them, which
//! providers' libraries import.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use rnic_tests::binary;
use rnic_tests::programs::NAMES;

#[test]
fn every_symbol_is_found_under_its_version() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("verbs");
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("lookup");
    let built = Command::new("gcc")
        .arg(here.join("lookup.c"))
        .arg("-o")
        .args([&program])
        .output();
    let built = built.unwrap_or_else(|error| panic!("can't run gcc (scripts/setup): {error}"));
    assert!(built.status.success(), "{built:?}");
    let symbols = File::open(here.join("symbols.txt")).expect("the list is there");
    let looked_up = Command::new(program)
        .arg(binary::path("librnic_verbs.so"))
        .stdin(Stdio::from(symbols))
        .output()
        .expect("it was built");
    let missing = String::from_utf8_lossy(&looked_up.stdout);
    assert!(
        looked_up.status.success(),
        "missing: {missing}{looked_up:?}"
    );
}

#[test]
fn the_package_has_the_library_under_all_names_that_programs_load() {
    let links = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../dist/debian/rnic-verbs.links"
    );
    let links = std::fs::read_to_string(links).expect("it is packed");
    let names = links.lines().filter_map(|line| line.rsplit('/').next());
    assert_eq!(names.collect::<Vec<_>>(), NAMES);
}
