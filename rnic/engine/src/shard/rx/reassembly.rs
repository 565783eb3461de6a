//! Packets that a path cut on their way here are put together (RFC 5044 section A.5.1).

use rnic_xsk::{Frame, Packet, Port};

use super::super::Shard;

impl<P: Port> Shard<P> {
    /// A packet that is a fragment: kept, or the packet that it completes.
    pub(super) fn fragment(&mut self, packet: Packet) -> Option<Frame> {
        let Some(mut frame) = packet.into_widest(&self.dp.frames.umem, &mut self.dp.frames.pool)
        else {
            self.dp.counters.no_frame += 1;
            return None;
        };
        let len = frame.len();
        let buffer = self.dp.frames.umem.bytes_mut(&mut frame);
        match self.reassembly.add(self.dp.now, buffer, len) {
            Ok(Some(len)) => {
                frame.set_len(len);
                return Some(frame);
            }
            Ok(None) => {}
            Err(reason) => self.dp.counters.count_unusable(reason),
        }
        self.dp.frames.pool.free(frame);
        None
    }
}
