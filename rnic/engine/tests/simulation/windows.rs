//! STags that come and go in random programs: regions and memory windows that are bound, invalidated
//! by work of either end, and revoked (RFC 5040 sections 5.3 and 8.1.1).

use rnic_engine::command::Command;
use rnic_ipc::control::{Access, StagKind};
use rnic_ipc::id::{PdId, QpNum};
use rnic_ipc::work::{WcStatus, WrOpcode};
use rnic_proto::Stag;

use crate::memory::{Party, Use};
use crate::simulation::{Region, Simulation, Validity, Window};
use crate::stream::{Life, Local, What};

/// A memory window, which has one binding after the other.
#[derive(Clone, Copy, Debug)]
pub struct WindowObject {
    node: usize,
    pd: PdId,
    /// Its STag with the key that it had last.
    stag: Stag,
    /// It can be bound.
    free: bool,
    removed: bool,
}

/// Windows of a node.
const MOST: usize = 8;

impl Simulation {
    /// A window of this end's that can be bound.
    fn free_window(&mut self, party: Party) -> Option<usize> {
        let (node, pd) = (self.end_of(party).node, self.end_of(party).pd);
        let of_node = self.windows.iter().filter(|w| w.node == node && !w.removed);
        if of_node.count() >= MOST || self.random.chance(700) {
            let mut windows = self.windows.iter();
            return windows.position(|w| w.node == node && w.pd == pd && w.free);
        }
        let stag = self.fresh_stag();
        let command = Command::AddStag {
            stag,
            pd,
            kind: StagKind::WindowType2B,
            word: None,
        };
        self.nodes[node].execute(command, self.now).unwrap();
        self.windows.push(WindowObject {
            node,
            pd,
            stag,
            free: true,
            removed: false,
        });
        Some(self.windows.len() - 1)
    }

    /// Work that binds a window to part of a region, for the stream of this end.
    pub fn bind(&mut self, party: Party) {
        if !self.takes_work(party) {
            return;
        }
        let rights = self.random.next();
        let Some(part) = self.piece(party, 2000, |_| true) else {
            return;
        };
        if part.len == 0 {
            return;
        }
        let Some(index) = self.free_window(party) else {
            return;
        };
        let parent = &self.regions[part.region];
        let writable = parent.access.contains(Access::LOCAL_WRITE);
        let access = Access::REMOTE_READ.when(rights & 3 != 0)
            | Access::REMOTE_WRITE.when(writable && rights & 12 != 0)
            | Access::REMOTE_ATOMIC.when(writable && rights & 48 != 0);
        let base = parent.base + (part.at - parent.at) as u64;
        let (node, pd, owner) = {
            let end = self.end_of(party);
            (end.node, end.pd, end.qp)
        };
        let window = &mut self.windows[index];
        // A key that it never had.
        let stag = Stag::from_parts(window.stag.index(), window.stag.key().wrapping_add(1));
        (window.stag, window.free) = (stag, false);
        self.regions.push(Region {
            node,
            stag,
            pd,
            access,
            base,
            at: part.at,
            len: part.len,
            validity: Validity::Expected,
            pinned: false,
            window: Some(Window {
                index,
                parent: part.region,
                owner,
            }),
        });
        let binding = self.regions.len() - 1;
        let id = self.post_bind(party, binding);
        // Its region can't be taken away unnoticed.
        self.memories[node].lock(id, party, part.place(), Use::Payload);
    }

    fn post_bind(&mut self, party: Party, binding: usize) -> u64 {
        let region = self.regions[binding].clone();
        let parent = &self.regions[region.window.unwrap().parent];
        let parent = u64::from(parent.stag.0) | u64::from(region.access.bits()) << 32;
        let mut request = self.request(WrOpcode::BindWindow, &[]);
        (request.slot.rkey, request.slot.remote_addr) = (region.stag.0, region.base);
        assert!(request.set_operands(&[region.len as u64, parent, 0, 0]));
        let what = What::Nothing;
        self.submit(party, &request, what).local = Some(Local::Bind(binding));
        request.slot.wr_id
    }

