//! Our SCTP and our DDP Stream Sessions against a peer in C (`tests/interop/sctp`) over usrsctp, both in UDP (RFC 6951),
//! between two network namespaces. Nothing of the peer is ours but its reading of the RFCs.

mod driver;

use std::net::SocketAddr;
use std::time::Duration;

use rnic_proto::enhanced::{ReadDepths, RtrSet};
use rnic_proto::sctp::{Session, SessionOptions};
use rnic_tests::lab::{Family, Host, Lab, LinkOptions, Process};
use rnic_tests::pattern::Pattern;
use rnic_tests::usrsctp;
use userspace_sctp::Event;

use driver::Driver;

/// The peer's port, and that of both ends' UDP.
const PORT: u16 = 4791;
const UDP: u16 = 9899;
const LIMIT: Duration = Duration::from_secs(60);
const OURS: ReadDepths = ReadDepths { ird: 3, ord: 5 };
/// What is sent each way: less than a segment, exactly so many, and many.
const SIZES: [usize; 5] = [1, 9, 1000, 1400, 200_000];

/// Runs our end in the first host, and the peer in the second.
fn with_peer(
    name: &str,
    family: Family,
    loss: Option<u64>,
    role: &str,
    words: &[&str],
    ours: impl FnOnce(&mut Driver) + Send,
) -> String {
    let mut lab = Lab::new(name);
    let (here, there) = lab.pair(&LinkOptions::default());
    let udp = |host: &Host| SocketAddr::new(host.address(family, UDP).ip(), UDP);
    let (local, remote) = (udp(&here), udp(&there));
    let peer = || {
        let (own, other) = (remote.ip().to_string(), local.ip().to_string());
        let (udp, port) = (UDP.to_string(), PORT.to_string());
        let peer = there
            .namespace
            .command(usrsctp::program("ddp-sctp-peer"))
            .args([role, "--local", &own]);
        let peer = match role {
            "connect" => peer.args(["--remote", &other]),
            _ => peer,
        };
        // A retransmission may be lost, too.
        let patience = ["--timeout", "50000", "--gap-timeout", "40000"];
        // So may the last packet, a SHUTDOWN COMPLETE, of the side that begins. We find that by the next timeouts.
        let linger = match (role, loss) {
            ("connect", Some(_)) => "8000",
            _ => "0",
        };
        peer.args(["--udp", &udp, "--port", &port])
            .args(patience)
            .args(["--linger", linger])
            .args(words)
    };
    let run = |process: Process, driver: &mut Driver| {
        ours(driver);
        // What the peer still has to say is answered.
        driver.linger(Duration::from_millis(300));
        process.finish(LIMIT).stdout
    };
    here.namespace.in_thread(|| {
        let mut driver = Driver::new(local, remote, loss);
        match role {
            "listen" => {
                let process = peer().spawn();
                rnic_tests::wait::until("the peer listens", LIMIT, || {
                    process.stdout().contains("event=listening").then_some(())
                });
                run(process, &mut driver)
            }
            _ => {
                driver.listen(PORT);
                run(peer().spawn(), &mut driver)
            }
        }
    })
}

/// CRC-32, as the peer prints it of what it sends and gets.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let each = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
    !bytes.iter().fold(u32::MAX, each)
}

/// Lengths and checksums, as the peer's events have them.
fn sums<'m>(messages: impl IntoIterator<Item = &'m Vec<u8>>) -> Vec<String> {
    let sum = |message: &Vec<u8>| format!("len={} crc={:08x}", message.len(), crc32(message));
    messages.into_iter().map(sum).collect()
}

/// The same of what the peer says of one event.
fn said(output: &str, event: &str) -> Vec<String> {
    let head = format!("event={event} ");
    let lines = output.lines().filter(|line| line.starts_with(&head));
    let sum = lines.filter_map(|line| line.find("len=").map(|at| line[at..].to_owned()));
    sum.collect()
}

