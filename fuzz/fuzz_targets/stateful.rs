//! A connection with a peer, a layer above and a clock that do what the input says.
#![no_main]
#![allow(dead_code)]

#[path = "../../userspace-tcp/tests/fuzzing/body/mod.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::stateful::run(bytes));
