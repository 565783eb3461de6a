//! Programs of our own, built with the headers' inline functions, check what the verbs promise:
//!
//! - `semantics.c`: immediate data, inline data, invalidation, attributes, what is still used, and how what is
//!   not there fails;
//! - `backlog.c`: rsockets that are connected before they are accepted;
//! - `faulty.c`: a peer of an rsocket that sends what none sends;
//! - `identifiers.c`: second calls, ports, queue pairs and channels of identifiers, peers that do not wait;
//! - `joined.c` (of [`super::verbs_by_number`]): queue pairs that are joined by number;
//! - `mapped.c`: memory that an rsocket maps for its peer;
//! - `numbered.c`: queue pairs that are named by their number;
//! - `outcomes.c`: events and errors that programs are told, and when;
//! - `ports.c`: local ports;
//! - `requests.c`: lists of work requests, those made by calls, fences and memory windows;
//! - `resize.c`: completion queues that grow;
//! - `memory.c`: what happens to memory that is registered;
//! - `unreceived.c`: what the log says of a connection that the peer ends;
//! - `exits.c`: a program that ends with all it has;
//! - `signals.c`: a program that takes its signals itself;
//! - `loaded.cpp`: a C++ program that loads the libraries itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rnic::{AcceptOptions, ListenOptions};
use rnic_tests::daemon::DaemonOptions;
use rnic_tests::lab::{Family, INTERFACE};
use rnic_tests::programs::Programs;
use rnic_tests::verbs::Endpoint;
use rnic_tests::wait;
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(30);

pub(super) const C: (&str, &[&str]) = ("gcc", &["-libverbs", "-lrdmacm", "-pthread"]);
/// With nothing of the verbs but the headers.
const CPP_ALONE: (&str, &[&str]) = ("g++", &["-std=c++17", "-ldl"]);

pub(super) fn built(
    programs: &Programs,
    source: &str,
    (compiler, with): (&str, &[&str]),
) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("verbs");
    let program = programs.pair.lab.directory().join("program");
    let built = Command::new(compiler)
        .args(["-Wall", "-Werror"])
        .arg(sources.join(source))
        .arg("-o")
        .arg(&program)
        .args(with)
        .output();
    let built =
        built.unwrap_or_else(|error| panic!("can't run {compiler} (scripts/setup): {error}"));
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    program
}

/// Runs both ends of a program.
fn run(lab: &str, source: &str, compiler: (&str, &[&str])) {
    let programs = Programs::new(lab);
    let program = built(&programs, source, compiler);
    let end = |role: &str| format!("env {} {role} {}", program.display(), programs.address());
    let server = programs.on_b(&end("server")).spawn();
    programs.wait_for_listener();
    let client = programs.on_a(&end("client")).run();
    let server = server.finish(LIMIT);
    assert!(
        client.status.success() && server.status.success(),
        "{client}\n{server}"
    );
}

#[test]
fn the_verbs_keep_what_their_manual_pages_promise() {
    run("verbs-semantics", "semantics.c", C);
}

#[test]
fn an_identifier_without_a_queue_pair_is_connected_by_the_number_of_one() {
    run("verbs-numbered", "numbered.c", C);
}

#[test]
fn a_connection_comes_from_the_port_that_its_identifier_tells() {
    run("verbs-ports", "ports.c", C);
}

#[test]
fn lists_calls_fences_and_memory_windows_do_what_their_manual_pages_promise() {
    run("verbs-requests", "requests.c", C);
}

#[test]
fn a_completion_queue_grows_while_it_is_used_and_loses_nothing() {
    run("verbs-resize", "resize.c", C);
}

#[test]
fn a_cpp_program_that_loads_the_libraries_itself_finds_all_it_needs() {
    run("verbs-loaded", "loaded.cpp", CPP_ALONE);
}

