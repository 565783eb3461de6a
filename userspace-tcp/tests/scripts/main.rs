//! TCP played segment by segment, under virtual time, by scripts written from the RFCs.
//!
//! README.md beside this file describes the dialect. Each area is one test here; its scripts are
//! the `.tcp` files of the directory of its name.

mod alone;
mod areas;
mod broken_laws;
mod must_fail;
mod play;

use play::{files, host, laws, lexer, look, machine, parse, report, syntax, wire};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts");

/// One test for each directory of scripts, which has so many: none goes missing, and none is left
/// out, unseen.
macro_rules! areas {
    ($($area:ident: $scripts:literal,)+) => {
        const AREAS: &[&str] = &[$(stringify!($area)),+];

        $(
            #[test]
            fn $area() {
                areas::run(stringify!($area), $scripts);
            }
        )+
    };
}

areas! {
    closed: 9,
    listen: 14,
    syn_sent: 14,
    syn_received: 16,
    established: 26,
    fin_wait_1: 19,
    fin_wait_2: 16,
    closing: 18,
    time_wait: 16,
    close_wait: 16,
    last_ack: 19,
    opening: 35,
    ending: 11,
    timestamps: 15,
    paws: 14,
    blind_attacks: 13,
    window: 20,
    delayed_ack: 13,
    sack_blocks: 8,
    dsack: 10,
    rto: 15,
    user_timeout: 9,
    newreno: 10,
    slow_start: 9,
    ecn: 29,
    dctcp: 9,
    cubic: 6,
    rack: 27,
    prr: 4,
    tlp: 20,
    frto: 11,
    pacing: 6,
    icmp: 6,
    pmtu: 21,
    cookies: 21,
    bounds: 5,
    keepalive: 13,
    urgent: 7,
    wrap: 6,
    combinations: 25,
}

#[test]
fn every_script_names_its_rfc() {
    for area in AREAS {
        for script in &files::scripts_of(area) {
            let text = files::read(script);
            let head: Vec<&str> = text
                .lines()
                .take_while(|line| line.starts_with('#'))
                .collect();
            let head = head.join(" ");
            let name = files::name(script);
            assert!(
                head.contains("RFC "),
                "{name} does not begin with its rule and RFC section"
            );
        }
    }
}

#[test]
fn every_directory_of_scripts_is_run() {
    const OTHERS: [&str; 4] = ["common", "must_fail", "malformed", "play"];
    let entries = std::fs::read_dir(files::home()).expect("the directory of this test");
    for entry in entries {
        let entry = entry.expect("a directory entry");
        let name = entry.file_name().into_string().expect("a plain name");
        let known = AREAS.contains(&name.as_str()) || OTHERS.contains(&name.as_str());
        assert!(!entry.path().is_dir() || known, "{name} is run by no test");
    }
}
