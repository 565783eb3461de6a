//! SCTP as a lower layer: of sessions, and of the associations that carry them.

use std::net::{IpAddr, SocketAddr};

use rnic_proto::mpa::fpdu;
use rnic_proto::rdmap::{RdmapError, TerminateError, TerminateMessage, terminate};
use rnic_proto::sctp::{PPID_CONTROL, Session};
use rnic_xsk::FramePool;
use userspace_net::{ConnId, Endpoint, Instant};
use userspace_sctp::{AssocId, Outgoing};
use userspace_tcp::DeferredAck;

use super::{CONTROL_CHUNKS, ChunkFrame, ChunkOwner, Sctp};
use crate::conn::{ConnTable, Frames};
use crate::shard::llp::{Aborted, Heard, InUse, Llp, LlpContext, NotSent};

impl Llp for Sctp {
    fn listen(&mut self, local: SocketAddr, _: usize) -> Result<(), InUse> {
        self.stack.listen(local).map_err(|_| InUse)
    }

    fn unlisten(&mut self, local: SocketAddr) {
        self.stack.unlisten(local);
    }

    /// There are as many places for sessions as for associations.
    fn connections(&self, _: &ConnTable) -> usize {
        self.sessions.len().max(self.sessions.associated())
    }

    fn connections_at(&self, local: Endpoint) -> usize {
        self.sessions.at(local)
    }

    fn send_startup(
        &mut self,
        LlpContext { frames, now }: LlpContext<'_>,
        id: ConnId,
        _: usize,
        bytes: &[u8],
    ) -> Result<(), NotSent> {
        let frame = frames.with(0, bytes).ok_or(NotSent)?;
        let posted = self.post_control(id, (frame, &frames.umem), now);
        posted.map_err(|(frame, why)| {
            log::debug!("a session control message was not taken: {why}");
            frames.pool.free(frame);
            NotSent
        })
    }

    /// By the session's Terminate.
    fn close(&mut self, id: ConnId, _: bool) {
        if let Some(session) = self.sessions.get_mut(id) {
            session.ending = true;
            self.sessions.hear(id);
        }
    }

    /// By ABORT. A session whose association others use is ended by an RDMAP Terminate, as any stream that this side
    /// can't go on with (RFC 5043 section 11.3), and its own.
    fn abort(&mut self, context: LlpContext<'_>, id: ConnId) -> Aborted {
        let Some(assoc) = self.sessions.assoc_of(id) else {
            return Aborted::Gone;
        };
        if !self.sessions.is_alone(id)
            && let Some(session) = self.sessions.get(id)
        {
            // The peer does not end what it was told to end. It may be that it takes nothing at all.
            let is_stuck = session.is_abandoned && session.posted > 0;
            if session.is_unsaid() || session.is_abandoned && !is_stuck {
                return Aborted::Gone;
            }
            if !is_stuck {
                self.abandon_session(context, id);
                return Aborted::Ends;
            }
        }
        let carried = self.sessions.on(assoc);
        self.stack.abort(context.now, assoc, b"");
        self.take_released(&mut context.frames.pool);
        Aborted::With(carried)
    }

    #[inline]
    fn queued_segments(&self, id: ConnId) -> usize {
        self.sessions.get(id).map_or(0, |session| session.posted)
    }

    /// Chunks are counted, and not their bytes.
    fn unacknowledged(&self, id: ConnId) -> u64 {
        match self.queued_segments(id) {
            0 => 0,
            _ => u64::MAX,
        }
    }

    /// SCTP knows of no hurry: a SACK for a chunk alone is delayed (RFC 9260 section 6.2).
    fn acknowledge_at_once(&mut self, _: ConnId) {}

    /// What is acknowledged comes back at once.
    #[inline]
    fn acknowledged(&self, id: ConnId, _: Option<&DeferredAck>) -> Option<usize> {
        let session = self.sessions.get(id)?;
        (session.posted == 0).then_some(0)
    }

