//! Random programs of verbs. Each piece of work is posted, and what it must or may bring about is
//! told to the model in the same breath.

use rnic_ipc::control::{Access, MarkerUse, Transport};
use rnic_ipc::id::PdId;
use rnic_ipc::ring::WorkRequest;
use rnic_ipc::work::{Sge, WR_SIGNALED, WR_SOLICITED, WrOpcode};

use crate::memory::{Order, Party, Use};
use crate::node::{DEPTH, MAX_INLINE, MAX_SGE};
use crate::simulation::{Region, Simulation, Validity};
use crate::stream::{End, Life, Message, Posted, Receive, Sent, What};

#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub region: usize,
    /// Where it begins in the node's memory.
    pub at: usize,
    pub len: usize,
}

impl Piece {
    pub fn range(&self) -> std::ops::Range<usize> {
        self.at..self.at + self.len
    }

    /// Its bytes, and through what.
    pub fn place(&self) -> (std::ops::Range<usize>, usize) {
        (self.range(), self.region)
    }
}

impl Simulation {
    /// One thing that an application does.
    pub fn act(&mut self) {
        let stream = self.random.below(self.streams.len() as u64) as usize;
        let end = self.random.below(2) as usize;
        let party = Party { stream, end };
        if self.is_gone(self.end_of(party).node) {
            return;
        }
        match self.random.below(100) {
            0..17 => self.post_write(party, false),
            17..21 => self.post_write(party, true),
            21..33 => self.post_read(party),
            33..41 => self.post_atomic(party),
            41..45 => self.post_immediate(party),
            45..62 => self.post_send(party, None),
            62..84 => self.post_receive(party),
            84 => self.rewrite(party),
            85 | 86 => self.bind(party),
            87 => self.wish(party),
            88..90 => self.add_region(party),
            90..92 => self.revoke_idle(party),
            92..95 => self.invalidate(party),
            95 => self.connect_again(party),
            96 => self.invalidate_locally(party),
            _ => self.trouble(party),
        }
    }

    pub fn end_of(&self, party: Party) -> &End {
        &self.streams[party.stream].ends[party.end]
    }

    pub fn end_mut(&mut self, party: Party) -> &mut End {
        &mut self.streams[party.stream].ends[party.end]
    }

    pub fn peer(party: Party) -> Party {
        Party {
            end: 1 - party.end,
            ..party
        }
    }

    /// The queue pair can take work; in Error it flushes it.
    pub fn takes_work(&self, party: Party) -> bool {
        let end = self.end_of(party);
        let room = DEPTH as usize - 4;
        let told = !self.has_dead_cq(party);
        end.life != Life::Gone && told && end.sq.len() < room && end.rq.len() < room
    }

    pub fn length(&mut self) -> usize {
        let most = [0, 0, 64, 64, 64, 700, 700, 5000][self.random.below(8) as usize];
        self.random.below(most + 1) as usize
    }

    pub fn sge(&self, piece: &Piece) -> Sge {
        let region = &self.regions[piece.region];
        Sge {
            addr: region.base + (piece.at - region.at) as u64,
            length: piece.len as u32,
            lkey: region.stag.0,
        }
    }

    /// A region of this node's, by chance.
    pub fn pick(&mut self, node: usize, suits: impl Fn(&Region) -> bool) -> Option<usize> {
        let suitable: Vec<_> = self
            .regions
            .iter()
            .enumerate()
            .filter(|(_, region)| region.node == node && suits(region))
            .filter(|(_, region)| {
                // A window is as good as its region.
                let parent = region.window.map(|window| &self.regions[window.parent]);
                region.validity != Validity::Valid
                    || parent.is_none_or(|parent| parent.validity == Validity::Valid)
            })
            .map(|(index, _)| index)
            .collect();
        let chosen = self.random.below(suitable.len() as u64) as usize;
        suitable.get(chosen).copied()
    }

