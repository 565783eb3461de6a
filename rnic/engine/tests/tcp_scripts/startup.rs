//! What a script knows nothing of: MPA's Request and Reply (RFC 5044 section 7.1), which the harness exchanges with the
//! shard in the instant in which the connection is established. Both directions of the stream are longer by that than
//! the script believes, and each sequence number is told without it.
//!
//! An exchange in no time is a round trip that TCP measures, and the script knows of no such. So there is a second way,
//! `MEASURED` of [`Through`](crate::through::Through): the shard's clock runs on while the script's stands still. The SYN
//! is sent twice, so that TCP measures no round trip by it (RFC 6298 section 3). The start-up takes as long as the
//! script's handshake did: the first and only measurement, as the script has it.

use userspace_net::{Ecn, Instant};

use crate::wire::{ACK, RST, Tlv, Wire, absolute, relative};

pub const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x40\x01\0\0";
pub const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x40\x01\0\0";

pub const FIN: u8 = 0x01;
const PSH: u8 = 0x08;

/// How far a connection's start-up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// TCP is not established.
    Opening,
    /// The script's last segment may have established it.
    PerhapsEstablished,
    /// The harness has sent its Request.
    Requested,
    /// The harness has sent its Reply, and waits for an FPDU before it sends its own.
    Replied,
    /// FPDUs go both ways.
    Done,
}

/// One pair of ends, as the harness sees it.
#[derive(Debug)]
pub struct Flow {
    pub stage: Stage,
    /// When the shard's first SYN left, by the script's clock.
    pub syn_at: Option<Instant>,
    /// The shard's next SYN repeats one that the script has seen.
    pub repeats_syn: bool,
    /// The end of the peer's stream, until it is acknowledged.
    fin: Option<u32>,
    /// TSval of the shard's last segment.
    stamp: u32,
    pub active: bool,
    iss: Option<u32>,
    irs: Option<u32>,
    shifts: (Option<u8>, Option<u8>),
    /// Bytes of start-up that the shard has sent, and the harness.
    ours: u32,
    theirs: u32,
    /// The script has seen an ACK of the peer's SYN.
    pub opened: bool,
    /// An ACK of the start-up's bytes alone is yet to come.
    pub owes_ack: bool,
    last: Option<Wire>,
    /// The end of the window that the shard offered before its start-up.
    edge: u32,
}

impl Flow {
    pub fn new(active: bool) -> Self {
        Self {
            stage: Stage::Opening,
            syn_at: None,
            repeats_syn: false,
            fin: None,
            stamp: 0,
            active,
            iss: None,
            irs: None,
            shifts: (None, None),
            ours: 0,
            theirs: 0,
            opened: false,
            owes_ack: false,
            last: None,
            edge: 0,
        }
    }

    /// A segment of the script's, as the shard is to have it, whose clock is so many milliseconds ahead.
    pub fn inward(&mut self, script: &Wire, ahead: u32) -> Wire {
        let mut wire = script.clone();
        stamps(&mut wire, |_, echo| *echo = echo.wrapping_add(ahead));
        if self.stage == Stage::Opening {
            if wire.syn() {
                self.irs = Some(wire.seq);
                self.shifts.1 = scale(&wire);
            }
            if let (Some(iss), Some(irs)) = (self.iss, self.irs)
                && wire.flags & !PSH == ACK
                && wire.len == 0
                && (relative(wire.seq, irs), relative(wire.ack, iss)) == (1, 1)
                && !self.active
            {
                self.stage = Stage::PerhapsEstablished;
            }
        }
        if wire.is(FIN) {
            self.fin = Some(wire.seq.wrapping_add(wire.len + 1));
        }
        self.last = Some(wire.clone());
        if self.stage == Stage::Done {
            let (iss, irs) = (self.iss.unwrap_or(0), self.irs.unwrap_or(0));
            wire.seq = longer(wire.seq, irs, self.theirs);
            if wire.is(ACK) {
                wire.ack = longer(wire.ack, iss, self.ours);
            }
            edges(&mut wire, |edge| longer(edge, iss, self.ours));
        }
        wire
    }

    /// A segment of the shard's, as the script is to see it. `None`: it is only about the start-up.
    pub fn outward(&mut self, mut wire: Wire, payload: &[u8], ahead: u32) -> Option<Wire> {
        stamps(&mut wire, |stamp, _| {
            self.stamp = *stamp;
            *stamp = stamp.wrapping_sub(ahead);
        });
        if wire.syn() && std::mem::take(&mut self.repeats_syn) {
            return None;
        }
        if wire.syn() {
            self.iss = Some(wire.seq);
            self.shifts.0 = scale(&wire);
            self.edge = wire.ack.wrapping_add(u32::from(wire.window));
            self.opened |= wire.is(ACK);
            return Some(wire);
        }
        let (Some(iss), Some(irs)) = (self.iss, self.irs) else {
            return Some(wire);
        };
        if self.stage == Stage::Opening {
            self.edge = wire.ack.wrapping_add(self.offered(&wire));
        }
        if self.stage == Stage::PerhapsEstablished && wire.is(RST) {
            self.stage = Stage::Opening;
        }
        if self.stage == Stage::Opening && self.active && payload.starts_with(&REQUEST[..16]) {
            self.ours = wire.len;
            self.stage = Stage::Requested;
            return self.only_header(wire);
        }
        if self.stage == Stage::Replied {
            self.ours += wire.len;
            if wire.len > 0 {
                self.stage = Stage::Done;
            }
            return None;
        }
        if self.stage == Stage::Requested && payload.starts_with(&REPLY[..16]) {
            self.ours = wire.len;
            return None;
        }
        if wire.flags & !PSH == ACK && wire.len == 0 {
            self.opened |= self.stage == Stage::Opening;
            if self.stage == Stage::Requested {
                return None;
            }
            if self.owes_ack && relative(wire.ack, irs) == 1 + i64::from(self.theirs) {
                self.owes_ack = false;
                return None;
            }
        }
        if self.stage == Stage::Done {
            if wire.is(ACK) {
                self.owes_ack = false;
                self.offer(&mut wire);
                wire.ack = shorter(wire.ack, irs, self.theirs, 1);
            }
            wire.seq = shorter(wire.seq, iss, self.ours, 0);
            edges(&mut wire, |edge| shorter(edge, irs, self.theirs, 1));
        }
        Some(wire)
    }

