//! What goes into the stack, and what the link takes out of it.

use userspace_net::checksum;
use userspace_tcp::{ConnOptions, ConnectError, Outgoing, Segment, SendRefusal, SeqNum, Transmit};

use crate::syntax::{Call, Field, Opt, SegmentLine};
use crate::wire::{Tlv, Wire, absolute};

use super::peer::{self, Peer};
use super::{Machine, Sent, Wrong, suffix, tuple};

const OPTIONS: ConnOptions = ConnOptions { mss: u16::MAX };

impl Machine<'_> {
    /// A segment arrives.
    pub(super) fn inject(&mut self, number: u16, line: &SegmentLine) -> Result<(), Wrong> {
        let settings = &self.script.settings;
        let ends = tuple(settings, number);
        let (peer_window, consumes) = (settings.peer_window, settings.consumes);
        let now_there = peer::clock(self.start, self.now);
        let wire = to_wire(line, self.peer(number), now_there, peer_window);
        let wire = Wire {
            ports: (ends.remote.port, ends.local.port),
            ..wire.ok_or_else(|| {
                let expected = "an incoming segment without wildcards".to_owned();
                (expected, "*".to_owned())
            })?
        };
        self.log_wire("<", number, &wire, true);
        let bytes = wire.encode();
        self.received = userspace_tcp::Received::default();
        // What does not parse is dropped by whoever reads the packet.
        let Ok(segment) = Segment::parse(&bytes) else {
            self.note("  which is no segment");
            return Ok(());
        };
        self.peer(number).sends(&wire);
        let segment = segment.with_ecn(wire.ecn);
        let received = self.stack.receive(self.now, ends, &segment, OPTIONS);
        self.received = received;
        if let Some(conn) = received.conn {
            self.name(conn, number);
        }
        self.take_events();
        let peer = self.peer(number);
        let in_order = received.in_order_to;
        let told = received.conn.map(|_| in_order);
        let lawful = peer.laws.received(&wire, peer.irs, &received.new, told);
        if let Err(law) = lawful {
            self.broken.get_or_insert(law);
        }
        if let Some(conn) = received.conn.filter(|_| consumes) {
            self.stack.consumed(conn, in_order);
        }
        Ok(())
    }

    pub(super) fn call(&mut self, number: u16, call: &Call) -> Result<(), Wrong> {
        self.note(&format!("{call:?}{}", suffix(number)));
        let conn = self.peer(number).conn;
        let there = || {
            let expected = format!("a connection with peer {number}");
            conn.ok_or_else(|| (expected, "there was none".to_owned()))
        };
        match call {
            Call::Connect { mss, refused } => {
                let ends = tuple(&self.script.settings, number);
                let options = ConnOptions { mss: *mss };
                let result = self.stack.connect(self.now, ends, options);
                let got = result.as_ref().err().map(|error| match error {
                    ConnectError::InUse { .. } => "in_use",
                    ConnectError::DropReason { .. } => "unusable",
                    ConnectError::TooMany { .. } => "too_many",
                });
                if let Ok(conn) = result {
                    self.name(conn, number);
                }
                same("connect refused", refused.as_deref(), got)
            }
            Call::Listen { backlog } => {
                let local = super::local(self.script.settings.ipv6);
                let result = self.stack.listen(local, *backlog);
                result.map_err(|error| ("to listen".to_owned(), error.to_string()))
            }
            Call::Unlisten => {
                let local = super::local(self.script.settings.ipv6);
                same("unlisten", true, self.stack.unlisten(local))
            }
            Call::Send {
                count,
                len,
                refused,
            } => {
                let conn = there()?;
                for _ in 0..*count {
                    self.send(number, conn, *len, refused.as_deref())?;
                }
                Ok(())
            }
            Call::Close { gone } => same("closed", !gone, self.stack.close(there()?)),
            Call::Abort { gone } => same("aborted", !gone, self.stack.abort(there()?)),
            Call::Consumed { to } => {
                self.stack.consumed(there()?, to.saturating_sub(1));
                Ok(())
            }
            Call::LinkHolds => {
                self.link_holds = true;
                Ok(())
            }
            Call::LinkReturns => {
                self.link_holds = false;
                self.link_returns();
                Ok(())
            }
            Call::Incarnation { irs } => {
                let irs = irs.unwrap_or(self.script.settings.irs);
                *self.peer(number) = Peer::new(irs);
                Ok(())
            }
            Call::Keepalive(wanted) => {
                let set = self.stack.set_keepalive(there()?, self.now, *wanted);
                same("keepalive set", true, set)
            }
            Call::UserTimeout(timeout) => {
                let set = self.stack.set_user_timeout(there()?, self.now, *timeout);
                same("user timeout set", true, set)
            }
            Call::Icmp { error, seq, taken } => {
                let ends = tuple(&self.script.settings, number);
                let iss = self.peer(number).iss.unwrap_or(0);
                let seq = SeqNum(absolute(*seq, iss));
                let got = self.stack.icmp(self.now, ends, seq, *error);
                same("ICMP error taken", *taken, got)
            }
        }
    }

    fn send(
        &mut self,
        number: u16,
        conn: userspace_tcp::ConnId,
        len: u32,
        refused: Option<&str>,
    ) -> Result<(), Wrong> {
        let buf = self.buffers;
        let payload_sum = checksum::PartialSum::ZERO;
        let outgoing = Outgoing {
            buf,
            len,
            payload_sum,
        };
        let result = self.stack.send(conn, self.now, outgoing);
        let got = result.as_ref().err().map(|error| match error.reason {
            SendRefusal::Gone => "gone",
            SendRefusal::NotEstablished => "not_established",
            SendRefusal::Closed => "closed",
            SendRefusal::QueueFull { .. } => "queue_full",
            SendRefusal::Length { .. } => "length",
        });
        if got.is_none() {
            self.buffers += 1;
            self.peer(number).laws.post(len);
        }
        same("send refused", refused, got)
    }

    /// The link takes a segment.
    pub(super) fn transmit(&mut self, transmit: Transmit<u32>) {
        let Transmit {
            conn,
            tuple,
            header,
            payload,
            ecn,
            fragment_to,
        } = transmit;
        let number = tuple.remote.port.wrapping_sub(40_000);
        let mut bytes = [0; 60];
        let len = header.emit(&mut bytes);
        let payload_len = payload.as_ref().map_or(0, |payload| payload.len);
        let wire = Wire {
            ecn,
            fragment: fragment_to,
            ..Wire::decode(&bytes[..len], payload_len)
        };
        if tuple != super::tuple(&self.script.settings, number) {
            self.broken
                .get_or_insert(format!("a segment between other ends: {tuple}"));
        }
        if wire.ports != (tuple.local.port, tuple.remote.port) {
            self.broken
                .get_or_insert(format!("ports {:?} in the header", wire.ports));
        }
        if let Some(payload) = payload {
            match conn {
                Some(conn) => self.with_link.push((conn, payload)),
                None => {
                    self.broken
                        .get_or_insert("bytes of no connection".to_owned());
                }
            }
            if !self.link_holds {
                self.link_returns();
            }
        }
        let now = self.now;
        let peer = self.peer(number);
        peer.sees_our(&wire);
        let numbers = peer.numbers();
        if let Err(law) = peer.laws.sent(now, &wire, numbers) {
            self.broken.get_or_insert(law);
        }
        self.log_wire(">", number, &wire, false);
        let at = self.now;
        self.sent.push_back(Sent {
            at,
            peer: number,
            wire,
        });
    }

    /// The link gives every buffer back that it has.
    pub(super) fn link_returns(&mut self) {
        for (conn, payload) in std::mem::take(&mut self.with_link) {
            let back = self.stack.transmitted(conn, payload.id, payload.buf);
            self.buffers_back += u32::from(back.is_some());
        }
    }

    fn log_wire(&mut self, sign: &str, number: u16, wire: &Wire, incoming: bool) {
        let peer = self.peer(number);
        let (iss, irs) = (peer.iss.unwrap_or(0), peer.irs);
        let (seq, ack) = if incoming { (irs, iss) } else { (iss, irs) };
        let text = format!("{sign} {}{}", wire.print(seq, ack), suffix(number));
        self.note(&text);
    }
}