    /// A piece of a region that is valid for this end, up to so many bytes.
    pub fn piece(
        &mut self,
        party: Party,
        len: usize,
        right: impl Fn(&Access) -> bool,
    ) -> Option<Piece> {
        self.piece_for(party, len, |region| {
            region.window.is_none() && right(&region.access)
        })
    }

    /// The same of a region or window that the peer of this end may use.
    pub fn target(
        &mut self,
        party: Party,
        len: usize,
        right: impl Fn(&Access) -> bool,
    ) -> Option<Piece> {
        let qp = self.end_of(party).qp;
        if self.random.chance(400) {
            let found = self.piece_for(party, len, |region| {
                region.window.is_some() && region.is_for(qp) && right(&region.access)
            });
            if found.is_some() {
                return found;
            }
        }
        self.piece_for(party, len, |region| {
            region.is_for(qp) && right(&region.access)
        })
    }

    fn piece_for(
        &mut self,
        party: Party,
        len: usize,
        suits: impl Fn(&Region) -> bool,
    ) -> Option<Piece> {
        let (node, pd) = (self.end_of(party).node, self.end_of(party).pd);
        let suits = |region: &Region| {
            region.pd == pd && region.validity == Validity::Valid && suits(region)
        };
        let index = self.pick(node, suits)?;
        let (at, room) = (self.regions[index].at, self.regions[index].len);
        let len = len.min(room);
        let skip = self.random.below((room - len + 1) as u64) as usize;
        Some(Piece {
            region: index,
            at: at + skip,
            len,
        })
    }

    /// Pieces with so many bytes in all, or fewer, each of which passes `fits`, and none of which
    /// overlaps another.
    pub fn pieces(
        &mut self,
        party: Party,
        len: usize,
        right: impl Fn(&Access) -> bool + Copy,
        fits: impl Fn(&Self, usize, &Piece) -> bool,
    ) -> Vec<Piece> {
        let many = self.end_of(party).max_sge > 8 && self.random.chance(300);
        let most = if many { MAX_SGE } else { 4 };
        let count = 1 + self.random.below(most.into()) as usize;
        let node = self.end_of(party).node;
        let mut out: Vec<Piece> = Vec::new();
        for _ in 0..count {
            let Some(piece) = self.piece(party, len / count, right) else {
                continue;
            };
            let apart = |other: &Piece| {
                let (a, b) = (other.range(), piece.range());
                a.end <= b.start || b.end <= a.start
            };
            if fits(self, node, &piece) && out.iter().all(apart) {
                out.push(piece);
            }
        }
        out
    }

    /// What work of this end sends: pieces that nobody changes meanwhile, and their bytes.
    pub fn payload(&mut self, party: Party, len: usize) -> (Vec<Piece>, Vec<u8>) {
        let stable =
            |it: &Self, node: usize, piece: &Piece| it.memories[node].is_stable(&piece.range());
        let pieces = self.pieces(party, len, |_| true, stable);
        let bytes = self.gather(party, &pieces);
        (pieces, bytes)
    }

    fn gather(&self, party: Party, pieces: &[Piece]) -> Vec<u8> {
        let memory = &self.memories[self.end_of(party).node];
        let certain = |piece: &Piece| memory.certain(party, &piece.range()).unwrap();
        pieces.iter().flat_map(certain).collect()
    }

    pub fn total(pieces: &[Piece]) -> usize {
        pieces.iter().map(|piece| piece.len).sum()
    }

    pub fn request(&mut self, opcode: WrOpcode, sges: &[Sge]) -> WorkRequest {
        let mut request = WorkRequest::new(opcode, self.id());
        if self.random.chance(600) {
            request.slot.flags = WR_SIGNALED;
        }
        assert!(request.set_sges(sges));
        request
    }

    pub fn sges(&self, pieces: &[Piece]) -> Vec<Sge> {
        pieces.iter().map(|piece| self.sge(piece)).collect()
    }

