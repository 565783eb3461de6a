//! What the devices of one process have in common: the Privileged Resource Manager, so that limits
//! hold for a user whatever interfaces its clients use, and who there is.

use std::sync::{Mutex, MutexGuard};

use rnic_prm::{Administrators, Limits, Prm};

use crate::core::lock;

/// What the devices of one process have in common.
#[derive(Debug)]
pub(crate) struct Books {
    prm: Mutex<Prm>,
    /// The names of their interfaces, in their order.
    interfaces: Vec<String>,
}

impl Books {
    /// For devices with these interfaces; no clients yet.
    pub(crate) fn new(
        limits: Limits,
        administrators: Administrators,
        interfaces: Vec<String>,
    ) -> Self {
        let prm = Prm::new(limits).with_administrators(administrators);
        Self {
            prm: Mutex::new(prm),
            interfaces,
        }
    }

    /// The PRM. Not to be held while waiting for anything.
    pub(crate) fn prm(&self) -> MutexGuard<'_, Prm> {
        lock(&self.prm)
    }

    /// The names of the interfaces.
    pub(crate) fn interfaces(&self) -> &[String] {
        &self.interfaces
    }
}
