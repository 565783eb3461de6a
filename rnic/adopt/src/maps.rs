//! What is mapped in a range of this process: the lines of `/proc/self/maps` (proc_pid_maps(5)).

use std::ops::Range;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{Needed, NotAdopted, host};

/// A part of a range that is mapped in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: Range<usize>,
    pub(crate) what: What,
    /// What its program may do there.
    pub(crate) may: May,
    pub(crate) run: Run,
}

/// What a program may do in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct May {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// Mappings for reading and writing that follow each other without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) range: Range<usize>,
    /// Bytes of the mapping without any right that ends where it begins; 0 without one.
    pub(crate) guard: usize,
}

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

/// The parts of `range`, which has no gap and is mapped for what is needed.
pub(crate) fn parts(range: &Range<usize>, needed: Needed) -> Result<Vec<Part>, NotAdopted> {
    let parts = match without_gap(range) {
        Err(NotAdopted::NotMapped) if touch(range.start) => without_gap(range),
        found => found,
    }?;
    if parts.iter().any(|part| !part.may.read) {
        return Err(NotAdopted::NotPermitted("reading"));
    }
    if needed == Needed::ReadAndWrite && parts.iter().any(|part| !part.may.write) {
        return Err(NotAdopted::NotPermitted("writing"));
    }
    Ok(parts)
}

/// Whether there is a byte. The first thread's stack grows as far down as it is touched.
fn touch(address: usize) -> bool {
    let own = std::fs::File::open("/proc/self/mem");
    own.is_ok_and(|own| rustix::io::pread(&own, &mut [0; 1], address as u64) == Ok(1))
}

fn without_gap(range: &Range<usize>) -> Result<Vec<Part>, NotAdopted> {
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
    let mut search = Search::default();
    each(&mut vec![0; BUFFER], |mapping| {
        search.goes_on(mapping, range)
    })?;
    Ok(search.parts())
}

/// Has `look` see one mapping after the other, by address, until it says false. It takes no memory of the
/// heap, which may be in the midst of a change where this is called (`fork`).
fn each(buffer: &mut [u8], mut look: impl FnMut(Mapping) -> bool) -> Result<(), NotAdopted> {
    let open = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/maps", open, Mode::empty());
    let file = file.map_err(host("open(/proc/self/maps)"))?;
    let mut filled = 0;
    loop {
        let read = match rustix::io::read(&file, &mut buffer[filled..]) {
            Err(Errno::INTR) => continue,
            read => read.map_err(host("read of /proc/self/maps"))?,
        };
        filled += read;
        let mut rest = &buffer[..filled];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, next) = rest.split_at(end + 1);
            rest = next;
            if let Some(mapping) = parse(line)
                && !look(mapping)
            {
                return Ok(());
            }
        }
        // Nothing more, or a line that does not fit and is none of the kernel's.
        if read == 0 {
            return Ok(());
        }
        let left = rest.len();
        buffer.copy_within(filled - left..filled, 0);
        filled = left;
    }
}

/// Bytes of the buffer that [`each`] reads into: a line has some 80 and a path, of at most 4096.
pub(crate) const BUFFER: usize = 16 << 10;

/// Has `look` see each shared mapping of a file: its addresses, the file's device and inode, and the
/// offset in it. As [`each`], without the heap.
pub(crate) fn each_shared(
    buffer: &mut [u8],
    mut look: impl FnMut(Range<usize>, (u64, u64), u64),
) -> Result<(), NotAdopted> {
    each(buffer, |mapping| {
        if let What::Shared {
            device,
            inode,
            offset,
        } = mapping.what
        {
            look(mapping.range, (device, inode), offset);
        }
        true
    })
}

/// The parts of a range, from one mapping after the other.
#[derive(Default)]
struct Search {
    parts: Vec<Part>,
    /// The last mappings, if they are for reading and writing.
    run: Run,
    /// The last mapping, if it has no right.
    guard: Range<usize>,
}

impl Search {
    /// Whether a further mapping may tell something.
    fn goes_on(&mut self, mapping: Mapping, wanted: &Range<usize>) -> bool {
        let Mapping {
            range,
            rights,
            may,
            what,
        } = mapping;
        let adjoins = range.start == self.run.range.end && rights == Rights::ReadWrite;
        if range.start >= wanted.end && !adjoins {
            return false;
        }
        match rights {
            Rights::ReadWrite if adjoins => self.run.range.end = range.end,
            Rights::ReadWrite => {
                let guarded = self.guard.end == range.start;
                self.run = Run {
                    range: range.clone(),
                    guard: if guarded { self.guard.len() } else { 0 },
                };
            }
            Rights::None => self.guard = range.clone(),
            Rights::Others => {}
        }
        let run = self.run.clone();
        self.parts
            .extend(part(&range, what, wanted).map(|(range, what)| Part {
                range,
                what,
                may,
                run,
            }));
        true
    }