#[test]
fn registered_memory_is_right_for_threads_children_and_when_it_is_mapped_again() {
    let programs = Programs::new("verbs-memory");
    let program = built(&programs, "memory.c", C);
    let address = programs.pair.b.address(Family::V4, 0).ip();
    let memory = programs.on_b(&format!("env {} {address}", program.display()));
    let memory = memory.spawn().finish(LIMIT);
    assert!(memory.status.success(), "{memory}");
    assert_eq!(programs.pair.daemon_b.counter("memory_faults"), 0);
}

/// Runs a program that is both ends; what the log has.
fn run_alone(lab: &str, source: &str) -> String {
    run_alone_at(lab, source, "warn")
}

/// The same with a level of the log.
fn run_alone_at(lab: &str, source: &str, level: &str) -> String {
    let programs = Programs::new(lab);
    let program = built(&programs, source, C);
    let (program, at) = (program.display(), programs.address());
    let line = format!("env RNIC_LOG={level} {program} {at}");
    programs.on_b(&line).spawn().finish(LIMIT).success().stderr
}

#[test]
fn identifiers_answer_second_calls_and_peers_that_go_as_the_kernels_do() {
    let log = run_alone("verbs-identifiers", "identifiers.c");
    let of_peers = ["rdma_accept: ", "rdma_reject: "];
    assert!(!of_peers.iter().any(|call| log.contains(call)), "{log}");
}

#[test]
fn an_rsocket_is_connected_before_it_is_accepted_and_says_nothing_of_options() {
    assert_eq!(run_alone("verbs-backlog", "backlog.c"), "");
}

#[test]
fn what_is_written_to_mapped_memory_lies_where_it_was_mapped_and_nowhere_else() {
    run_alone("verbs-mapped", "mapped.c");
}

#[test]
fn a_peer_that_is_no_rsocket_after_all_ends_its_connection_with_an_error() {
    run_alone("verbs-faulty", "faulty.c");
}

#[test]
fn programs_are_told_events_depths_and_errors_as_the_manual_pages_promise() {
    run_alone("verbs-outcomes", "outcomes.c");
}

#[test]
fn a_peer_that_does_not_answer_in_time_is_told_as_unreachable() {
    let soon = DaemonOptions {
        arguments: vec!["--answer-timeout".to_owned(), "1000".to_owned()],
        ..DaemonOptions::default()
    };
    let programs = Programs::with_each("verbs-unanswered", [&soon, &DaemonOptions::default()]);
    let program = built(&programs, "outcomes.c", C);
    let context = programs.pair.daemon_b.open();
    let at = programs.pair.b.address(Family::V4, 7471);
    let silent = context
        .listen(at, ListenOptions::default().backlog(1))
        .expect("a free address");
    let line = format!("env {} unanswered {}", program.display(), at.ip());
    drop(programs.on_a(&line).spawn().finish(LIMIT).success());
    drop(silent);
}

#[test]
fn a_connection_ends_with_its_queue_pair_whether_or_not_the_peer_answers() {
    let mut programs = Programs::new("verbs-silent");
    let program = built(&programs, "outcomes.c", C);
    let peer = Endpoint::new(&programs.pair.daemon_b, 4096);
    let at = programs.pair.b.address(Family::V4, 7471);
    let listener = peer.context.listen(at, ListenOptions::default());
    let listener = listener.expect("a free address");
    let line = format!("env {} silent {}", program.display(), at.ip());
    let (mut client, mut input, _output) = programs.on_a(&line).spawn_piped();
    let request = listener.accept().wait(LIMIT).expect("a request");
    let mut accepted = request.accept(&peer.qp, AcceptOptions::default());
    accepted.wait(LIMIT).expect("RDMA mode");
    client.says("connected", LIMIT).expect("it is connected");
    programs.pair.daemon_b.freeze();
    input.write_all(b"silent\n").expect("it reads");
    let ended = client.finish(LIMIT);
    programs.pair.daemon_b.signal(Signal::CONT);
    drop(ended.success());
}

