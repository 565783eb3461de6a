//! What connections leave behind for the caller to fetch: events, buffers, and resets.

use std::collections::VecDeque;

use crate::config::Config;
use crate::interface::{ConnId, Counters, Event};
use crate::limit::RateLimit;
use crate::pool::Pools;
use crate::segment::{Flags, Segment, TcpHeader};
use crate::seq::SeqNum;
use crate::time::Instant;
use crate::tuple::FourTuple;

/// Most resets that answer strangers and wait for the link; more are not sent.
const RESETS_WAITING_MAX: usize = 256;

/// Queues that the caller empties.
#[derive(Debug)]
pub(crate) struct Effects<B> {
    /// At most four of one connection.
    pub(crate) events: VecDeque<(ConnId, Event)>,
    /// Buffers that nobody needs any more.
    pub(crate) released: VecDeque<B>,
    pub(crate) counters: Counters,
    resets: VecDeque<(FourTuple, TcpHeader)>,
    limit: RateLimit,
}

/// What every step of a connection is given.
pub(crate) struct Env<'a, B> {
    pub(crate) now: Instant,
    pub(crate) config: &'a Config,
    pub(crate) effects: &'a mut Effects<B>,
    pub(crate) pools: &'a mut Pools<B>,
}

impl<B> Effects<B> {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            events: VecDeque::new(),
            released: VecDeque::new(),
            counters: Counters::default(),
            resets: VecDeque::new(),
            limit: RateLimit::new(config.resets_per_second),
        }
    }

    /// Answers a segment that fits nothing (RFC 9293 section 3.10.7.1). A reset is never answered.
    pub(crate) fn reset_stranger(&mut self, now: Instant, tuple: FourTuple, segment: &Segment<'_>) {
        let header = &segment.header;
        if header.flags.rst() {
            return;
        }
        if self.resets.len() >= RESETS_WAITING_MAX || !self.limit.permit(now) {
            self.counters.resets_limited += 1;
            return;
        }
        if header.flags.ack() {
            self.reset(tuple, header.ack, None);
        } else {
            // Truncated on purpose: sequence numbers wrap.
            let ack = header.seq.add(segment.sequence_len() as u32);
            self.reset(tuple, SeqNum(0), Some(ack));
        }
    }

    /// Queues a reset, by an abort of ours without any limit.
    pub(crate) fn reset(&mut self, tuple: FourTuple, seq: SeqNum, ack: Option<SeqNum>) {
        let flags = if ack.is_some() {
            Flags::RST | Flags::ACK
        } else {
            Flags::RST
        };
        let header = TcpHeader {
            source_port: tuple.local.port,
            destination_port: tuple.remote.port,
            seq,
            ack: ack.unwrap_or_default(),
            flags,
            ..TcpHeader::default()
        };
        self.counters.resets_sent += 1;
        self.resets.push_back((tuple, header));
    }

    pub(crate) fn take_reset(&mut self) -> Option<(FourTuple, TcpHeader)> {
        self.resets.pop_front()
    }
}