    /// Work that ends the rights of a window or region of this end, which nobody uses, or whose
    /// users' streams may end.
    pub fn invalidate_locally(&mut self, party: Party) {
        if !self.takes_work(party) || !self.end_of(party).is_alive() {
            return;
        }
        let (node, pd, qp) = {
            let end = self.end_of(party);
            (end.node, end.pd, end.qp)
        };
        let suits = |r: &Region| {
            let valid = matches!(r.validity, Validity::Valid | Validity::Orphaned);
            r.pd == pd && r.is_for(qp) && valid && !r.pinned
        };
        let mut index = self.pick(node, suits);
        if self.random.chance(400) {
            // Windows and all.
            let windows: Vec<_> = self.regions.iter().filter_map(|r| r.window).collect();
            let bound = |index: usize| windows.iter().any(|window| window.parent == index);
            let places: Vec<_> = self.regions.iter().map(|r| (r.at, r.len)).collect();
            let of = |r: &Region| places.iter().position(|place| *place == (r.at, r.len));
            let parent = |r: &Region| suits(r) && r.window.is_none() && of(r).is_some_and(bound);
            index = self.pick(node, parent).or(index);
        }
        let Some(index) = index else {
            return;
        };
        let users = self.users_of(index);
        if !users.is_empty() && !self.random.chance(200) {
            return;
        }
        self.doom_users(&users, "an STag in use is invalidated");
        let stag = self.regions[index].stag;
        self.regions[index].validity = Validity::Expected;
        let mut request = self.request(WrOpcode::LocalInvalidate, &[]);
        request.slot.rkey = stag.0;
        let what = What::Nothing;
        self.submit(party, &request, what).local = Some(Local::Invalidate(index));
    }

    /// Work that sends nothing has come to its end.
    pub fn local_done(&mut self, local: Local, done: bool) {
        match (local, done) {
            (Local::Bind(index), true) => {
                self.count("windows_bound");
                self.is_bound(index);
            }
            (Local::Bind(index), false) => {
                let window = self.regions[index].window.unwrap();
                self.windows[window.index].free = true;
                self.regions[index].validity = Validity::Revoked;
            }
            (Local::Invalidate(index), true) => self.rights_end(index, Validity::Invalidated),
            (Local::Invalidate(index), false) => self.is_bound(index),
        }
    }

    fn is_bound(&mut self, index: usize) {
        let parent = self.regions[index].window.map(|window| window.parent);
        let gone = |parent: usize| {
            let validity = self.regions[parent].validity;
            !matches!(validity, Validity::Valid | Validity::Expected)
        };
        self.regions[index].validity = match parent.is_some_and(gone) {
            true => Validity::Orphaned,
            false => Validity::Valid,
        };
    }

    /// As above, and nobody was told how.
    pub fn local_unknown(&mut self, (Local::Bind(index) | Local::Invalidate(index)): Local) {
        self.regions[index].validity = Validity::Unknown;
    }

    /// A stream is at its end, and with it the rights of its windows.
    pub fn windows_of_stream_end(&mut self, node: usize, qp: QpNum) {
        for index in 0..self.regions.len() {
            let region = &self.regions[index];
            let mine = region.window.is_some_and(|window| window.owner == qp);
            let over = matches!(region.validity, Validity::Invalidated | Validity::Revoked);
            if region.node == node && mine && !over {
                self.unpin(index);
                self.rights_end(index, Validity::Revoked);
            }
        }
    }

    /// The rights of a region or window are gone: nothing changes through it any more.
    pub fn rights_end(&mut self, index: usize, how: Validity) {
        let region = &mut self.regions[index];
        region.validity = how;
        let (node, range) = (region.node, region.range());
        let Some(window) = region.window else {
            self.memories[node].freeze(&range);
            for other in &mut self.regions {
                let bound = other.window.is_some_and(|window| window.parent == index);
                if bound && other.validity == Validity::Valid {
                    other.validity = Validity::Orphaned;
                }
            }
            return;
        };
        self.memories[node].shut(index);
        self.count("windows_invalidated");
        self.windows[window.index].free = true;
    }

    /// Who uses a region, or a window as such.
    fn users_of(&self, index: usize) -> Vec<Party> {
        let region = &self.regions[index];
        let memory = &self.memories[region.node];
        match region.window {
            Some(_) => memory.users_through(index).0,
            None => memory.users(&region.range()),
        }
    }

    fn doom_users(&mut self, users: &[Party], what: &'static str) {
        let mut users = users.to_vec();
        for at in 0..users.len() {
            // What one posted to a shared receive queue another may take.
            if let Some(srq) = self.end_of(users[at]).srq {
                users.extend(self.taint(srq));
            }
        }
        for stream in 0..self.streams.len() {
            if users.iter().any(|by| by.stream == stream) {
                self.doom_somehow(stream, what);
            }
        }
    }

    /// Something hangs on it, and it goes all the same.
    fn unpin(&mut self, index: usize) {
        let on_it = |r: &Region| r.window.is_some_and(|window| window.parent == index);
        let pinned = self.regions.iter().any(|r| r.pinned && on_it(r));
        if pinned || self.regions[index].pinned {
            for stream in 0..self.streams.len() {
                if self.streams[stream].is_doomed() {
                    self.doom_somehow(stream, "an STag that was to be refused is gone");
                }
            }
        }
    }

    /// Takes a window away, bound or not.
    pub fn remove_window(&mut self, index: usize) {
        let window = &mut self.windows[index];
        if window.removed {
            return;
        }
        (window.free, window.removed) = (false, true);
        let (node, stag) = (window.node, window.stag);
        let command = Command::RemoveRegion { stag };
        self.nodes[node].execute(command, self.now).unwrap();
        self.due[node] = true;
    }

