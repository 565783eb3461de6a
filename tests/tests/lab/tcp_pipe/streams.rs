//! Bytes both ways, small and large, and the ends of each direction.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use rnic_tests::lab::{Family, Host, INTERFACE};
use rnic_tests::pattern::Pattern;
use rnic_tests::stream;

use super::pipe::{PORT, Role, hosts, hosts_of_mtu, joined, listen};

/// Bytes each way.
const LENGTH: usize = 5_000_011;

#[test]
fn both_directions_arrive_whole_in_both_roles_over_both_families() {
    let (lab, us, them) = hosts("pipe-both");
    for family in Family::ALL {
        for role in Role::BOTH {
            let stats = lab.directory().join("stats.json");
            let more = ["--stats", stats.to_str().unwrap()];
            let (mut pipe, stream) = joined(&us, &them, family, role, &more);
            let (from_us, to_us) = (Pattern::bytes(1, LENGTH), Pattern::bytes(2, LENGTH));
            std::thread::scope(|scope| {
                scope.spawn(|| stream::both_ways(stream, &to_us, &from_us));
                let got = pipe.both_ways(&from_us);
                assert!(
                    got == to_us,
                    "{family:?} {role:?}: bytes changed on their way"
                );
            });
            let _ = pipe.finish().success();
            let text = std::fs::read_to_string(&stats).unwrap();
            let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(stats["ok"], true, "{text}");
            assert_eq!(stats["bytes_sent"], LENGTH, "{text}");
            assert_eq!(stats["bytes_received"], LENGTH, "{text}");
            assert!(stats["tcp"]["segments_out"].as_u64() > Some(3000), "{text}");
        }
    }
}

#[test]
fn generic_mode_moves_bytes_too() {
    let (_lab, us, them) = hosts("pipe-generic");
    moves_both_ways(&us, &them, &["--mode", "generic"]);
}

#[test]
fn large_frames_move_bytes_too() {
    let (_lab, us, them) = hosts_of_mtu("pipe-jumbo", 9000);
    moves_both_ways(&us, &them, &[]);
}

#[test]
fn bytes_move_by_bbr_too() {
    let (_lab, us, them) = hosts("pipe-bbr");
    moves_both_ways(&us, &them, &["--congestion", "bbr"]);
}

fn moves_both_ways(us: &Host, them: &Host, more: &[&str]) {
    let (mut pipe, stream) = joined(us, them, Family::V4, Role::Connects, more);
    let (from_us, to_us) = (Pattern::bytes(1, LENGTH), Pattern::bytes(2, LENGTH));
    std::thread::scope(|scope| {
        scope.spawn(|| stream::both_ways(stream, &to_us, &from_us));
        assert!(pipe.both_ways(&from_us) == to_us);
    });
    let _ = pipe.finish().success();
}

#[test]
fn the_end_of_standard_input_leaves_the_other_direction_open() {
    let (_lab, us, them) = hosts("pipe-our-end");
    let (mut pipe, mut stream) = joined(&us, &them, Family::V4, Role::Connects, &[]);
    pipe.write(b"a question");
    pipe.end();
    let mut question = Vec::new();
    stream.read_to_end(&mut question).unwrap();
    assert_eq!(question, b"a question");
    let answer = Pattern::bytes(3, 1_000_000);
    std::thread::sleep(Duration::from_millis(200));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stream.write_all(&answer).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        assert!(pipe.read_to_end() == answer);
    });
    let _ = pipe.finish().success();
}

#[test]
fn the_peers_end_leaves_our_direction_open() {
    let (_lab, us, them) = hosts("pipe-their-end");
    let (mut pipe, mut stream) = joined(&us, &them, Family::V6, Role::Listens, &[]);
    stream.write_all(b"all I have").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(pipe.read_to_end(), b"all I have", "standard output ends");
    let bytes = Pattern::bytes(4, 1_000_000);
    std::thread::sleep(Duration::from_millis(200));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pipe.write(&bytes);
            pipe.end();
        });
        let mut found = Vec::new();
        stream.read_to_end(&mut found).unwrap();
        assert!(found == bytes);
    });
    let _ = pipe.finish().success();
}

