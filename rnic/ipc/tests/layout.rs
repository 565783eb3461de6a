//! Every control message, and all that lies in shared memory, byte by byte beside the version that
//! both ends compare. A daemon and a client of different builds must find out by the number that they
//! don't understand each other, and not by taking one request for another.

mod layout {
    pub mod inspect;
    pub mod memory;
    pub mod messages;
}

use std::path::Path;

use rnic_ipc::control::PROTOCOL_VERSION;

const GOLDEN: &str = "tests/layout/golden.txt";
/// Set, it has the golden bytes written, if the version was raised.
const WRITE: &str = "RNIC_WRITE_LAYOUT";

#[test]
fn what_both_ends_share_changes_with_the_version_only() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = vec![format!("version {PROTOCOL_VERSION}")];
    lines.extend(layout::messages::lines());
    lines.extend(layout::memory::lines());
    let found = lines.join("\n") + "\n";
    if found == golden {
        return;
    }
    let of = |text: &str| -> u32 {
        let number = text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("version "));
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let was = of(&golden);
    let raised = PROTOCOL_VERSION > was;
    if raised && std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, found).expect("the golden bytes can be written");
        return;
    }
    let todo = if raised {
        format!("write the golden bytes: {WRITE}=1 cargo test -p rnic-ipc --test layout")
    } else {
        format!(
            "raise PROTOCOL_VERSION in rnic/ipc/src/control.rs above {was}, with this same change, then \
             write the golden bytes: {WRITE}=1 cargo test -p rnic-ipc --test layout"
        )
    };
    let gone = golden
        .lines()
        .filter(|line| !lines.iter().any(|l| l == line));
    let new = lines
        .iter()
        .filter(|line| !golden.lines().any(|l| l == **line));
    let changed: Vec<_> = gone
        .map(|line| format!("- {line}"))
        .chain(new.map(|line| format!("+ {line}")))
        .collect();
    panic!(
        "what daemon and client share is not that of version {was} ({GOLDEN}):\n{}\n{todo}",
        changed.join("\n")
    );
}
