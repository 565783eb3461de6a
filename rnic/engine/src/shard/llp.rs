//! What is asked of the lower layer, TCP or SCTP, without asking which it is.

use std::net::{IpAddr, SocketAddr};

use rnic_ipc::control::Transport;
use rnic_proto::mpa::fpdu;
use rnic_proto::mpa::marker::MARKER_LEN;
use rnic_proto::rdmap::{RdmapError, TerminateError, TerminateMessage, terminate};
use rnic_proto::sctp::{PPID_CONTROL, Session};
use rnic_xsk::{Frame, Port};
use userspace_net::checksum;
use userspace_net::{ConnId, Endpoint, Instant};
use userspace_sctp::{AssocId, Outgoing as SctpOutgoing};
use userspace_tcp::{DeferredAck, Outgoing};

use super::datapath::Datapath;
use super::sctp::{CONTROL_CHUNKS, ChunkFrame};
use crate::command::CommandError;
use crate::conn::{Conn, ConnKind};

/// The least EMSS, in bytes: an FPDU of the smallest MULPDU, with the Marker that it may have.
pub(in crate::shard) const EMSS_MIN: usize = fpdu::fpdu_length(fpdu::MULPDU_MIN) + MARKER_LEN;

/// A message of the start-up could not be sent: no frame is free, or the connection is gone.
#[derive(Debug)]
pub(in crate::shard) struct NotSent;

/// What has become of a connection that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Aborted {
    Gone,
    /// It is gone, and with it all that was on its association, if it is an association or on one.
    WithAll,
    /// It is a session that is still to be ended by both sides.
    Ends,
}

/// When a peer was heard.
pub(in crate::shard) struct Heard {
    /// Something is not acknowledged.
    pub awaits_ack: bool,
    pub at: Instant,
}

impl<P: Port> Datapath<P> {
    /// What a connection goes over.
    pub fn transport(&self, id: ConnId) -> Transport {
        match self.sctp.sessions.has(id) {
            true => Transport::Sctp,
            false => Transport::Tcp,
        }
    }

    /// Accepts connections at a local end.
    pub fn llp_listen(
        &mut self,
        transport: Transport,
        local: SocketAddr,
        backlog: usize,
    ) -> Result<(), CommandError> {
        let listens = match transport {
            Transport::Tcp => self.stack.listen(local.into(), backlog).is_ok(),
            Transport::Sctp => self.sctp.stack.listen(local).is_ok(),
        };
        match listens {
            true => Ok(()),
            false => Err(CommandError::InUse { local }),
        }
    }

    /// Accepts no more there.
    pub fn llp_unlisten(&mut self, transport: Transport, local: SocketAddr) {
        match transport {
            Transport::Tcp => drop(self.stack.unlisten(local.into())),
            Transport::Sctp => drop(self.sctp.stack.unlisten(local)),
        }
    }

    /// How many places are taken of those that there are for connections over it.
    pub fn connections_over(&self, transport: Transport) -> usize {
        let sessions = &self.sctp.sessions;
        match transport {
            Transport::Tcp => self.conns.count(ConnKind::Tcp),
            // There are as many for sessions as for associations.
            Transport::Sctp => sessions.len().max(sessions.associated()),
        }
    }

    pub fn connections_at(&self, transport: Transport, local: Endpoint) -> usize {
        match transport {
            Transport::Tcp => self.stack.connections_at(local),
            Transport::Sctp => self.sctp.sessions.at(local),
        }
    }

    /// Ends what is sent, after what is queued: FIN, or the session's Terminate. `is_answer`: what is queued is the
    /// answer to the peer's request, and siw does not look at it if it hears of FIN first.
    pub fn llp_close(&mut self, id: ConnId, is_answer: bool) {
        match self.sctp.sessions.get_mut(id) {
            Some(session) => {
                session.ending = true;
                self.sctp.sessions.hear(id);
            }
            None if is_answer => {
                self.stack.close_once_acknowledged(id);
            }
            None => {
                self.stack.close(id);
            }
        }
    }

