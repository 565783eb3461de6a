//! Any bytes as a peer's stream, cut anywhere and presented in any order. The queue pair has memory, receives
//! and Reads.
#![no_main]
#![allow(dead_code)]

#[path = "../../rnic/engine/tests/fuzzing/body/mod.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::stream::run(bytes));
