//! The segment parser: no panic, and what is read can be written and reads the same.
#![no_main]
#![allow(dead_code)]

#[path = "../../userspace-tcp/tests/fuzzing/body/mod.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::parsers::segment(bytes));