    /// Gives a work request to the send queue; what it is in the model.
    pub fn submit(&mut self, party: Party, request: &WorkRequest, what: What) -> &mut Posted {
        self.submit_with(party, request, None, what)
    }

    pub fn submit_with(
        &mut self,
        party: Party,
        request: &WorkRequest,
        inline: Option<&[u8]>,
        what: What,
    ) -> &mut Posted {
        self.note(|| format!("{party:?} posts {request:?}"));
        let end = &mut self.streams[party.stream].ends[party.end];
        let node = end.node;
        let id = request.slot.wr_id;
        let opcode = request.opcode().unwrap();
        end.sq.push_back(Posted {
            id,
            opcode,
            signaled: end.signal_all || request.slot.flags & WR_SIGNALED != 0,
            len: request.total_length() as u32,
            sink: None,
            local: None,
            errors: Vec::new(),
            // The queue pair is in Error already.
            hopeless: !end.is_alive(),
        });
        if end.is_alive() && !matches!(what, What::Nothing) {
            let handed = false;
            end.line.push_back(Message { id, what, handed });
        }
        self.nodes[node].post_send(end.qp, request, inline);
        self.due[node] = true;
        let sq = &mut self.streams[party.stream].ends[party.end].sq;
        sq.back_mut().unwrap()
    }

    /// Both ends are alive: what is posted at one may arrive at the other.
    pub fn arrives(&self, party: Party) -> bool {
        self.end_of(party).is_alive() && self.end_of(Self::peer(party)).is_alive()
    }

    /// Whether work is to carry these bytes itself.
    fn carried(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let fits = bytes.len() <= MAX_INLINE as usize;
        (fits && self.random.chance(300)).then(|| bytes.to_vec())
    }

    fn lock_payload(&mut self, party: Party, id: u64, pieces: &[Piece]) {
        let node = self.end_of(party).node;
        for piece in pieces {
            self.memories[node].lock(id, party, piece.place(), Use::Payload);
        }
    }

    /// Whether work between two queue pairs of one node has bytes that are both its source and its sink. Their
    /// values are not known then.
    pub fn is_onto_itself(&self, party: Party, pieces: &[Piece], remote: &Piece) -> bool {
        let one_node = self.end_of(party).node == self.end_of(Self::peer(party)).node;
        let overlaps =
            |piece: &Piece| piece.at < remote.range().end && remote.at < piece.range().end;
        one_node && pieces.iter().any(overlaps)
    }

