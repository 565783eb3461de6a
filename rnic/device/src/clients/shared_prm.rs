//! What the devices of one process have in common: the Privileged Resource Manager, so that limits
//! hold for a user whatever interfaces its clients use, and the states of all interfaces.

use std::sync::{Mutex, MutexGuard};

use rnic_ipc::control::{CONTROL_MESSAGE_MAX, Refusal, Request};
use rnic_prm::{Administrators, Limits, Prm};

use super::memory_budget::{Exclusive, MemoryBudget, uncharged};
use crate::sync::lock;

/// Bytes of a control message for names and reasons of interfaces, without their lengths.
const INTERFACES_BYTES: usize = CONTROL_MESSAGE_MAX / 2;

/// What the devices of one process have in common.
#[derive(Debug)]
pub(crate) struct SharedPrm {
    prm: Mutex<Prm>,
    memory: MemoryBudget,
    interfaces: Mutex<Interfaces>,
}

/// The interfaces of a process's devices, in their order.
pub(crate) type Interfaces = Vec<(String, InterfaceState)>;

/// Whether an interface is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceState {
    Open,
    /// It will be in a moment.
    Opening,
    Waiting(String),
}

impl InterfaceState {
    /// Why it is not open, for people; none if it is.
    pub(crate) fn why_not_open(&self) -> Option<&str> {
        match self {
            Self::Open => None,
            Self::Opening => Some("it is being opened"),
            Self::Waiting(why) => Some(why),
        }
    }
}

impl SharedPrm {
    /// No interfaces and no clients yet.
    pub(crate) fn new(limits: Limits, administrators: Administrators) -> Self {
        let prm = Prm::new(limits).with_administrators(administrators);
        Self {
            prm: Mutex::new(prm),
            memory: MemoryBudget::new(),
            interfaces: Mutex::default(),
        }
    }

    /// The PRM. Not to be held while waiting for anything.
    pub(crate) fn prm(&self) -> MutexGuard<'_, Prm> {
        lock(&self.prm)
    }

    /// Admits a request if there is memory for it. The result is to be held until it is done.
    pub(crate) fn admit(&self, request: &Request) -> Result<Exclusive, Refusal> {
        let queue_depth = self.prm().limits().queue_depth;
        self.memory
            .admit(request, queue_depth, || uncharged(&self.prm()))
    }

    /// Requests that were refused because there was no memory.
    pub(crate) fn refused_for_memory(&self) -> u64 {
        self.memory.refused()
    }

    pub(crate) fn interfaces(&self) -> Interfaces {
        lock(&self.interfaces).clone()
    }

    /// Their names, each with why it is not open, if so; as much of that as one control message takes.
    pub(crate) fn interfaces_for_clients(&self) -> Vec<(String, Option<String>)> {
        let all = self.interfaces();
        let each = INTERFACES_BYTES / all.len().max(1);
        let shown = |(name, state): (String, InterfaceState)| {
            let why = state.why_not_open().map(|why| {
                let most = each.saturating_sub(name.len());
                why[..why.floor_char_boundary(most)].to_owned()
            });
            (name, why)
        };
        all.into_iter().map(shown).collect()
    }

    /// The names of those that are open, or will be in a moment.
    pub(crate) fn open(&self) -> Vec<String> {
        let all = self.interfaces().into_iter();
        all.filter(|(_, state)| !matches!(state, InterfaceState::Waiting(_)))
            .map(|(name, _)| name)
            .collect()
    }

    pub(crate) fn set_interfaces(&self, interfaces: Interfaces) {
        *lock(&self.interfaces) = interfaces;
    }
}
