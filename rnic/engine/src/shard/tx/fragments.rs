//! IP fragments: of what was posted before its path became too narrow for it (RFC 5044
//! section A.5.1).

use rnic_net::Fragments;
use rnic_xsk::Port;

use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;
use crate::shard::tx::link::OversizedPacket;

impl Tx {
    /// Sends copies of a packet in fragments, or in one piece if it fits. The frame itself returns to TCP's
    /// send queue. When the link is about to have enough space for all fragments, they wait for it, and so
    /// does all later output of TCP.
    pub(in crate::shard) fn send_fragments<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        packet: OversizedPacket,
    ) {
        if !dp.is_of_interface(packet.port) {
            // The loopback and internal links take what fits a frame.
            return self.hand_over(dp, packet.frame, packet.owner, packet.port);
        }
        let umem = dp.frames.umem.clone();
        let (link, mtu) = (packet.path.link_len(), packet.mtu);
        let Some(mut fragments) = Fragments::new(umem.bytes(&packet.frame), link, mtu, packet.id)
        else {
            return self.hand_over(dp, packet.frame, packet.owner, packet.port);
        };
        let count = fragments.left();
        let largest = link + mtu as usize;
        let room = dp.ports.get_mut(packet.port);
        let room = room.map_or(0, Port::transmit_room);
        if count > room && self.link.count() > 0 {
            self.link.waiting = Some(packet);
            return;
        }
        if count > room || count > dp.frames.pool.available_for(largest) {
            // A part of a packet is no use; TCP's timers repair what is lost here.
            dp.counters.transmit_full += 1;
            return dp.give_back(packet.frame, packet.owner);
        }
        dp.counters.tx_fragmented += 1;
        while let Some(mut part) = dp.frames.pool.alloc_for(largest) {
            let Some(len) = fragments.write_next(umem.bytes_mut(&mut part)) else {
                dp.frames.pool.free(part);
                break;
            };
            part.set_len(len);
            dp.counters.tx_fragments += 1;
            self.hand_over(dp, part, None, packet.port);
        }
        dp.give_back(packet.frame, packet.owner);
    }
}
