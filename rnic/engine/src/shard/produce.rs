//! Queue pairs produce FPDUs as TCP and the frames allow, each connection in its turn.

use rnic_ipc::control::DisconnectReason;
use rnic_ipc::id::{ClientId, QpNum};
use rnic_xsk::Port;
use userspace_tcp::{ConnId, Outgoing, checksum};

use super::Shard;
use crate::conn::Phase;

/// FPDUs of one connection before the next gets its turn.
const FPDUS_PER_TURN: usize = 16;

/// Why a connection's turn ended.
enum Turn {
    /// Nothing to send, or no room: an acknowledgment or a doorbell makes it ready again.
    Done,
    /// It has more, and room for more.
    More,
    /// No frame is free: frames come back without any event of this connection.
    NoFrame,
}

impl<P: Port> Shard<P> {
    /// The client posted work to this queue pair, or says so.
    pub(super) fn doorbell(&mut self, client: ClientId, num: QpNum) {
        let Some(slot) = self.qps.get_mut(&num.0) else {
            return;
        };
        // A client may write any number; only its own queue pairs hear it.
        if slot.qp.client() != client {
            return;
        }
        slot.qp.doorbell(&mut self.tables.context());
        let conn = slot.conn;
        self.settle(num);
        if let Some(id) = conn {
            self.make_ready(id);
        }
    }

    /// Gives a connection its turn in the next round.
    pub(super) fn make_ready(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(id)
            && matches!(conn.phase, Phase::Rdma { .. })
            && !conn.ready
        {
            conn.ready = true;
            self.ready.push_back(id);
        }
    }

    /// One turn for each connection that is ready.
    pub(super) fn produce(&mut self) -> bool {
        let mut worked = false;
        self.starved = false;
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else {
                break;
            };
            let (sent, turn) = self.turn(id);
            worked |= sent > 0;
            let again = !matches!(turn, Turn::Done);
            if let Some(conn) = self.conns.get_mut(id) {
                conn.ready = again;
                if again {
                    self.ready.push_back(id);
                }
                self.settle_conn(id);
            }
            if matches!(turn, Turn::NoFrame) {
                self.counters.no_frame += 1;
                self.starved = true;
                break;
            }
        }
        worked
    }

    fn turn(&mut self, id: ConnId) -> (usize, Turn) {
        let Some(conn) = self.conns.get(id) else {
            return (0, Turn::Done);
        };
        let Phase::Rdma { qp } = conn.phase else {
            return (0, Turn::Done);
        };
        let Some(slot) = self.qps.get_mut(&qp.0) else {
            return (0, Turn::Done);
        };
        let room_before = conn.header_room();
        let queued = self.stack.queued_segments(id);
        for sent in 0..FPDUS_PER_TURN {
            // Each may be the one that probes the path with another size (RFC 8899).
            let mulpdu = slot.qp.mulpdu(self.stack.mss(id));
            let mut context = self.tables.context();
            let Some(len) = slot.qp.output_len(&mut context, mulpdu) else {
                return (sent, Turn::Done);
            };
            if self.stack.send_room(id) < len {
                return (sent, Turn::Done);
            }
            // The reserve is for receiving: without it nothing would ever be acknowledged.
            let spare = self
                .pool
                .available()
                .saturating_sub(self.config.receive_reserve);
            if spare == 0 {
                return (sent, Turn::NoFrame);
            }
            // It holds no more frames than it leaves to the others, so that peers which acknowledge
            // nothing don't hold them all. It has some, so an acknowledgment makes it ready again.
            if queued + sent >= spare {
                return (sent, Turn::Done);
            }
            let Some(mut frame) = self.pool.alloc() else {
                return (sent, Turn::NoFrame);
            };
            let octets = self.umem.bytes_mut(&mut frame);
            let produced = octets
                .get_mut(room_before..)
                .and_then(|out| slot.qp.produce(&mut context, mulpdu, out));
            let Some(len) = produced else {
                self.pool.free(frame);
                return (sent, Turn::Done);
            };
            let payload = octets.get(room_before..room_before + len).unwrap_or(&[]);
            let payload_sum = checksum::sum(payload);
            frame.set_len(room_before + len);
            let outgoing = Outgoing {
                buf: frame,
                len: len as u32,
                payload_sum,
            };
            if let Err(refused) = self.stack.send(id, self.now, outgoing) {
                // The room was asked for, so this is our own fault; the stream has a hole now.
                log::error!("TCP refused a segment: {refused}");
                self.pool.free(refused.buf);
                self.abort(id, DisconnectReason::LocalError, None);
                return (sent, Turn::Done);
            }
        }
        (FPDUS_PER_TURN, Turn::More)
    }
}
