//! What queue pairs ask for when they are called: to close or reset their connection, to watch their peer, to
//! remove a client.
//!
//! The caller of a queue pair handles these requests at once, or leaves the queue pair in
//! [`Datapath::pending_updates`].

use std::net::IpAddr;

use rnic_ipc::control::{DisconnectReason, RefusalCode};
use rnic_ipc::id::{ClientId, QpNum};
use rnic_proto::rdmap::{RdmapError, TerminateError};
use rnic_xsk::Port;
use userspace_net::Instant;
use userspace_tcp::ConnId;

use crate::command::ShardEvent;
use crate::conn::Conn;
use crate::qp::CloseKind;
use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

impl Ctl {
    /// Looks what the queue pair of this connection asks for.
    pub(in crate::shard) fn update_conn<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        if let Some(qp) = dp.conns.get(id).and_then(Conn::qp) {
            self.update_qp(dp, tx, qp);
        }
    }

    /// Looks what the queue pairs ask for that are known to ask for something.
    pub(in crate::shard) fn run_pending_updates<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
    ) {
        while let Some(qp) = dp.next_pending_update() {
            self.update_qp(dp, tx, qp);
        }
    }

    /// A stream of this peer's ended by an invalid STag: a pause that begins with it is told.
    fn note_guess(&mut self, remote: IpAddr, client: ClientId, now: Instant) {
        let Some((streams, pause)) = self.stag_scan_limit.note((remote, client), now) else {
            return;
        };
        if let Some(untold) = self.guesses_told.tell(now) {
            self.events.push_back(ShardEvent::GuessesPaused {
                client,
                remote,
                streams,
                pause,
                untold,
            });
        }
    }

    /// Looks what a queue pair asks for after it was called.
    pub(in crate::shard) fn update_qp<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        num: QpNum,
    ) {
        let Some(slot) = dp.qps.get_mut(num.0) else {
            return;
        };
        let (conn, client) = (slot.conn, slot.qp.client());
        let fault = slot.qp.take_fault();
        let guessed = slot.qp.take_invalid_stag();
        let close = slot.qp.wants_close();
        let awaits_peer = slot.qp.awaits_peer();
        let terminating = slot.qp.state() == rnic_ipc::control::QpState::Terminate;
        if let Some(id) = conn {
            if guessed && let Some(conn) = dp.conns.get(id) {
                self.note_guess(dp.peer_host(conn), client, dp.now);
            }
            match close {
                Some(CloseKind::Graceful) => self.close(dp, id, DisconnectReason::Graceful),
                Some(CloseKind::AfterTerminateSent { control }) => {
                    self.close(dp, id, after_terminate(control));
                }
                Some(CloseKind::TerminateReceived { control }) => {
                    self.close(dp, id, DisconnectReason::TerminateReceived { control });
                }
                Some(CloseKind::PeerFault { control }) => self.peer_fault(dp, tx, id, control),
                Some(CloseKind::AbortNow) => {
                    self.abort(dp, tx, id, DisconnectReason::LocalError, None);
                }
                // A peer whose window stays shut must not hold up a Terminate forever.
                None if terminating => self.limit_close(dp, id),
                None if awaits_peer => self.await_peer(dp, id),
                None => {}
            }
        }
        if let Some(fault) = fault {
            let message = format!("a work queue of queue pair {num}: {fault}");
            self.client_fault(dp, client, RefusalCode::Malformed, message);
        }
    }

    /// The peer sent what is in error, and can't be told by a Terminate: its own log, if it has one, says
    /// nothing, so ours does.
    fn peer_fault<P: Port>(&mut self, dp: &mut Datapath<P>, tx: &mut Tx, id: ConnId, control: u16) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        let error = TerminateError::from_control(control);
        let message = format!(
            "{} sent an FPDU in error ({error}), where no Terminate may answer: the connection was reset",
            conn.tuple.remote
        );
        log::info!("{message}");
        let reason = DisconnectReason::PeerFault { control };
        conn.ending = Some(reason);
        self.abort(dp, tx, id, reason, Some(message));
    }

    /// FIN after what is queued.
    fn close<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId, reason: DisconnectReason) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        // An error says more than the graceful end that it interrupts.
        if matches!(conn.ending, None | Some(DisconnectReason::Graceful)) {
            conn.ending = Some(reason);
        }
        if !conn.closing {
            conn.closing = true;
            let transport = conn.transport();
            dp.llp_mut(transport, |llp, _| llp.close(id, false));
        }
        self.limit_close(dp, id);
    }

    /// Bounds the time until this connection's end, whatever the peer does: the close timeout, or the user
    /// timeout if the peer stays silent.
    pub(in crate::shard) fn limit_close<P: Port>(&mut self, dp: &mut Datapath<P>, id: ConnId) {
        let Some(conn) = dp.conns.get_mut(id) else {
            return;
        };
        if conn.close_by.is_none() {
            let patience = dp.config.close_timeout;
            conn.unheard = None;
            conn.close_by = Some(dp.now + patience);
            self.set_deadline(dp, id, patience.min(dp.config.tcp.user_timeout));
        }
    }
}

/// Why a connection ends with a Terminate of ours. A local catastrophic error (RFC 5040 section 4.8)
/// is the one that is not the peer's fault.
fn after_terminate(control: u16) -> DisconnectReason {
    let local = TerminateError::from(RdmapError::LocalCatastrophic).control();
    if control == local {
        return DisconnectReason::LocalError;
    }
    DisconnectReason::TerminateSent { control }
}
