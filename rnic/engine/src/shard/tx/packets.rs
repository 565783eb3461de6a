//! SCTP's packets become frames.

use rnic_net::{Path, Protocol};
use rnic_xsk::{Frame, Port};
use userspace_net::Ecn;
use userspace_sctp::Transmit;

use crate::shard::datapath::Datapath;
use crate::shard::sctp::tuple;
use crate::shard::tx::Tx;
use crate::shard::tx::link::OversizedPacket;

impl Tx {
    /// Sends what SCTP has to send, as far as the ports take it.
    #[inline]
    pub(in crate::shard) fn transmit_packets<P: Port>(&mut self, dp: &mut Datapath<P>) -> bool {
        dp.sctp.stack.wants_transmit() && self.transmit_waiting(dp)
    }

    #[inline(never)]
    fn transmit_waiting<P: Port>(&mut self, dp: &mut Datapath<P>) -> bool {
        let mut worked = false;
        while self.link.waiting.is_none() && dp.sctp.stack.wants_transmit() && self.room(dp) > 0 {
            let most = self.packet_headers + dp.sctp.stack.config().mtu;
            let Some(frame) = dp.frames.pool.alloc_for(most) else {
                break;
            };
            if !self.transmit_packet(dp, frame) {
                break;
            }
            worked = true;
        }
        worked
    }

    /// Sends SCTP's next packet in this frame; false when there is none.
    fn transmit_packet<P: Port>(&mut self, dp: &mut Datapath<P>, mut frame: Frame) -> bool {
        // Where it most likely belongs: behind as many bytes of headers as the last one.
        let at = self.packet_headers;
        let bytes = dp.frames.umem.bytes_mut(&mut frame);
        let place = bytes.get_mut(at..).unwrap_or(&mut []);
        let Some(packet) = dp.sctp.stack.poll_transmit(dp.now, place) else {
            dp.frames.pool.free(frame);
            return false;
        };
        let Some((path, port)) = self.way_of(dp, &packet) else {
            dp.counters.unsendable += 1;
            dp.frames.pool.free(frame);
            return true;
        };
        let headers = path.headers_len(packet.ends.remote.ip());
        let bytes = dp.frames.umem.bytes_mut(&mut frame);
        let fits = headers + packet.len <= bytes.len();
        if fits && headers != at {
            bytes.copy_within(at..at + packet.len, headers);
            self.packet_headers = headers;
        }
        let ends = (packet.ends.local.ip(), packet.ends.remote.ip());
        let what = (Protocol::Sctp, packet.len);
        let written = rnic_net::emit(&path, ends, what, Ecn::NotEct, bytes);
        if !fits || written.is_none() {
            dp.counters.unsendable += 1;
            dp.frames.pool.free(frame);
            return true;
        }
        frame.set_len(headers + packet.len);
        let Some(mtu) = packet.fragment_to else {
            self.hand_over(dp, frame, None, port);
            return true;
        };
        let (local, remote) = ends;
        let oversized = OversizedPacket {
            frame,
            owner: None,
            path,
            port,
            mtu: mtu as u32,
            id: self.identification.next(local, remote),
        };
        self.send_fragments(dp, oversized);
        true
    }

    /// How a packet gets to the peer.
    fn way_of<P: Port>(&self, dp: &Datapath<P>, packet: &Transmit) -> Option<(Path, usize)> {
        let assoc = dp.sctp.stack.find(&packet.ends);
        let id = assoc.map(|assoc| dp.sctp.sessions.name(assoc));
        if let Some(conn) = id.and_then(|id| dp.conns.get(id)) {
            return Some((conn.path, conn.port()));
        }
        self.link.way_back(&tuple(&packet.ends))
    }
}
