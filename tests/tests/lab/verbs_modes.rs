//! Programs of the verbs without two daemons: over the loopback, with the RNIC in the program, and when their
//! daemon or their peer is killed.

use std::fs;
use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Finished, INTERFACE, Process};
use rnic_tests::programs::Programs;
use rnic_tests::{binary, wait};

/// How soon a program must know that its RNIC or its peer is gone.
const NOTICE: Duration = Duration::from_secs(30);

/// Runs a client until one finds its server, which takes a moment to listen.
fn until_it_connects(what: &str, client: impl Fn() -> Finished) {
    wait::until(what, Duration::from_secs(30), || {
        let finished = client();
        finished.status.success().then_some(())
    });
}

#[test]
fn two_programs_of_one_host_meet_by_the_loopback() {
    let programs = Programs::new("verbs-loopback");
    let host = &programs.pair.a.namespace;
    let socket = programs.pair.lab.directory().join("loopback.sock");
    let command = host
        .command(binary::path("rnicd"))
        .args(["--loopback", "--socket"])
        .arg(&socket);
    let daemon = Daemon::started(command, host, &socket, None);
    let variable = format!("RNIC_SOCKET={}", socket.display());
    let run = |line: &str| programs.with(host, &variable, line);
    for address in ["127.0.0.1", "::1"] {
        let server = run(&format!("rping -s -a {address} -C 5 -V")).spawn();
        let client = format!("rping -c -I {address} -a {address} -C 5 -V");
        until_it_connects("rping's server listens", || run(&client).run());
        let _ = server.finish(NOTICE).success();
    }
    wait::until("no connection is left", NOTICE, || {
        (daemon.live_connections() == 0).then_some(())
    });
}

#[test]
fn a_program_reaches_itself_by_an_address_of_its_interface() {
    let programs = Programs::new("verbs-self");
    let address = programs.pair.b.v4;
    let server = programs
        .on_b(&format!("rping -s -a {address} -C 5 -V -S 1000"))
        .spawn();
    programs.wait_for_listener();
    let client = programs.on_b(&format!("rping -c -a {address} -C 5 -V -S 1000"));
    let _ = client.run().success();
    let _ = server.finish(NOTICE).success();
}

#[test]
fn the_rnic_may_be_in_the_program() {
    let programs = Programs::new("verbs-embedded");
    let address = programs.pair.b.v4;
    let (a, b) = (
        programs.pair.a.namespace.clone(),
        programs.pair.b.namespace.clone(),
    );
    let Programs { pair, .. } = &programs;
    for daemon in [&pair.daemon_a, &pair.daemon_b] {
        let pid = rustix::process::Pid::from_raw(daemon.id().cast_signed());
        let pid = pid.expect("it runs");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    }
    wait::until("the daemons are gone", NOTICE, || {
        let gone = |daemon: &Daemon| !daemon.socket().exists();
        (gone(&pair.daemon_a) && gone(&pair.daemon_b)).then_some(())
    });
    let variable = format!("RNIC_EMBEDDED={INTERFACE}");
    let line = format!("rping -s -a {address} -C 5 -V -S 1000");
    let server = programs.with(&b, &variable, &line).spawn();
    let client = format!("rping -c -a {address} -C 5 -V -S 1000");
    until_it_connects("the embedded server listens", || {
        programs.with(&a, &variable, &client).run()
    });
    let _ = server.finish(NOTICE).success();
}

/// rping without an end, well under way: the server and the client.
fn endless(programs: &Programs) -> (Process, Process) {
    let address = programs.address();
    let server = programs.on_b(&format!("rping -s -a {address}")).spawn();
    programs.wait_for_listener();
    let mut client = programs.on_a(&format!("rping -c -a {address}")).spawn();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(client.running(), "{}", client.stderr());
    (server, client)
}

#[test]
fn a_program_whose_daemon_is_killed_ends() {
    let mut programs = Programs::new("verbs-daemon-killed");
    let (server, client) = endless(&programs);
    let (socket, options) = (
        programs.pair.daemon_a.socket().to_path_buf(),
        DaemonOptions::default(),
    );
    let pid = rustix::process::Pid::from_raw(programs.pair.daemon_a.id().cast_signed());
    rustix::process::kill_process(pid.expect("it runs"), rustix::process::Signal::KILL)
        .expect("it is ours");
    let ended = client.finish(NOTICE);
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("the RNIC of"), "{said}");
    let _ = server.finish(NOTICE);
    // The next program works with the next daemon.
    fs::remove_file(&socket).ok();
    let host = programs.pair.a.namespace.clone();
    programs.pair.daemon_a = Daemon::serve(&host, INTERFACE, &socket, &options);
    let address = programs.address();
    let client = format!("rping -c -a {address} -C 5");
    drop(
        programs
            .run(&format!("rping -s -a {address} -C 5"), &client)
            .success(),
    );
}

#[test]
fn a_program_whose_peer_is_killed_ends() {
    let programs = Programs::new("verbs-peer-killed");
    let (server, mut client) = endless(&programs);
    client.kill();
    let said = server.finish(NOTICE);
    let said = format!("{}{}", said.stdout, said.stderr);
    assert!(said.contains("DISCONNECT"), "{said}");
    wait::until("nothing is left of it", NOTICE, || {
        (programs.pair.daemon_a.live_connections() == 0).then_some(())
    });
}
