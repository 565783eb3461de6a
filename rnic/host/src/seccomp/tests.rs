//! What a filter does to a thread, in processes of their own: those that it ends are not this one.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::thread::Builder;

use rnic_ipc::threads;

use super::*;

const SIGABRT: i32 = 6;
const SIGSYS: i32 = 31;
/// Set in the process that has the filter, to what it is to do.
const TRY: &str = "RNIC_TEST_FORBIDDEN";
const ENDED_WELL: i32 = 77;

/// Runs the named test of this module once more, where [`filtered`] does `what`.
fn elsewhere(test: &str, what: &str) -> Output {
    let name = format!("seccomp::tests::{test}");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(TRY, what)
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap()
}

/// In a process made by [`elsewhere`]: in a thread with a shard's filter, does what was said.
fn filtered() {
    let Ok(what) = std::env::var(TRY) else {
        return;
    };
    let worker = move || {
        install(&shard_rules(false)).unwrap();
        match what.as_str() {
            "socket" => drop(TcpListener::bind("127.0.0.1:0")),
            "program" => drop(Command::new("/bin/true").status()),
            "thread" => drop(threads::spawn(Builder::new(), || ()).is_ok()),
            "file" => {
                let error = std::fs::File::create("/tmp/rnic-never").unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            }
            "panic" => {
                let _bug = crate::EndProcess("thread of this test");
                panic!("planted");
            }
            "work" => work(),
            other => unreachable!("{other}"),
        }
    };
    let thread = threads::spawn(Builder::new(), worker).unwrap();
    let ended = thread.join();
    // The filter was that thread's alone.
    assert!(TcpListener::bind("127.0.0.1:0").is_ok());
    std::process::exit(if ended.is_ok() { ENDED_WELL } else { 1 });
}

/// What shards do beside their rings: memory of all sizes, maps, channels, time, log lines.
fn work() {
    let mut kept = Vec::new();
    for shift in 4..24 {
        kept.push(vec![1_u8; 1 << shift]);
        kept.push(vec![0; 3 << shift]);
        if shift % 3 == 0 {
            kept.remove(0);
        }
    }
    drop(kept);
    let map: std::collections::HashMap<u32, u32> = (0..1000).map(|key| (key, key)).collect();
    assert_eq!(map.len(), 1000);
    let (sender, receiver) = crossbeam::channel::bounded(1);
    sender.send(1).unwrap();
    assert_eq!(receiver.recv().unwrap(), 1);
    let soon = std::time::Duration::from_millis(1);
    assert!(receiver.recv_timeout(soon).is_err());
    std::thread::sleep(soon);
    eprintln!("worked");
}

#[test]
fn a_forbidden_call_ends_the_process_with_a_message_that_says_which() {
    filtered();
    let test = "a_forbidden_call_ends_the_process_with_a_message_that_says_which";
    let ended = elsewhere(test, "socket");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(SIGABRT), "{said}");
    let expected = "which its seccomp filter does not allow: ending the process";
    assert!(said.contains(expected), "{said}");
    let number = format!("system call {},", libc::SYS_socket);
    assert!(said.contains(&number), "{said}");
}

/// Around what makes programs and threads the C library blocks all signals, so that nobody is there to
/// say anything: the kernel ends the process.
#[test]
fn no_program_and_no_thread_is_started() {
    filtered();
    for what in ["program", "thread"] {
        let ended = elsewhere("no_program_and_no_thread_is_started", what);
        let signal = ended.status.signal();
        assert!(
            matches!(signal, Some(SIGSYS | SIGABRT)),
            "{what}: {ended:?}"
        );
    }
}

#[test]
fn a_file_can_not_be_opened_and_nothing_ends() {
    filtered();
    let ended = elsewhere("a_file_can_not_be_opened_and_nothing_ends", "file");
    assert_eq!(ended.status.code(), Some(ENDED_WELL), "{ended:?}");
}

#[test]
fn what_a_shard_needs_is_allowed_and_the_filter_is_its_threads_alone() {
    filtered();
    let test = "what_a_shard_needs_is_allowed_and_the_filter_is_its_threads_alone";
    let ended = elsewhere(test, "work");
    assert_eq!(ended.status.code(), Some(ENDED_WELL), "{ended:?}");
}

/// The message is that of the panic, and not of the filter that its backtrace would meet.
#[test]
fn a_panic_under_the_filter_still_says_what_it_was() {
    filtered();
    let ended = elsewhere("a_panic_under_the_filter_still_says_what_it_was", "panic");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(SIGABRT), "{said}");
    assert!(said.contains("planted"), "{said}");
    assert!(said.contains("thread of this test panicked"), "{said}");
    assert!(!said.contains("does not allow"), "{said}");
}