/// A line's segment as it comes from the peer; `None`: it has a wildcard.
fn to_wire(line: &SegmentLine, peer: &Peer, clock: u32, window: u16) -> Option<Wire> {
    let (Field::Is(flags), Field::Is(seq), Field::Is(len)) = (line.flags, line.seq, line.len)
    else {
        return None;
    };
    let iss = peer.iss.unwrap_or(0);
    let ack = match line.ack {
        None => 0,
        Some(Field::Is(ack)) => absolute(ack, iss),
        Some(Field::Any) => return None,
    };
    let window = match line.window {
        None => window,
        Some(Field::Is(window)) => window,
        Some(Field::Any) => return None,
    };
    let mut options = Vec::new();
    for option in &line.options.list {
        options.push(to_tlv(option, peer, iss)?);
    }
    let named = options
        .iter()
        .any(|option| matches!(option, Tlv::Timestamps(..)));
    if peer.timestamps() && !named && !line.options.no_timestamps {
        options.push(Tlv::Timestamps(clock, peer.latest));
    }
    Some(Wire {
        ports: (0, 0),
        flags,
        seq: absolute(seq, peer.irs),
        ack,
        window,
        urgent: line.urgent.unwrap_or(0),
        options,
        len,
        ecn: line.ecn.unwrap_or_default(),
        fragment: None,
    })
}

fn to_tlv(option: &Opt, peer: &Peer, iss: u32) -> Option<Tlv> {
    Some(match option {
        Opt::Mss(Field::Is(mss)) => Tlv::Mss(*mss),
        Opt::WindowScale(Field::Is(shift)) => Tlv::WindowScale(*shift),
        Opt::SackPermitted => Tlv::SackPermitted,
        Opt::Timestamps {
            value: Field::Is(value),
            echo: Field::Is(echo),
        } => Tlv::Timestamps(*value, echo.wrapping_add(peer.clock.unwrap_or(0))),
        Opt::Sack(blocks) => {
            let edge = |edge: i64| absolute(edge, iss);
            Tlv::Sack(blocks.iter().map(|&(a, b)| (edge(a), edge(b))).collect())
        }
        Opt::Raw(bytes) => Tlv::Raw(bytes.clone()),
        _ => return None,
    })
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Result<(), Wrong> {
    if expected == got {
        Ok(())
    } else {
        Err((format!("{what}: {expected:?}"), format!("{got:?}")))
    }
}
