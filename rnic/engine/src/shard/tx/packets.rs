//! SCTP's packets become frames.

use rnic_net::{IPV4_HEADER, IPV6_HEADER, Path, Protocol, SCTP_HEADER};
use rnic_xsk::{Frame, Port};
use userspace_net::{ConnId, Ecn};
use userspace_sctp::Transmit;

use crate::shard::datapath::Datapath;
use crate::shard::sctp::tuple;
use crate::shard::tx::Tx;
use crate::shard::tx::link::OversizedPacket;

/// Bytes of a DATA chunk's header.
const DATA_HEADER: usize = 16;

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
        let Some((id, path, port)) = self.way_of(dp, &packet) else {
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
        if !packet.needs_fragments {
            self.hand_over(dp, frame, None, port);
            return true;
        }
        let (local, remote) = ends;
        let oversized = OversizedPacket {
            frame,
            owner: None,
            path,
            port,
            mtu: self.packet_mtu(dp, id, &path, remote.is_ipv4()),
            id: self.identification.next(local, remote),
        };
        self.send_fragments(dp, oversized);
        true
    }

    /// Whose packet it is, if a connection's, and how it gets to the peer.
    fn way_of<P: Port>(
        &self,
        dp: &Datapath<P>,
        packet: &Transmit,
    ) -> Option<(Option<ConnId>, Path, usize)> {
        let assoc = dp.sctp.stack.find(&packet.ends);
        let id = assoc.map(|assoc| dp.sctp.sessions.name(assoc));
        if let Some(conn) = id.and_then(|id| dp.conns.get(id)) {
            return Some((id, conn.path, conn.port()));
        }
        let (path, port) = self.link.way_back(&tuple(&packet.ends))?;
        Some((None, path, port))
    }

    /// Bytes of an IP packet that a session's path takes.
    fn packet_mtu<P: Port>(
        &self,
        dp: &Datapath<P>,
        id: Option<ConnId>,
        path: &Path,
        v4: bool,
    ) -> u32 {
        let session = id.and_then(|id| dp.sctp.sessions.get(id));
        let ip = if v4 { IPV4_HEADER } else { IPV6_HEADER };
        let headers = ip + SCTP_HEADER + DATA_HEADER;
        session.map_or(path.mtu, |session| {
            (headers + dp.sctp.stack.message_max(session.assoc)) as u32
        })
    }
}
