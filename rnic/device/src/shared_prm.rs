//! What the devices of one process have in common: the Privileged Resource Manager, so that limits
//! hold for a user whatever interfaces its clients use, and who there is.

use std::sync::{Mutex, MutexGuard};

use rnic_ipc::control::{Refusal, Request};
use rnic_prm::{Administrators, Limits, Prm};

use crate::core::lock;
use crate::room::{Alone, Room, to_come};

/// What the devices of one process have in common.
#[derive(Debug)]
pub(crate) struct SharedPrm {
    prm: Mutex<Prm>,
    room: Room,
    /// The names of their interfaces, in their order.
    interfaces: Vec<String>,
}

impl SharedPrm {
    /// For devices with these interfaces; no clients yet.
    pub(crate) fn new(
        limits: Limits,
        administrators: Administrators,
        interfaces: Vec<String>,
    ) -> Self {
        let prm = Prm::new(limits).with_administrators(administrators);
        Self {
            prm: Mutex::new(prm),
            room: Room::new(),
            interfaces,
        }
    }

    /// The PRM. Not to be held while waiting for anything.
    pub(crate) fn prm(&self) -> MutexGuard<'_, Prm> {
        lock(&self.prm)
    }

    /// That there is memory for what is asked. What is returned is to be held until it is done.
    pub(crate) fn room_for(&self, request: &Request) -> Result<Alone, Refusal> {
        self.room.check(request, || to_come(&self.prm()))
    }

    /// Requests that were refused because there was no memory.
    pub(crate) fn refused_for_memory(&self) -> u64 {
        self.room.refused()
    }

    /// The names of the interfaces.
    pub(crate) fn interfaces(&self) -> &[String] {
        &self.interfaces
    }
}
