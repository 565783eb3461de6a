//! This process's memory by its own descriptor, and that of others.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::region::RegionMemory;
use rnic_proto::Gather;

/// Larger than what malloc keeps: it is unmapped when it is freed.
const LARGE: usize = 64 << 20;

fn memory_of(process: impl std::fmt::Display) -> Arc<OwnedFd> {
    let path = format!("/proc/{process}/mem");
    let file = std::fs::File::options().read(true).write(true).open(path);
    Arc::new(file.unwrap().into())
}

fn region(bytes: &[u8]) -> RegionMemory {
    let start = bytes.as_ptr().expose_provenance() as u64;
    let memory = RemoteMemory::new(memory_of("self"), start, bytes.len() as u64);
    RegionMemory::Remote(memory)
}

#[test]
fn what_is_written_is_there_and_is_read_back() {
    let bytes = vec![0_u8; 3 * 4096];
    let remote = region(&bytes);
    remote
        .write(4000, b"over a page's end, more than once")
        .unwrap();
    let pieces: Vec<&[u8]> = std::iter::repeat_n(&b"abc"[..], 150).collect();
    remote.write_bytes(5000, &Gather::new(&pieces)).unwrap();
    let mut out = [0; 33];
    remote.read(4000, &mut out).unwrap();
    assert_eq!(&out, b"over a page's end, more than once");
    let mut out = [0; 452];
    remote.read(4999, &mut out).unwrap();
    let wanted = [&[0], &b"abc".repeat(150)[..], &[0]].concat();
    assert_eq!(&out[..], &wanted[..]);
    assert!(!remote.is_broken());
    // As far as the compiler knows nobody has written to it.
    assert_eq!(std::hint::black_box(&bytes)[4000], b'o');
}

#[test]
fn words_are_put_among_what_is_read() {
    let bytes = b"0123456789abcdef".to_vec();
    let remote = region(&bytes);
    let words = Words::new(2, 8, 0x7778_797a, 0);
    let mut out = [0; 24];
    let checks = remote.read_checked(2, Some(5), &mut out, words).unwrap();
    assert_eq!(&out, b"23wxyz4567wxyz89abwxyzcd");
    assert_eq!(checks, rnic_crc::check(5, &out));
    assert!(remote.read_checked(5, Some(5), &mut out, words).is_err());
    assert!(!remote.is_broken());
}

#[test]
fn nothing_outside_is_reached() {
    let bytes = vec![0_u8; 8192];
    let remote = region(&bytes[1000..2000]);
    for (at, len) in [(0, 1001), (999, 2), (1000, 1), (u64::MAX, 1)] {
        assert!(remote.read(at, &mut vec![0; len]).is_err(), "{at} {len}");
        assert!(remote.write(at, &vec![0; len]).is_err(), "{at} {len}");
        let pieces = [&vec![0; len][..]];
        let gather = Gather::new(&pieces);
        assert!(remote.write_bytes(at, &gather).is_err(), "{at} {len}");
    }
    assert!(!remote.is_broken());
    assert!(remote.word(0).is_none(), "no atomics over a descriptor");
}

#[test]
fn memory_that_was_unmapped_is_found_to_be_gone() {
    let bytes = vec![1_u8; LARGE];
    let remote = region(&bytes);
    let mut out = [0; 5000];
    remote.read(LARGE as u64 / 2, &mut out).unwrap();
    let faults = rnic_ipc::shm::faults_contained();
    drop(bytes);
    assert_eq!(
        remote.read(LARGE as u64 / 2, &mut out),
        Err(RegionError::Broken)
    );
    assert!(remote.is_broken());
    assert!(rnic_ipc::shm::faults_contained() > faults);
    assert_eq!(
        remote.write(LARGE as u64 / 2, &out),
        Err(RegionError::Broken)
    );
}

/// A program that says when it runs, and becomes another one when told.
fn becomes_another() -> (Child, u64) {
    let mut child = Command::new("sh")
        .args(["-c", "echo here; read line; exec sleep 600"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
    let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
    let start = stack.split('-').next().unwrap();
    // Of the stack's first page nothing is in use, but it is mapped.
    (child, u64::from_str_radix(start, 16).unwrap())
}

#[test]
fn after_an_exec_or_the_end_nobodys_memory_is_reached() {
    for exec in [true, false] {
        let (mut child, start) = becomes_another();
        let memory = RemoteMemory::new(memory_of(child.id()), start, 4096);
        let remote = RegionMemory::Remote(memory);
        remote
            .write(0, b"as long as it is the same program")
            .unwrap();
        if exec {
            child.stdin.take().unwrap().write_all(b"go\n").unwrap();
            let name = format!("/proc/{}/comm", child.id());
            let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while std::fs::read_to_string(&name).unwrap().trim() != "sleep" {
                assert!(std::time::Instant::now() < end, "no exec");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        } else {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(remote.write(0, b"x"), Err(RegionError::Broken), "{exec}");
        assert!(remote.is_broken());
        let _ = child.kill();
        let _ = child.wait();
    }
}
