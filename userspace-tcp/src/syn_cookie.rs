//! SYN cookies (RFC 4987 section 3.6): a SYN-ACK that needs no memory.
//!
//! When a listener's SYN queue is full, its SYN-ACK has to carry what the listener would remember. Its sequence
//! number has a keyed hash, the time in steps of 64 seconds, and the peer's MSS rounded down to one of eight. When
//! the peer sends timestamps, the lowest bits of ours have window scale, SACK and ECN. The ACK that completes the handshake brings it all back. Whoever can't see our SYN-ACK has
//! to guess 27 bits within two minutes; a cookie is believed only by a listener that gave some out
//! at that time.

#[cfg(test)]
mod tests;

use std::hash::Hasher;
use std::time::Duration;

use userspace_net::keyed::Secret;
use userspace_net::{FourTuple, Instant};

use crate::config::Config;
use crate::inbound::WINDOW_SHIFT_MAX;
use crate::options::{Options, Timestamps};
use crate::segment::{Flags, TcpHeader};
use crate::seq::SeqNum;

/// A cookie tells in which of four such periods it was made.
const PERIOD: Duration = Duration::from_secs(64);
const PERIOD_BITS: u32 = 2;
const PERIOD_MASK: u64 = (1 << PERIOD_BITS) - 1;

/// A cookie is good in its period and the next.
pub(crate) const LIFETIME: Duration = Duration::from_secs(2 * PERIOD.as_secs());

/// What is left of the peer's MSS: the greatest of these that it does not exceed. Besides the
/// least that is believed and the defaults: tunnels, Ethernet, jumbo frames, the latter two over
/// both IP versions.
const MSS: [u16; 1 << MSS_BITS] = [88, 536, 1220, 1360, 1440, 1460, 8940, 8960];
const MSS_BITS: u32 = 3;
const MSS_MASK: u32 = (1 << MSS_BITS) - 1;

/// Bits that the lowest part of our timestamp lends.
const OFFER_BITS: u32 = 6;
const OFFER_MASK: u32 = (1 << OFFER_BITS) - 1;
const NO_WINDOW_SCALE: u8 = 0b1111;
const SACK: u8 = 1 << 4;
const ECN: u8 = 1 << 5;

/// What a SYN offered, as far as a cookie keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offer {
    /// Index into [`MSS`].
    mss: u8,
    /// The lowest bits of our timestamp; `None`: no timestamps, and then none of the rest.
    bits: Option<u8>,
}

/// The answer to a SYN, and what is kept of the SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cookie {
    /// The initial sequence number of the SYN-ACK.
    pub(crate) sequence: SeqNum,
    /// A SYN that offers what the cookie keeps, to which the SYN-ACK is the answer.
    pub(crate) syn: TcpHeader,
    bits: Option<u8>,
}

impl Cookie {
    /// For `syn`, whose sender's MSS is `mss`.
    pub(crate) fn bake(
        secret: &Secret,
        config: &Config,
        now: Instant,
        tuple: &FourTuple,
        syn: &TcpHeader,
        mss: u16,
    ) -> Self {
        let timestamps = syn.options.timestamps.filter(|_| config.timestamps);
        let offer = Offer::of(syn, mss, timestamps);
        Self {
            sequence: sequence(secret, period(now), tuple, syn.seq, offer),
            syn: offer.syn(syn.seq, timestamps),
            bits: offer.bits,
        }
    }

    /// Puts into the timestamp of the SYN-ACK what belongs there. It shows no time to come.
    pub(crate) fn mark(&self, syn_ack: &mut TcpHeader) {
        if let (Some(timestamps), Some(bits)) = (&mut syn_ack.options.timestamps, self.bits) {
            let marked = (timestamps.value & !OFFER_MASK) | u32::from(bits);
            let ahead = marked > timestamps.value;
            timestamps.value = marked.wrapping_sub(u32::from(ahead) << OFFER_BITS);
        }
    }
}

/// The SYN to which the ACK `header` brings a cookie of ours back, as far as it was kept.
pub(crate) fn check(
    secret: &Secret,
    config: &Config,
    now: Instant,
    tuple: &FourTuple,
    header: &TcpHeader,
) -> Option<TcpHeader> {
    let cookie = SeqNum(header.ack.0.wrapping_sub(1));
    let irs = SeqNum(header.seq.0.wrapping_sub(1));
    let timestamps = header.options.timestamps.filter(|_| config.timestamps);
    let offer = Offer {
        mss: (cookie.0 & MSS_MASK) as u8,
        bits: timestamps.map(|echoed| (echoed.echo & OFFER_MASK) as u8),
    };
    let baked = u64::from(cookie.0 >> MSS_BITS);
    let age = period(now).wrapping_sub(baked) & PERIOD_MASK;
    let period = period(now).checked_sub(age).filter(|_| age <= 1)?;
    let valid = sequence(secret, period, tuple, irs, offer) == cookie;
    valid.then(|| offer.syn(irs, timestamps))
}

/// From high to low: hash, period, MSS.
fn sequence(secret: &Secret, period: u64, tuple: &FourTuple, irs: SeqNum, offer: Offer) -> SeqNum {
    let mut hasher = secret.hasher(b"syn", tuple);
    hasher.write_u32(irs.0);
    hasher.write_u64(period);
    hasher.write_u8(offer.mss);
    hasher.write_u8(offer.bits.unwrap_or(u8::MAX));
    // Truncated on purpose.
    let hash = hasher.finish() as u32;
    let period = (period & PERIOD_MASK) as u32;
    SeqNum((((hash << PERIOD_BITS) | period) << MSS_BITS) | u32::from(offer.mss))
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / PERIOD.as_nanos() as u64
}

impl Offer {
    /// Of a SYN whose sender's MSS is `mss`.
    fn of(syn: &TcpHeader, mss: u16, timestamps: Option<Timestamps>) -> Self {
        let fitting = MSS.iter().rposition(|&entry| entry <= mss).unwrap_or(0);
        let shift = syn.options.window_scale;
        let ecn = syn.flags.contains(Flags::ECE | Flags::CWR);
        let bits = shift.map_or(NO_WINDOW_SCALE, |shift| shift.min(WINDOW_SHIFT_MAX))
            | if syn.options.sack_permitted { SACK } else { 0 }
            | if ecn { ECN } else { 0 };
        Self {
            mss: fitting as u8,
            bits: timestamps.is_some().then_some(bits),
        }
    }

    /// A SYN that says so.
    fn syn(self, irs: SeqNum, timestamps: Option<Timestamps>) -> TcpHeader {
        let bits = self.bits.unwrap_or(NO_WINDOW_SCALE);
        let shift = bits & NO_WINDOW_SCALE;
        let ecn = if bits & ECN == 0 {
            Flags::default()
        } else {
            Flags::ECE | Flags::CWR
        };
        TcpHeader {
            seq: irs,
            flags: Flags::SYN | ecn,
            options: Options {
                mss: MSS.get(usize::from(self.mss)).copied(),
                window_scale: (shift != NO_WINDOW_SCALE).then_some(shift),
                sack_permitted: bits & SACK != 0,
                timestamps,
                ..Options::default()
            },
            ..TcpHeader::default()
        }
    }
}
