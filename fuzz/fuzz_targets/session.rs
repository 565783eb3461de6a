//! Any messages as a peer's DDP Stream Session over SCTP, in any order, with chunks of SCTP's own between them. The queue
//! pair has memory, receives and Reads.
#![no_main]
#![allow(dead_code)]

#[path = "../../rnic/engine/tests/fuzzing/body/mod.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::session::run(bytes);
});
