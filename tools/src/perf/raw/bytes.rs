//! An application's bytes in frames: what no protocol that moves them safely can do without.
//!
//! The sender copies them into a frame, with TCP's checksum (RFC 9293 section 3.1) and the CRC32c of an
//! FPDU (RFC 5044 section 4.4) in the same pass. The receiver verifies both, and copies the bytes out
//! only when both are right. They lie where a full FPDU with an RDMA Write has them in a segment with
//! timestamps, but nothing is written or read of any of its headers.

use rnic_proto::crc::RESIDUE;

use super::ETHERNET;

/// Bytes of an RDMA Write that are ahead of its payload: Ethernet, IPv4, TCP with timestamps, the
/// ULPDU's length and the tagged header.
const AHEAD: usize = ETHERNET + 20 + 32 + 2 + 14;
/// Bytes of the CRC, at the end.
const CRC: usize = 4;
/// Bytes of a frame that are not an application's.
pub(super) const OVERHEAD: usize = AHEAD + CRC;
/// Where the checksum is: in the padding of a frame's header.
const SUM: std::ops::Range<usize> = ETHERNET + 2..ETHERNET + 4;
/// Bytes of an application: a message of 1 MiB.
const MEMORY: usize = 1 << 20;

/// What an application sends, or what it receives into.
#[derive(Debug)]
pub(super) struct Bytes {
    memory: Vec<u8>,
    at: usize,
}

impl Bytes {
    pub(super) fn new() -> Self {
        Self {
            memory: vec![0x5a; MEMORY],
            at: 0,
        }
    }

    /// Fills a frame whose header is written.
    pub(super) fn load(&mut self, frame: &mut [u8]) {
        let Some(end) = frame.len().checked_sub(CRC).filter(|end| *end >= AHEAD) else {
            return;
        };
        let from = self.next(end - AHEAD);
        let checks = rnic_crc::copy(0, &self.memory[from], &mut frame[AHEAD..end]);
        let crc = checks.crc.to_le_bytes();
        frame[end..].copy_from_slice(&crc);
        let sum = rnic_crc::add_sums(checks.sum, rnic_crc::sum(&crc));
        frame[SUM].copy_from_slice(&sum.to_be_bytes());
    }

    /// Takes out of a frame what was put into it; false when it is not what it was.
    pub(super) fn place(&mut self, frame: &[u8]) -> bool {
        let Some(bytes) = frame.get(AHEAD..).filter(|rest| rest.len() >= CRC) else {
            return true;
        };
        let checks = rnic_crc::check(0, bytes);
        if checks.crc != RESIDUE || frame[SUM] != checks.sum.to_be_bytes() {
            return false;
        }
        let into = self.next(bytes.len() - CRC);
        self.memory[into].copy_from_slice(&bytes[..bytes.len() - CRC]);
        true
    }

    /// The next so many.
    fn next(&mut self, bytes: usize) -> std::ops::Range<usize> {
        if self.memory.len() - self.at < bytes {
            self.at = 0;
        }
        let range = self.at..self.at + bytes;
        self.at = range.end;
        range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 1514;

    fn sent(number: u8) -> Vec<u8> {
        let mut bytes = Bytes::new();
        bytes.memory.fill(number);
        let mut frame = vec![0; FRAME];
        bytes.load(&mut frame);
        frame
    }

    #[test]
    fn what_is_put_into_frames_is_taken_out_one_behind_the_other() {
        let mut bytes = Bytes::new();
        assert!(bytes.place(&sent(1)) && bytes.place(&sent(2)));
        let each = FRAME - OVERHEAD;
        assert_eq!(each, 1428, "as many as an RDMA Write has");
        assert_eq!(bytes.memory[..each], vec![1; each]);
        assert_eq!(bytes.memory[each..2 * each], vec![2; each]);
        assert_eq!(bytes.memory[2 * each], 0x5a);
    }

    #[test]
    fn nothing_is_placed_of_a_frame_that_has_changed_on_its_way() {
        for at in [SUM.start, AHEAD, AHEAD + 700, FRAME - CRC, FRAME - 1] {
            let mut frame = sent(1);
            frame[at] ^= 1;
            let mut bytes = Bytes::new();
            assert!(!bytes.place(&frame), "byte {at}");
            assert_eq!(bytes.memory, vec![0x5a; MEMORY]);
        }
    }

    #[test]
    fn a_frame_without_room_carries_nothing() {
        let mut frame = [0; 60];
        Bytes::new().load(&mut frame);
        assert_eq!(frame, [0; 60]);
        assert!(Bytes::new().place(&frame));
    }

    #[test]
    fn memory_is_gone_through_again_and_again() {
        let mut bytes = Bytes::new();
        for _ in 0..2 * MEMORY / (FRAME - OVERHEAD) {
            assert!(bytes.place(&sent(3)));
        }
        assert!(bytes.at <= MEMORY);
    }
}
