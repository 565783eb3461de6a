//! What goes into the stack, and what the link takes out of it.

use userspace_tcp::SeqNum;

use crate::host::{Host, Leaving, Taken};
use crate::syntax::{Call, Field, Opt, SegmentLine};
use crate::wire::{Tlv, Wire, absolute};

use super::peer::{self, Peer};
use super::{Machine, Sent, Wrong, suffix, tuple};

impl<H: Host> Machine<'_, H> {
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
        self.received = userspace_tcp::Received::default();
        let Some(taken) = self.host.receive(self.now, ends, &wire) else {
            self.note("  which is no segment");
            return Ok(());
        };
        self.peer(number).sends(&wire);
        let Taken { conn, received } = taken;
        self.received = received;
        if let Some(conn) = conn {
            self.name(conn, number);
        }
        self.take_events();
        let peer = self.peer(number);
        let in_order = received.in_order_to;
        let told = conn.map(|_| in_order).filter(|_| H::TELLS);
        let lawful = peer.laws.received(&wire, peer.irs, &received.new, told);
        if let Err(law) = lawful {
            self.broken.get_or_insert(law);
        }
        if let Some(conn) = conn.filter(|_| consumes) {
            self.host.consumed(conn, in_order);
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
                let result = self.host.connect(self.now, ends, *mss);
                if let Ok(conn) = result {
                    self.name(conn, number);
                }
                same("connect refused", refused.as_deref(), result.err())
            }
            Call::Listen { backlog } => {
                let local = super::local(self.script.settings.ipv6);
                let result = self.host.listen(self.now, local, *backlog);
                result.map_err(|error| ("to listen".to_owned(), error))
            }
            Call::Unlisten => {
                let local = super::local(self.script.settings.ipv6);
                same("unlisten", true, self.host.unlisten(self.now, local))
            }
            Call::Send {
                count,
                len,
                refused,
            } => {
                if refused.is_some() && !H::TELLS {
                    return Ok(());
                }
                let conn = there()?;
                for _ in 0..*count {
                    self.send(number, conn, *len, refused.as_deref())?;
                }
                Ok(())
            }
            Call::Close { gone } => {
                let closed = self.host.close(self.now, there()?);
                same("closed", !gone, closed)
            }
            Call::Abort { gone } => {
                let aborted = self.host.abort(self.now, there()?);
                same("aborted", !gone, aborted)
            }
            Call::Consumed { to } => {
                self.host.consumed(there()?, to.saturating_sub(1));
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
                let ends = tuple(&self.script.settings, number);
                self.host.incarnation(ends);
                Ok(())
            }
            Call::Keepalive(wanted) => {
                let set = self.host.set_keepalive(self.now, there()?, *wanted);
                same("keepalive set", true, set)
            }
            Call::UserTimeout(timeout) => {
                let set = self.host.set_user_timeout(self.now, there()?, *timeout);
                same("user timeout set", true, set)
            }
            Call::Icmp { error, seq, taken } => {
                let ends = tuple(&self.script.settings, number);
                let iss = self.peer(number).iss.unwrap_or(0);
                let seq = SeqNum(absolute(*seq, iss));
                let got = self.host.icmp(self.now, ends, seq, *error);
                let got = if H::TELLS { got } else { *taken };
                same("ICMP error taken", *taken, got)
            }
        }
    }

    fn send(
        &mut self,
        number: u16,
        conn: H::Conn,
        len: u32,
        refused: Option<&str>,
    ) -> Result<(), Wrong> {
        let buf = self.buffers;
        let got = self.host.send(self.now, conn, buf, len).err();
        if got.is_none() {
            self.buffers += 1;
            self.peer(number).laws.post(len);
        }
        same("send refused", refused, got)
    }

    /// The link takes a segment.
    pub(super) fn transmit(&mut self, leaving: Leaving<H::Conn>) {
        let Leaving {
            ends: tuple,
            wire,
            payload,
        } = leaving;
        let number = tuple.remote.port.wrapping_sub(40_000);
        if tuple != super::tuple(&self.script.settings, number) {
            self.broken
                .get_or_insert(format!("a segment between other ends: {tuple}"));
        }
        if wire.ports != (tuple.local.port, tuple.remote.port) {
            self.broken
                .get_or_insert(format!("ports {:?} in the header", wire.ports));
        }
        if let Some(with_link) = payload {
            self.with_link.push(with_link);
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
            let back = self.host.transmitted(conn, payload);
            self.buffers_back += u32::from(back);
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
fn to_wire<C>(line: &SegmentLine, peer: &Peer<C>, clock: u32, window: u16) -> Option<Wire> {
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

fn to_tlv<C>(option: &Opt, peer: &Peer<C>, iss: u32) -> Option<Tlv> {
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
