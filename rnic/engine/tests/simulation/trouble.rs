//! What goes wrong on purpose, and what must come of it: errors of RFC 5040 section 7 and RFC 5041
//! section 7 with their numbers, ends by either side, and STags that are taken away.

use rnic_ipc::control::{Access, DisconnectReason};
use rnic_ipc::work::{Sge, WcStatus, WrOpcode};

use crate::memory::Party;
use crate::program::Piece;
use crate::simulation::{Region, Simulation, Validity};
use crate::stream::{Cause, What, is_request};
use crate::words::WORD;

/// Layer, error type and error code as a Terminate says them.
pub const LOCAL_CATASTROPHIC: u16 = 0x0000;
const READ_INVALID_STAG: u16 = 0x0100;
const READ_BOUNDS: u16 = 0x0101;
const MISALIGNED: u16 = 0x0207;
const ACCESS_RIGHTS: u16 = 0x0102;
const READ_NOT_ASSOCIATED: u16 = 0x0103;
const CANNOT_INVALIDATE: u16 = 0x0109;
const WRITE_INVALID_STAG: u16 = 0x1100;
const WRITE_BOUNDS: u16 = 0x1101;
const WRITE_NOT_ASSOCIATED: u16 = 0x1102;
const NO_BUFFER: u16 = 0x1202;
const TOO_LONG: u16 = 0x1205;

/// What is wrong with the memory that a peer is to touch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Stag,
    Bounds,
    Rights,
    Domain,
    /// No multiple of 8, for an Atomic Operation.
    Alignment,
}

/// Bytes of what must not be placed: one segment, over any path.
const FEW: usize = 300;

impl Simulation {
    pub fn trouble(&mut self, party: Party) {
        // One cause is enough, mostly: then the result is certain.
        let stream = &self.streams[party.stream];
        if stream.is_doomed() && !self.random.chance(200) || !self.takes_work(party) {
            return;
        }
        let wrong = [Wrong::Stag, Wrong::Bounds, Wrong::Rights, Wrong::Domain];
        let wrong = wrong[self.random.below(4) as usize];
        match self.random.below(20) {
            0..5 => self.touch_wrongly(party, WrOpcode::Write, wrong),
            5 | 6 => self.touch_wrongly(party, WrOpcode::Read, wrong),
            7 => self.touch_wrongly(party, WrOpcode::AtomicFetchAdd, wrong),
            8 => self.touch_wrongly(party, WrOpcode::AtomicFetchAdd, Wrong::Alignment),
            9 | 10 => self.work_wrongly(party),
            11 => self.send_too_long(party),
            12 => self.send_without_receive(party),
            13 => self.invalidate_wrongly(party),
            14 if self.random.chance(500) => self.local_work_wrongly(party),
            14 => self.disconnect(party, false),
            15 if self.random.chance(500) => self.terminate(party),
            15 => self.disconnect(party, true),
            16 | 17 => self.destroy(party),
            18 => {
                let opcodes = [WrOpcode::Write, WrOpcode::Read, WrOpcode::AtomicFetchAdd];
                let opcode = opcodes[self.random.below(3) as usize];
                self.touch_wrongly(party, opcode, Wrong::Domain);
            }
            _ => self.revoke_in_use(party),
        }
    }

    /// The peer of `party` finds an error and says so in a Terminate.
    fn found_by_peer(&mut self, party: Party, what: &'static str, control: u16) {
        let mut reasons = [(); 2].map(|()| Vec::new());
        reasons[party.end] = vec![DisconnectReason::TerminateReceived { control }];
        reasons[1 - party.end] = vec![DisconnectReason::TerminateSent { control }];
        self.doom(party.stream, Cause { what, reasons });
    }

    /// This end can't go on.
    pub fn local_error(&mut self, party: Party, what: &'static str) {
        let mut reasons = [(); 2].map(|()| Vec::new());
        reasons[party.end] = vec![DisconnectReason::LocalError];
        let control = LOCAL_CATASTROPHIC;
        // A responder that may not send yet can only reset (RFC 5044 section 7.1.2).
        reasons[1 - party.end] = vec![
            DisconnectReason::TerminateReceived { control },
            DisconnectReason::Reset,
        ];
        self.doom(party.stream, Cause { what, reasons });
    }

