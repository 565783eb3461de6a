//! ICMP errors about segments of ours (RFC 9293 section 3.9.2.2, RFC 5927).

use crate::effects::Env;
use crate::interface::{Event, IcmpError, SoftError, State};
use crate::seq::SeqNum;

use super::Connection;
use super::timeout::Timer;

impl<B> Connection<B> {
    /// Takes an error about the segment at `seq`; `false` when none of ours can be meant, or it can't
    /// be true.
    pub(crate) fn on_icmp(&mut self, env: &mut Env<'_, B>, seq: SeqNum, error: IcmpError) -> bool {
        let position = self.outbound.position(seq);
        // A segment that is acknowledged in part goes out again from its beginning.
        let first = self.outbound.first_sent().map(|(start, _)| start);
        let una = self.outbound.una();
        let least = first.map_or(una, |start| start.min(una)).cast_signed();
        if position < least || position >= self.outbound.next().cast_signed() {
            return false;
        }
        match error {
            IcmpError::Unreachable { hard: true } if self.state == State::SynSent => {
                self.die(env, Some(Event::Refused));
            }
            IcmpError::Unreachable { hard } => self.report(env, SoftError::Unreachable { hard }),
            IcmpError::PacketTooBig { mtu } => {
                let Some(dropped) = self.on_too_big(env, position.cast_unsigned(), mtu) else {
                    return false;
                };
                if dropped {
                    // What was dropped goes out again at once; its time starts over.
                    self.timer = Timer::Idle;
                    self.refresh_timer(env.now, env.config);
                }
            }
        }
        true
    }
}
