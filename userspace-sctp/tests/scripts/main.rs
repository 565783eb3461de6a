//! SCTP played packet by packet, under virtual time, by scripts. There is one for each test purpose of the conformance
//! suite ETSI TS 102 369 that concerns this stack, written from RFC 9260. README.md has the language, and which purposes
//! are left out and why.

mod machine;
mod wire;

use std::path::{Path, PathBuf};

/// One test for each group of purposes, which has so many: none goes missing.
macro_rules! groups {
    ($($group:ident: $scripts:literal,)+) => {
        const GROUPS: &[&str] = &[$(stringify!($group)),+];

        $(
            #[test]
            fn $group() {
                run_group(stringify!($group), $scripts);
            }
        )+
    };
}

groups! {
    sctp_as: 31,
    sctp_at: 17,
    sctp_fh: 8,
    sctp_imh: 10,
    sctp_dm: 15,
    sctp_e: 6,
    sctp_bdc: 8,
    sctp_d: 14,
    sctp_a: 4,
    sctp_m: 4,
    sctp_rt: 3,
}

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

fn run_group(group: &str, count: usize) {
    let only = std::env::var("SCTP_SCRIPT").ok();
    let mut failures = Vec::new();
    let scripts = scripts_of(&home().join(group));
    assert_eq!(scripts.len(), count, "scripts of {group}");
    for path in scripts {
        let name = path.file_stem().expect("a file").to_string_lossy();
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        if let Err(error) = machine::run(&home(), &path) {
            failures.push(format!("{name}: {error}"));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn scripts_of(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory of scripts");
    let mut found: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    found.sort();
    found
}

#[test]
fn a_script_has_the_name_of_its_purpose_and_says_what_it_is_about() {
    for group in GROUPS {
        for path in scripts_of(&home().join(group)) {
            let name = path.file_stem().expect("a file").to_string_lossy();
            let head = format!("{}-", group.replace('_', "-"));
            assert!(name.starts_with(&head), "{name} in {group}");
            let text = std::fs::read_to_string(&path).expect("a script");
            assert!(text.starts_with("# "), "{name} does not say its purpose");
        }
    }
}

/// A script that expects what does not come fails, and says where.
#[test]
fn a_script_can_fail() {
    for (text, says) in [
        ("connect\n> INIT\n> INIT\n", "line 3"),
        ("connect\n", "left over"),
        ("connect\n> INIT os=3\n", "os=3"),
        ("connect\n> INIT\n! established\n", "line 3"),
        ("jump\n", "unknown"),
        ("connect\n> INIT\n? state == ESTABLISHED\n", "COOKIE-WAIT"),
    ] {
        let error = machine::run_text(&home(), text).expect_err("it must fail");
        assert!(error.contains(says), "{error}");
    }
}
