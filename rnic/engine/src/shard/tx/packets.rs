//! SCTP's packets become frames.

use rnic_net::{Path, Protocol, UDP_HEADER};
use rnic_xsk::{Frame, Port};
use userspace_net::Ecn;
use userspace_sctp::Transmit;

use crate::command::ForbiddenBy;
use crate::shard::datapath::Datapath;
use crate::shard::sctp::tuple;
use crate::shard::tx::Tx;
use crate::shard::tx::link::OversizedPacket;
use crate::shard::tx::return_paths::ReturnPath;

/// How a packet gets to the peer.
enum PathLookup {
    /// By this path and port.
    Known(Path, usize),
    /// The way to this address of the association's peer was asked for.
    NotYet,
    /// The host forbids it.
    Forbidden(ForbiddenBy),
    /// There is no association, and no way back is remembered.
    Unknown,
}

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
        let (path, port) = match self.path_of(dp, &packet) {
            PathLookup::Known(path, port) => (path, port),
            other => {
                match other {
                    PathLookup::NotYet => dp.counters.no_path += 1,
                    PathLookup::Forbidden(by) => *dp.counters.host_policy(by).dropped += 1,
                    _ => dp.counters.unsendable += 1,
                }
                dp.frames.pool.free(frame);
                return true;
            }
        };
        let (local, remote) = (packet.ends.local.ip(), packet.ends.remote.ip());
        let headers = path.headers_len(remote) + packet.udp.map_or(0, |_| UDP_HEADER);
        let bytes = dp.frames.umem.bytes_mut(&mut frame);
        if headers != at && headers + packet.len <= bytes.len() {
            bytes.copy_within(at..at + packet.len, headers);
            self.packet_headers = headers;
        }
        let whole = bytes.get_mut(..headers + packet.len);
        if whole
            .and_then(|out| write_headers(&path, &packet, out))
            .is_none()
        {
            dp.counters.unsendable += 1;
            dp.frames.pool.free(frame);
            return true;
        }
        frame.set_len(headers + packet.len);
        let Some(mtu) = packet.fragment_to else {
            self.hand_over(dp, frame, None, port);
            return true;
        };
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
    fn path_of<P: Port>(&self, dp: &Datapath<P>, packet: &Transmit) -> PathLookup {
        let assoc = packet.assoc.or_else(|| dp.sctp.stack.find(&packet.ends));
        let id = assoc.map(|assoc| dp.sctp.sessions.carrier(assoc));
        match id.and_then(|id| dp.conns.get(id)) {
            Some(conn) => match conn.path_to(packet.ends.remote.ip()) {
                Some(path) => PathLookup::Known(*path, conn.port()),
                None => PathLookup::NotYet,
            },
            None => match self.link.return_paths.find(&tuple(&packet.ends)) {
                Some(ReturnPath::Open(path, port)) => PathLookup::Known(path, port),
                Some(ReturnPath::Forbidden(by)) => PathLookup::Forbidden(by),
                None => PathLookup::Unknown,
            },
        }
    }
}

/// Writes all headers in front of an SCTP packet, which is the rest of `out`. None as in [`rnic_net::emit`].
fn write_headers(path: &Path, packet: &Transmit, out: &mut [u8]) -> Option<()> {
    let ends = (packet.ends.local.ip(), packet.ends.remote.ip());
    let before = path.headers_len(ends.1);
    let protocol = match packet.udp {
        Some(ports) => {
            rnic_net::write_udp(ends, ports, out.get_mut(before..)?)?;
            Protocol::Udp
        }
        None => Protocol::Sctp,
    };
    let len = out.len() - before;
    rnic_net::emit(path, ends, (protocol, len), Ecn::NotEct, out)?;
    Some(())
}