    /// RST or ABORT: the connection is gone at once. A session whose association others use is ended by an RDMAP
    /// Terminate, as any stream that this side can't go on with (RFC 5043 section 11.3), and its own.
    pub fn llp_abort(&mut self, id: ConnId) -> Aborted {
        let Some(assoc) = self.sctp.sessions.assoc_of(id) else {
            self.stack.abort(id);
            return Aborted::Gone;
        };
        if !self.sctp.sessions.is_alone(id)
            && let Some(session) = self.sctp.sessions.get(id)
        {
            // The peer does not end what it was told to end. It may be that it takes nothing at all.
            let is_stuck = session.is_abandoned && session.posted > 0;
            if session.is_unsaid() || session.is_abandoned && !is_stuck {
                return Aborted::Gone;
            }
            if !is_stuck {
                self.abandon_session(id);
                return Aborted::Ends;
            }
        }
        self.sctp.stack.abort(self.now, assoc, b"");
        self.take_released_chunks();
        Aborted::WithAll
    }

    /// Frames that the lower layer keeps of it: each a segment, or a chunk.
    #[inline]
    pub fn queued_segments(&self, id: ConnId) -> usize {
        match self.sctp.sessions.get(id) {
            Some(session) => session.posted,
            None => self.stack.queued_segments(id),
        }
    }

    /// Frames that the lower layer keeps of it, if the peer has acknowledged all of them, by `deferred` at the latest.
    #[inline]
    pub fn acknowledged(&self, id: ConnId, deferred: Option<&DeferredAck>) -> Option<usize> {
        match self.sctp.sessions.get(id) {
            // What is acknowledged comes back at once.
            Some(session) => (session.posted == 0).then_some(0),
            None => self.stack.acknowledged(id, deferred),
        }
    }

    /// When the peer was heard; none of a connection that is gone.
    pub fn heard(&self, id: ConnId) -> Option<Heard> {
        if let Some(assoc) = self.sctp.sessions.assoc_of(id) {
            let info = self.sctp.stack.info(assoc)?;
            let session = self.sctp.sessions.get(id);
            return Some(Heard {
                awaits_ack: session.is_some_and(|session| session.posted > 0),
                at: info.heard_at,
            });
        }
        let info = self.stack.info(id)?;
        Some(Heard {
            awaits_ack: info.awaits_ack,
            at: info.heard_at,
        })
    }

    /// Packets to an address of the peer go another way from now on.
    pub fn path_moved(&mut self, id: ConnId, remote: IpAddr) {
        // TCP goes on with what it knows of congestion.
        if let Some(assoc) = self.sctp.sessions.assoc_of(id) {
            self.sctp.stack.path_moved(self.now, assoc, remote);
        }
    }

    /// The first link of a path takes packets of at most so many bytes.
    pub fn limit_mtu(&mut self, id: ConnId, mtu: u32) {
        match self.sctp.sessions.assoc_of(id) {
            Some(assoc) => self.sctp.stack.limit_mtu(self.now, assoc, mtu as usize),
            None => drop(self.stack.link_mtu(id, self.now, mtu)),
        }
    }

    /// Sends a message of the start-up: MPA's, in one segment when it fits (some peers want that), or a session's.
    pub fn send_startup(&mut self, id: ConnId, bytes: &[u8]) -> Result<(), NotSent> {
        if self.sctp.sessions.has(id) {
            return self.send_control(id, bytes);
        }
        let at = self.conns.get(id).map(Conn::header_room).ok_or(NotSent)?;
        for part in bytes.chunks(self.stack.mss(id).max(1)) {
            let mut frame = self.frames.pool.alloc_for(at + part.len()).ok_or(NotSent)?;
            let Some(place) = self
                .frames
                .umem
                .bytes_mut(&mut frame)
                .get_mut(at..at + part.len())
            else {
                self.frames.pool.free(frame);
                return Err(NotSent);
            };
            place.copy_from_slice(part);
            frame.set_len(at + part.len());
            let len = part.len() as u32;
            let outgoing = Outgoing {
                buf: frame,
                len,
                payload_sum: checksum::sum(part),
            };
            if let Err(refused) = self.stack.send(id, self.now, outgoing) {
                self.frames.pool.free(refused.buf);
                return Err(NotSent);
            }
        }
        Ok(())
    }