    /// Each with its whole run.
    fn parts(mut self) -> Vec<Part> {
        let mut run = self.run;
        for part in self.parts.iter_mut().rev() {
            match part.run.range.start == run.range.start {
                true => part.run = run.clone(),
                false => run = part.run.clone(),
            }
        }
        self.parts
    }
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
fn part(mapped: &Range<usize>, what: What, wanted: &Range<usize>) -> Option<(Range<usize>, What)> {
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
    (!range.is_empty()).then_some((range, what))
}

struct Mapping {
    range: Range<usize>,
    rights: Rights,
    may: May,
    what: What,
}

#[derive(PartialEq, Eq)]
enum Rights {
    None,
    ReadWrite,
    Others,
}

fn parse(line: &[u8]) -> Option<Mapping> {
    // Names may be of any bytes; what is looked at is ASCII, and before them.
    let line = match std::str::from_utf8(line) {
        Ok(line) => line,
        Err(error) => std::str::from_utf8(line.get(..error.valid_up_to())?).ok()?,
    };
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
    let may = May {
        read: rights.starts_with('r'),
        write: rights.get(1..2) == Some("w"),
    };
    let rights = match rights.get(..3) {
        Some("rw-") => Rights::ReadWrite,
        Some("---") => Rights::None,
        _ => Rights::Others,
    };
    Some(Mapping {
        range: start..end,
        rights,
        may,
        what,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(line: &str) -> Option<What> {
        parse(line.as_bytes()).map(|mapping| mapping.what)
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
        let Mapping { range, what, .. } = parse(line.as_bytes()).unwrap();
        assert_eq!(part(&range, what.clone(), &(0x3000..0x9000)), None);
        let (range, what) = part(&range, what, &(0x1000..0x9000)).unwrap();
        assert_eq!(range, 0x1000..0x3000);
        let (device, inode, offset) = (rustix::fs::makedev(0, 1), 77, 0x6000);
        let shared = What::Shared {
            device,
            inode,
            offset,
        };
        assert_eq!(what, shared);
    }

    #[test]
    fn a_run_is_of_all_that_adjoins_and_knows_its_guard() {
        let lines = [
            "1000-3000 ---p 00000000 00:00 0 ",
            "3000-5000 rw-p 00000000 00:00 0 ",
            "5000-6000 rw-s 00002000 00:01 77                    /memfd:x (deleted)",
            "6000-9000 rw-p 00000000 00:00 0 ",
            "9000-a000 r--p 00000000 00:00 0 ",
            "a000-b000 rw-p 00000000 00:00 0 ",
            "c000-d000 rw-p 00000000 00:00 0 ",
        ];
        let found = |wanted: Range<usize>| {
            let mut search = Search::default();
            let mut mappings = lines.iter().filter_map(|line| parse(line.as_bytes()));
            while mappings
                .next()
                .is_some_and(|mapping| search.goes_on(mapping, &wanted))
            {}
            let parts = search.parts().into_iter();
            parts.map(|part| (part.range, part.run)).collect::<Vec<_>>()
        };
        let run = |range, guard| Run { range, guard };
        let guarded = run(0x3000..0x9000, 0x2000);
        let single = run(0xa000..0xb000, 0);
        assert_eq!(
            found(0x4000..0x6000),
            [
                (0x4000..0x5000, guarded.clone()),
                (0x5000..0x6000, guarded.clone())
            ]
        );
        let both = found(0x8000..0xb000);
        assert_eq!(both.first(), Some(&(0x8000..0x9000, guarded)));
        assert_eq!(both.last(), Some(&(0xa000..0xb000, single.clone())));
        assert_eq!(found(0xa000..0xb000), [(0xa000..0xb000, single)]);
    }

    #[test]
    fn a_range_with_a_gap_is_not_mapped() {
        let parts = |range| parts(range, Needed::ReadAndWrite);
        assert_eq!(parts(&(0..4096)), Err(NotAdopted::NotMapped));
        let here = [0_u8; 64];
        let start = here.as_ptr().addr();
        let found = parts(&(start..start + 64)).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].range, start..start + 64);
    }
}