#[test]
fn an_answer_to_a_small_write_comes_at_once() {
    let (_lab, us, them) = hosts("pipe-interactive");
    for role in Role::BOTH {
        let (mut pipe, mut stream) = joined(&us, &them, Family::V4, role, &[]);
        let mut rounds = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut line = [0; 20];
                while stream.read_exact(&mut line).is_ok() {
                    stream.write_all(&line).unwrap();
                }
            });
            for round in 0..200 {
                let line = format!("round {round:13}\n");
                let begin = Instant::now();
                pipe.write(line.as_bytes());
                assert_eq!(pipe.read_exact(20), line.as_bytes());
                rounds.push(begin.elapsed());
            }
            pipe.end();
        });
        let _ = pipe.finish().success();
        rounds.sort();
        // A delayed acknowledgment that holds something back would be in each round, and takes 40 ms
        // at least; other programs may have the cores in most rounds, but not in nearly all.
        let quick = rounds[20];
        assert!(
            quick < Duration::from_millis(30),
            "only 20 of 200 rounds took less than {quick:?}"
        );
    }
}

#[test]
fn one_direction_alone() {
    let (_lab, us, them) = hosts("pipe-one-way");
    let bytes = Pattern::bytes(5, 300_000);
    let (mut pipe, mut stream) = joined(&us, &them, Family::V4, Role::Connects, &["--recv-only"]);
    stream.write_all(&bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(pipe.read_to_end() == bytes);
    let mut nothing = Vec::new();
    stream.read_to_end(&mut nothing).unwrap();
    assert_eq!(nothing, b"");
    let _ = pipe.finish().success();

    let (mut pipe, mut stream) = joined(&us, &them, Family::V4, Role::Listens, &["--send-only"]);
    std::thread::scope(|scope| {
        let mut other = stream.try_clone().unwrap();
        scope.spawn(move || other.write_all(&[0x55; 300_000]).unwrap());
        pipe.write(&bytes);
        pipe.end();
        let mut found = Vec::new();
        stream.read_to_end(&mut found).unwrap();
        assert!(found == bytes);
    });
    drop(stream);
    assert_eq!(pipe.read_to_end(), b"");
    let _ = pipe.finish().success();
}

#[test]
fn a_second_listener_has_the_port_right_after_the_first() {
    let (_lab, us, them) = hosts("pipe-again");
    for _ in 0..3 {
        let (mut pipe, stream) = joined(&us, &them, Family::V4, Role::Listens, &[]);
        pipe.end();
        stream::both_ways(stream, b"", b"");
        let _ = pipe.finish().success();
    }
}

#[test]
fn only_one_peer_is_served() {
    let (_lab, us, them) = hosts("pipe-one-peer");
    let at = us.address(Family::V4, PORT);
    let (mut pipe, stream) = joined(&us, &them, Family::V4, Role::Listens, &[]);
    let second = them
        .namespace
        .in_thread(|| std::net::TcpStream::connect_timeout(&at, Duration::from_secs(30)));
    let error = second.unwrap_err();
    assert_eq!(
        error.kind(),
        std::io::ErrorKind::ConnectionRefused,
        "{error}"
    );
    pipe.end();
    stream::both_ways(stream, b"", b"");
    let _ = pipe.finish().success();
    drop(listen(&us, at, &[]));
}

#[test]
fn segments_to_a_peer_that_came_are_as_small_as_the_route_to_it_says() {
    let (lab, us, them) = hosts("pipe-route");
    for (family, peer, headers) in [
        (Family::V4, them.v4.to_string(), 20 + 20 + 12),
        (Family::V6, them.v6.to_string(), 40 + 20 + 12),
    ] {
        us.namespace
            .ip(&["route", "replace", &peer, "dev", INTERFACE, "mtu", "1300"]);
        let stats = lab.directory().join("stats.json");
        let more = ["--stats", stats.to_str().unwrap()];
        let (mut pipe, mut stream) = joined(&us, &them, family, Role::Listens, &more);
        // The end that closes first knows the connection for longer.
        pipe.end();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        drop(stream);
        assert_eq!(pipe.read_to_end(), b"");
        let _ = pipe.finish().success();
        let text = std::fs::read_to_string(&stats).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(stats["tcp"]["mss"], 1300 - headers, "{text}");
    }
}
