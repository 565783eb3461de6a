//! Which connection sends next: clients in turn, and within a client its connections in turn (deficit round
//! robin, after Shreedhar and Varghese).
//!
//! Clients that want as much as they can get all get the same number of bytes, whatever the number of their
//! queue pairs and the length of their messages. No client holds more frames than it leaves to the others.
//! Every step takes constant time, whatever the number of clients, and allocates nothing: a client's memory
//! is reserved when its queue pairs are made.

use std::collections::VecDeque;

use rnic_ipc::id::ClientId;
use userspace_tcp::ConnId;

use crate::slot_table::SlotTable;

/// Segments of one connection before its client's next gets its turn.
pub(in crate::shard) const SEGMENTS_PER_TURN: usize = 16;
/// Bytes that a client may send before the next gets its turn.
const QUANTUM: i64 = 32 << 10;

/// The limits of one transmit quantum.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct Allowed {
    /// What its client may still send, in bytes.
    pub credit: usize,
    /// Frames that its client holds, where others want some too: it may hold as many as it leaves.
    pub held: Option<usize>,
}

#[derive(Debug)]
pub(in crate::shard) struct DrrScheduler {
    accounts: SlotTable<Account>,
    /// Clients with connections that are ready; the front one has its turn.
    active: VecDeque<ClientId>,
    /// By connection: who holds how many frames with it.
    held: Box<[(ClientId, usize)]>,
    in_use: usize,
}

#[derive(Debug, Default)]
struct Account {
    /// Connections whose queue pair may have something to send; each at most once.
    ready: VecDeque<ConnId>,
    queue_pairs: usize,
    /// It is among the active ones.
    active: bool,
    begun: bool,
    /// Bytes that it may still send in its turn; below 0 what it sent beyond.
    credit: i64,
    /// Frames that wait in TCP for being sent or acknowledged.
    frames: usize,
}

/// What a client's connection may send that is the only one to wait for a turn.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct Alone {
    pub allowed: Allowed,
    /// Frames that its client holds.
    pub frames: usize,
}

impl Account {
    fn in_use(&self) -> bool {
        self.frames > 0 || !self.ready.is_empty()
    }
}

impl DrrScheduler {
    pub fn new(clients: usize, connections: usize) -> Self {
        Self {
            accounts: SlotTable::new(clients),
            active: VecDeque::with_capacity(clients),
            held: vec![(ClientId(0), 0); connections].into_boxed_slice(),
            in_use: 0,
        }
    }

    /// A queue pair more of a client's.
    pub fn queue_pair_added(&mut self, client: ClientId) {
        let account = self.accounts.get_or_default(client.0);
        account.queue_pairs += 1;
        // Each may leave one that is gone, which is noticed when its turn comes.
        let wanted = 2 * account.queue_pairs;
        account
            .ready
            .reserve(wanted.saturating_sub(account.ready.len()));
    }

    /// A queue pair less; the last one takes the account along.
    pub fn queue_pair_removed(&mut self, client: ClientId) {
        let Some(account) = self.accounts.get_mut(client.0) else {
            return;
        };
        account.queue_pairs = account.queue_pairs.saturating_sub(1);
        if account.queue_pairs == 0 {
            self.in_use -= usize::from(account.in_use());
            self.accounts.remove(client.0);
            self.active.retain(|active| *active != client);
        }
    }

    /// No connection waits for its turn.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// How many clients wait for their turn.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// A connection of the client's may have something to send. It is not there yet.
    pub fn push(&mut self, client: ClientId, id: ConnId) {
        self.change(client, |account| account.ready.push_back(id));
        self.activate(client);
    }

    /// Whether no other connection waits for a turn after the current one of this client.
    pub fn is_last(&self, client: ClientId) -> bool {
        let account = self.accounts.get(client.0);
        self.active.len() <= 1 && account.is_none_or(|account| account.ready.is_empty())
    }

    /// What [`Self::next_client`] and [`Self::next`] would give to the client's connection if it is the only one
    /// that waits for a turn. None if another waits, or the client has sent beyond its share.
    #[inline]
    pub fn alone(&self, client: ClientId) -> Option<Alone> {
        let account = self.accounts.get(client.0)?;
        if !self.active.is_empty() || !account.ready.is_empty() {
            return None;
        }
        let credit = account.credit.saturating_add(QUANTUM);
        let credit = usize::try_from(credit).ok().filter(|credit| *credit > 0)?;
        let others = self.in_use > usize::from(account.in_use());
        Some(Alone {
            allowed: Allowed {
                credit,
                held: others.then_some(account.frames),
            },
            frames: account.frames,
        })
    }

    /// It has sent so many of these; as [`Self::spend`] and [`Self::end`].
    pub fn spend_alone(&mut self, client: ClientId, bytes: usize) {
        if let Some(account) = self.accounts.get_mut(client.0) {
            account.credit = spent(account.credit.saturating_add(QUANTUM), bytes).min(0);
        }
    }