    /// Their node is gone.
    pub fn forget_windows(&mut self, node: usize) {
        for window in self.windows.iter_mut().filter(|it| it.node == node) {
            (window.free, window.removed) = (false, true);
        }
    }

    pub fn revoke(&mut self, index: usize) {
        let region = &self.regions[index];
        let (node, stag) = (region.node, region.stag);
        match region.window {
            Some(window) => self.remove_window(window.index),
            None => {
                let command = Command::RemoveRegion { stag };
                self.nodes[node].execute(command, self.now).unwrap();
            }
        }
        self.note(|| format!("node {node} revoked {stag}"));
        self.rights_end(index, Validity::Revoked);
        if let Some(window) = self.regions[index].window {
            self.windows[window.index].free = false;
        }
        self.due[node] = true;
    }

    /// The peer's STag that only this stream's earlier Writes use is invalidated by a Send.
    pub fn invalidate(&mut self, party: Party) {
        let peer = Self::peer(party);
        let (node, pd) = (self.end_of(peer).node, self.end_of(peer).pd);
        let users = |it: &Self| {
            let ends = it.streams.iter().flat_map(|stream| &stream.ends);
            ends.filter(|end| end.node == node && end.pd == pd && end.life != Life::Gone)
                .count()
        };
        if !self.arrives(party) {
            return;
        }
        // An STag that several streams can use is not a peer's to invalidate.
        let (alone, qp) = (users(self) == 1, self.end_of(peer).qp);
        let suits = |r: &Region| {
            let own = alone || r.window.is_some();
            own && r.is_for(qp) && r.pd == pd && r.validity == Validity::Valid && !r.pinned
        };
        let Some(index) = self.pick(node, suits) else {
            return;
        };
        let region = &self.regions[index];
        let memory = &self.memories[node];
        let only_writes = match region.window {
            Some(_) => memory.users_through(index).1,
            None => memory.is_unlocked(&region.range()),
        };
        if !only_writes || self.users_of(index).iter().any(|by| *by != party) {
            return;
        }
        self.regions[index].validity = Validity::Expected;
        let before = self.end_of(party).sq.len();
        self.post_send(party, Some(index));
        if self.end_of(party).sq.len() == before {
            self.regions[index].validity = Validity::Valid;
        }
    }

    /// Takes away an STag that nothing uses: nobody notices.
    pub fn revoke_idle(&mut self, party: Party) {
        let node = self.end_of(party).node;
        let suits = |r: &Region| {
            let there = match r.window {
                Some(_) => r.validity == Validity::Valid,
                None => r.validity != Validity::Revoked && r.validity != Validity::Expected,
            };
            there && !r.pinned
        };
        let Some(index) = self.pick(node, suits) else {
            return;
        };
        if self.users_of(index).is_empty() {
            self.revoke(index);
        }
    }

    /// Takes away an STag that is in use: from the answer on no byte of it changes, and the streams
    /// that use it may end.
    pub fn revoke_in_use(&mut self, party: Party) {
        let node = self.end_of(party).node;
        let Some(index) = self.pick(node, |r| r.validity == Validity::Valid) else {
            return;
        };
        let users = self.users_of(index);
        self.unpin(index);
        self.doom_users(&users, "an STag in use is revoked");
        self.revoke(index);
    }

    /// Local work about STags that can't be done.
    pub fn local_work_wrongly(&mut self, party: Party) {
        if !self.end_of(party).is_alive() {
            return;
        }
        let (node, pd, qp) = {
            let end = self.end_of(party);
            (end.node, end.pd, end.qp)
        };
        let bound = |r: &Region| {
            let mine = r.window.is_some_and(|window| window.owner == qp);
            mine && r.pd == pd && r.validity == Validity::Valid
        };
        let foreign = |r: &Region| r.validity == Validity::Valid && (r.pd != pd || !r.is_for(qp));
        let (opcode, stag) = match self.random.below(3) {
            // It is bound, to anything at all.
            0 => (WrOpcode::BindWindow, self.pick(node, bound)),
            1 => (WrOpcode::LocalInvalidate, self.pick(node, foreign)),
            // What no window is.
            _ => (
                WrOpcode::BindWindow,
                self.pick(node, |r| r.window.is_none()),
            ),
        };
        let Some(index) = stag else {
            return;
        };
        self.regions[index].pinned = true;
        let region = self.regions[index].clone();
        let mut request = self.request(opcode, &[]);
        (request.slot.rkey, request.slot.remote_addr) = (region.stag.0, region.base);
        assert!(request.set_operands(&[1, region.stag.0.into(), 0, 0]));
        self.local_error(party, "local work that can't be done");
        let posted = self.submit(party, &request, What::Nothing);
        posted.hopeless = true;
        posted.errors = vec![WcStatus::LocalProtection];
    }
}
