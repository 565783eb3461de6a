//! Bursts out of the connections' turns.

use crate::burst::BurstLink;
use crate::effects::Env;
use crate::interface::{ConnId, Outgoing, Outlook, SendError};
use crate::slab::Named;
use crate::time::Instant;

use super::Stack;
use super::segments::SEGMENTS_PER_TURN;

impl<B> Stack<B> {
    /// Gives `link` what [`Stack::poll_transmit`] would give next, up to `most` segments, as long as
    /// these are of one connection and were never sent before; how many it gave. 0: nothing was
    /// done, and [`Stack::poll_transmit`] has what is next, if there is anything.
    #[inline]
    pub fn poll_burst(&mut self, now: Instant, most: usize, link: &mut impl BurstLink<B>) -> usize {
        let Some(index) = self.next_to_send() else {
            return 0;
        };
        let Some(connection) = self.connections.at_mut(index) else {
            return 0;
        };
        let alone = self.ready.len() == 0;
        let turn = match alone {
            true => usize::MAX,
            false => SEGMENTS_PER_TURN.saturating_sub(self.turn).max(1) as usize,
        };
        let sent = connection.transmit_burst(now, &self.config, most.min(turn), link);
        let id = connection.id();
        self.turn = self
            .turn
            .saturating_add(u32::try_from(sent).unwrap_or(u32::MAX));
        // It stays where it is found when it gave nothing.
        self.sending = Some(index);
        if sent > 0 && !self.goes_on() {
            self.sending = None;
            self.settle(id);
        }
        sent
    }
    /// Sends one segment that `fill` makes, if this connection has sent all that was queued, no other
    /// wants to send, and as many octets as the outlook's room go out now; says whether it was sent. Else,
    /// or when `fill` makes none, nothing was done. It is as [`Stack::send`] and [`Stack::poll_burst`] one
    /// behind the other, but leaves before TCP does its books.
    ///
    /// # Errors
    /// The buffer of a segment that is longer than the room comes back.
    // Where it is called there is one link, and one that fills.
    #[inline(always)]
    pub fn send_alone(
        &mut self,
        conn: ConnId,
        now: Instant,
        link: &mut impl BurstLink<B>,
        fill: impl FnOnce(Outlook) -> Option<Outgoing<B>>,
    ) -> Result<bool, SendError<B>> {
        if self.sending.is_some() || self.ready.first().is_some() {
            return Ok(false);
        }
        let Some(connection) = self.connections.get_mut(conn) else {
            return Ok(false);
        };
        let mut env = Env {
            now,
            config: &self.config,
            effects: &mut self.effects,
            pools: &mut self.pools,
        };
        let sent = connection.transmit_alone(&mut env, link, fill)?;
        if sent {
            self.settle(conn);
        }
        Ok(sent)
    }
}