    /// Memory of the peer that may not be touched so, by an element of `len` bytes, and the errors
    /// for a Read and for a Write.
    fn forbidden(
        &mut self,
        party: Party,
        opcode: WrOpcode,
        len: usize,
        wrong: Wrong,
    ) -> Option<(Sge, u16, u16)> {
        let peer = self.end_of(Self::peer(party));
        let (node, pd, qp) = (peer.node, peer.pd, peer.qp);
        let length = len as u32;
        if wrong == Wrong::Stag {
            let orphan = self.pick(node, |r| {
                // Rights and bounds are looked at before a window's region.
                let near = r.is_for(qp) && r.gives(opcode) && r.len >= len;
                r.validity == Validity::Orphaned && r.pd == pd && near
            });
            let dead = [Validity::Invalidated, Validity::Revoked][self.random.below(2) as usize];
            let dead = orphan.or_else(|| self.pick(node, |r| r.validity == dead && r.pd == pd));
            if let Some(index) = dead {
                self.regions[index].pinned |= self.regions[index].validity == Validity::Orphaned;
            }
            let lkey = match dead {
                Some(index) => self.regions[index].stag.0,
                None => self.fresh_stag().0,
            };
            // Where it was valid there is room: nothing but the STag is wrong.
            let addr = match dead {
                Some(index) => self.regions[index].base,
                None => self.random.next() >> 1,
            };
            let sge = Sge { addr, length, lkey };
            return Some((sge, READ_INVALID_STAG, WRITE_INVALID_STAG));
        }
        let suits = |region: &Region| {
            let right = region.gives(opcode);
            region.validity == Validity::Valid
                && match wrong {
                    Wrong::Domain => region.pd != pd || !region.is_for(qp),
                    Wrong::Rights => region.pd == pd && region.is_for(qp) && !right,
                    _ => region.pd == pd && region.is_for(qp) && right && region.len > 3 * WORD,
                }
        };
        // The window of another stream is the nearest miss.
        let near = |region: &Region| {
            wrong == Wrong::Domain && region.pd == pd && region.window.is_some() && suits(region)
        };
        let near = self.pick(node, near);
        let index = near.or_else(|| self.pick(node, suits))?;
        let region = &mut self.regions[index];
        region.pinned = true;
        let (stag, base, room) = (region.stag.0, region.base, region.len as u64);
        let sge = |addr| Sge {
            addr,
            length,
            lkey: stag,
        };
        Some(match wrong {
            Wrong::Domain => (sge(base), READ_NOT_ASSOCIATED, WRITE_NOT_ASSOCIATED),
            Wrong::Rights => (sge(base), ACCESS_RIGHTS, ACCESS_RIGHTS),
            Wrong::Alignment => {
                let aligned = region.at.next_multiple_of(WORD) - region.at;
                let off = 1 + self.random.below(7);
                (sge(base + aligned as u64 + off), MISALIGNED, MISALIGNED)
            }
            // One byte too many, or one too early.
            _ if self.random.chance(500) => (
                sge((base + room + 1).saturating_sub(len as u64)),
                READ_BOUNDS,
                WRITE_BOUNDS,
            ),
            _ => (sge(base.saturating_sub(1)), READ_BOUNDS, WRITE_BOUNDS),
        })
    }

    fn touch_wrongly(&mut self, party: Party, opcode: WrOpcode, wrong: Wrong) {
        if !self.arrives(party) {
            return;
        }
        let atomic = opcode == WrOpcode::AtomicFetchAdd;
        let len = match atomic {
            true => WORD,
            false => 1 + self.random.below(FEW as u64) as usize,
        };
        let read = is_request(opcode);
        let free = |it: &Self, node: usize, piece: &Piece| {
            piece.len > 0 && (!read || it.memories[node].is_free(&piece.range()))
        };
        // One element: a Read of several would be several Read Requests.
        let Some(piece) = self.piece(party, len, |access| access.contains(Access::LOCAL_WRITE))
        else {
            return;
        };
        let node = self.end_of(party).node;
        if !free(self, node, &piece) {
            return;
        }
        if atomic && piece.len < WORD {
            return;
        }
        let found = self.forbidden(party, opcode, piece.len, wrong);
        let Some((remote, of_read, of_write)) = found else {
            return;
        };
        self.regions[piece.region].pinned = true;
        let mut request = if atomic {
            let operation = self.operation();
            self.atomic(&piece, operation)
        } else {
            let sges = [self.sge(&piece)];
            self.request(opcode, &sges)
        };
        (request.slot.rkey, request.slot.remote_addr) = (remote.lkey, remote.addr);
        let control = if read { of_read } else { of_write };
        self.found_by_peer(party, "memory that is not to be touched", control);
        let posted = self.submit(party, &request, What::Fatal);
        if read {
            posted.hopeless = true;
            posted.errors = match wrong {
                Wrong::Alignment => vec![WcStatus::RemoteOperation],
                _ => vec![WcStatus::RemoteAccess],
            };
        }
    }

