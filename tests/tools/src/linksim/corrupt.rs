//! Flips bits of a packet, where a checksum covers them.
//!
//! A bit is flipped in what the checksums of IPv4, TCP, UDP or ICMPv6 cover, so that the receiver
//! must notice; of IPv6's header these are the addresses only. What has no such checksum (ARP, for
//! one) is left alone: nobody could tell.

use super::packet::{IPV6_HEADER, Packet};
use super::random::{Dice, Purpose, below};
use super::settings::Settings;

/// Flips the bits that the settings want, each another one; `false` when there is nothing to flip.
pub(super) fn corrupt(frame: &mut [u8], settings: &Settings, dice: Dice, number: u64) -> bool {
    let Some(packet) = Packet::parse(frame) else {
        return false;
    };
    let begin = if packet.version == 4 {
        packet.ip
    } else {
        packet.addresses().0
    };
    if packet.version == 6 && packet.length == IPV6_HEADER {
        return false;
    }
    let bits = 8 * (packet.end() - begin) as u64;
    let first = below(dice.nth(number, Purpose::Corrupt, 1), bits);
    // At equal distances, so that no two are the same.
    let count = u64::from(settings.corrupt_bits).min(bits);
    for n in 0..count {
        let bit = (first + n * (bits / count)) % bits;
        frame[begin + (bit / 8) as usize] ^= 0x80 >> (bit % 8);
    }
    true
}