    /// A Write, or one with Immediate Data, for which a receive is posted.
    fn post_write(&mut self, party: Party, with_immediate: bool) {
        if !self.takes_work(party) {
            return;
        }
        let receive = self.waiting_receive(Self::peer(party));
        if with_immediate && (receive.is_none() || !self.arrives(party)) {
            return;
        }
        let len = self.length();
        let (pieces, bytes) = self.payload(party, len);
        let peer = Self::peer(party);
        let Some(sink) = self.target(peer, bytes.len(), |access| {
            access.contains(Access::REMOTE_WRITE)
        }) else {
            return;
        };
        if self.is_onto_itself(party, &pieces, &sink) {
            return;
        }
        let node = self.end_of(peer).node;
        let mut sges = self.sges(&pieces);
        let mut remote = self.sge(&sink);
        if bytes.is_empty() && self.random.chance(500) {
            // Neither STag nor offset of a Write of nothing is looked at (RFC 5041 section 5.2).
            remote = Sge {
                addr: self.random.next(),
                length: 0,
                lkey: self.random.next() as u32,
            };
            sges.clear();
        }
        if sink.len < bytes.len() || !self.memories[node].takes_write(party, &sink.range()) {
            return;
        }
        let inline = self.carried(&bytes);
        if inline.is_some() {
            sges.clear();
        }
        let opcode = match with_immediate {
            true => WrOpcode::WriteImmediate,
            false => WrOpcode::Write,
        };
        let mut request = self.request(opcode, &sges);
        (request.slot.rkey, request.slot.remote_addr) = (remote.lkey, remote.addr);
        let id = request.slot.wr_id;
        if self.arrives(party) {
            let sources = self.memories[node].sources(&sink.range());
            for (read, source) in sources {
                let from = source.start.max(sink.at);
                let end = source.end.min(sink.at + bytes.len());
                let reader = self.end_of(party).node;
                if self.memories[reader].is_undecided(read) {
                    return;
                }
                let part = &bytes[from - sink.at..end - sink.at];
                self.memories[reader].or_else(read, from - source.start, part);
            }
            // Over TCP nothing is placed out of order without Markers or the extension.
            let mpa = self.end_of(peer).mpa;
            let over_sctp = self.streams[party.stream].transport == Transport::Sctp;
            let order = match over_sctp || mpa.markers != MarkerUse::Off || mpa.aligned {
                true => Order::Any,
                false => Order::Posted,
            };
            let at = (sink.at, sink.region);
            self.memories[node].expect(id, party, at, bytes, order);
        }
        if inline.is_none() {
            self.lock_payload(party, id, &pieces);
        }
        let receive = receive.filter(|_| with_immediate);
        let sent = receive.map(|(receive, _)| self.immediate(party, receive, &mut request));
        self.submit_with(party, &request, inline.as_deref(), What::Write);
        if let Some(sent) = sent {
            let (what, handed) = (What::Send(sent), false);
            let line = &mut self.end_mut(party).line;
            line.push_back(Message { id, what, handed });
        }
    }

    pub fn write_nothing(&mut self, party: Party) {
        let request = self.request(WrOpcode::Write, &[]);
        self.submit(party, &request, What::Write);
    }

    fn post_read(&mut self, party: Party) {
        if !self.takes_work(party) {
            return;
        }
        let free =
            |it: &Self, node: usize, piece: &Piece| it.memories[node].is_free(&piece.range());
        let len = self.length();
        let sinks = self.pieces(
            party,
            len,
            |access| access.contains(Access::LOCAL_WRITE),
            free,
        );
        let len = Self::total(&sinks);
        let peer = Self::peer(party);
        let Some(source) = self.target(peer, len, |access| access.contains(Access::REMOTE_READ))
        else {
            return;
        };
        if self.is_onto_itself(party, &sinks, &source) {
            return;
        }
        let node = self.end_of(peer).node;
        let Some(bytes) = self.memories[node].certain(party, &source.range()) else {
            return;
        };
        if bytes.len() < len {
            return;
        }
        let own = self.end_of(party).node;
        let sges = self.sges(&sinks);
        let remote = self.sge(&source);
        let mut request = self.request(WrOpcode::Read, &sges);
        (request.slot.rkey, request.slot.remote_addr) = (remote.lkey, remote.addr);
        let id = request.slot.wr_id;
        if self.arrives(party) {
            self.memories[node].lock(id, party, source.place(), Use::ReadSource);
            let mut rest = &bytes[..];
            for sink in &sinks {
                let (now, later) = rest.split_at(sink.len);
                let at = (sink.at, sink.region);
                self.memories[own].expect(id, party, at, now.to_vec(), Order::Responses);
                rest = later;
            }
        }
        let hopeless = !self.arrives(party);
        self.submit(party, &request, What::Read).hopeless |= hopeless;
    }

    pub fn post_receive(&mut self, party: Party) {
        if !self.takes_work(party) || self.end_of(party).bare {
            return;
        }
        if let Some(srq) = self.end_of(party).srq {
            return self.post_shared_receive(party, srq);
        }
        let free =
            |it: &Self, node: usize, piece: &Piece| it.memories[node].is_free(&piece.range());
        let len = self.length();
        let places = self.pieces(
            party,
            len,
            |access| access.contains(Access::LOCAL_WRITE),
            free,
        );
        self.submit_receive(party, &places);
    }

