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
