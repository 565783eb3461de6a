//! What adopting pages costs, and giving them back: `cargo run --release -p rnic-adopt --example cost`.

use std::time::{Duration, Instant};

use rnic_adopt::Neighbours;

const ROUNDS: u32 = 15;

fn main() {
    println!("{:>12} {:>12} {:>12}", "bytes", "adopt, us", "back, us");
    for len in [64, 4096, 65_536, 1 << 20, 16 << 20, 256 << 20] {
        let (mut adopt, mut back) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let memory = vec![1_u8; len];
            let begun = Instant::now();
            let start = memory.as_ptr().expose_provenance();
            // SAFETY: the memory is dropped behind the pages.
            let place = unsafe { rnic_adopt::place(start, len, Neighbours::Exchanged) };
            let place = place.expect("memory of the heap");
            adopt.push(begun.elapsed());
            let begun = Instant::now();
            drop(place);
            back.push(begun.elapsed());
            assert!(memory.iter().all(|byte| *byte == 1));
        }
        println!("{len:>12} {:>12} {:>12}", median(adopt), median(back));
    }
}

fn median(mut times: Vec<Duration>) -> u128 {
    times.sort();
    times[times.len() / 2].as_micros()
}
