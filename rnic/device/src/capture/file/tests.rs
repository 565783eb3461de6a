use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use rnic_engine::capture::{Capture, SeenFrame};
use rnic_ipc::capture::Direction;
use rnic_net::PathDefaults;

use super::*;

fn interface() -> Interface {
    Interface {
        name: "eth9".to_owned(),
        index: 9,
        mac: [2, 0, 0, 0, 0, 9],
        defaults: PathDefaults::new(1500),
    }
}

#[test]
fn a_file_has_every_frame_when_it_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pcapng");
    let (file, mut tap) = CaptureFile::create(&path, &interface(), 2048).unwrap();
    for number in 0..3 {
        tap.frame(&SeenFrame {
            unix_ns: number,
            direction: Direction::In,
            bytes: &[0x5a; 60],
            original: 60,
        });
    }
    drop(tap);
    file.close();
    let bytes = std::fs::read(&path).unwrap();
    let found = bytes.windows(60).filter(|window| *window == [0x5a; 60]);
    assert_eq!(found.count(), 3);
}

#[test]
fn a_directory_that_is_not_there_is_a_named_error() {
    let path = Path::new("/nonexistent/a.pcapng");
    let error = CaptureFile::create(path, &interface(), 2048).unwrap_err();
    assert!(matches!(error, DeviceError::Capture { .. }), "{error}");
}

/// A whole capture of nothing.
fn create(path: &Path) -> Result<(), String> {
    let made = CaptureFile::create(path, &interface(), 2048);
    let (file, tap) = made.map_err(|error| error.to_string())?;
    drop(tap);
    file.close();
    Ok(())
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

#[test]
fn a_file_is_for_its_owner_alone_also_where_another_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pcapng");
    create(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    std::fs::write(&path, "of before").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let mut opened_before = File::open(&path).unwrap();
    create(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    let mut found = String::new();
    opened_before.read_to_string(&mut found).unwrap();
    assert_eq!(found, "of before");
}

#[test]
fn nothing_is_written_through_a_link_nor_to_what_is_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let [target, link, dangling, none, pipe] =
        ["target", "link", "dangling", "none", "pipe"].map(|name| directory.path().join(name));
    std::fs::write(&target, "theirs").unwrap();
    symlink(&target, &link).unwrap();
    symlink(&none, &dangling).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    for path in [&link, &dangling, &pipe] {
        let told = create(path).unwrap_err();
        assert!(told.contains("remove it, or name another file"), "{told}");
        files::check_for_owner(path).unwrap_err();
    }
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "theirs");
    assert!(!none.exists());
}