    pub fn next_client(&mut self) -> Option<ClientId> {
        let client = *self.active.front()?;
        if let Some(account) = self.accounts.get_mut(client.0)
            && !account.begun
        {
            account.begun = true;
            account.credit = account.credit.saturating_add(QUANTUM);
        }
        Some(client)
    }

    /// The client's next connection, with the bytes that it may send; none when the client has had
    /// its share.
    pub fn next(&mut self, client: ClientId) -> Option<(ConnId, usize)> {
        let account = self.accounts.get(client.0)?;
        let credit = usize::try_from(account.credit).ok().filter(|c| *c > 0)?;
        let id = self.change(client, |account| account.ready.pop_front())??;
        Some((id, credit))
    }

    /// The client's connections after the present one.
    pub fn peek_next(&self, client: ClientId) -> [Option<ConnId>; 2] {
        let ready = self.accounts.get(client.0).map(|account| &account.ready);
        [0, 1].map(|place| ready.and_then(|ready| ready.get(place).copied()))
    }

    /// What is kept by connection, of one: for who fetches it ahead of its use.
    pub fn memory_at(&self, place: usize) -> Option<&impl Sized> {
        self.held.get(place)
    }

    /// The client sent so many bytes.
    pub fn spend(&mut self, client: ClientId, bytes: usize) {
        if let Some(account) = self.accounts.get_mut(client.0) {
            account.credit = spent(account.credit, bytes);
        }
    }

    /// The connection has more: after the client's others.
    pub fn again(&mut self, client: ClientId, id: ConnId) {
        self.change(client, |account| account.ready.push_back(id));
    }

    /// The connection could not send all that it has: it is the client's next.
    pub fn put_back(&mut self, client: ClientId, id: ConnId) {
        self.change(client, |account| account.ready.push_front(id));
    }

    /// The connection has waited for others than the client's: it is the client's next.
    pub fn resume(&mut self, client: ClientId, id: ConnId) {
        self.put_back(client, id);
        self.activate(client);
    }

    /// The client's turn is over. It keeps no credit for what it had nothing to send for.
    pub fn end(&mut self, client: ClientId) {
        self.active.pop_front();
        let Some(account) = self.accounts.get_mut(client.0) else {
            return;
        };
        account.begun = false;
        account.active = !account.ready.is_empty();
        if account.active {
            self.active.push_back(client);
        } else {
            account.credit = account.credit.min(0);
        }
    }

    /// The client's turn is over, and there is none until it holds fewer frames: some of them are
    /// acknowledged, or their connection goes.
    pub fn wait_for_frames(&mut self, client: ClientId) {
        self.active.pop_front();
        if let Some(account) = self.accounts.get_mut(client.0) {
            account.begun = false;
            account.active = false;
            account.credit = account.credit.min(0);
        }
    }

    /// So many frames wait in TCP for this connection.
    pub fn hold(&mut self, id: ConnId, client: ClientId, frames: usize) {
        let Some(held) = self.held.get_mut(id.index()) else {
            return;
        };
        let (before_of, before) = std::mem::replace(held, (client, frames));
        if (before_of, before) == (client, frames) {
            return;
        }
        self.change(before_of, |account| {
            account.frames = account.frames.saturating_sub(before);
        });
        self.change(client, |account| account.frames += frames);
        if before > 0 {
            self.activate(before_of);
        }
    }

    /// The connection holds no frames any more.
    pub fn let_go(&mut self, id: ConnId) {
        if let Some((client, _)) = self.held.get(id.index()).copied() {
            self.hold(id, client, 0);
        }
    }

    /// Whether more than one client has queue pairs.
    pub fn is_shared(&self) -> bool {
        self.accounts.len() > 1
    }

    /// Frames that the client holds, if clients beside it want some: then it may hold as many as it
    /// leaves.
    pub fn held_beside_others(&self, client: ClientId) -> Option<usize> {
        let account = self.accounts.get(client.0);
        let (in_use, frames) =
            account.map_or((false, 0), |account| (account.in_use(), account.frames));
        (self.in_use > usize::from(in_use)).then_some(frames)
    }

    fn activate(&mut self, client: ClientId) {
        if let Some(account) = self.accounts.get_mut(client.0)
            && !account.active
            && !account.ready.is_empty()
        {
            account.active = true;
            self.active.push_back(client);
        }
    }

    fn change<T>(&mut self, client: ClientId, change: impl FnOnce(&mut Account) -> T) -> Option<T> {
        let account = self.accounts.get_mut(client.0)?;
        let before = account.in_use();
        let changed = change(account);
        match (before, account.in_use()) {
            (false, true) => self.in_use += 1,
            (true, false) => self.in_use -= 1,
            _ => {}
        }
        Some(changed)
    }
}

/// The credit that remains after sending so many bytes.
fn spent(credit: i64, bytes: usize) -> i64 {
    credit.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
