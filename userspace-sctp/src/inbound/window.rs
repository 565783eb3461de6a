//! The receive window: what the peer was offered, and what the layer above has not consumed (RFC 9260 section 6.2).
//!
//! An offer only shrinks by what comes, and grows in steps worth a packet, so that no peer is led to send small
//! packets (the silly window syndrome of RFC 1122 section 4.2.3.3).

#[cfg(test)]
mod tests;

/// The receive window of one association, in bytes of user data.
#[derive(Debug)]
pub struct ReceiveWindow {
    size: usize,
    /// Here, and not consumed.
    held: usize,
    /// What the peer may send, by the last offer.
    offered: usize,
    /// An offer grows by at least so much.
    step: usize,
}

impl ReceiveWindow {
    /// All of `size` is offered; `packet` is what a full packet carries.
    pub fn new(size: usize, packet: usize) -> Self {
        Self {
            size,
            held: 0,
            offered: size,
            step: packet.min(size / 2),
        }
    }

    /// Bytes that are here and not consumed.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Whether the peer was told that nothing more is taken. Then no TSN is taken that is higher than what is here.
    pub const fn is_closed(&self) -> bool {
        self.offered == 0
    }

    /// Whether there is no place for what fills a gap either. Gaps may exceed the window, because what fills them
    /// may be what the layer above waits for; but by no more than another window.
    pub const fn is_exceeded(&self) -> bool {
        self.held >= 2 * self.size
    }

    /// Whether three quarters of it are still offered.
    pub const fn is_wide_open(&self) -> bool {
        self.offered >= self.size - self.size / 4
    }

    /// So many bytes came and are kept.
    pub const fn took(&mut self, bytes: usize) {
        self.held += bytes;
        self.offered = self.offered.saturating_sub(bytes);
    }

    /// The layer above needs so many of them no more. Whether the peer should hear of it even if it sends nothing:
    /// half of the window has become free since the last offer.
    pub const fn consumed(&mut self, bytes: usize) -> bool {
        self.held = self.held.saturating_sub(bytes);
        self.growth() >= self.size / 2
    }

    /// What a SACK offers now.
    pub const fn offer(&mut self) -> u32 {
        let growth = self.growth();
        if growth >= self.step {
            self.offered += growth;
        }
        self.offered as u32
    }

    /// By how much the offer could grow.
    const fn growth(&self) -> usize {
        self.size
            .saturating_sub(self.held)
            .saturating_sub(self.offered)
    }
}
