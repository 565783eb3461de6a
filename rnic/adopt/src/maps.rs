//! What is mapped in a range of this process: the lines of `/proc/self/maps` (proc_pid_maps(5)).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use rustix::io::Errno;

use crate::{NotAdopted, host};

/// A part of a range that is mapped in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Addresses.
    pub(crate) range: Range<usize>,
    pub(crate) what: What,
}

/// What a part is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Private pages of no file, for reading and writing.
    Private,
    /// A shared mapping of a file, for reading and writing.
    Shared {
        device: u64,
        inode: u64,
        /// Of the part's first byte.
        offset: u64,
    },
    /// Neither: what, for people.
    Other(&'static str),
}

/// The parts of `range`, which has no gap.
pub(crate) fn parts(range: &Range<usize>) -> Result<Vec<Part>, NotAdopted> {
    let parts = present(range)?;
    let mut at = range.start;
    for part in &parts {
        if part.range.start != at {
            return Err(NotAdopted::NotMapped);
        }
        at = part.range.end;
    }
    if at != range.end {
        return Err(NotAdopted::NotMapped);
    }
    Ok(parts)
}

/// The parts of `range` that are mapped at all.
pub(crate) fn present(range: &Range<usize>) -> Result<Vec<Part>, NotAdopted> {
    let failed = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        host("read of /proc/self/maps")(errno)
    };
    let file = File::open("/proc/self/maps").map_err(failed)?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = String::new();
    let mut parts = Vec::new();
    while reader.read_line(&mut line).map_err(failed)? > 0 {
        match parse(&line) {
            Some((mapped, _)) if mapped.start >= range.end => break,
            Some((mapped, what)) => parts.extend(part(&mapped, what, range)),
            None => {}
        }
        line.clear();
    }
    Ok(parts)
}

/// Whether half of the mappings that the kernel allows are there.
pub(crate) fn are_many() -> bool {
    const DEFAULT: usize = 65_530;
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let most = most.ok().and_then(|text| text.trim().parse().ok());
    let found = std::fs::read("/proc/self/maps").unwrap_or_default();
    let found = found.iter().filter(|byte| **byte == b'\n').count();
    found > most.unwrap_or(DEFAULT) / 2
}

/// What of a mapping is in a range.
fn part(mapped: &Range<usize>, what: What, wanted: &Range<usize>) -> Option<Part> {
    let range = mapped.start.max(wanted.start)..mapped.end.min(wanted.end);
    let before = range.start.saturating_sub(mapped.start) as u64;
    let what = match what {
        What::Shared {
            device,
            inode,
            offset,
        } => What::Shared {
            device,
            inode,
            offset: offset + before,
        },
        what => what,
    };
    (!range.is_empty()).then_some(Part { range, what })
}

/// What a line tells of.
fn parse(line: &str) -> Option<(Range<usize>, What)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let hex = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let rights = fields.next()?;
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next().unwrap_or("");
    let what = match (rights, inode, name) {
        ("rw-p", 0, "[stack]") => What::Other("the main thread's stack"),
        ("rw-p", 0, "" | "[heap]") => What::Private,
        ("rw-p", 0, name) if name.starts_with("[anon:") => What::Private,
        ("rw-s", 1.., _) => What::Shared {
            device,
            inode,
            offset,
        },
        ("rw-p", 1.., _) => What::Other("a private mapping of a file"),
        (rights, ..) if !rights.starts_with("rw") => What::Other("not for reading and writing"),
        _ => What::Other("a special mapping"),
    };
    Some((start..end, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(line: &str) -> Option<What> {
        parse(line).map(|(_, what)| what)
    }

    #[test]
    fn lines_are_what_they_say() {
        assert_eq!(
            what("2000-3000 rw-p 00000000 00:00 0 "),
            Some(What::Private)
        );
        assert_eq!(
            what("2000-3000 rw-p 00000000 00:00 0                [heap]"),
            Some(What::Private)
        );
        assert_eq!(
            what("2000-3000 rw-p 00000000 00:00 0                [anon: glibc: malloc]"),
            Some(What::Private)
        );
        for other in [
            "2000-3000 rw-p 00000000 00:00 0                     [stack]",
            "2000-3000 rw-p 00001000 fe:00 17                    /lib/libc.so.6",
            "2000-3000 r--p 00000000 00:00 0 ",
            "2000-3000 ---p 00000000 00:00 0 ",
            "2000-3000 rwxp 00000000 00:00 0 ",
            "2000-3000 rw-p 00000000 00:0f 1034                  /anon_hugepage (deleted)",
        ] {
            assert!(matches!(what(other), Some(What::Other(_))), "{other}");
        }
        for none in ["", "nonsense", "0-1000 rw-p"] {
            assert_eq!(what(none), None, "{none}");
        }
    }

    #[test]
    fn an_offset_is_that_of_the_part_s_first_byte() {
        let line = "0-3000 rw-s 00005000 00:01 77                       /memfd:x (deleted)";
        let (mapped, what) = parse(line).unwrap();
        assert_eq!(part(&mapped, what.clone(), &(0x3000..0x9000)), None);
        let part = part(&mapped, what, &(0x1000..0x9000)).unwrap();
        assert_eq!(part.range, 0x1000..0x3000);
        let (device, inode, offset) = (rustix::fs::makedev(0, 1), 77, 0x6000);
        assert_eq!(
            part.what,
            What::Shared {
                device,
                inode,
                offset
            }
        );
    }

    #[test]
    fn a_range_with_a_gap_is_not_mapped() {
        assert_eq!(parts(&(0..4096)), Err(NotAdopted::NotMapped));
        let here = [0_u8; 64];
        let start = here.as_ptr().addr();
        let found = parts(&(start..start + 64)).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].range, start..start + 64);
    }
}
