//! TCP played segment by segment, under virtual time, by scripts written from the RFCs.
//!
//! README.md beside this file describes the dialect. Each area is one test here; its scripts are
//! the `.tcp` files of the directory of its name.

mod files;
mod laws;
mod lexer;
mod look;
mod machine;
mod must_fail;
mod parse;
mod report;
mod syntax;
mod wire;

/// One test for each directory of scripts.
macro_rules! areas {
    ($($area:ident),+ $(,)?) => {
        const AREAS: &[&str] = &[$(stringify!($area)),+];

        $(#[test]
        fn $area() {
            files::run_area(stringify!($area));
        })+
    };
}

areas! {
    closed,
    listen,
    syn_sent,
    syn_received,
    established,
    fin_wait_1,
    fin_wait_2,
    closing,
    time_wait,
    close_wait,
    last_ack,
    opening,
    ending,
    timestamps,
    paws,
    blind_attacks,
    window,
    delayed_ack,
    sack_blocks,
    dsack,
    rto,
    user_timeout,
    newreno,
    slow_start,
    ecn,
    dctcp,
    cubic,
    rack,
    prr,
    tlp,
    frto,
    pacing,
    icmp,
    pmtu,
    cookies,
    bounds,
    keepalive,
    urgent,
    wrap,
    combinations,
}

/// Fewer scripts than this and some have been lost.
const SCRIPTS_MIN: usize = 150;

#[test]
fn every_script_is_in_an_area_and_names_its_rfc() {
    let mut count = 0;
    for area in AREAS {
        let scripts = files::scripts_of(area);
        assert!(!scripts.is_empty(), "{area} has no script");
        for script in &scripts {
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
        count += scripts.len();
    }
    println!("{count} scripts in {} areas", AREAS.len());
    assert!(count >= SCRIPTS_MIN, "only {count} scripts");
}

#[test]
fn every_directory_of_scripts_is_run() {
    const OTHERS: [&str; 6] = [
        "common",
        "must_fail",
        "malformed",
        "laws",
        "machine",
        "parse",
    ];
    let entries = std::fs::read_dir(files::home()).expect("the directory of this test");
    for entry in entries {
        let entry = entry.expect("a directory entry");
        let name = entry.file_name().into_string().expect("a plain name");
        let known = AREAS.contains(&name.as_str()) || OTHERS.contains(&name.as_str());
        assert!(!entry.path().is_dir() || known, "{name} is run by no test");
    }
}
