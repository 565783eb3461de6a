//! How much packet memory a connection needs: every buffer has a place that was counted here, so
//! that none of them ever waits for another's.

use rnic_xsk::MAX_FRAMES;
use userspace_tcp::TIMESTAMPS_LEN;

use super::error::PipeError;
use super::settings::Settings;

/// Segments of a send queue when nothing else is said: least and most.
const QUEUE_MIN: usize = 256;
const QUEUE_MAX: usize = 16_384;
/// Entries of RX and fill ring, least and most. A ring holds what comes while we don't run.
const RX_MIN: u32 = 512;
const RX_MAX: u32 = 4096;
/// Entries of TX and completion ring.
const TX_RING: u32 = 1024;
/// Frames for ACKs, fragments and the segment that is being filled.
const SPARE: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Packet buffers of the whole.
    pub(super) frames: u32,
    pub(super) rx_ring: u32,
    pub(super) tx_ring: u32,
    pub(super) queue_segments: usize,
    /// Buffers that the reader holds at most.
    pub(super) pieces: usize,
}

impl Sizes {
    /// For `queues` queues and segments of `mss` bytes of payload and options.
    pub(super) fn of(settings: &Settings, mss: u16, queues: u32) -> Result<Self, PipeError> {
        let payload = usize::from(mss).saturating_sub(TIMESTAMPS_LEN).max(1);
        let window_segments = settings.window as usize / payload + 1;
        let queue_segments = settings
            .queue_segments
            .unwrap_or(window_segments.clamp(QUEUE_MIN, QUEUE_MAX));
        // A quarter more, because not every segment is full; beyond it the reader copies.
        let pieces = window_segments + window_segments / 4 + QUEUE_MIN;
        let rx_ring = u32::try_from(window_segments)
            .unwrap_or(RX_MAX)
            .clamp(RX_MIN, RX_MAX)
            .next_power_of_two();
        let rings = u64::from(queues) * u64::from(rx_ring + TX_RING);
        let frames = (rings + pieces as u64 + SPARE).saturating_add(queue_segments as u64);
        match u32::try_from(frames).ok().filter(|n| *n <= MAX_FRAMES) {
            Some(frames) => Ok(Self {
                frames,
                rx_ring,
                tx_ring: TX_RING,
                queue_segments,
                pieces,
            }),
            None => Err(PipeError::TooLarge {
                window: settings.window,
                segments: queue_segments,
                frames,
                most: MAX_FRAMES,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
