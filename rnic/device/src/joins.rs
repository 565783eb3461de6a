//! Queue pairs that are joined by number: which, to which, and what peers ask. What is done about it is in
//! `device::join`.

mod hello;
mod table;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crossbeam::channel::{Receiver, Sender};
use rnic_engine::command::JoinEvent;
use rnic_ipc::control::{Event, JoinNumbers, MpaOptions};
use rnic_ipc::id::{ClientId, ConnRequestId, ListenerId, QpNum};

use crate::sync::lock;

pub(crate) use hello::Hello;
pub(crate) use table::{Join, Table, Verdict};

/// Whose listeners take requests to join: no client's.
pub(crate) const OWNER: ClientId = ClientId(0);

/// The joins of a device.
#[derive(Debug)]
pub(crate) struct Joins {
    /// How numbers follow, from when they are first asked for.
    pub(crate) numbers: OnceLock<JoinNumbers>,
    state: Mutex<State>,
    /// Bounded by what they are about: requests by the listeners' backlogs, the others by queue pairs.
    messages: (Sender<Message>, Receiver<Message>),
}

/// Held while a shard does what it says, so that no queue pair goes away, or comes back as another's, meanwhile.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) table: Table,
    /// The listener at each address at which there is a join.
    pub(crate) listeners: HashMap<IpAddr, ListenerId>,
    /// How many there have been.
    pub(crate) listened: u32,
}

/// What the thread that joins is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// A queue pair was added.
    Added,
    /// A peer asks.
    Requested {
        request: ConnRequestId,
        local: SocketAddr,
        remote: SocketAddr,
        mpa: MpaOptions,
        hello: Vec<u8>,
    },
    RequestGone(ConnRequestId),
    Qp {
        qp: QpNum,
        event: JoinEvent,
    },
    /// The device closes.
    Stop,
}

impl Default for Joins {
    fn default() -> Self {
        Self {
            numbers: OnceLock::new(),
            state: Mutex::default(),
            messages: crossbeam::channel::unbounded(),
        }
    }
}

impl Joins {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Tells the thread that joins.
    pub(crate) fn send(&self, message: Message) {
        // This has the other end too.
        let _ = self.messages.0.send(message);
    }

    pub(crate) fn messages(&self) -> &Receiver<Message> {
        &self.messages.1
    }

    /// An event of a listener of [`OWNER`]'s.
    pub(crate) fn listener_event(&self, event: Event) {
        if let Event::ConnectRequest {
            request,
            local,
            remote,
            mpa,
            private_data,
            ..
        } = event
        {
            self.send(Message::Requested {
                request,
                local,
                remote,
                mpa,
                hello: private_data,
            });
        }
    }
}