/// What the log says of the connections that `unreceived.c` has ended: those of a Send without a receive, from
/// both sides, and those of others.
fn ends_told(level: &str) -> (usize, usize) {
    let log = run_alone_at(&format!("verbs-ends-{level}"), "unreceived.c", level);
    let ends = |word: &str| {
        let of_word = |line: &&str| line.contains(" ended: ") && line.contains(word);
        log.lines().filter(of_word).count()
    };
    let (unreceived, all) = (ends("no receive is posted"), ends("Terminate 0x"));
    (unreceived, all - unreceived)
}

#[test]
fn a_send_without_a_receive_is_told_and_other_terminates_to_who_asks() {
    assert_eq!(ends_told("warn"), (2, 0));
    assert_eq!(ends_told("info"), (2, 2));
}

/// Nobody has done anything wrong.
#[test]
fn a_program_that_ends_with_all_it_has_is_no_warning() {
    let programs = Programs::new("verbs-exits");
    let program = built(&programs, "exits.c", C);
    let daemon = &programs.pair.daemon_b;
    let address = programs.pair.b.address(Family::V4, 0).ip();
    let log_of = |way: &str| {
        let line = format!("env RNIC_LOG=warn {} {address} {way}", program.display());
        programs.on_b(&line).spawn().finish(LIMIT)
    };
    for way in ["return", "_exit", "kill"] {
        assert_eq!(log_of(way).stderr, "", "{way}");
    }
    // All is taken away, so that what was to be said of it is said.
    wait::until("the daemon has taken all away", LIMIT, || {
        let held = ["queue_pairs", "regions"].map(|name| daemon.counter(name));
        let gone = daemon.log().matches(" is gone: ").count() >= 3;
        (held == [0, 0] && gone).then_some(())
    });
    let log = daemon.log();
    assert!(!log.contains("[WARN"), "{log}");
}

#[test]
fn the_librarys_threads_leave_signals_to_the_program() {
    run_alone("verbs-signals", "signals.c");
}

#[test]
fn the_threads_of_an_rnic_in_the_program_leave_signals_to_it() {
    let mut programs = Programs::new("verbs-signals-in");
    let program = built(&programs, "signals.c", C);
    programs.pair.daemon_b.signal(Signal::TERM);
    let socket = programs.pair.daemon_b.socket().to_owned();
    wait::until("the daemon is gone", LIMIT, || {
        (!socket.exists()).then_some(())
    });
    let host = programs.pair.b.namespace.clone();
    let variable = format!("RNIC_EMBEDDED={INTERFACE}");
    let line = format!("env {} {}", program.display(), programs.address());
    let embedded = programs.with(&host, &variable, &line).spawn();
    drop(embedded.finish(LIMIT).success());
}

/// A peer of the kernel's TCP that sends a whole Request.
fn ask(to: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect_timeout(&to, LIMIT).expect("a listener");
    stream
        .write_all(b"MPA ID Req Frame\x40\x01\0\0")
        .expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    stream
}

#[test]
fn a_program_that_does_not_look_at_its_requests_holds_a_backlog_of_them_at_most() {
    let programs = Programs::new("verbs-unread");
    let program = built(&programs, "semantics.c", C);
    let line = format!("env {} unread {}", program.display(), programs.address());
    let mut server = programs.on_b(&line).spawn();
    programs.wait_for_listener();
    let to = programs.pair.b.address(Family::V4, 7471);
    let mut honest = programs.pair.a.namespace.in_thread(|| {
        for _ in 0..200 {
            let stream = ask(to);
            // A reset when it is closed.
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))
                .expect("a socket");
        }
        ask(to)
    });
    server.signal(Signal::USR1);
    let mut answer = [0; 20];
    honest.read_exact(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"MPA ID Rep Frame"), "{answer:?}");
    let server = server.finish(LIMIT);
    assert!(server.status.success(), "{server}");
}
