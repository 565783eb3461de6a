//! Bursts out of the connections' turns.

use crate::burst::BurstLink;
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
}
