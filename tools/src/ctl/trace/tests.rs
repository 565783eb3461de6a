use std::os::unix::fs::PermissionsExt;

use rnic::admin::Direction;

use super::*;

fn frame(bytes: &[u8]) -> CapturedFrame<'_> {
    CapturedFrame {
        unix_ns: 1,
        direction: Direction::Out,
        original: bytes.len() as u32,
        bytes,
    }
}

fn begin(directory: &Path, ring: Option<Ring>) -> Trace {
    let ending = Ending::block().unwrap();
    Trace::begin(&directory.join("a.b.pcapng"), ring, "eth9", 0, &ending).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_ring_keeps_the_last_files_none_of_which_is_larger_than_asked() {
    let directory = tempfile::tempdir().unwrap();
    let ring = Ring {
        size: SIZE_MIN,
        files: 3,
    };
    let mut trace = begin(directory.path(), Some(ring));
    for _ in 0..1000 {
        trace.frame(&frame(&[0; 1501]), 0).unwrap();
    }
    trace.end(0).unwrap();
    let found = names(directory.path());
    let paths: Vec<_> = trace
        .paths()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(found, paths);
    assert_eq!(found.len(), 3);
    // 1000 blocks of 1548 bytes, 84 in a file: it was not ended before it was full.
    assert_eq!(found[2], "a.b-00012.pcapng");
    let mut all = 0;
    for path in trace.paths() {
        let size = path.metadata().unwrap().len();
        assert!(size <= SIZE_MIN, "{size}");
        all += size;
    }
    assert!(all > 2 * (SIZE_MIN - 2000));
    assert!(trace.bytes() > 1_500_000);
    assert_eq!(trace.frames(), 1000);
}

#[test]
fn the_largest_frame_fits_the_smallest_file() {
    let directory = tempfile::tempdir().unwrap();
    let ring = Ring {
        size: SIZE_MIN,
        files: 1,
    };
    let mut trace = begin(directory.path(), Some(ring));
    for _ in 0..3 {
        trace.frame(&frame(&[0; 1 << 16]), 0).unwrap();
    }
    trace.end(0).unwrap();
    assert_eq!(names(directory.path()), ["a.b-00003.pcapng"]);
    let path = trace.paths().next().unwrap();
    assert!(path.metadata().unwrap().len() <= SIZE_MIN);
}

#[test]
fn without_a_ring_there_is_one_file_for_its_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = begin(directory.path(), None);
    for _ in 0..1000 {
        trace.frame(&frame(&[0; 1501]), 0).unwrap();
    }
    trace.end(0).unwrap();
    assert_eq!(names(directory.path()), ["a.b.pcapng"]);
    let metadata = trace.paths().next().unwrap().metadata().unwrap();
    assert_eq!(metadata.len(), trace.bytes());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_can_not_be_made_is_named() {
    let ending = Ending::block().unwrap();
    let begun = Trace::begin(Path::new("/nonexistent/a"), None, "eth9", 0, &ending);
    let said = begun.err().unwrap().to_string();
    assert!(
        said.starts_with("/nonexistent/a can't be written"),
        "{said}"
    );
}
