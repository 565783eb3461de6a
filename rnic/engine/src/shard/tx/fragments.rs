//! IP fragments: of what was posted before its path became too narrow for it, and of what a path cut
//! on its way here (RFC 5044 section A.5.1).

use rnic_net::{Fragments, Path};
use rnic_xsk::{Frame, Packet, Port};
use userspace_tcp::{ConnId, SegmentId};

use crate::shard::Shard;

/// A packet that is to go in fragments.
#[derive(Debug)]
pub(in crate::shard) struct Whole {
    pub frame: Frame,
    pub owner: Option<(ConnId, SegmentId)>,
    pub path: Path,
    pub port: usize,
    /// Bytes of a fragment at most.
    pub mtu: u32,
    /// The identification of the packet.
    pub id: u32,
}

impl<P: Port> Shard<P> {
    /// Sends copies of a packet in fragments; in one piece when it is not larger. The frame itself goes
    /// back to TCP's send queue. When the link is about to have room for all of them, they wait for it,
    /// and all that TCP has to send behind them.
    pub(in crate::shard) fn send_fragments(&mut self, whole: Whole) {
        let umem = self.dp.frames.umem.clone();
        let (link, mtu) = (whole.path.link_len(), whole.mtu);
        let Some(mut fragments) = Fragments::new(umem.bytes(&whole.frame), link, mtu, whole.id)
        else {
            return self.hand_over(whole.frame, whole.owner, whole.port);
        };
        let count = fragments.left();
        let largest = link + mtu as usize;
        let room = self.dp.ports.get_mut(whole.port);
        let room = room.map_or(0, Port::transmit_room);
        if count > room && self.link.count() > 0 {
            self.link.waiting = Some(whole);
            return;
        }
        if count > room || count > self.dp.frames.pool.available_for(largest) {
            // A part of a packet is no use; TCP's timers repair what is lost here.
            self.dp.counters.transmit_full += 1;
            return self.dp.give_back(whole.frame, whole.owner);
        }
        self.dp.counters.fragmented += 1;
        while let Some(mut part) = self.dp.frames.pool.alloc_for(largest) {
            let Some(len) = fragments.write_next(umem.bytes_mut(&mut part)) else {
                self.dp.frames.pool.free(part);
                break;
            };
            part.set_len(len);
            self.dp.counters.fragments_sent += 1;
            self.hand_over(part, None, whole.port);
        }
        self.dp.give_back(whole.frame, whole.owner);
    }

    /// A packet that is a fragment: kept, or the packet that it completes.
    pub(in crate::shard) fn fragment(&mut self, packet: Packet) -> Option<Frame> {
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
