//! Two stacks, and an attacker that sends what the input says.
#![no_main]
#![allow(dead_code)]

#[path = "../../userspace-sctp/tests/fuzzing/body/mod.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::attack::run(bytes);
});
