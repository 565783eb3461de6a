//! What is asked of the lower layer, TCP or SCTP, without asking which it is.

use std::net::{IpAddr, SocketAddr};

use rnic_ipc::control::Transport;
use rnic_proto::sctp::PPID_CONTROL;
use rnic_xsk::Port;
use userspace_net::checksum;
use userspace_net::{ConnId, Endpoint, Instant};
use userspace_tcp::{DeferredAck, Outgoing};

use super::datapath::Datapath;
use crate::command::CommandError;
use crate::conn::Conn;

/// A message of the start-up could not be sent: no frame is free, or the connection is gone.
#[derive(Debug)]
pub(in crate::shard) struct NotSent;

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

    /// How many connections there are.
    pub fn connections_over(&self, transport: Transport) -> usize {
        let sessions = self.sctp.sessions.len();
        match transport {
            Transport::Tcp => self.conns.len().saturating_sub(sessions),
            Transport::Sctp => sessions,
        }
    }

    /// Connections at a local end.
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

    /// RST or ABORT: the connection is gone at once.
    pub fn llp_abort(&mut self, id: ConnId) {
        match self.sctp.sessions.get(id) {
            Some(session) => {
                self.sctp.stack.abort(self.now, session.assoc, b"");
                self.sctp.sessions.remove(id);
                self.take_released_chunks();
            }
            None => drop(self.stack.abort(id)),
        }
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
        if let Some(session) = self.sctp.sessions.get(id) {
            return Some(Heard {
                awaits_ack: session.posted > 0,
                at: self.sctp.stack.info(session.assoc)?.heard_at,
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
        if let Some(session) = self.sctp.sessions.get(id) {
            let assoc = session.assoc;
            self.sctp.stack.path_moved(self.now, assoc, remote);
        }
    }

    /// The first link of a path takes packets of at most so many bytes.
    pub fn limit_mtu(&mut self, id: ConnId, mtu: u32) {
        match self.sctp.sessions.get(id) {
            Some(session) => {
                let assoc = session.assoc;
                self.sctp.stack.limit_mtu(self.now, assoc, mtu as usize);
            }
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
        let session = self.sctp.sessions.get_mut(id).ok_or(NotSent)?;
        let (pool, umem) = (&mut self.frames.pool, &self.frames.umem);
        let mut frame = pool.alloc_for(bytes.len()).ok_or(NotSent)?;
        let place = umem.bytes_mut(&mut frame).get_mut(..bytes.len());
        let fits = place.map(|place| place.copy_from_slice(bytes)).is_some();
        frame.set_len(if fits { bytes.len() } else { 0 });
        let posted = session.post(&mut self.sctp.stack, umem, (PPID_CONTROL, frame), self.now);
        posted.map_err(|(frame, why)| {
            log::debug!("a session control message was not taken: {why}");
            pool.free(frame);
            NotSent
        })
    }
}
