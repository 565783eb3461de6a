use pcap_file::pcapng::{Block, PcapNgReader};
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

fn flags(options: &[EnhancedPacketOption<'_>]) -> u32 {
    match options {
        [EnhancedPacketOption::Flags(flags)] => *flags,
        options => panic!("{options:?}"),
    }
}

#[test]
fn frames_come_out_with_time_direction_and_octets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pcapng");
    let (file, mut tap) = CaptureFile::create(&path, &interface(), 2048).unwrap();
    let first = 1_700_000_000_123_456_789;
    tap.frame(first, false, &[1, 2, 3]);
    tap.frame(first + 1, true, &[4; 61]);
    drop(tap);
    file.close();

    let mut reader = PcapNgReader::new(File::open(&path).unwrap()).unwrap();
    let mut frames = Vec::new();
    let mut received = None;
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(description) => {
                assert_eq!(description.linktype, DataLink::ETHERNET);
                assert!(
                    description
                        .options
                        .contains(&InterfaceDescriptionOption::IfTsResol(9))
                );
            }
            Block::EnhancedPacket(packet) => frames.push((
                packet.timestamp.as_nanos() as u64,
                flags(&packet.options),
                packet.data.to_vec(),
            )),
            Block::InterfaceStatistics(statistics) => {
                received = Some(format!("{:?}", statistics.options));
            }
            block => panic!("{block:?}"),
        }
    }
    assert_eq!(
        frames,
        [
            (first, INBOUND, vec![1, 2, 3]),
            (first + 1, OUTBOUND, vec![4; 61]),
        ]
    );
    assert_eq!(received.as_deref(), Some("[IsbIfRecv(2), IsbIfDrop(0)]"));
}

#[test]
fn a_directory_that_is_not_there_is_a_named_error() {
    let path = Path::new("/nonexistent/a.pcapng");
    let error = CaptureFile::create(path, &interface(), 2048).unwrap_err();
    assert!(matches!(error, DeviceError::Capture { .. }), "{error}");
}

#[test]
fn a_full_capture_drops_and_counts() {
    let counts = Arc::new(Counts::default());
    let (full, _kept) = crossbeam::channel::bounded(4);
    let (sender, empty) = crossbeam::channel::bounded(4);
    sender.send(Captured::with_capacity(64)).unwrap();
    let mut tap = Tap {
        full,
        empty,
        counts: counts.clone(),
    };
    for _ in 0..3 {
        tap.frame(0, false, &[0; 60]);
    }
    assert_eq!(counts.frames.load(Ordering::Relaxed), 1);
    assert_eq!(counts.dropped.load(Ordering::Relaxed), 2);
}