    fn heard(&self, id: ConnId) -> Option<Heard> {
        let info = self.stack.info(self.sessions.assoc_of(id)?)?;
        let session = self.sessions.get(id);
        Some(Heard {
            awaits_ack: session.is_some_and(|session| session.posted > 0),
            at: info.heard_at,
        })
    }

    fn path_moved(&mut self, now: Instant, id: ConnId, remote: IpAddr) {
        if let Some(assoc) = self.sessions.assoc_of(id) {
            self.stack.path_moved(now, assoc, remote);
        }
    }

    fn limit_mtu(&mut self, now: Instant, id: ConnId, mtu: u32) {
        if let Some(assoc) = self.sessions.assoc_of(id) {
            self.stack.limit_mtu(now, assoc, mtu as usize);
        }
    }
}

impl Sctp {
    /// Frees the frames of chunks that SCTP gives back; their sessions are told.
    pub fn take_released(&mut self, pool: &mut FramePool) {
        while let Some(chunk) = self.stack.poll_released() {
            let ChunkFrame { frame, owner, .. } = chunk;
            match owner {
                ChunkOwner::Session(id) => self.sessions.acknowledged(id, frame.len()),
                ChunkOwner::Association(assoc) => self.sessions.hear_waiting(assoc),
            }
            pool.free(frame);
        }
    }

    fn abandon_session(&mut self, LlpContext { frames, now }: LlpContext<'_>, id: ConnId) {
        let error = TerminateError::from(RdmapError::LocalCatastrophic);
        self.terminate_stream(frames, now, id, error);
        if let Some(session) = self.sessions.get_mut(id) {
            session.abandon();
        }
        self.sessions.hear(id);
    }

    /// Sends an RDMAP Terminate with this error as the next segment of a session. False: it does not take one.
    pub fn terminate_stream(
        &mut self,
        frames: &mut Frames,
        now: Instant,
        id: ConnId,
        error: TerminateError,
    ) -> bool {
        let terminate = TerminateMessage::new(error, None);
        let ulpdu = terminate.bytes();
        let mut bytes = [0; fpdu::HEADER_LEN + terminate::ULPDU_LEN_MAX];
        let bytes = &mut bytes[..fpdu::HEADER_LEN + ulpdu.len()];
        bytes[..fpdu::HEADER_LEN].copy_from_slice(&(ulpdu.len() as u16).to_be_bytes());
        bytes[fpdu::HEADER_LEN..].copy_from_slice(ulpdu);
        let may_say_so = self.sessions.get(id).is_some_and(|session| {
            session.session.may_send_segment()
                && !session.ending
                && self.stack.room(session.assoc) > 1
        });
        let Some(frame) = may_say_so.then(|| frames.with(0, bytes)).flatten() else {
            return false;
        };
        let refused = match self.posting(id, &frames.umem, now) {
            None => frame,
            Some(mut posting) => match posting.send(frame) {
                Ok(()) => return true,
                Err((frame, _)) => frame,
            },
        };
        frames.pool.free(refused);
        false
    }

    /// Tells the peer that there is no place for the session that it asks for on a stream (RFC 5043 section 6.4). It
    /// asks in vain if it can't be told.
    pub fn refuse_session(
        &mut self,
        frames: &mut Frames,
        now: Instant,
        assoc: AssocId,
        stream: u16,
    ) {
        // What sessions have to say goes first.
        if self.stack.room(assoc) <= CONTROL_CHUNKS {
            return;
        }
        let terminate = Session::passive().terminate();
        let frame = terminate.and_then(|chunk| frames.with(0, chunk.bytes()));
        if let Some(frame) = frame {
            let message = Outgoing {
                stream,
                protocol: PPID_CONTROL,
                buffer: ChunkFrame::of_association(frame, assoc, &frames.umem),
            };
            if let Err(refused) = self.stack.post(now, assoc, message) {
                frames.pool.free(refused.buffer.frame);
            }
        }
    }
}
