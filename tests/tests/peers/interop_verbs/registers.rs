//! What registers with us and with siw: the same program tells it of memory of each kind, over both.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use rnic_tests::interop::Interop;
use rnic_tests::programs::Library;

/// The results of registering, to be written by peers and to be read only: 0 or an errno.
type Row = [i32; 2];

const EFAULT: i32 = 14;
/// Where we differ: kind of memory, our row, siw's. This siw asks the kernel for pages to be written by force (FOLL_WRITE
/// and FOLL_FORCE), also where a region is to be read only. So it does not take shared pages that are mapped read-only,
/// and reads private ones that the program itself may not.
const DIFFERENCES: [(&str, Row, Row); 6] = [
    (
        "/dev/shm shared, mapped read-only",
        [EFAULT, 0],
        [EFAULT; 2],
    ),
    ("anonymous, no right", [EFAULT; 2], [EFAULT, 0]),
    ("anonymous, no right since", [EFAULT; 2], [EFAULT, 0]),
    ("anonymous, shared, read-only", [EFAULT, 0], [EFAULT; 2]),
    ("file shared, mapped read-only", [EFAULT, 0], [EFAULT; 2]),
    ("memfd shared, mapped read-only", [EFAULT, 0], [EFAULT; 2]),
];

fn rows(printed: &str) -> BTreeMap<String, Row> {
    let row = |line: &str| {
        let (name, both) = line.rsplit_once(": ")?;
        let (written, read) = both.split_once(' ')?;
        Some((name.to_owned(), [written.parse().ok()?, read.parse().ok()?]))
    };
    let read = |line: &str| row(line).unwrap_or_else(|| panic!("not a row: {line}"));
    printed.lines().map(read).collect()
}

#[test]
fn what_registers_with_siw_registers_with_us_and_nothing_else() {
    let interop = Interop::new("registers");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("verbs/registers.c");
    let program = interop.peer.share().join("registers");
    let built = Command::new("gcc")
        .args(["-Wall", "-Werror"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-libverbs")
        .output()
        .expect("gcc (scripts/setup)");
    let told = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{told}");
    let theirs = interop.peer.run("/host/registers").success().stdout;
    let library = Library::new(&interop.lab);
    let line = format!("env {}", program.display());
    let ours = library
        .command(&interop.daemon, &line)
        .run()
        .success()
        .stdout;
    println!("ours:\n{ours}\nsiw's:\n{theirs}");

    let (ours, theirs) = (rows(&ours), rows(&theirs));
    assert!(ours.len() > 40, "{ours:?}");
    assert!(ours.keys().eq(theirs.keys()), "{ours:?}\n{theirs:?}");
    let differ = ours.iter().zip(theirs.values());
    let differ = differ.filter(|((_, ours), theirs)| ours != theirs);
    let found: Vec<_> = differ
        .map(|((name, ours), theirs)| (name.as_str(), *ours, *theirs))
        .collect();
    assert_eq!(found, DIFFERENCES);
}
