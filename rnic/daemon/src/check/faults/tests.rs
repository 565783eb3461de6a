use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::Parser;

use super::*;
use crate::cli::Cli;

/// What a thread without any capability finds for a daemon with these arguments and this socket.
#[track_caller]
fn told(socket: &Path, more: &[&str]) -> Vec<String> {
    let socket = socket.to_str().expect("a tempdir's name is text");
    let arguments = [&["rnicd", "--socket", socket], more].concat();
    let settings = Settings::new(&Cli::parse_from(arguments)).unwrap();
    std::thread::scope(|scope| {
        let checked = scope.spawn(|| {
            privileges::keep(CapabilitySet::empty()).expect("capabilities can be given up");
            faults(&settings)
        });
        let faults = checked.join().expect("no panic");
        faults.iter().map(ServeError::to_string).collect()
    })
}

#[track_caller]
fn assert_told(told: &[String], words: &[&str]) {
    assert_eq!(told.len(), words.len(), "{told:?}");
    for (line, words) in told.iter().zip(words) {
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn nothing_is_told_where_nothing_is_wrong_and_nothing_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let group = rustix::process::getegid().as_raw().to_string();
    let metrics = format!("unix:{}", directory.path().join("metrics.sock").display());
    let more = [
        "--loopback",
        "--socket-group",
        &group,
        "--metrics",
        &metrics,
    ];
    assert_told(&told(&directory.path().join("rnicd.sock"), &more), &[]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_sockets_directory_is_there_and_may_be_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("none/rnicd.sock");
    let words = "its directory can't be looked at: No such file";
    assert_told(&told(&nowhere, &["--loopback"]), &[words]);
    fs::set_permissions(directory.path(), Permissions::from_mode(0o555)).unwrap();
    let denied = directory.path().join("rnicd.sock");
    let words = "its directory can't be written to: Permission denied";
    assert_told(&told(&denied, &["--loopback"]), &[words]);
}

#[test]
fn a_daemon_that_answers_is_told_and_one_that_is_gone_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rnicd.sock");
    let listener = rnic_ipc::transport::ChannelListener::bind(&path, 4).unwrap();
    let words = "another rnicd answers there";
    assert_told(&told(&path, &["--loopback"]), &[words]);
    drop(listener);
    assert_told(&told(&path, &["--loopback"]), &[]);
    assert!(path.exists(), "a check removes nothing");
    fs::remove_file(&path).unwrap();
    fs::write(&path, "a file").unwrap();
    assert_told(&told(&path, &["--loopback"]), &["a file that is no socket"]);
}

#[test]
fn a_group_of_others_and_a_user_need_privilege() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("rnicd.sock");
    let more = ["--loopback", "--socket-group", "4242", "--user", "4242"];
    let words = ["can't switch to user uid 4242", "asked of group 4242"];
    assert_told(&told(&socket, &more), &words);
}

#[test]
fn a_place_for_metrics_that_somebody_has_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("rnicd.sock");
    let place = directory.path().join("metrics.sock");
    let listener = std::os::unix::net::UnixListener::bind(&place).unwrap();
    let metrics = format!("unix:{}", place.display());
    let more = ["--loopback", "--metrics", &metrics];
    assert_told(&told(&socket, &more), &["can't serve metrics at unix:"]);
    drop(listener);
    assert_told(&told(&socket, &more), &[]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = port.local_addr().unwrap().to_string();
    let more = ["--loopback", "--metrics", &metrics];
    assert_told(&told(&socket, &more), &["Address already in use"]);
}

#[test]
fn all_faults_are_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("none/rnicd.sock");
    let more = [
        "--interface",
        "nosuch0",
        "--no-wait",
        "--user",
        "4242",
        "--capture",
        "/nonexistent/a.pcapng",
        "--metrics",
        "unix:/nonexistent/metrics.sock",
    ];
    let told = told(&socket, &more);
    let first = [
        "can't switch to user",
        "can't listen on",
        "can't serve metrics",
        "/nonexistent/a.pcapng can't be written",
        "no such interface",
        "CAP_NET_RAW",
    ];
    assert_told(&told[..first.len().min(told.len())], &first);
}
