//! How much memory the host has left.

use std::io::Read;

/// Bytes that can be taken without swapping (`MemAvailable` of proc_meminfo(5)); none where it can't be
/// read.
pub fn available() -> Option<u64> {
    let mut text = [0; 512];
    let mut file = std::fs::File::open("/proc/meminfo").ok()?;
    let count = file.read(&mut text).ok()?;
    parse(std::str::from_utf8(text.get(..count)?).ok()?)
}

fn parse(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_memory() {
        let text = "MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:    12 kB\nBuffers:  1 kB\n";
        assert_eq!(parse(text), Some(12 << 10));
        assert_eq!(parse("MemTotal: 9 kB\n"), None);
        assert!(available().unwrap() > 1 << 20);
    }
}