    /// A work request that can't be done.
    fn work_wrongly(&mut self, party: Party) {
        let Some(piece) = self.piece(party, 100, |_| true) else {
            return;
        };
        let mut sge = self.sge(&piece);
        let (node, pd) = (self.end_of(party).node, self.end_of(party).pd);
        let window = |r: &Region| r.window.is_some() && r.pd == pd && r.len >= 8;
        if self.random.chance(300)
            && let Some(window) = self.pick(node, window)
        {
            // No local work names a window, bound or not.
            let window = &self.regions[window];
            (sge.addr, sge.length, sge.lkey) = (window.base, 8, window.stag.0);
        } else if self.random.chance(500) {
            sge.lkey = self.fresh_stag().0;
        } else {
            sge.length = self.regions[piece.region].len as u32 + 1;
        }
        if sge.length == 0 || !self.end_of(party).is_alive() {
            return;
        }
        let opcodes = [
            WrOpcode::Write,
            WrOpcode::WriteImmediate,
            WrOpcode::Read,
            WrOpcode::Send,
            WrOpcode::AtomicFetchAdd,
            WrOpcode::Immediate,
        ];
        let opcode = opcodes[self.random.below(6) as usize];
        // An original value has one place of its size, and Immediate Data none.
        let impossible = match opcode {
            WrOpcode::AtomicFetchAdd => {
                if self.random.chance(500) {
                    sge.length = WORD as u32;
                }
                sge.length != WORD as u32
            }
            other => other == WrOpcode::Immediate,
        };
        if opcode == WrOpcode::AtomicFetchAdd && !impossible {
            sge.lkey = self.fresh_stag().0;
        }
        let mut request = self.request(opcode, &[sge]);
        assert!(request.set_operands(&[1, 0, 0, 0]));
        self.local_error(party, "work that can't be done");
        let posted = self.submit(party, &request, What::Fatal);
        posted.hopeless = true;
        posted.errors = match impossible {
            true => vec![WcStatus::LocalQpOperation],
            false => vec![WcStatus::LocalProtection],
        };
    }

    fn send_too_long(&mut self, party: Party) {
        let peer = Self::peer(party);
        let (pieces, bytes) = self.payload(party, 2000);
        if !self.arrives(party) {
            return;
        }
        let Some(receive) = self.end_mut(peer).receive_without_send() else {
            return;
        };
        if bytes.len() <= receive.room() {
            return;
        }
        receive.errors = vec![WcStatus::LocalLength];
        let receive = receive.id;
        self.send_fatally(party, WrOpcode::Send, &pieces, 0, TOO_LONG);
        let id = self.end_of(party).sq.back().unwrap().id;
        self.expect_send(party, id, Some(receive), &bytes);
    }

    fn send_without_receive(&mut self, party: Party) {
        let peer = Self::peer(party);
        let (pieces, _) = self.payload(party, FEW);
        let shared = self.end_of(peer).srq.is_some();
        let found = self.end_mut(peer).receive_without_send().is_some();
        if !self.arrives(party) || shared || found {
            return;
        }
        self.end_mut(peer).bare = true;
        if self.random.chance(300) {
            return self.send_fatally(party, WrOpcode::Immediate, &[], 0, NO_BUFFER);
        }
        self.send_fatally(party, WrOpcode::Send, &pieces, 0, NO_BUFFER);
    }

    fn invalidate_wrongly(&mut self, party: Party) {
        let peer = Self::peer(party);
        if !self.arrives(party) {
            return;
        }
        let Some(receive) = self.end_mut(peer).receive_without_send() else {
            return;
        };
        let (receive, room) = (receive.id, receive.room());
        let (pieces, bytes) = self.payload(party, room);
        let stag = self.fresh_stag().0;
        self.send_fatally(
            party,
            WrOpcode::SendInvalidate,
            &pieces,
            stag,
            CANNOT_INVALIDATE,
        );
        let id = self.end_of(party).sq.back().unwrap().id;
        self.expect_send(party, id, Some(receive), &bytes);
    }

    /// A Send that ends the stream. Its payload is of regions that stay.
    fn send_fatally(
        &mut self,
        party: Party,
        opcode: WrOpcode,
        pieces: &[Piece],
        stag: u32,
        control: u16,
    ) {
        for piece in pieces {
            self.regions[piece.region].pinned = true;
        }
        let sges = self.sges(pieces);
        let mut request = self.request(opcode, &sges);
        request.slot.rkey = stag;
        // If it has any.
        assert!(request.set_operands(&[1, 0, 0, 0]));
        let node = self.end_of(party).node;
        for piece in pieces {
            let (id, place) = (request.slot.wr_id, piece.place());
            self.memories[node].lock(id, party, place, crate::memory::Use::Payload);
        }
        self.found_by_peer(party, "a Send that can't be taken", control);
        let what = What::Fatal;
        self.submit(party, &request, what).errors =
            vec![WcStatus::RemoteOperation, WcStatus::RemoteAccess];
    }
}