fn messages() -> Vec<Vec<u8>> {
    let mut random = Pattern::new(7);
    let byte = |_| random.next_u64() as u8;
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| ())
        .take(200_000)
        .map(byte)
        .collect();
    SIZES
        .map(|size| {
            bytes.rotate_left(1);
            bytes[..size].to_vec()
        })
        .into()
}

/// What the peer sends, one step for each size.
fn steps() -> Vec<String> {
    SIZES
        .iter()
        .flat_map(|size| ["--do".to_owned(), format!("send:{size}")])
        .collect()
}

fn options(enhanced: bool) -> SessionOptions {
    SessionOptions {
        enhanced,
        depths: OURS,
        peer_to_peer: RtrSet::NONE,
    }
}

/// Sets up an association, and asks for a session on it.
fn initiate(driver: &mut Driver, options: &SessionOptions, private_data: &[u8]) {
    driver.connect(PORT);
    let (session, initiate) = Session::initiate(options, private_data).expect("fits");
    driver.session = session;
    driver.control(&initiate);
}

/// Sends all, and waits for all of the peer's.
fn exchange(driver: &mut Driver) {
    for message in messages() {
        driver.send(&message);
    }
    driver.until("all Sends of the peer", |driver| {
        driver.whole() == SIZES.len()
    });
}

#[track_caller]
fn assert_all_came(output: &str, received: &[Vec<u8>]) {
    assert_eq!(said(output, "received"), sums(&messages()), "{output}");
    assert_eq!(said(output, "sent"), sums(received), "{output}");
    for trouble in [
        "event=violation",
        "event=error",
        "event=stray",
        "event=late",
    ] {
        assert!(!output.contains(trouble), "{output}");
    }
    assert!(output.contains("event=adaptation value=1"), "{output}");
    assert!(output.contains("how=closed"), "{output}");
}

/// A session that we begin, and end.
fn we_begin(name: &str, family: Family, loss: Option<u64>, enhanced: bool) {
    let mut received = Vec::new();
    let (steps, got) = (steps(), &mut received);
    let mut words: Vec<&str> = steps.iter().map(String::as_str).collect();
    words.extend(["--private", "7965730a", "--ird", "9", "--ord", "2"]);
    let output = with_peer(name, family, loss, "listen", &words, move |driver| {
        initiate(driver, &options(enhanced), b"hello");
        driver.until("an answer", |driver| !driver.told.is_empty());
        let told = driver.told[0].clone();
        assert!(told.starts_with("Accepted"), "{told}");
        assert!(told.contains("private_data: [121, 101, 115, 10]"), "{told}");
        // RFC6581-9.1: its IRD bounds our ORD, and our IRD its ORD.
        let depths = if enhanced {
            "ird: 2, ord: 5"
        } else {
            "ird: 3, ord: 5"
        };
        assert!(told.contains(depths), "{told}");
        exchange(driver);
        driver.terminate();
        driver.until("the peer's Terminate", |driver| driver.session.is_gone());
        driver.close();
        driver.until("the end", |driver| driver.events.contains(&Event::Closed));
        *got = std::mem::take(&mut driver.received);
    });
    assert_all_came(&output, &received);
    assert!(output.contains("68656c6c6f\n"), "{output}");
}

