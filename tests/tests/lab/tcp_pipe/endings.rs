//! Connections that don't come about, and those that end badly: what the peer sees, what our user
//! is told, and that nothing is left behind.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rnic_tests::daemon::assert_nothing_attached;
use rnic_tests::lab::{Family, INTERFACE, Signal};

use super::pipe::{PORT, Role, command, connect, hosts, joined};

/// That the peer's end was reset.
fn assert_reset(mut stream: TcpStream) {
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

#[test]
fn a_refused_connection_is_told_at_once() {
    let (_lab, us, them) = hosts("pipe-refused");
    for family in Family::ALL {
        let begin = Instant::now();
        let mut pipe = connect(&us, them.address(family, PORT), &[]);
        assert_eq!(pipe.read_to_end(), b"");
        let told = pipe.finish().failure();
        assert!(told.contains("refused the connection"), "{told}");
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
    assert_nothing_attached(&us.namespace, INTERFACE);
}

#[test]
fn figures_that_can_not_be_written_hide_no_reason() {
    let (_lab, us, them) = hosts("pipe-no-figures");
    let to = them.address(Family::V4, PORT);
    let pipe = connect(&us, to, &["--stats", "/nowhere/figures"]);
    let told = pipe.finish().failure();
    assert!(told.contains("refused the connection"), "{told}");
    assert!(told.contains("--stats"), "{told}");
}

#[test]
fn nobody_at_the_address_is_told_in_time() {
    let (_lab, us, them) = hosts("pipe-nobody");
    let to = format!("{}77:{PORT}", them.v4.to_string().trim_end_matches('2'));
    let told = command(&us, &["--connect", &to]).run().failure();
    assert!(told.contains("did not answer"), "{told}");

    // A neighbour that takes frames and never answers.
    let mac = ["lladdr", "02:00:00:00:00:77", "dev", INTERFACE];
    let silent = to.split(':').next().unwrap();
    us.namespace
        .ip(&[&["neigh", "replace", silent][..], &mac].concat());
    let begin = Instant::now();
    let told = command(&us, &["--connect", &to, "--connect-timeout", "1500ms"])
        .run()
        .failure();
    assert!(told.contains("did not answer within"), "{told}");
    assert!((1500..30_000).contains(&begin.elapsed().as_millis()));
}

#[test]
fn what_can_not_be_is_refused_with_advice() {
    let (_lab, us, them) = hosts("pipe-wrong");
    let at = us.address(Family::V4, PORT).to_string();
    let theirs = them.address(Family::V4, PORT).to_string();
    for (arguments, advice) in [
        (vec!["--listen", &theirs], "has only"),
        (vec!["--listen", "0.0.0.0:4000"], "has only"),
        (vec!["--connect", "203.0.113.1:80"], "ip route get"),
        (
            vec!["--connect", &theirs, "--window", "900M", "--mss", "200"],
            "smaller --window",
        ),
        (
            vec![
                "--connect",
                &theirs,
                "--queue-segments",
                "18446744073709551615",
            ],
            "--queue-segments",
        ),
        (
            vec!["--connect", &theirs, "--queue-segments", "0"],
            "--queue-segments",
        ),
    ] {
        let told = command(&us, &arguments).run().failure();
        assert!(told.contains(advice), "{arguments:?}: {told}");
    }
    let taken = us
        .namespace
        .in_thread(|| std::net::TcpListener::bind(&at).unwrap());
    let told = command(&us, &["--listen", &at]).run().failure();
    assert!(told.contains("choose another port"), "{told}");
    drop(taken);
    let nowhere = us
        .namespace
        .command(rnic_tests::binary::path("tcp-pipe"))
        .args(["--interface", "nothere", "--listen", &at]);
    let told = nowhere.run().failure();
    assert!(told.contains("nothere"), "{told}");
}

#[test]
fn a_reset_by_the_peer_is_an_error_and_what_came_before_is_delivered() {
    let (_lab, us, them) = hosts("pipe-reset");
    for role in Role::BOTH {
        let (mut pipe, mut stream) = joined(&us, &them, Family::V4, role, &[]);
        stream.write_all(b"last words").unwrap();
        assert_eq!(pipe.read_exact(10), b"last words");
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        assert_eq!(pipe.read_to_end(), b"");
        let told = pipe.finish().failure();
        assert!(told.contains("the peer reset the connection"), "{told}");
        assert!(told.contains("10 received"), "{told}");
    }
}

#[test]
fn a_peer_that_closes_early_ends_us() {
    let (_lab, us, them) = hosts("pipe-early");
    let (mut pipe, mut stream) = joined(&us, &them, Family::V4, Role::Connects, &[]);
    let mut stdin = pipe.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Until tcp-pipe is gone.
            while stdin.write_all(&[7; 100_000]).is_ok() {}
        });
        stream.read_exact(&mut [0; 100_000]).unwrap();
        drop(stream);
        let told = pipe.finish().failure();
        assert!(told.contains("the peer reset the connection"), "{told}");
    });
}

