//! What the engine takes of a core without a kernel: two shards in one thread, joined by a link in memory. Or as many
//! threads as each host has shards. Beside them, what the processor needs for the CRC and the copy alone, without and
//! with the checksum.
//!
//!     memory engine --operation write --bytes 1048576 --mtu 1500 --seconds 2
//!     memory engine --operation write --bytes 1048576 --mtu 1500 --seconds 2 --shards 2
//!     memory idle   --seconds 2
//!     memory bare   --bytes 1460 --seconds 2
//!     memory verified --bytes 1460 --seconds 2
//!
//! One line of JSON comes out. `--messages N` in place of `--seconds S` does a fixed amount of work:
//! `scripts/instructions` counts its instructions, those of [`pair::poll_sender`] and of
//! [`pair::poll_receiver`] each by itself.

#![allow(clippy::unwrap_used, clippy::too_many_arguments)]

mod bare;
mod interleaver;
mod options;
mod pair;
mod places;
#[expect(dead_code, reason = "tests use more of it")]
#[path = "../../tests/shared/random.rs"]
mod random;
#[expect(dead_code, reason = "tests use more of it")]
#[path = "../../tests/two_shards/side.rs"]
mod side;
mod timed_port;

fn main() {
    // Cargo adds an option of its own to a benchmark's.
    let words = std::env::args().skip(1).filter(|word| word != "--bench");
    match options::parse(words) {
        Ok((options::Case::Engine, options)) => pair::run(&options),
        Ok((options::Case::Idle, options)) => pair::run_idle(&options),
        Ok((options::Case::Bare, options)) => bare::run(&options),
        Ok((options::Case::Verified, options)) => bare::run_verified(&options),
        Err(error) => {
            eprintln!("{error}\n{}", options::USAGE);
            std::process::exit(2);
        }
    }
}