/// A session that the peer begins, and ends.
fn the_peer_begins(name: &str, family: Family, loss: Option<u64>, enhanced: bool) {
    let mut received = Vec::new();
    let (steps, got) = (steps(), &mut received);
    let mut words: Vec<&str> = steps.iter().map(String::as_str).collect();
    let all = format!("recv:{}", SIZES.len());
    words.extend(["--do", &all, "--private", "0102"]);
    if enhanced {
        words.extend(["--enhanced", "--ird", "9", "--ord", "2", "--flags", "15"]);
    }
    let output = with_peer(name, family, loss, "connect", &words, move |driver| {
        driver.until("an Initiate", |driver| !driver.told.is_empty());
        let told = driver.told[0].clone();
        assert!(told.starts_with("Initiated"), "{told}");
        assert!(told.contains("private_data: [1, 2]"), "{told}");
        assert_eq!(told.contains("ird: 9, ord: 2"), enhanced, "{told}");
        let (accept, agreed) = driver
            .session
            .accept(OURS, RtrSet::ALL, b"welcome")
            .expect("it may");
        let depths = if enhanced { (2, 5) } else { (3, 5) };
        assert_eq!((agreed.ird, agreed.ord), depths);
        driver.control(&accept);
        exchange(driver);
        driver.until("the peer's Terminate", |driver| driver.told.len() == 2);
        driver.terminate();
        driver.until("the end", |driver| driver.events.contains(&Event::Closed));
        assert!(
            driver.events.contains(&Event::PeerClosed),
            "{:?}",
            driver.events
        );
        *got = std::mem::take(&mut driver.received);
    });
    assert_all_came(&output, &received);
    assert!(output.contains("77656c636f6d65\n"), "{output}");
}

#[test]
fn a_session_that_we_begin_carries_all_both_ways() {
    for (family, enhanced) in [(Family::V4, false), (Family::V6, true)] {
        we_begin("sctp-active", family, None, enhanced);
    }
}

#[test]
fn a_session_that_the_peer_begins_carries_all_both_ways() {
    for (family, enhanced) in [(Family::V4, true), (Family::V6, false)] {
        the_peer_begins("sctp-passive", family, None, enhanced);
    }
}

#[test]
fn nothing_is_lost_on_a_link_that_loses_packets() {
    we_begin("sctp-lossy-active", Family::V4, Some(17), true);
    the_peer_begins("sctp-lossy-passive", Family::V4, Some(13), false);
}

/// RFC5043-6.3: by either side's application.
#[test]
fn a_session_is_rejected_with_what_the_application_says() {
    let words = ["--reject", "--private", "6e6f"];
    let output = with_peer(
        "sctp-rejected",
        Family::V4,
        None,
        "listen",
        &words,
        |driver| {
            initiate(driver, &options(true), b"");
            driver.until("an answer", |driver| !driver.told.is_empty());
            assert_eq!(driver.told, ["Rejected { private_data: [110, 111] }"]);
            driver.until("it is gone", |driver| driver.session.is_gone());
            driver.close();
            driver.until("the end", |driver| driver.events.contains(&Event::Closed));
        },
    );
    assert!(output.contains("how=rejected"), "{output}");

    let output = with_peer(
        "sctp-rejects",
        Family::V4,
        None,
        "connect",
        &["--enhanced"],
        |driver| {
            driver.until("an Initiate", |driver| !driver.told.is_empty());
            let reject = driver.session.reject(b"no").expect("it may");
            driver.control(&reject);
            driver.until("the end", |driver| driver.events.contains(&Event::Closed));
        },
    );
    assert!(output.contains("how=rejected"), "{output}");
    assert!(output.contains("private=6e6f"), "{output}");
}

/// RFC5043-6.4-4: an Initiate that is not for the application to decide on.
#[test]
fn an_initiate_is_refused_by_a_terminate() {
    let output = with_peer("sctp-refuses", Family::V4, None, "connect", &[], |driver| {
        driver.until("an Initiate", |driver| !driver.told.is_empty());
        driver.terminate();
        driver.until("the end", |driver| driver.events.contains(&Event::Closed));
    });
    assert!(output.contains("how=refused"), "{output}");
}

/// RFC5043-11.3-2: the peer is told of a session whose association is lost.
#[test]
fn an_abort_ends_the_peers_association() {
    let words = ["--do", "hold"];
    let output = with_peer(
        "sctp-aborts",
        Family::V4,
        None,
        "listen",
        &words,
        |driver| {
            initiate(driver, &options(false), b"");
            driver.until("an answer", |driver| !driver.told.is_empty());
            driver.abort();
        },
    );
    assert!(output.contains("event=end how=lost"), "{output}");
    assert!(output.contains("how=association-ended"), "{output}");
}

