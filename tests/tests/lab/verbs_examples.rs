//! The examples in C, Python and Rust of how programs of one's own use the RNIC: each copies a file to each, and
//! what is wrong is said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rnic_tests::binary;
use rnic_tests::pattern::Pattern;
use rnic_tests::programs::Programs;

const PORT: &str = "7475";
const LIMIT: Duration = Duration::from_secs(60);

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// An example: how it is run, and what is between an address and a port.
struct Example {
    run: String,
    divider: &'static str,
}

impl Example {
    fn line(&self, role: &str, address: &str, file: &Path) -> String {
        let Self { run, divider } = self;
        format!("{run} {role} {address}{divider}{PORT} {}", file.display())
    }
}

/// The examples, the C program after it was built as its page says.
fn programs(lab: &Programs) -> [Example; 3] {
    let built = lab.pair.lab.directory().join("copy");
    let made = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O2", "-o"])
        .arg(&built)
        .arg(examples().join("c/copy.c"))
        .args(["-lrdmacm", "-libverbs"])
        .output()
        .expect("gcc is there (scripts/setup)");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let python = examples().join("python/copy.py");
    let rust = binary::example("file_copy");
    [
        (format!("env {}", built.display()), " "),
        (format!("env /usr/bin/python3 {}", python.display()), " "),
        (format!("env {}", rust.display()), ":"),
    ]
    .map(|(run, divider)| Example { run, divider })
}

#[test]
fn each_example_copies_files_to_each() {
    let lab = Programs::new("verbs-examples");
    let programs = programs(&lab);
    let directory = lab.pair.lab.directory();
    let (from, to) = (directory.join("from"), directory.join("to"));
    let address = lab.address();
    for receiver in &programs {
        for sender in &programs {
            // No byte, less than a piece, some pieces and a rest.
            for length in [0, 1000, 3_500_000] {
                let bytes = Pattern::bytes(length as u64, length);
                fs::write(&from, &bytes).unwrap();
                let both = lab.run(
                    &receiver.line("receive", &address, &to),
                    &sender.line("send", &address, &from),
                );
                let both = both.success();
                assert!(
                    fs::read(&to).unwrap() == bytes,
                    "{}, {}, {length}",
                    receiver.run,
                    sender.run
                );
                let said = |words: &str| format!("{words} {length} bytes, CRC-32 ");
                assert!(
                    both.client.stdout.contains(&said("sent")),
                    "{}",
                    both.client
                );
                assert!(
                    both.server.stdout.contains(&said("received")),
                    "{}",
                    both.server
                );
            }
        }
    }
}

#[test]
fn an_example_says_that_nobody_listens() {
    let lab = Programs::new("verbs-examples-alone");
    let file = lab.pair.lab.directory().join("file");
    fs::write(&file, "text").unwrap();
    for program in programs(&lab) {
        let line = program.line("send", &lab.address(), &file);
        let ended = lab.on_a(&line).limit(LIMIT).run();
        assert!(!ended.status.success(), "{ended}");
        assert!(ended.stderr.contains("refused"), "{ended}");
    }
}