/// Only an answer to a question tells a peer that closed both ways from one that goes on reading.
#[test]
fn a_peer_that_closed_both_ways_ends_us_while_standard_input_is_open() {
    let (_lab, us, them) = hosts("pipe-both-ways");
    // How long Linux answers for a program that is gone.
    them.namespace.sysctl("net.ipv4.tcp_fin_timeout", "1");
    for role in Role::BOTH {
        let more = ["--keepalive", "1s"];
        let (mut pipe, mut stream) = joined(&us, &them, Family::V4, role, &more);
        pipe.write(b"all of it");
        stream.read_exact(&mut [0; 9]).unwrap();
        stream.write_all(b"last words").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(pipe.read_to_end(), b"last words");
        // It has closed one way only, and we go on.
        std::thread::sleep(Duration::from_secs(3));
        pipe.write(b"more");
        stream.read_exact(&mut [0; 4]).unwrap();
        drop(stream);
        let _ = pipe.finish().success();
    }
}

#[test]
fn a_signal_resets_the_connection_and_leaves_nothing() {
    let (_lab, us, them) = hosts("pipe-signal");
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let (mut pipe, mut stream) = joined(&us, &them, Family::V4, Role::Connects, &[]);
        stream.write_all(b"x").unwrap();
        pipe.read_exact(1);
        pipe.process.signal(signal);
        let finished = pipe.finish();
        assert_eq!(finished.status.code(), Some(status), "{finished}");
        assert_reset(stream);
        assert_nothing_attached(&us.namespace, INTERFACE);
    }
    // While nobody has come yet.
    let mut pipe = super::pipe::listen(&us, us.address(Family::V4, PORT), &[]);
    pipe.process.signal(Signal::TERM);
    assert_eq!(pipe.finish().status.code(), Some(143));
}

#[test]
fn a_closed_standard_output_resets_the_connection() {
    let (_lab, us, them) = hosts("pipe-sigpipe");
    let (mut pipe, mut stream) = joined(&us, &them, Family::V4, Role::Listens, &[]);
    pipe.stdout = None;
    while stream.write_all(&[1; 10_000]).is_ok() {}
    let told = pipe.finish().failure();
    assert!(told.contains("standard output can't be written"), "{told}");
}

#[test]
fn a_peer_that_falls_silent_is_given_up() {
    let (_lab, us, them) = hosts("pipe-silent");
    let more = ["--user-timeout", "2s"];
    let (mut pipe, mut stream) = joined(&us, &them, Family::V4, Role::Connects, &more);
    pipe.write(b"are you there?");
    stream.read_exact(&mut [0; 14]).unwrap();
    them.namespace
        .ip(&["link", "set", "dev", INTERFACE, "down"]);
    pipe.write(b"are you still there?");
    let begin = Instant::now();
    let told = pipe.finish().failure();
    assert!(told.contains("acknowledged nothing"), "{told}");
    assert!(told.contains("the Ethernet address of 198.18"), "{told}");
    assert!(begin.elapsed() < Duration::from_secs(30));
}
