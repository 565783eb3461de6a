//! The options parser, with all of the input as the option field.
#![no_main]
#![allow(dead_code)]

#[path = "../../userspace-tcp/tests/fuzzing/body/mod.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::parsers::options(bytes));