    /// Whether a segment of the shard's, as the script sees it, is its FIN alone and the first to acknowledge the peer's.
    pub fn answers_fin(&mut self, wire: &Wire) -> bool {
        let end = self.fin.take_if(|end| wire.is(ACK) && wire.ack == *end);
        end.is_some() && wire.flags == FIN | ACK && wire.len == 0
    }

    /// Bytes of window that a segment offers.
    fn offered(&self, wire: &Wire) -> u32 {
        u32::from(wire.window) << self.shift()
    }

    /// Of the shard's window field.
    fn shift(&self) -> u8 {
        match self.shifts {
            (Some(ours), Some(_)) => ours,
            _ => 0,
        }
    }

    /// The start-up's bytes are in the window that was offered before it, as long as that has not moved: to the script
    /// they never were.
    fn offer(&self, wire: &mut Wire) {
        let edge = wire.ack.wrapping_add(self.offered(wire));
        if relative(edge, self.edge) <= 0 {
            let units = self.theirs.div_ceil(1 << self.shift());
            wire.window = wire.window.saturating_add(units as u16);
        }
    }

    /// The segment that the shard's Request came with, without it: the ACK of the peer's SYN, or of one more of them where
    /// both ends open.
    fn only_header(&mut self, mut wire: Wire) -> Option<Wire> {
        (wire.len, wire.ecn) = (0, Ecn::NotEct);
        wire.flags &= !PSH;
        let answers_syn = self.last.as_ref().is_some_and(Wire::syn);
        (!std::mem::replace(&mut self.opened, true) || answers_syn).then_some(wire)
    }

    /// The harness's next segment, with these bytes of start-up.
    pub fn says(&mut self, len: usize) -> Wire {
        let last = self.last.clone().expect("a segment of the peer's");
        let (iss, irs) = (self.iss.unwrap_or(0), self.irs.unwrap_or(0));
        let window = match self.shifts {
            (Some(_), Some(shift)) if last.syn() => last.window >> shift,
            _ => last.window,
        };
        let options = last.options.into_iter();
        let mut wire = Wire {
            flags: ACK | PSH,
            seq: absolute(1 + i64::from(self.theirs), irs),
            ack: absolute(1 + i64::from(self.ours), iss),
            window,
            len: len as u32,
            options: options
                .filter(|option| matches!(option, Tlv::Timestamps(..)))
                .collect(),
            ..last
        };
        self.theirs += len as u32;
        stamps(&mut wire, |_, echo| *echo = self.stamp);
        wire
    }

    /// Where in the peer's stream, as the script has it, the bytes of a segment begin.
    pub fn offset(&self, script: &Wire) -> usize {
        let irs = self.irs.unwrap_or(script.seq);
        let at = relative(script.seq, irs) - i64::from(!script.syn());
        usize::try_from(at).unwrap_or(0)
    }

    /// One of our sequence numbers, as an error about a segment quotes it.
    pub fn quoted(&self, seq: u32) -> u32 {
        match (self.stage, self.iss) {
            (Stage::Done, Some(iss)) => longer(seq, iss, self.ours),
            _ => seq,
        }
    }
}

fn scale(wire: &Wire) -> Option<u8> {
    wire.options.iter().find_map(|option| match option {
        Tlv::WindowScale(shift) => Some(*shift),
        _ => None,
    })
}

/// Changes TSval and TSecr.
fn stamps(wire: &mut Wire, mut change: impl FnMut(&mut u32, &mut u32)) {
    for option in &mut wire.options {
        if let Tlv::Timestamps(stamp, echo) = option {
            change(stamp, echo);
        }
    }
}

fn edges(wire: &mut Wire, change: impl Fn(u32) -> u32) {
    for option in &mut wire.options {
        if let Tlv::Sack(blocks) = option {
            for (left, right) in blocks {
                (*left, *right) = (change(*left), change(*right));
            }
        }
    }
}

/// What comes after the SYN moves up by the start-up's bytes.
fn longer(number: u32, base: u32, bytes: u32) -> u32 {
    let after = relative(number, base) >= 1;
    number.wrapping_add(if after { bytes } else { 0 })
}

/// And down again, from `least` on.
fn shorter(number: u32, base: u32, bytes: u32, least: i64) -> u32 {
    let after = relative(number, base) >= least + i64::from(bytes);
    number.wrapping_sub(if after { bytes } else { 0 })
}