/// RFC5043-7.1-3, 11.1-2: one that does not speak DDP is refused, whoever begins.
#[test]
fn a_peer_without_the_indication_gets_no_association() {
    let words = ["--adaptation", "none"];
    let output = with_peer(
        "sctp-stranger",
        Family::V4,
        None,
        "connect",
        &words,
        |driver| {
            driver.until("a refused INIT", |driver| driver.inits_refused() > 0);
            driver.linger(Duration::from_millis(100));
            assert!(driver.events.is_empty(), "{:?}", driver.events);
        },
    );
    assert!(!output.contains("event=up"), "{output}");
}

/// What the peer does wrong on purpose, by its number (`tests/interop/sctp/README.md`), and what we say of it.
const BEFORE_THE_SESSION: [(u32, &str); 9] = [
    (1, "a DDP Segment came, where an Initiate may come"),
    (2, "Initiate has 513 bytes of private data"),
    (5, "3 bytes, too few for its header"),
    (6, "Enhanced Initiate has 2 bytes"),
    (7, "Accept came, where an Initiate may come"),
    (8, "Terminate came, where an Initiate may come"),
    (9, "function 0x9"),
    (10, "payload protocol 0;"),
    (4, ""),
];
const WITHIN_IT: [(u32, &str); 11] = [
    (11, "payload protocol 18;"),
    (12, "payload protocol 268435456;"),
    (13, "1 bytes, too few"),
    (16, "no place"),
    (17, "no place"),
    (
        20,
        "Initiate came, where a DDP Segment or a Terminate may come",
    ),
    (21, "Accept came"),
    (22, "Reject came"),
    (23, "function 0xff"),
    (24, "Terminate has"),
    (19, ""),
];
const AS_THE_ANSWER: [(u32, &str); 4] = [
    (50, "the Accept does not fit the Initiate"),
    (51, "Accept has 513 bytes"),
    (
        53,
        "Initiate came, where an Accept, a Reject or a Terminate may come",
    ),
    (54, "a DDP Segment came, where an Accept"),
];

/// Our end finds it; an ordered chunk, which has no words here, ends the association.
fn finds(driver: &mut Driver, words: &str) {
    driver.until("a violation", |driver| {
        let is_over = driver
            .events
            .iter()
            .any(|it| matches!(it, Event::Failed(_)));
        driver.violation.is_some() || is_over
    });
    match &driver.violation {
        Some(found) => assert!(!words.is_empty() && found.contains(words), "{found}"),
        None => return assert!(words.is_empty(), "{:?}", driver.events),
    }
    // The peer has more patience.
    driver.abort();
}

/// RFC5043-6.1-2, 5.2.3-3, 5.2.3-4, 10-1, 10-6; RFC6581-7.
#[test]
fn whatever_is_of_no_legal_sequence_ends_the_session() {
    let of = |number: u32| ["--wrong".to_owned(), number.to_string()];
    for (number, words) in BEFORE_THE_SESSION {
        let wrong = of(number);
        let wrong = [&wrong[0][..], &wrong[1]];
        let name = format!("sctp-wrong-{number}");
        let _ = with_peer(&name, Family::V4, None, "connect", &wrong, |driver| {
            finds(driver, words);
        });
    }
    for (number, words) in WITHIN_IT.into_iter().chain(AS_THE_ANSWER) {
        let wrong = of(number);
        let wrong = [&wrong[0][..], &wrong[1]];
        let name = format!("sctp-wrong-{number}");
        let _ = with_peer(&name, Family::V4, None, "listen", &wrong, |driver| {
            initiate(driver, &options(false), b"");
            finds(driver, words);
        });
    }
}
