//! The MTU clamp: what is larger than the link takes is dropped, with or without an answer, or
//! fragmented.
//!
//! Only IPv4 without DF is fragmented, and only without options in its header: an option would have
//! to be copied or not by its type (RFC 791 section 3.1). Packets with options are not fragmented.

use rnic_xsk::Frame;

use super::buffers::Buffers;
use super::checksum;
use super::icmp;
use super::packet::{IPV4_HEADER, Packet, put_u16, u16_at};
use super::settings::{Settings, TooBig};

const MORE_FRAGMENTS: u16 = 0x2000;

/// What becomes of a frame at the MTU.
#[derive(Debug)]
pub(super) enum Clamped {
    /// It is not larger than the link takes.
    Fits(Frame),
    /// It is replaced by its fragments.
    Fragments(Vec<Frame>),
    /// It is dropped; an answer goes back.
    Dropped { frame: Frame, answer: Option<Frame> },
}

/// Applies the MTU to a frame.
pub(super) fn clamp(frame: Frame, settings: &Settings, buffers: &mut Buffers) -> Clamped {
    let Some(mtu) = settings.mtu.bytes() else {
        return Clamped::Fits(frame);
    };
    let Some(packet) = Packet::parse(buffers.bytes(&frame)) else {
        return Clamped::Fits(frame);
    };
    if packet.length <= usize::from(mtu) {
        return Clamped::Fits(frame);
    }
    if settings.too_big == TooBig::Silent {
        let answer = None;
        return Clamped::Dropped { frame, answer };
    }
    if !packet.whole && packet.header == IPV4_HEADER {
        return match fragments(&frame, &packet, mtu, buffers) {
            Some(fragments) => {
                buffers.free(frame);
                Clamped::Fragments(fragments)
            }
            None => Clamped::Dropped {
                frame,
                answer: None,
            },
        };
    }
    let answer = packet
        .whole
        .then(|| icmp::too_big(&frame, &packet, mtu, buffers))
        .flatten();
    Clamped::Dropped { frame, answer }
}

/// The packet in pieces of at most `mtu` bytes (RFC 791 section 3.2); `None` when frames run out.
fn fragments(
    frame: &Frame,
    packet: &Packet,
    mtu: u16,
    buffers: &mut Buffers,
) -> Option<Vec<Frame>> {
    let most = (usize::from(mtu) - IPV4_HEADER) & !7;
    let payload = packet.length - IPV4_HEADER;
    let flags = u16_at(buffers.bytes(frame), packet.ip + 6)?;
    let mut all = Vec::with_capacity(payload.div_ceil(most));
    for begin in (0..payload).step_by(most) {
        let length = most.min(payload - begin);
        let data = packet.ip + IPV4_HEADER;
        let Some(mut piece) = buffers.alloc(data + length) else {
            all.into_iter().for_each(|piece| buffers.free(piece));
            return None;
        };
        let umem = &buffers.umem;
        let original = umem.bytes(frame);
        let bytes = &mut umem.bytes_mut(&mut piece)[..data + length];
        bytes[..data].copy_from_slice(&original[..data]);
        bytes[data..].copy_from_slice(&original[data + begin..data + begin + length]);
        let last = begin + length == payload;
        let more = if last {
            flags & MORE_FRAGMENTS
        } else {
            MORE_FRAGMENTS
        };
        let offset = packet.offset + (begin / 8) as u16;
        put_u16(bytes, packet.ip + 2, (IPV4_HEADER + length) as u16);
        put_u16(bytes, packet.ip + 6, more | offset);
        checksum::set_ip(bytes, packet);
        all.push(piece);
    }
    Some(all)
}

#[cfg(test)]
mod tests;
