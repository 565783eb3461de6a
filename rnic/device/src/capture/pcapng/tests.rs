use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;

const FIRST: u64 = 1_700_000_000_123_456_789;

fn two_frames() -> PcapngFile<Vec<u8>> {
    let mac = Some([2, 0, 0, 0, 0, 9]);
    let mut file = PcapngFile::begin(Vec::new(), "eth9", mac, 0).unwrap();
    file.frame(FIRST, Direction::In, &[1, 2, 3], 3).unwrap();
    file.frame(FIRST + 1, Direction::Out, &[4; 61], 1500)
        .unwrap();
    file
}

#[test]
fn frames_come_out_with_time_direction_and_bytes() {
    let mut file = two_frames();
    file.end(2, 5).unwrap();
    let bytes = file.writer.into_inner();
    let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
    let (mut frames, mut statistics) = (Vec::new(), None);
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(description) => {
                assert_eq!(description.linktype, DataLink::ETHERNET);
                let resolution = InterfaceDescriptionOption::IfTsResol(NANOSECONDS);
                assert!(description.options.contains(&resolution));
            }
            Block::EnhancedPacket(packet) => {
                let [EnhancedPacketOption::Flags(flags)] = packet.options[..] else {
                    panic!("{packet:?}");
                };
                let time = packet.timestamp.as_nanos() as u64;
                frames.push((time, flags, packet.data.to_vec(), packet.original_len));
            }
            Block::InterfaceStatistics(found) => statistics = Some(format!("{:?}", found.options)),
            block => panic!("{block:?}"),
        }
    }
    let expected = [
        (FIRST, INBOUND, vec![1, 2, 3], 3),
        (FIRST + 1, OUTBOUND, vec![4; 61], 1500),
    ];
    assert_eq!(frames, expected);
    assert_eq!(statistics.as_deref(), Some("[IsbIfRecv(2), IsbIfDrop(5)]"));
}

#[test]
fn the_bytes_of_a_file_are_known_before_they_are_written() {
    let mut file = two_frames();
    assert_eq!(file.bytes(), file.writer.get_ref().len() as u64);
    for kept in 0..5 {
        let before = file.bytes();
        file.frame(0, Direction::In, &vec![0; kept], 9).unwrap();
        let grown = file.bytes() - before;
        assert!(grown <= FRAME_OVERHEAD + kept as u64, "{kept}: {grown}");
    }
    let before = file.bytes();
    file.end(7, 0).unwrap();
    assert_eq!(file.bytes() - before, END_BYTES);
    assert_eq!(file.bytes(), file.writer.get_ref().len() as u64);
}
