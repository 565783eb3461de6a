//! State Cookies: only bytes that were made with the secret are accepted.
#![no_main]
#![allow(dead_code)]

#[path = "../../userspace-sctp/tests/fuzzing/body/mod.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::parsers::cookie(bytes));
