//! Our SCTP and usrsctp, either way, over good and bad links: every message arrives once, as it was sent, and both ends
//! see the same end.

use std::path::PathBuf;
use std::time::Duration;

use rnic_tests::lab::{Command, Family, Host, Lab, LinkOptions, Namespace, Process};
use rnic_tests::linksim::{Linksim, count};
use rnic_tests::sctp_messages::{self, Run};
use rnic_tests::{binary, usrsctp};

/// The UDP port of both ends: that of RFC 6951 section 6.
const UDP: u16 = 9899;

/// Two hosts with everything between them but the link, and usrsctp's program.
struct TestBed {
    ours: Host,
    middle: Namespace,
    theirs: Host,
    usrsctp: PathBuf,
    _lab: Lab,
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
    fn run(&self, run: Run) -> u64 {
        let address = |host: &Host| host.address(run.family, 0).ip();
        let (our_address, their_address) = (address(&self.ours), address(&self.theirs));
        let ours = || -> Command {
            let program = binary::example("raw_messages");
            let command = self.ours.namespace.command(program).label("ours");
            command.args(run.our_words(our_address, their_address))
        };
        let theirs = || -> Command {
            let command = self
                .theirs
                .namespace
                .command(&self.usrsctp)
                .label("usrsctp");
            command.args(run.their_words(our_address, their_address))
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
        let said = ours.says("event=result", run.limit());
        said.unwrap_or_else(|error| panic!("{run:?}: {error}; usrsctp: {}", theirs.stdout()));
        // Ours still answers: the last packet may be lost.
        let theirs = theirs.finish(Duration::from_secs(60)).success().stdout;
        let our_output = ours.stdout();
        ours.kill();
        run.assert_done(&our_output, &theirs);
        let (_, malformed) = our_output.trim().rsplit_once('=').expect("a result");
        malformed.parse().expect("a number")
    }
}

/// Both roles over both versions of IP, over a link with these options. `counter` of linksim's must have counted.
fn over(name: &str, options: &[&str], counter: &str) -> u64 {
    over_with(name, None, options, counter)
}

/// The same, perhaps in UDP.
fn over_with(name: &str, udp: Option<u16>, options: &[&str], counter: &str) -> u64 {
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
                udp,
                mib: sctp_messages::mib(),
            };
            malformed += test_bed.run(run);
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
                    udp: None,
                    mib: 1,
                };
                assert_eq!(test_bed.run(run), 0, "{run:?}: malformed packets");
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
fn messages_of_all_sizes_arrive_in_udp() {
    let malformed = over_with("sctp-in-udp", Some(UDP), &["--delay=500us"], "forwarded");
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
