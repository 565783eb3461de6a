//! The peer's segments: near to what a sound peer would send, so that they get deep.

use userspace_net::Ecn;
use userspace_tcp::{Flags, Options, SackBlock, SeqNum, TcpHeader, Timestamps};

use super::input::Input;
use super::model::Model;

/// A segment that the peer will send.
pub struct Draft {
    pub header: TcpHeader,
    pub len: usize,
    pub ecn: Ecn,
}

/// The options of the peer's SYN.
pub fn syn_options(input: &mut Input<'_>, model: &mut Model) -> Options {
    let choice = input.byte();
    let mut options = Options::default();
    if choice & 1 == 0 {
        let mss = input.pick(&[1460, 536, 100, 1, 0, 9000, 65_535]);
        options.mss = Some(mss);
        model.peer_mss = Some(mss);
    }
    options.sack_permitted = choice & 2 == 0;
    if choice & 4 == 0 {
        model.peer_timestamp = input.word();
        options.timestamps = Some(timestamps(model));
    }
    if choice & 8 == 0 {
        options.window_scale = Some(input.pick(&[0, 2, 7, 14, 15, 255]));
    }
    options
}

/// What a sound peer would answer: an ACK of all that it has, at the end of what it has sent.
pub fn sound(model: &Model) -> TcpHeader {
    let mut header = TcpHeader {
        seq: SeqNum(model.peer_seq(model.peer_sent)),
        ack: SeqNum(model.arrived_to()),
        flags: Flags::ACK,
        window: 65_535,
        ..TcpHeader::default()
    };
    if model.our_timestamp.is_some() {
        header.options.timestamps = Some(timestamps(model));
    }
    header
}

fn timestamps(model: &Model) -> Timestamps {
    Timestamps {
        value: model.peer_timestamp,
        echo: model.our_timestamp.unwrap_or(0),
    }
}

/// The next bytes in order, perhaps some that were sent before.
pub fn data(input: &mut Input<'_>, model: &mut Model) -> Draft {
    let mut header = sound(model);
    header.ack = SeqNum(some_ack(input, model));
    header.seq = SeqNum(model.peer_seq(model.in_order));
    let len = some_len(input);
    draft(input, model, header, len)
}

/// Bytes beyond a gap, or over what is there already.
pub fn stray_data(input: &mut Input<'_>, model: &mut Model) -> Draft {
    let mut header = sound(model);
    header.ack = SeqNum(some_ack(input, model));
    let unit = u64::from(input.pick(&[1_u16, 100, 536, 1448]));
    let base = input.pick(&[
        model.in_order,
        model.in_order,
        model.peer_sent,
        model.consumed,
    ]);
    let offset = base.saturating_add(unit * u64::from(input.byte() % 48));
    header.seq = SeqNum(input.near(model.peer_seq(offset)));
    let len = if input.one_in(4) {
        some_len(input)
    } else {
        unit as usize
    };
    draft(input, model, header, len)
}

/// An ACK of something, with SACK blocks or without.
pub fn ack(input: &mut Input<'_>, model: &mut Model, sack: bool) -> Draft {
    let mut header = sound(model);
    header.ack = SeqNum(if sack && !input.one_in(3) {
        model.acked
    } else {
        some_ack(input, model)
    });
    header.window = match input.byte() % 8 {
        0 => 0,
        1 => input.short(),
        _ => 65_535,
    };
    if sack {
        let segments = model.starts();
        for _ in 0..=input.below(4) {
            let (Some(first), Some(last)) = (
                segments.get(input.below(segments.len())),
                segments.get(input.below(segments.len())),
            ) else {
                break;
            };
            header.options.sack.push(SackBlock {
                left: SeqNum(input.near(first.0)),
                right: SeqNum(input.near(last.1)),
            });
        }
    }
    draft(input, model, header, 0)
}

/// Anything, though near to the windows.
pub fn anything(input: &mut Input<'_>, model: &mut Model) -> Draft {
    let mut header = sound(model);
    let base = input.pick(&[model.peer_sent, model.in_order, model.consumed]);
    header.seq = SeqNum(input.near(model.peer_seq(base)));
    header.ack = SeqNum(some_ack(input, model));
    header.ack = SeqNum(input.near(header.ack.0));
    header.flags = Flags(input.byte());
    header.window = input.short();
    header.urgent = input.short();
    header.options.timestamps = match input.byte() % 4 {
        0 => None,
        1 => Some(Timestamps {
            value: input.near(model.peer_timestamp),
            echo: input.near(model.our_timestamp.unwrap_or(0)),
        }),
        _ => header.options.timestamps,
    };
    let len = some_len(input);
    let syn = header.flags.syn();
    let mut draft = draft(input, model, header, if syn { 0 } else { len });
    if syn {
        draft.header.options = syn_options(input, &mut Model::default());
    }
    // A clock that jumps is believed, and what the sound one says later is old.
    let jumps = header
        .options
        .timestamps
        .is_some_and(|t| t.value != model.peer_timestamp);
    if header.flags.rst() || header.flags.fin() || syn || jumps {
        model.odd = true;
    }
    draft
}

/// The peer's FIN behind all that it has sent.
pub fn fin(input: &mut Input<'_>, model: &mut Model) -> Draft {
    let mut header = sound(model);
    header.flags |= Flags::FIN;
    model.odd = true;
    draft(input, model, header, 0)
}

fn draft(input: &mut Input<'_>, model: &mut Model, mut header: TcpHeader, len: usize) -> Draft {
    let choice = input.byte();
    if choice & 7 == 7 {
        header.flags |= Flags::ECE;
    }
    if choice & 0x38 == 0x38 {
        header.flags |= Flags::CWR;
    }
    let ecn = if choice & 0xc0 == 0xc0 {
        Ecn::Ce
    } else {
        Ecn::Ect0
    };
    model.peer_timestamp = model.peer_timestamp.wrapping_add(u32::from(choice & 1));
    if header.options.timestamps.is_some() && input.one_in(64) {
        header.options.timestamps = None;
    }
    Draft { header, len, ecn }
}

fn some_len(input: &mut Input<'_>) -> usize {
    match input.byte() % 8 {
        0..=3 => 1448,
        4 => 1,
        5 => usize::from(input.byte()),
        6 => 0,
        _ => input.below(9000),
    }
}

/// The end of a segment of ours that is out, all, or nothing new.
fn some_ack(input: &mut Input<'_>, model: &Model) -> u32 {
    match input.byte() % 8 {
        0..=2 => model.arrived_to(),
        // A peer that lies about what it has, too.
        3 => model.sent_to,
        4 | 5 => model.acked,
        6 => {
            let segments = model.starts();
            let end = segments.get(input.below(segments.len()));
            end.map_or(model.acked, |segment| segment.1)
        }
        _ => input.near(model.acked),
    }
}
