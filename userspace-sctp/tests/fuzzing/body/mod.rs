//! What the fuzz targets do with bytes. The targets of `fuzz/` call it, and so does an ordinary test, with random bytes
//! and with the corpus.

pub mod attack;
mod attacker;
#[path = "../../../../userspace-tcp/tests/fuzzing/body/input.rs"]
mod input;
pub mod parsers;

/// A packet of chunks that are written already, with its checksum.
fn packet(source: u16, destination: u16, tag: u32, chunks: &[u8]) -> Vec<u8> {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    let mut bytes = [&ports, &tag.to_be_bytes()[..], &[0; 4], chunks].concat();
    let crc = rnic_crc::append(0, &bytes);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn chunk(kind: u8, flags: u8, len: u16, value: &[u8]) -> Vec<u8> {
    let [a, b] = len.to_be_bytes();
    let mut bytes = [&[kind, flags, a, b], value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
