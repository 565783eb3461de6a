//! Other boundaries for TCP's payload, as a middlebox, a proxy or a NIC would make them.
//!
//! Payload bytes, their sequence numbers, flags and options stay as they are; only where one
//! segment ends and the next begins changes. Two segments are joined only if their headers differ
//! in nothing but sequence number, acknowledgement, window, PSH and checksum, as in a receiver's
//! generic receive offload. A segment whose checksum is wrong is never touched: it would be
//! repaired.

use std::time::Duration;

use rnic_xsk::Frame;

use super::buffers::Buffers;
use super::checksum;
use super::packet::{Packet, Tcp, put_u16, put_u32, u16_at, u32_at};
use super::random::{Dice, Purpose, below};
use super::settings::Settings;
use super::units::Share;

const SEQUENCE: usize = 4;
const FLAGS: usize = 13;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;

/// Cuts and joins the segments of one direction.
#[derive(Debug, Default)]
pub(super) struct Resegmenter {
    waiting: Option<Waiting>,
    /// The longest IP packet that was seen, which is what the link is known to take.
    longest: usize,
}

/// When a frame comes, and what decides about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub now: Duration,
    /// The frame's number in its direction.
    pub number: u64,
    pub settings: &'a Settings,
    pub dice: Dice,
}

/// A segment that waits for its successor.
#[derive(Debug)]
struct Waiting {
    frame: Frame,
    packet: Packet,
    tcp: Tcp,
    until: Duration,
}

impl Resegmenter {
    /// Takes a frame, and gives to `out` what is to be forwarded, in order. Says how many segments
    /// became how many, if any was cut or joined.
    pub fn arrive(
        &mut self,
        frame: Frame,
        moment: Moment<'_>,
        buffers: &mut Buffers,
        out: &mut Vec<Frame>,
    ) -> Option<(usize, usize)> {
        let Moment {
            number,
            settings,
            dice,
            ..
        } = moment;
        let wanted = settings.split > Share::NONE || settings.join > Share::NONE;
        if !wanted && self.waiting.is_none() {
            out.push(frame);
            return None;
        }
        let Some((packet, tcp)) = segment(buffers.bytes(&frame)) else {
            self.flush(out);
            out.push(frame);
            return None;
        };
        self.longest = self.longest.max(packet.length);
        let cut = |n| dice.nth(number, Purpose::Cut, n);
        if let Some(waiting) = self.waiting.take() {
            let bytes = (buffers.bytes(&waiting.frame), buffers.bytes(&frame));
            if follows(&waiting, bytes.0, &packet, &tcp, bytes.1) {
                let most = self.longest - packet.header - tcp.header;
                let sizes = sizes_joined(waiting.tcp.payload + tcp.payload, most, cut(0));
                let payload = [
                    (
                        &waiting.frame,
                        waiting.tcp.at + waiting.tcp.header,
                        waiting.tcp.payload,
                    ),
                    (&frame, tcp.at + tcp.header, tcp.payload),
                ];
                let first = u32_at(bytes.0, waiting.tcp.at + SEQUENCE).unwrap_or(0);
                let pieces = pieces(&frame, &packet, &tcp, first, &payload, &sizes, buffers);
                if let Some(pieces) = pieces {
                    let became = (2, pieces.len());
                    out.extend(pieces);
                    buffers.free(waiting.frame);
                    buffers.free(frame);
                    return Some(became);
                }
            }
            out.push(waiting.frame);
        }
        if settings.join.hits(dice.roll(number, Purpose::Join))
            && ordinary(buffers.bytes(&frame), &tcp)
        {
            self.waiting = Some(Waiting {
                frame,
                packet,
                tcp,
                until: moment.now + settings.join_wait,
            });
            return None;
        }
        if tcp.payload > 1 && settings.split.hits(dice.roll(number, Purpose::Split)) {
            let sizes = sizes_split(tcp.payload, settings.pieces, cut);
            let first = u32_at(buffers.bytes(&frame), tcp.at + SEQUENCE).unwrap_or(0);
            let payload = [(&frame, tcp.at + tcp.header, tcp.payload)];
            if let Some(pieces) = pieces(&frame, &packet, &tcp, first, &payload, &sizes, buffers) {
                let became = (1, pieces.len());
                out.extend(pieces);
                buffers.free(frame);
                return Some(became);
            }
        }
        out.push(frame);
        None
    }

    /// When the segment that waits has waited long enough.
    pub fn deadline(&self) -> Option<Duration> {
        self.waiting.as_ref().map(|waiting| waiting.until)
    }

    /// How many segments wait: none or one.
    pub fn len(&self) -> usize {
        usize::from(self.waiting.is_some())
    }

    /// Gives up waiting.
    pub fn flush(&mut self, out: &mut Vec<Frame>) {
        out.extend(self.waiting.take().map(|waiting| waiting.frame));
    }
}

/// The TCP segment with payload and a right checksum that a frame has.
fn segment(frame: &[u8]) -> Option<(Packet, Tcp)> {
    let packet = Packet::parse(frame)?;
    let tcp = packet.tcp(frame)?;
    let flags = frame[tcp.at + FLAGS];
    let plain = flags & (SYN | RST | URG) == 0;
    (tcp.payload > 0 && plain && checksum::tcp_is_right(frame, &packet, &tcp))
        .then_some((packet, tcp))
}

