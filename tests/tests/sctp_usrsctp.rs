//! Our SCTP and usrsctp, either way, over good and bad links: every message arrives once, as it was sent, and both ends
//! see the same end.

use std::path::PathBuf;
use std::time::Duration;

use rnic_tests::lab::{Command, Family, Host, Lab, LinkOptions, Namespace, Process};
use rnic_tests::linksim::{Linksim, count};
use rnic_tests::{binary, usrsctp};

/// MiB that each end sends on a link, unless `RNIC_TEST_SCTP_MIB` says otherwise.
const MIB: usize = 1;
/// The longest message of ours: one chunk in a packet of 1500 bytes.
const OURS_MAX: usize = 1432;
/// And of usrsctp's: up to three fragments.
const THEIRS_MAX: usize = 4000;
/// How long an association may take for each MiB.
const LIMIT_PER_MIB: Duration = Duration::from_secs(30);

/// Two hosts with everything between them but the link, and usrsctp's program.
struct TestBed {
    ours: Host,
    middle: Namespace,
    theirs: Host,
    usrsctp: PathBuf,
    _lab: Lab,
}

/// How an association goes, but for its link.
#[derive(Clone, Copy, Debug)]
struct Run {
    family: Family,
    /// We send the INIT.
    we_connect: bool,
    /// We end the association.
    we_end: bool,
    /// `shutdown` or `abort`.
    end: &'static str,
}

impl TestBed {
    fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        let (ours, middle, theirs) = lab.over(&LinkOptions::default());
        Self {
            ours,
            middle,
            theirs,
            usrsctp: usrsctp::program("sctp-messages"),
            _lab: lab,
        }
    }

    /// One association. Checks what both ends say of it; packets that ours dropped as malformed.
    fn run(&self, run: Run, mib: usize) -> u64 {
        let limit = LIMIT_PER_MIB * u32::try_from(mib).expect("a number of MiB");
        let messages = ((mib << 20) / (OURS_MAX / 2)).to_string();
        let (ours_max, theirs_max) = (OURS_MAX.to_string(), THEIRS_MAX.to_string());
        let end = |ends: bool| if ends { run.end } else { "wait" };
        let role = |connects: bool| if connects { "connect" } else { "listen" };
        let address = |host: &Host| host.address(run.family, 0).ip().to_string();
        let (our_address, their_address) = (address(&self.ours), address(&self.theirs));
        let ours = || -> Command {
            let program = binary::example("raw_messages");
            let command = self.ours.namespace.command(program).label("ours");
            command
                .args([role(run.we_connect), &our_address, &their_address])
                .args([&messages, &ours_max, &theirs_max, end(run.we_end)])
        };
        let theirs = || -> Command {
            let command = self
                .theirs
                .namespace
                .command(&self.usrsctp)
                .label("usrsctp");
            command
                .args([role(!run.we_connect), &their_address, &our_address])
                .args([&messages, &theirs_max, &ours_max, end(!run.we_end)])
        };
        let listening = |mut process: Process| -> Process {
            let says = process.says("event=listening", Duration::from_secs(10));
            says.unwrap_or_else(|error| panic!("{run:?}: {error}"));
            process
        };
        let (mut ours, theirs) = if run.we_connect {
            let theirs = listening(theirs().spawn());
            (ours().spawn(), theirs)
        } else {
            let ours = listening(ours().spawn());
            (ours, theirs().spawn())
        };
        let said = ours.says("event=result", limit);
        said.unwrap_or_else(|error| panic!("{run:?}: {error}; usrsctp: {}", theirs.stdout()));
        // Ours still answers: the last packet may be lost.
        let theirs = theirs.finish(Duration::from_secs(60)).success().stdout;
        let our_output = ours.stdout();
        ours.kill();
        let how = |ends: bool| match run.end {
            "abort" if ends => "aborts",
            "abort" => "aborted",
            other => other,
        };
        let expected = |ends| {
            format!(
                "event=result received={messages} adaptation=1 how={}",
                how(ends)
            )
        };
        assert!(
            our_output.contains(&expected(run.we_end)),
            "{run:?}: {our_output}"
        );
        assert!(theirs.contains(&expected(!run.we_end)), "{run:?}: {theirs}");
        let (_, malformed) = our_output.trim().rsplit_once('=').expect("a result");
        malformed.parse().expect("a number")
    }
}

/// Both roles over both versions of IP, over a link with these options. `counter` of linksim's must have counted.
fn over(name: &str, options: &[&str], counter: &str) -> u64 {
    let mib = std::env::var("RNIC_TEST_SCTP_MIB");
    let mib = mib.map_or(MIB, |mib| {
        mib.parse().expect("RNIC_TEST_SCTP_MIB is a number")
    });
    let test_bed = TestBed::new(name);
    let mut malformed = 0;
    for family in Family::ALL {
        for we_connect in [true, false] {
            let link = Linksim::start(&test_bed.middle, options);
            // Ours goes on after the end, so it can send the last packet again.
            let run = Run {
                family,
                we_connect,
                we_end: true,
                end: "shutdown",
            };
            malformed += test_bed.run(run, mib);
            let report = link.stop();
            for way in ["to_right", "to_left"] {
                assert!(
                    count(&report, &format!("{way}.{counter}")) > 0,
                    "{run:?}: {report}"
                );
            }
        }
    }
    malformed
}

#[test]
fn either_end_sets_up_and_either_shuts_down_or_aborts() {
    let test_bed = TestBed::new("sctp-ends");
    let _link = Linksim::start(&test_bed.middle, &["--delay=500us"]);
    for family in Family::ALL {
        for (we_connect, we_end) in [(true, true), (true, false), (false, true), (false, false)] {
            for end in ["shutdown", "abort"] {
                let run = Run {
                    family,
                    we_connect,
                    we_end,
                    end,
                };
                assert_eq!(test_bed.run(run, 1), 0, "{run:?}: malformed packets");
            }
        }
    }
}

#[test]
fn messages_of_all_sizes_arrive_over_a_clean_link() {
    let malformed = over("sctp-clean", &["--delay=500us"], "forwarded");
    assert_eq!(malformed, 0);
}

#[test]
fn messages_arrive_once_over_a_link_that_loses_one_of_a_hundred() {
    over(
        "sctp-loss",
        &["--delay=500us", "--loss=1%", "--seed=7"],
        "lost",
    );
}

#[test]
fn messages_arrive_once_over_a_link_that_reorders() {
    let options = [
        "--delay=500us",
        "--reorder=2%",
        "--reorder-by=20",
        "--seed=7",
    ];
    over("sctp-reorder", &options, "reordered");
}

#[test]
fn messages_arrive_once_over_a_link_that_duplicates() {
    over(
        "sctp-duplicate",
        &["--delay=500us", "--duplicate=2%", "--seed=7"],
        "duplicated",
    );
}

#[test]
fn the_checksum_finds_what_a_link_damages() {
    let options = ["--delay=500us", "--corrupt=0.5%", "--seed=7"];
    assert!(over("sctp-corrupt", &options, "corrupted") > 0);
}