    /// Sends a control message of a session.
    fn send_control(&mut self, id: ConnId, bytes: &[u8]) -> Result<(), NotSent> {
        let frame = self.control_frame(bytes).ok_or(NotSent)?;
        let frame_of = (frame, &self.frames.umem);
        let posted = self.sctp.post_control(id, frame_of, self.now);
        posted.map_err(|(frame, why)| {
            log::debug!("a session control message was not taken: {why}");
            self.frames.pool.free(frame);
            NotSent
        })
    }

    fn abandon_session(&mut self, id: ConnId) {
        self.terminate_stream(id, TerminateError::from(RdmapError::LocalCatastrophic));
        if let Some(session) = self.sctp.sessions.get_mut(id) {
            session.abandon();
        }
        self.sctp.sessions.hear(id);
    }

    /// Sends an RDMAP Terminate with this error as the next segment of a session. False: it does not take one.
    pub fn terminate_stream(&mut self, id: ConnId, error: TerminateError) -> bool {
        let terminate = TerminateMessage::new(error, None);
        let ulpdu = terminate.bytes();
        let mut bytes = [0; fpdu::HEADER_LEN + terminate::ULPDU_LEN_MAX];
        let bytes = &mut bytes[..fpdu::HEADER_LEN + ulpdu.len()];
        bytes[..fpdu::HEADER_LEN].copy_from_slice(&(ulpdu.len() as u16).to_be_bytes());
        bytes[fpdu::HEADER_LEN..].copy_from_slice(ulpdu);
        let may_say_so = self.sctp.sessions.get(id).is_some_and(|session| {
            session.session.may_send_segment()
                && !session.ending
                && self.sctp.stack.room(session.assoc) > 1
        });
        let Some(frame) = may_say_so.then(|| self.control_frame(bytes)).flatten() else {
            return false;
        };
        let posting = self.sctp.posting(id, &self.frames.umem, self.now);
        let refused = match posting.map(|mut posting| posting.send(frame)) {
            Some(Ok(())) => return true,
            Some(Err((frame, _))) => frame,
            None => return false,
        };
        self.frames.pool.free(refused);
        false
    }

    /// A frame with these bytes, if one is free.
    fn control_frame(&mut self, bytes: &[u8]) -> Option<Frame> {
        let mut frame = self.frames.pool.alloc_for(bytes.len())?;
        let place = self.frames.umem.bytes_mut(&mut frame);
        let place = place.get_mut(..bytes.len());
        let fits = place.map(|place| place.copy_from_slice(bytes)).is_some();
        frame.set_len(if fits { bytes.len() } else { 0 });
        Some(frame)
    }

    /// Tells the peer that there is no place for the session that it asks for on a stream (RFC 5043 section 6.4). It
    /// asks in vain if it can't be told.
    pub fn refuse_session(&mut self, assoc: AssocId, stream: u16) {
        // What sessions have to say goes first.
        if self.sctp.stack.room(assoc) <= CONTROL_CHUNKS {
            return;
        }
        let terminate = Session::passive().terminate();
        let frame = terminate.and_then(|chunk| self.control_frame(chunk.bytes()));
        if let Some(frame) = frame {
            let chunk = ChunkFrame::of_association(frame, assoc, &self.frames.umem);
            let message = SctpOutgoing {
                stream,
                protocol: PPID_CONTROL,
                buffer: chunk,
            };
            if let Err(refused) = self.sctp.stack.post(self.now, assoc, message) {
                self.frames.pool.free(refused.buffer.frame);
            }
        }
    }
}
