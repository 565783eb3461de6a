//! What one direction has counted.

use serde::Serialize;

/// Why a packet does not leave as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Lost by the random or the burst loss.
    Lost,
    /// The queue was full.
    QueueFull,
    /// Above the MTU.
    TooBig,
    /// No frame was free to hold it or its copy.
    NoFrame,
}

impl Fate {
    pub const fn name(self) -> &'static str {
        match self {
            Fate::Lost => "lost",
            Fate::QueueFull => "queue full",
            Fate::TooBig => "too big",
            Fate::NoFrame => "no frame",
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident),+ $(,)?) => {
        /// Packets of one direction, but for the two that count bytes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Counters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Every counter under its name, in a fixed order.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
        }
    };
}

counters! {
    /// Frames that came in.
    arrived,
    /// Bytes in them.
    arrived_bytes,
    /// Frames that left.
    forwarded,
    /// Bytes in them.
    forwarded_bytes,
    /// Lost at random or in a burst.
    lost,
    /// Of these, lost by the burst loss.
    lost_in_bursts,
    /// Copies made.
    duplicated,
    /// Damaged.
    corrupted,
    /// Held back for others to overtake.
    held_back,
    /// Held back and overtaken by at least one.
    reordered,
    /// Dropped because the queue was full.
    queue_full,
    /// Marked CE.
    ecn_marked,
    /// Dropped because they were above the MTU.
    too_big,
    /// ICMP answers to these, sent back.
    icmp_sent,
    /// IPv4 packets without DF that were fragmented.
    fragmented,
    /// TCP segments cut, and pairs of them joined and cut again.
    resegmented,
    /// Packets that fragmentation and re-segmentation made, beside those that there were.
    added,
    /// Packets that joining took away.
    merged,
    /// Dropped because no frame was free: give more with --frames.
    no_frame,
    /// Changes of settings that came into force.
    changes,
}

impl Counters {
    /// Counts a packet that was dropped.
    pub(super) fn dropped(&mut self, fate: Fate) {
        *match fate {
            Fate::Lost => &mut self.lost,
            Fate::QueueFull => &mut self.queue_full,
            Fate::TooBig => &mut self.too_big,
            Fate::NoFrame => &mut self.no_frame,
        } += 1;
    }

    /// Whether what came in and was made is what went out, was dropped, or waits.
    pub fn balanced(&self, waiting: usize) -> bool {
        let made = self.arrived + self.duplicated + self.added;
        let dropped = self.lost + self.queue_full + self.too_big + self.no_frame;
        made == self.forwarded + self.merged + dropped + waiting as u64
    }
}
