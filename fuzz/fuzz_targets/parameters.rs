//! The parameters of an INIT: read, written again, and answered by a listener.
#![no_main]
#![allow(dead_code)]

#[path = "../../userspace-sctp/tests/fuzzing/body/mod.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::parsers::parameters(bytes));
