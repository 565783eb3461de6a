//! What connections leave behind for the caller to fetch: events, buffers, and answers to
//! strangers.

use std::collections::VecDeque;

use userspace_net::arrival_rate::ArrivalRate;
use userspace_net::limit::RateLimit;
use userspace_net::mtu_evidence::MtuEvidence;
use userspace_net::{FourTuple, Instant};

use crate::config::Config;
use crate::connection::clock;
use crate::interface::{ConnId, Counters, Event};
use crate::options::Timestamps;
use crate::pools::Pools;
use crate::segment::{Flags, Segment, TcpHeader};
use crate::seq::SeqNum;

/// Most answers to unknown flows that wait for the link; more are not sent.
const ANSWERS_WAITING_MAX: usize = 256;

/// Events for which there is room from the start.
const EVENTS_ROOM: usize = 64;

/// Buffers that nobody needs any more for which there is room from the start: of some full send
/// queues.
const RELEASED_ROOM: usize = 2048;

/// Queues that the caller empties.
#[derive(Debug)]
pub(crate) struct Effects<B> {
    /// A few of each call; the caller fetches them.
    pub(crate) events: VecDeque<(ConnId, Event)>,
    /// Buffers that nobody needs any more.
    pub(crate) released: VecDeque<B>,
    pub(crate) counters: Counters,
    /// What connections learn of each other's paths.
    pub(crate) mtu_evidence: MtuEvidence,
    /// How fast segments come to all of them.
    pub(crate) arrival_rate: ArrivalRate,
    answers: VecDeque<Answer>,
    limit: RateLimit,
}

/// A reset or a SYN cookie.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The connection that it ends, or that a segment does not fit.
    pub(crate) conn: Option<ConnId>,
    pub(crate) tuple: FourTuple,
    pub(crate) header: TcpHeader,
    /// When our clock was read whose time is in it. The time says when the reset leaves (RFC 7323 section 3.2).
    pub(crate) clock_read: Option<Instant>,
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
            events: VecDeque::with_capacity(EVENTS_ROOM),
            released: VecDeque::with_capacity(RELEASED_ROOM),
            counters: Counters::default(),
            mtu_evidence: MtuEvidence::default(),
            arrival_rate: ArrivalRate::default(),
            answers: VecDeque::new(),
            limit: RateLimit::new(config.resets_per_second),
        }
    }

    /// Answers a segment that fits nothing (RFC 9293 section 3.10.7.1), or not the half-open connection of its
    /// ends (sections 3.10.7.3 and 3.10.7.4). A reset is never answered.
    pub(crate) fn reset_stranger(
        &mut self,
        now: Instant,
        conn: Option<ConnId>,
        tuple: FourTuple,
        segment: &Segment<'_>,
    ) {
        let theirs = &segment.header;
        if theirs.flags.rst() {
            return;
        }
        if self.answers.len() >= ANSWERS_WAITING_MAX || !self.limit.permit(now) {
            self.counters.resets_limited += 1;
            return;
        }
        let mut header = match theirs.flags.ack() {
            true => reset(&tuple, theirs.ack, None),
            // Truncated on purpose: sequence numbers wrap.
            false => {
                let ack = theirs.seq.add(segment.sequence_len() as u32);
                reset(&tuple, SeqNum(0), Some(ack))
            }
        };
        // RFC 7323 section 5.2.
        header.options.timestamps = theirs.options.timestamps.map(|theirs| Timestamps {
            value: 0,
            echo: theirs.value,
        });
        self.counters.resets_sent += 1;
        self.answers.push_back(Answer {
            conn,
            tuple,
            header,
            clock_read: None,
        });
    }

    /// Queues the reset by which we abort a connection, without any limit. `timestamps` are of `now`.
    pub(crate) fn abort(
        &mut self,
        now: Instant,
        conn: ConnId,
        tuple: FourTuple,
        (seq, ack): (SeqNum, SeqNum),
        timestamps: Option<Timestamps>,
    ) {
        let mut header = reset(&tuple, seq, Some(ack));
        header.options.timestamps = timestamps;
        self.counters.resets_sent += 1;
        self.answers.push_back(Answer {
            conn: Some(conn),
            tuple,
            header,
            clock_read: Some(now),
        });
    }

    /// Queues a SYN-ACK that no connection stands behind; `false` when too many wait already.
    pub(crate) fn cookie(&mut self, tuple: FourTuple, syn_ack: TcpHeader) -> bool {
        let room = self.answers.len() < ANSWERS_WAITING_MAX;
        if room {
            self.counters.cookies_sent += 1;
            self.answers.push_back(Answer {
                conn: None,
                tuple,
                header: syn_ack,
                clock_read: None,
            });
        }
        room
    }

    /// What the caller has not fetched.
    pub(crate) fn unfetched(&self) -> usize {
        self.events.len() + self.released.len() + self.answers.len()
    }

    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The next answer, which leaves `now`.
    pub(crate) fn take_answer(&mut self, now: Instant) -> Option<Answer> {
        let mut answer = self.answers.pop_front()?;
        let timestamps = answer.header.options.timestamps.as_mut();
        if let (Some(timestamps), Some(read)) = (timestamps, answer.clock_read) {
            timestamps.value = clock::later(timestamps.value, read, now);
        }
        Some(answer)
    }
}

fn reset(tuple: &FourTuple, seq: SeqNum, ack: Option<SeqNum>) -> TcpHeader {
    TcpHeader {
        source_port: tuple.local.port,
        destination_port: tuple.remote.port,
        seq,
        ack: ack.unwrap_or_default(),
        flags: match ack {
            Some(_) => Flags::RST | Flags::ACK,
            None => Flags::RST,
        },
        ..TcpHeader::default()
    }
}
