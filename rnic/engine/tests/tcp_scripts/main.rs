//! TCP's scripts (`userspace-tcp/tests/scripts`) through a shard: what a script has arrive comes as an Ethernet frame, and
//! what it expects is held against the frames that the shard's port sends. Events, questions and bytes shown are the
//! TCP crate's own business. A connection goes through MPA's start-up unseen by the script, `send` is an RDMA Write whose
//! FPDU is so long, and the peer's bytes are FPDUs. Of one that stays in CLOSE-WAIT a Send that waits for its receive comes
//! ahead of the peer's FIN.
//!
//! `exceptions.txt` has the scripts that can't hold so, each below its reason. Every other one has to hold, and none of
//! those may.

#![allow(clippy::unwrap_used, clippy::too_many_arguments)]

mod frame;
#[path = "../../../../userspace-tcp/tests/scripts/play/mod.rs"]
#[allow(dead_code, reason = "TCP's own test uses the rest")]
mod play;
#[path = "../shared/random.rs"]
#[allow(dead_code, reason = "as the side below")]
mod random;
#[path = "../two_shards/side.rs"]
#[allow(dead_code, reason = "the tests of two shards use the rest")]
mod side;
mod startup;
mod through;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use play::{files, host, laws, lexer, look, machine, parse, report, syntax, wire};
use through::Through;

const SCRIPTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../userspace-tcp/tests/scripts"
);

/// Those that can't hold, below `# reason`.
const EXCEPTIONS: &str = include_str!("exceptions.txt");

/// Environment variable that picks scripts by a part of `area/rule` and prints how they go.
const ONLY: &str = "TCP_SCRIPT";

/// One test for each area of scripts, of which so many hold.
macro_rules! areas {
    ($($area:ident: $hold:literal,)+) => {
        const AREAS: &[&str] = &[$(stringify!($area)),+];

        $(
            #[test]
            fn $area() {
                run(stringify!($area), $hold);
            }
        )+
    };
}

areas! {
    closed: 9,
    listen: 14,
    syn_sent: 14,
    syn_received: 13,
    established: 22,
    fin_wait_1: 16,
    fin_wait_2: 15,
    closing: 16,
    time_wait: 16,
    close_wait: 13,
    last_ack: 15,
    opening: 32,
    ending: 9,
    timestamps: 15,
    paws: 14,
    blind_attacks: 12,
    window: 14,
    delayed_ack: 11,
    sack_blocks: 7,
    dsack: 10,
    rto: 14,
    user_timeout: 9,
    newreno: 10,
    slow_start: 9,
    ecn: 26,
    dctcp: 8,
    cubic: 6,
    rack: 27,
    prr: 4,
    tlp: 16,
    frto: 11,
    pacing: 6,
    icmp: 6,
    pmtu: 19,
    cookies: 16,
    bounds: 5,
    keepalive: 12,
    urgent: 7,
    wrap: 5,
    combinations: 14,
}

/// Each exception with its reason.
fn exceptions() -> BTreeMap<&'static str, &'static str> {
    let mut reason = "";
    let mut all = BTreeMap::new();
    for line in EXCEPTIONS.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("# ") {
            Some(why) => reason = why,
            None => {
                assert!(!reason.is_empty(), "{line}: no reason above it");
                let twice = all.insert(line, reason);
                assert!(twice.is_none(), "{line} is there twice");
            }
        }
    }
    all
}

/// The name of a script in the list: `area/rule`.
fn name(path: &Path) -> String {
    let name = files::name(path);
    name.strip_suffix(".tcp").unwrap_or(&name).to_owned()
}

/// How a script goes, with a start-up that takes no time or else with one that takes a round trip, or else with either and
/// a peer's FIN that waits. If it holds in no way, the report is of the first. A panic of the host's is a failure like any
/// other.
fn outcome(path: &Path) -> Result<Vec<String>, String> {
    played::<Through<false, false>>(path).or_else(|report| {
        played::<Through<true, false>>(path)
            .or_else(|_| played::<Through<false, true>>(path))
            .or_else(|_| played::<Through<true, true>>(path))
            .map_err(|_| report)
    })
}

fn played<H: host::Host>(path: &Path) -> Result<Vec<String>, String> {
    let run = || files::run::<H>(path);
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err(format!("{}: a panic", path.display())))
}

fn run(area: &str, hold: usize) {
    let only = std::env::var(ONLY).ok();
    let exceptions = exceptions();
    let (mut held, mut wrong) = (0, Vec::new());
    for path in files::scripts_of(area) {
        let name = name(&path);
        if only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        let outcome = outcome(&path);
        if only.is_some() {
            println!("{name}: {outcome:#?}");
        }
        held += usize::from(outcome.is_ok());
        match (outcome, exceptions.get(name.as_str())) {
            (Ok(_), None) | (Err(_), Some(_)) => {}
            (Err(report), None) => wrong.push(report),
            (Ok(_), Some(why)) => {
                wrong.push(format!("{name} holds, though exceptions.txt says: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n\n{}", wrong.join("\n"));
    assert!(
        only.is_some() || held == hold,
        "{area}: {held} scripts hold; `areas!` says {hold}"
    );
}

#[test]
fn every_exception_is_a_script_and_every_area_is_run() {
    let mut scripts = BTreeSet::new();
    for area in AREAS {
        scripts.extend(files::scripts_of(area).iter().map(|path| name(path)));
    }
    for name in exceptions().keys() {
        assert!(scripts.contains(*name), "{name} is no script");
    }
    let entries = std::fs::read_dir(files::home()).expect("the directory of the scripts");
    for entry in entries {
        let entry = entry.expect("a directory entry");
        let area = entry.file_name().into_string().expect("a plain name");
        let others = ["common", "must_fail", "malformed", "play"];
        let known = AREAS.contains(&area.as_str()) || others.contains(&area.as_str());
        assert!(!entry.path().is_dir() || known, "{area} is run by no test");
    }
}
