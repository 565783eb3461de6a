//! The peer's data (RFC 9260 section 6.2): each message is shown at once, and exactly once.

use super::Association;
use crate::cause::Cause;
use crate::chunk::Data;
use crate::effects::Env;
use crate::inbound::acks;
use crate::inbound::arrivals::{Arrival, Arrivals};
use crate::inbound::reassembly::ReassemblyError;
use crate::interface::{Message, State};

/// What a packet brought of data.
#[derive(Debug)]
pub(super) struct Brought {
    data: bool,
    had_gap: bool,
    /// A chunk was here before, or was not taken.
    again: bool,
    immediate: bool,
}

impl Brought {
    pub(super) fn new(arrivals: &Arrivals) -> Self {
        Self {
            data: false,
            had_gap: arrivals.has_gap(),
            again: false,
            immediate: false,
        }
    }
}

impl<B> Association<B> {
    /// The states in which data is taken (section 6).
    pub(super) const fn receives_data(&self) -> bool {
        matches!(
            self.state,
            State::Established | State::ShutdownPending | State::ShutdownSent
        )
    }

    pub(super) fn on_data(
        &mut self,
        data: &Data<'_>,
        brought: &mut Brought,
        env: &mut Env<'_, B>,
        deliver: &mut impl FnMut(Message<'_>),
    ) {
        if !self.receives_data() {
            return;
        }
        if data.payload.is_empty() {
            return self.violated_by(&Cause::NoUserData(data.tsn), "a DATA chunk is empty", env);
        }
        if !data.unordered {
            return self.violated("a message is ordered, and none may be", env);
        }
        brought.data = true;
        self.data_from = self.heard_from;
        brought.immediate |= data.immediate;
        if self.inbound.arrivals.look(data.tsn) != Arrival::New {
            // It is noted as a duplicate, if it is one.
            self.inbound.arrivals.take(data.tsn);
            brought.again = true;
        } else if data.stream >= self.inbound_streams {
            // Acknowledged and dropped (section 6.5).
            self.inbound.arrivals.take(data.tsn);
            self.pending.error(&Cause::InvalidStream(data.stream));
        } else if self.is_refused(data) {
            brought.again = true;
        } else if data.begin && data.end {
            self.take(data);
            deliver(Message {
                stream: data.stream,
                protocol: data.protocol,
                payload: data.payload,
            });
        } else {
            self.on_fragment(data, brought, env, deliver);
        }
    }

    /// With a closed window only gaps are filled (section 6.2).
    fn is_refused(&self, data: &Data<'_>) -> bool {
        let Self { inbound, .. } = self;
        let is_beyond = data.tsn.is_after(inbound.arrivals.highest());
        inbound.window.is_exceeded() || inbound.window.is_closed() && is_beyond
    }

    fn take(&mut self, data: &Data<'_>) {
        self.inbound.arrivals.take(data.tsn);
        self.inbound.window.took(data.payload.len());
        self.counters.bytes_in += data.payload.len() as u64;
    }

    fn on_fragment(
        &mut self,
        data: &Data<'_>,
        brought: &mut Brought,
        env: &mut Env<'_, B>,
        deliver: &mut impl FnMut(Message<'_>),
    ) {
        match self.inbound.reassembly.take(data) {
            Ok(whole) => {
                self.take(data);
                if let Some(message) = whole {
                    deliver(Message {
                        stream: message.stream,
                        protocol: message.protocol,
                        payload: &message.bytes,
                    });
                }
            }
            Err(ReassemblyError::TooMuch { .. } | ReassemblyError::TooMany) => brought.again = true,
            Err(ReassemblyError::Misfit { .. }) => {
                self.violated("a fragment does not fit its neighbours", env);
            }
        }
    }

    /// A packet was read to its end.
    pub(super) fn acknowledge(&mut self, brought: &Brought, env: &mut Env<'_, B>) {
        if !brought.data {
            return;
        }
        let is_fast = env.effects.arrival_rate.is_fast_with(env.now, 1);
        let arrivals = &self.inbound.arrivals;
        self.inbound.acks.packet(
            env.now,
            acks::Brought {
                gap: brought.had_gap || arrivals.has_gap(),
                again: brought.again,
                immediate: brought.immediate,
                may_wait: is_fast && self.inbound.window.is_wide_open(),
            },
        );
        if self.state == State::ShutdownSent {
            // Section 9.2: each packet is answered by a SHUTDOWN, and by a SACK for what it can't say.
            self.pending.shutdown = true;
            self.inbound.acks.at_once(env.now);
        }
    }
}
