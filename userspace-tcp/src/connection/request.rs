//! What the layer above asks of a connection (RFC 9293 section 3.9.1).

use std::time::Duration;

use crate::config::Config;
use crate::effects::Env;
use crate::interface::{Outgoing, SegmentId, SendCapacity, SendRefusal, State};
use crate::outbound::Returned;
use crate::seq::{SeqNum, StreamOffset};

use super::Connection;
use super::timeout::Timer;

/// Segments are not made smaller than this because of a small window: headers would outweigh them.
const CUT_MIN: usize = 64;

impl<B> Connection<B> {
    /// See [`crate::Stack::split`].
    pub(crate) fn split(
        &mut self,
        env: &mut Env<'_, B>,
        cut: impl FnOnce(B, usize) -> Result<[Outgoing<B>; 2], B>,
    ) -> bool {
        let Some(at) = self.outbound.part_in_window() else {
            return false;
        };
        let probes_path = self.path.is_probe(self.outbound.next());
        let split = self.outbound.split(at, &mut env.pools.queues, cut);
        if split {
            // What is sent instead says nothing of the size that was to be tried.
            if probes_path {
                self.path.probe_lost(env.now, false);
            }
            self.probe_due = false;
            self.pacer.advance(env.now);
        }
        split
    }

    /// Before the first segment of several is queued.
    #[inline]
    pub(crate) fn begin_posting(&mut self, env: &Env<'_, B>) {
        self.note_fed(env.now, env.config);
    }

    /// Queues one segment, for which there is room ([`Connection::refusal`]).
    #[inline]
    pub(crate) fn post(&mut self, env: &mut Env<'_, B>, outgoing: Outgoing<B>) {
        let len = outgoing.len;
        self.outbound.push(outgoing, &mut env.pools.queues);
        self.note_posted(len);
    }

    /// One past the end.
    #[inline]
    pub(crate) fn end_posting(&mut self, env: &Env<'_, B>) {
        self.pacer.advance(env.now);
        self.refresh_timer(env.now, env.config);
    }

    /// Why a segment of so many bytes can't be queued, if so.
    pub(crate) fn refusal(&self, config: &Config, len: u32) -> Option<SendRefusal> {
        let limit = config.send_queue_segments;
        match self.state {
            State::SynSent | State::SynReceived => Some(SendRefusal::NotEstablished),
            State::Established | State::CloseWait => {
                let mss = self.mss();
                if len == 0 || len as usize > mss {
                    Some(SendRefusal::Length { len, mss })
                } else if self.outbound.queued_segments() >= limit {
                    Some(SendRefusal::QueueFull { limit })
                } else {
                    None
                }
            }
            _ => Some(SendRefusal::Closed),
        }
    }

    /// See [`crate::Stack::send_room`].
    pub(crate) fn send_room(&self, config: &Config) -> usize {
        let room = self.room_with(u64::from(self.emss));
        self.outlook_with(room, self.places(config)).room
    }

    /// See [`crate::Stack::send_capacity`].
    pub(crate) fn send_capacity(&self, config: &Config) -> SendCapacity {
        self.outlook_with(self.room_behind(), self.places(config))
    }

    /// The same, by bytes that windows would let go and segments that the queue takes.
    #[inline]
    pub(crate) fn outlook_with(&self, room: usize, places: usize) -> SendCapacity {
        let (queued, mss) = (self.outbound.queued_segments(), self.mss());
        let room = match (queued, places) {
            (_, 0) => 0,
            (0, _) => room.max(mss),
            _ => room,
        };
        SendCapacity { queued, mss, room }
    }

    /// Segments that the queue takes.
    pub(crate) fn places(&self, config: &Config) -> usize {
        let open = matches!(self.state, State::Established | State::CloseWait);
        let limit = if open { config.send_queue_segments } else { 0 };
        limit.saturating_sub(self.outbound.queued_segments())
    }

    /// Bytes that windows would let go behind what is queued.
    pub(crate) fn room_behind(&self) -> usize {
        self.room_with(0)
    }

    /// The same, and `waiting` bytes more than cwnd says, if the peer's window takes them.
    fn room_with(&self, waiting: u64) -> usize {
        let held = self.frto.prefers_new();
        let cwnd = self.congestion.cwnd();
        let room = self.outbound.room(cwnd, held, waiting);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// See [`crate::Stack::acknowledged`]; `ack` is the acknowledgment that is owed.
    pub(crate) fn acknowledged(&self, ack: Option<SeqNum>) -> Option<usize> {
        let queued = self.outbound.queued_segments();
        (queued == 0 || ack == Some(self.outbound.wire(self.outbound.tail()))).then_some(queued)
    }

    /// See [`crate::Stack::unacknowledged`].
    pub(crate) fn unacknowledged(&self) -> u64 {
        // An acknowledged FIN comes after the last byte.
        self.outbound.tail().saturating_sub(self.outbound.una())
    }

    /// See [`crate::Stack::acknowledge_at_once`].
    pub(crate) fn acknowledge_at_once(&mut self) {
        if let Some(until) = self.inbound.ack_deadline() {
            self.inbound.end_ack_delay(until);
        }
    }

    /// See [`crate::Stack::cut`].
    pub(crate) fn cut(&self) -> usize {
        let largest = self.outbound.window_max();
        let half = usize::try_from(largest / 2).unwrap_or(usize::MAX);
        self.mss().min(half.max(CUT_MIN))
    }

    /// See [`crate::Stack::transmitted`].
    pub(crate) fn transmitted(&mut self, segment: SegmentId, buf: B) -> Returned<B> {
        self.outbound.returned(segment, buf)
    }

    /// See [`crate::Stack::consumed`].
    pub(crate) fn consumed(&mut self, to: StreamOffset) {
        if !matches!(self.state, State::SynSent | State::SynReceived) {
            self.inbound.consume(to);
        }
    }

    /// See [`crate::Stack::set_user_timeout`].
    pub(crate) fn set_user_timeout(&mut self, env: &mut Env<'_, B>, timeout: Duration) {
        self.user_timeout = Some(timeout);
        if matches!(self.timer, Timer::Retransmit(_)) {
            self.timer = Timer::Idle;
            self.refresh_timer(env.now, env.config);
        }
    }

    /// See [`crate::Stack::close`].
    pub(crate) fn close(&mut self, env: &mut Env<'_, B>, waits: bool) {
        match self.state {
            State::SynSent => {
                self.die(env, None);
                return;
            }
            State::SynReceived => {}
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => return,
        }
        self.outbound.fin.wanted = true;
        self.outbound.fin.waits = waits;
        self.outbound.fin.alone = waits || env.config.fin_alone;
    }

    /// See [`crate::Stack::abort`].
    pub(crate) fn abort(&mut self, env: &mut Env<'_, B>) {
        // When both sides have closed the peer needs to know only of bytes that it won't get.
        let silent = match self.state {
            State::SynSent | State::TimeWait => true,
            _ => self.lacks_only_ack_of_fin(),
        };
        if !silent {
            let numbers = (self.idle_seq(), self.inbound.next_wire());
            let timestamps = self.clock.option(env.now);
            env.effects
                .abort(env.now, self.id, self.tuple, numbers, timestamps);
        }
        self.die(env, None);
    }
}
