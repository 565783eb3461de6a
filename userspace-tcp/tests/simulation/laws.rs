//! What every segment on the wire has to obey, whatever the network does.

use std::collections::HashMap;

use userspace_tcp::{ConnId, SegmentId, SeqNum, TcpHeader};

/// Of one direction of one connection.
#[derive(Debug, Default)]
struct Line {
    /// What each segment of the send queue was when it went out the first time.
    segments: HashMap<SegmentId, (SeqNum, u32)>,
    /// Bytes of header of segments with payload.
    header: Option<usize>,
    ack: Option<SeqNum>,
}

/// By engine and connection.
#[derive(Debug, Default)]
pub struct Laws(HashMap<(usize, ConnId), Line>);

impl Laws {
    pub fn check(
        &mut self,
        at: (usize, ConnId),
        header: &TcpHeader,
        payload: Option<(SegmentId, u32)>,
    ) {
        let line = self.0.entry(at).or_default();
        if let Some((id, len)) = payload {
            assert!(len > 0, "a payload of nothing");
            let first = *line.segments.entry(id).or_insert((header.seq, len));
            assert_eq!(first, (header.seq, len), "a segment was cut again");
            let bytes = header.header_len();
            assert_eq!(*line.header.get_or_insert(bytes), bytes, "header length");
        }
        if header.flags.rst() || header.flags.syn() || !header.flags.ack() {
            return;
        }
        let ack = *line.ack.get_or_insert(header.ack);
        let back = header.ack.0.wrapping_sub(ack.0).cast_signed() < 0;
        assert!(!back, "the acknowledgment goes back");
        line.ack = Some(header.ack);
    }
}
