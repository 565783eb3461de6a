//! What adopting pages costs, and giving them back, a fork(2) meanwhile, and what an access costs without it:
//! `cargo run --release -p rnic-adopt --example cost`.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rnic_adopt::{Needed, Neighbours};

const ROUNDS: u32 = 15;

fn main() {
    println!(
        "{:>12} {:>12} {:>12} {:>12} {:>12}",
        "bytes", "adopt, us", "back, us", "fork, us", "before, us"
    );
    for len in [64, 4096, 65_536, 1 << 20, 16 << 20, 256 << 20, 1 << 30] {
        let (mut adopt, mut back) = (Vec::new(), Vec::new());
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..if len < 1 << 30 { ROUNDS } else { 3 } {
            let memory = vec![1_u8; len];
            without.push(fork());
            let begun = Instant::now();
            let start = memory.as_ptr().expose_provenance();
            // SAFETY: the memory is dropped behind the pages.
            let place = unsafe {
                rnic_adopt::place(start, len, Needed::ReadAndWrite, Neighbours::Exchanged)
            };
            let place = place.expect("memory of the heap");
            adopt.push(begun.elapsed());
            with.push(fork());
            let begun = Instant::now();
            drop(place);
            back.push(begun.elapsed());
            assert!(memory.iter().all(|byte| *byte == 1));
        }
        let [adopt, back, with, without] = [adopt, back, with, without].map(median);
        println!("{len:>12} {adopt:>12} {back:>12} {with:>12} {without:>12}");
    }
    accesses();
}

/// How long this process is in fork(2).
fn fork() -> Duration {
    let begun = Instant::now();
    // SAFETY: the child ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let taken = begun.elapsed();
    let mut status = 0;
    // SAFETY: a child of this process.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child ends");
    taken
}

/// Writes into a buffer of 1 MiB: by a copy, as into adopted memory, and by `/proc/self/mem`.
fn accesses() {
    const COUNT: u32 = 200_000;
    let own = File::options().write(true).open("/proc/self/mem");
    let own = own.expect("a process may write its own memory");
    let mut memory = vec![0_u8; 1 << 20];
    println!("{:>12} {:>12} {:>12}", "bytes", "copy, ns", "mem, ns");
    for len in [64, 1448, 8948] {
        let bytes = vec![1_u8; len];
        let place = |round: u32| round as usize * 64 % ((1 << 20) - len);
        let begun = Instant::now();
        for round in 0..COUNT {
            memory[place(round)..][..len].copy_from_slice(black_box(&bytes));
        }
        let copied = begun.elapsed() / COUNT;
        let start = memory.as_mut_ptr().expose_provenance();
        let begun = Instant::now();
        for round in 0..COUNT {
            let at = (start + place(round)) as u64;
            own.write_all_at(&bytes, at).expect("mapped");
        }
        let written = begun.elapsed() / COUNT;
        println!(
            "{len:>12} {:>12} {:>12}",
            copied.as_nanos(),
            written.as_nanos()
        );
        black_box(&memory);
    }
}

fn median(mut times: Vec<Duration>) -> u128 {
    times.sort();
    times[times.len() / 2].as_micros()
}
