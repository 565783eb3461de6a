//! An expected segment against the one that came.

use userspace_net::Ecn;

use crate::host::Host;
use crate::syntax::{Field, Opt, SegmentLine};
use crate::wire::{self, Tlv, Wire, relative};

use super::{Machine, Sent, suffix};

const PSH: u8 = 0x08;

impl<H: Host> Machine<'_, H> {
    /// What is not as the line says.
    pub(super) fn differences(&self, line: &SegmentLine, peer: u16, sent: &Sent) -> Vec<String> {
        let mut differences = Differences::default();
        let wire = &sent.wire;
        differences.check("peer", &Field::Is(peer), &sent.peer);
        let side = self.peers.get(&sent.peer);
        let (iss, irs) = side.map_or((0, 0), |peer| (peer.iss.unwrap_or(0), peer.irs));
        let settings = &self.script.settings;
        if let Field::Is(flags) = line.flags {
            // A line without P says nothing of PSH, unless the script wants it exact.
            let ignored = if flags & PSH == 0 && !settings.exact_push {
                PSH
            } else {
                0
            };
            let (wanted, got) = (flags & !ignored, wire.flags & !ignored);
            if wanted != got {
                let (wanted, got) = (wire::letters(wanted), wire::letters(got));
                differences
                    .0
                    .push(format!("flags: {wanted} expected, {got} came"));
            }
        }
        differences.check("seq", &line.seq, &relative(wire.seq, iss));
        differences.check("length", &line.len, &wire.len);
        if let Some(ack) = &line.ack {
            differences.check("ack", ack, &relative(wire.ack, irs));
        }
        if let Some(window) = &line.window {
            differences.check("win", window, &wire.window);
        }
        differences.check("urg", &Field::Is(line.urgent.unwrap_or(0)), &wire.urgent);
        if line.ecn.is_some() || !settings.ecn() {
            let wanted = line.ecn.unwrap_or(Ecn::NotEct);
            differences.check("ecn", &Field::Is(wanted), &wire.ecn);
        }
        // Real fragments but the last carry a multiple of eight bytes (RFC 791 section 3.2).
        let near = |wanted: u32, got: u32| !H::TELLS && got <= wanted && wanted - got < 8;
        let fragment = match (line.fragment, wire.fragment) {
            (Some(wanted), Some(got)) if near(wanted, got) => Some(got),
            (wanted, _) => wanted,
        };
        differences.check("frag", &Field::Is(fragment), &wire.fragment);
        let clock = side.and_then(|peer| peer.clock).unwrap_or(0);
        differences.options(line, wire, clock, irs);
        differences.0
    }
}

#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn check<T: PartialEq + std::fmt::Debug>(&mut self, name: &str, wanted: &Field<T>, got: &T) {
        if let Field::Is(value) = wanted
            && value != got
        {
            self.0
                .push(format!("{name}: {value:?} expected, {got:?} came"));
        }
    }

    fn options(&mut self, line: &SegmentLine, wire: &Wire, clock: u32, irs: u32) {
        let mut left: Vec<Opt> = wire
            .options
            .iter()
            .map(|option| from_tlv(option, clock, irs))
            .collect();
        for wanted in &line.options.list {
            match left.iter().position(|got| admits(wanted, got)) {
                Some(at) => drop(left.remove(at)),
                None => self.0.push(format!("option {wanted:?} did not come")),
            }
        }
        for got in left {
            let timestamps = matches!(got, Opt::Timestamps { .. });
            let unsaid = timestamps && !line.options.no_timestamps;
            if !line.options.open && !unsaid {
                self.0.push(format!("option {got:?} came"));
            }
        }
    }
}

fn from_tlv(option: &Tlv, clock: u32, irs: u32) -> Opt {
    match option {
        Tlv::Mss(mss) => Opt::Mss(Field::Is(*mss)),
        Tlv::WindowScale(shift) => Opt::WindowScale(Field::Is(*shift)),
        Tlv::SackPermitted => Opt::SackPermitted,
        Tlv::Timestamps(value, echo) => Opt::Timestamps {
            value: Field::Is(value.wrapping_sub(clock)),
            echo: Field::Is(*echo),
        },
        Tlv::Sack(blocks) => {
            let edges = |&(a, b): &(u32, u32)| (relative(a, irs), relative(b, irs));
            Opt::Sack(blocks.iter().map(edges).collect())
        }
        Tlv::Raw(bytes) => Opt::Raw(bytes.clone()),
    }
}

fn admits(wanted: &Opt, got: &Opt) -> bool {
    match (wanted, got) {
        (Opt::Mss(wanted), Opt::Mss(Field::Is(got))) => wanted.admits(got),
        (Opt::WindowScale(wanted), Opt::WindowScale(Field::Is(got))) => wanted.admits(got),
        (
            Opt::Timestamps { value, echo },
            Opt::Timestamps {
                value: Field::Is(got_value),
                echo: Field::Is(got_echo),
            },
        ) => value.admits(got_value) && echo.admits(got_echo),
        (wanted, got) => wanted == got,
    }
}

/// A line as a report shows it.
pub(super) fn describe(line: &SegmentLine, peer: u16) -> String {
    fn any<T: ToString>(field: &Field<T>) -> String {
        match field {
            Field::Any => "*".to_owned(),
            Field::Is(value) => value.to_string(),
        }
    }
    let flags = match line.flags {
        Field::Any => "*".to_owned(),
        Field::Is(flags) => wire::letters(flags),
    };
    let mut out = format!("> Flags [{flags}], seq {}", any(&line.seq));
    if let Some(ack) = &line.ack {
        out += &format!(", ack {}", any(ack));
    }
    if let Some(window) = &line.window {
        out += &format!(", win {}", any(window));
    }
    if !line.options.list.is_empty() {
        out += &format!(", options {:?}", line.options.list);
    }
    format!("{out}, length {}{}", any(&line.len), suffix(peer))
}
