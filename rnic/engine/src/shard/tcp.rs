//! TCP as a lower layer.

use std::net::{IpAddr, SocketAddr};

use rnic_xsk::Frame;
use userspace_net::{ConnId, Endpoint, Instant, checksum};
use userspace_tcp::{DeferredAck, Outgoing, Stack};

use super::llp::{Aborted, Heard, InUse, Llp, LlpContext, NotSent};
use crate::conn::{ConnKind, ConnTable};

impl Llp for Stack<Frame> {
    fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<(), InUse> {
        Self::listen(self, local.into(), backlog).map_err(|_| InUse)
    }

    fn unlisten(&mut self, local: SocketAddr) {
        Self::unlisten(self, local.into());
    }

    fn connections(&self, conns: &ConnTable) -> usize {
        conns.count(ConnKind::Tcp)
    }

    fn connections_at(&self, local: Endpoint) -> usize {
        Self::connections_at(self, local)
    }

    /// In one segment when it fits: some peers want that.
    fn send_startup(
        &mut self,
        LlpContext { frames, now }: LlpContext<'_>,
        id: ConnId,
        headers: usize,
        bytes: &[u8],
    ) -> Result<(), NotSent> {
        for part in bytes.chunks(self.mss(id).max(1)) {
            let outgoing = Outgoing {
                buf: frames.with(headers, part).ok_or(NotSent)?,
                len: part.len() as u32,
                payload_sum: checksum::sum(part),
            };
            if let Err(refused) = self.send(id, now, outgoing) {
                frames.pool.free(refused.buf);
                return Err(NotSent);
            }
        }
        Ok(())
    }

    fn close(&mut self, id: ConnId, is_answer: bool) {
        match is_answer {
            true => self.close_once_acknowledged(id),
            false => Self::close(self, id),
        };
    }

    fn abort(&mut self, _: LlpContext<'_>, id: ConnId) -> Aborted {
        Self::abort(self, id);
        Aborted::Gone
    }

    #[inline]
    fn queued_segments(&self, id: ConnId) -> usize {
        Self::queued_segments(self, id)
    }

    #[inline]
    fn acknowledged(&self, id: ConnId, deferred: Option<&DeferredAck>) -> Option<usize> {
        Self::acknowledged(self, id, deferred)
    }

    fn unacknowledged(&self, id: ConnId) -> u64 {
        Self::unacknowledged(self, id)
    }

    fn acknowledge_at_once(&mut self, id: ConnId) {
        Self::acknowledge_at_once(self, id);
    }

    fn heard(&self, id: ConnId) -> Option<Heard> {
        let info = self.info(id)?;
        Some(Heard {
            awaits_ack: info.awaits_ack,
            at: info.heard_at,
        })
    }

    /// TCP goes on with what it knows of congestion.
    fn path_moved(&mut self, _: Instant, _: ConnId, _: IpAddr) {}

    fn limit_mtu(&mut self, now: Instant, id: ConnId, mtu: u32) {
        self.link_mtu(id, now, mtu);
    }
}