    pub fn submit_receive(&mut self, party: Party, places: &[Piece]) {
        let sges = self.sges(places);
        let request = self.request(WrOpcode::Recv, &sges);
        self.note(|| format!("{party:?} posts {request:?}"));
        let (node, id) = (self.end_of(party).node, request.slot.wr_id);
        for place in places {
            self.memories[node].lock(id, party, place.place(), Use::Receive);
        }
        let end = self.end_mut(party);
        end.rq.push_back(Receive {
            id,
            places: places.to_vec(),
            send: None,
            errors: Vec::new(),
        });
        let qp = end.qp;
        self.nodes[node].post_recv(qp, &request);
        self.due[node] = true;
    }

    /// A Send, for which a receive is posted; with the region that it invalidates.
    pub fn post_send(&mut self, party: Party, invalidate: Option<usize>) {
        let peer = Self::peer(party);
        if !self.takes_work(party) || !self.arrives(party) {
            return;
        }
        let Some((receive, room)) = self.waiting_receive(peer) else {
            return;
        };
        let len = self.length().min(room);
        let (pieces, bytes) = self.payload(party, len);
        let opcode = match invalidate {
            Some(_) => WrOpcode::SendInvalidate,
            None => WrOpcode::Send,
        };
        let inline = self.carried(&bytes);
        let sges = match inline {
            Some(_) => Vec::new(),
            None => self.sges(&pieces),
        };
        let mut request = self.request(opcode, &sges);
        let solicited = self.random.chance(300);
        if solicited {
            request.slot.flags |= WR_SOLICITED;
        }
        let stag = invalidate.map(|region| self.regions[region].stag);
        request.slot.rkey = stag.map_or(0, |stag| stag.0);
        let id = request.slot.wr_id;
        self.expect_send(party, id, receive, &bytes);
        if inline.is_none() {
            self.lock_payload(party, id, &pieces);
        }
        let sent = Sent {
            receive,
            bytes,
            solicited,
            invalidate: stag,
            immediate: None,
        };
        self.submit_with(party, &request, inline.as_deref(), What::Send(sent));
    }

    /// A Send is to fill a receive, as far as there is room; any of a shared receive queue may be
    /// filled anyway.
    pub fn expect_send(&mut self, party: Party, id: u64, receive: Option<u64>, bytes: &[u8]) {
        let Some(receive) = receive else {
            return;
        };
        let end = self.end_mut(Self::peer(party));
        let node = end.node;
        let receive = end.rq.iter_mut().find(|r| r.id == receive).unwrap();
        receive.send = Some(id);
        let places = receive.places.clone();
        let mut rest = bytes;
        for place in places {
            let (now, later) = rest.split_at(place.len.min(rest.len()));
            let at = (place.at, place.region);
            self.memories[node].expect(id, party, at, now.to_vec(), Order::Posted);
            rest = later;
        }
    }

    /// The application writes bytes that are not in use.
    fn rewrite(&mut self, party: Party) {
        let len = self.length();
        let Some(piece) = self.piece(party, len, |_| true) else {
            return;
        };
        let node = self.end_of(party).node;
        if self.memories[node].is_free(&piece.range()) {
            let bytes = self.bytes(piece.len);
            self.memories[node].fill(piece.at, &bytes);
        }
    }

    fn add_region(&mut self, party: Party) {
        let rights = self.random.next();
        let access = Access::LOCAL_WRITE.when(rights & 3 != 0)
            | Access::REMOTE_READ.when(rights & 4 != 0)
            | Access::REMOTE_WRITE.when(rights & 8 != 0)
            | Access::REMOTE_ATOMIC.when(rights & 16 != 0);
        let pd = match self.random.below(4) {
            0 => PdId(1 + self.random.below(4) as u32),
            _ => self.end_of(party).pd,
        };
        self.register(self.end_of(party).node, pd, access);
    }
}
