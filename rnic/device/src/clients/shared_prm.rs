//! What the devices of one process have in common: the Privileged Resource Manager, so that limits
//! hold for a user whatever interfaces its clients use, and who there is.

use std::sync::{Mutex, MutexGuard};

use rnic_ipc::control::{CONTROL_MESSAGE_MAX, Refusal, Request};
use rnic_prm::{Administrators, Limits, Prm};

use crate::clients::memory_budget::{Alone, Room, to_come};
use crate::devices::slots::BEING_OPENED;
use crate::sync::lock;

/// Bytes that what is told of interfaces may take, without the lengths.
const INTERFACES_BYTES: usize = CONTROL_MESSAGE_MAX / 2;

/// What the devices of one process have in common.
#[derive(Debug)]
pub(crate) struct SharedPrm {
    prm: Mutex<Prm>,
    room: Room,
    interfaces: Mutex<Interfaces>,
}

/// The interfaces of a process's devices, in their order: each with why it is waited for, if it is.
pub(crate) type Interfaces = Vec<(String, Option<String>)>;

impl SharedPrm {
    /// No interfaces and no clients yet.
    pub(crate) fn new(limits: Limits, administrators: Administrators) -> Self {
        let prm = Prm::new(limits).with_administrators(administrators);
        Self {
            prm: Mutex::new(prm),
            room: Room::new(),
            interfaces: Mutex::default(),
        }
    }

    /// The PRM. Not to be held while waiting for anything.
    pub(crate) fn prm(&self) -> MutexGuard<'_, Prm> {
        lock(&self.prm)
    }

    /// That there is memory for what is asked. What is returned is to be held until it is done.
    pub(crate) fn room_for(&self, request: &Request) -> Result<Alone, Refusal> {
        let queue_depth = self.prm().limits().queue_depth;
        self.room
            .check(request, queue_depth, || to_come(&self.prm()))
    }

    /// Requests that were refused because there was no memory.
    pub(crate) fn refused_for_memory(&self) -> u64 {
        self.room.refused()
    }

    /// The interfaces that there are at present.
    pub(crate) fn interfaces(&self) -> Interfaces {
        lock(&self.interfaces).clone()
    }

    /// The same, as one control message takes them.
    pub(crate) fn interfaces_for_clients(&self) -> Interfaces {
        let mut all = self.interfaces();
        let each = INTERFACES_BYTES / all.len().max(1);
        for (name, why) in &mut all {
            if let Some(why) = why {
                why.truncate(why.floor_char_boundary(each.saturating_sub(name.len())));
            }
        }
        all
    }

    /// The names of those that are open, or will be in a moment.
    pub(crate) fn open(&self) -> Vec<String> {
        let all = self.interfaces().into_iter();
        all.filter(|(_, why)| why.as_deref().is_none_or(|why| why == BEING_OPENED))
            .map(|(name, _)| name)
            .collect()
    }

    /// There are others, or other ones are open.
    pub(crate) fn set_interfaces(&self, interfaces: Interfaces) {
        *lock(&self.interfaces) = interfaces;
    }
}