/// Whether the segment may wait for another: a FIN, or the CWR that answers a mark, does not.
fn ordinary(frame: &[u8], tcp: &Tcp) -> bool {
    frame[tcp.at + FLAGS] & (FIN | CWR) == 0
}

/// Whether the second segment continues the first and is of its kind.
fn follows(first: &Waiting, one: &[u8], packet: &Packet, tcp: &Tcp, two: &[u8]) -> bool {
    let same_place = (
        first.packet.ip,
        first.packet.version,
        first.packet.header,
        first.tcp.header,
    ) == (packet.ip, packet.version, packet.header, tcp.header);
    if !same_place {
        return false;
    }
    let (addresses, bytes) = packet.addresses();
    let (at, options) = (tcp.at, tcp.at + 20..tcp.at + tcp.header);
    let same = |range: std::ops::Range<usize>| one.get(range.clone()) == two.get(range);
    let sequence = |frame| u32_at(frame, at + SEQUENCE);
    let contiguous = sequence(two)
        .zip(sequence(one))
        .is_some_and(|(two, one)| two == one.wrapping_add(first.tcp.payload as u32));
    // Ethernet and tags, traffic class and ECN, addresses, ports, options.
    contiguous
        && same(0..packet.ip + 2)
        && same(addresses..addresses + 2 * bytes)
        && same(at..at + 4)
        && same(options)
        && (one[at + FLAGS] ^ two[at + FLAGS]) & !(PSH | FIN) == 0
}

/// Where a payload is cut: at least two pieces, at most `pieces`, each of one byte at least.
fn sizes_split(payload: usize, pieces: u32, cut: impl Fn(u64) -> u64) -> Vec<usize> {
    let most = u64::from(pieces).min(payload as u64);
    let count = 2 + below(cut(0), most - 1);
    let mut cuts: Vec<usize> = (1..count)
        .map(|n| 1 + below(cut(n), payload as u64 - 1) as usize)
        .collect();
    cuts.push(payload);
    cuts.sort_unstable();
    cuts.dedup();
    let mut begin = 0;
    cuts.iter_mut().for_each(|cut| {
        let size = *cut - begin;
        begin = *cut;
        *cut = size;
    });
    cuts
}

/// Where joined payload is cut: nowhere if it fits a segment, else at a random place first and then
/// wherever a segment is full.
fn sizes_joined(payload: usize, most: usize, cut: u64) -> Vec<usize> {
    if payload <= most {
        return vec![payload];
    }
    let mut sizes = vec![1 + below(cut, most as u64) as usize];
    let mut left = payload - sizes[0];
    while left > 0 {
        sizes.push(left.min(most));
        left -= left.min(most);
    }
    sizes
}

/// Segments of these sizes with the header of `like`, from payload that lies in one or two frames
/// (`(frame, offset, length)`). `None` when frames run out.
fn pieces(
    like: &Frame,
    packet: &Packet,
    tcp: &Tcp,
    first: u32,
    payload: &[(&Frame, usize, usize)],
    sizes: &[usize],
    buffers: &mut Buffers,
) -> Option<Vec<Frame>> {
    let data = tcp.at + tcp.header;
    let mut all = Vec::with_capacity(sizes.len());
    let mut begin = 0;
    for (index, &size) in sizes.iter().enumerate() {
        let Some(mut piece) = buffers.alloc(data + size) else {
            all.into_iter().for_each(|piece| buffers.free(piece));
            return None;
        };
        let umem = &buffers.umem;
        let bytes = &mut umem.bytes_mut(&mut piece)[..data + size];
        bytes[..data].copy_from_slice(&umem.bytes(like)[..data]);
        gather(umem, payload, begin, &mut bytes[data..]);
        let flags = &mut bytes[tcp.at + FLAGS];
        if index + 1 < sizes.len() {
            *flags &= !(PSH | FIN);
        }
        if index > 0 {
            *flags &= !CWR;
        }
        put_u32(bytes, tcp.at + SEQUENCE, first.wrapping_add(begin as u32));
        let length = packet.header + tcp.header + size;
        if packet.version == 4 {
            put_u16(bytes, packet.ip + 2, length as u16);
            let id = u16_at(bytes, packet.ip + 4)?.wrapping_add(index as u16);
            put_u16(bytes, packet.ip + 4, id);
        } else {
            put_u16(bytes, packet.ip + 4, (length - packet.header) as u16);
        }
        let whole = Packet { length, ..*packet };
        checksum::set_ip(bytes, &whole);
        checksum::set_tcp(bytes, &whole, tcp);
        begin += size;
        all.push(piece);
    }
    Some(all)
}

/// Copies payload from `begin` on.
fn gather(
    umem: &rnic_xsk::Umem,
    payload: &[(&Frame, usize, usize)],
    mut begin: usize,
    mut out: &mut [u8],
) {
    for &(frame, at, length) in payload {
        if begin >= length {
            begin -= length;
            continue;
        }
        let take = (length - begin).min(out.len());
        let (now, later) = out.split_at_mut(take);
        now.copy_from_slice(&umem.bytes(frame)[at + begin..at + begin + take]);
        out = later;
        begin = 0;
    }
}

#[cfg(test)]
mod tests;
