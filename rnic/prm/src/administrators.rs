//! Who may see everything and give orders.

use crate::credentials::Credentials;

/// Who may see every client's objects and give an operator's orders. Root of the host always may. Uid 0 alone
/// is not enough, since a container's root has it too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Administrators {
    /// The daemon's own user.
    pub uid: u32,
    /// A group; who is to be known by it connects with it as effective group (newgrp(1), sg(1)).
    pub gid: Option<u32>,
    /// Whether the daemon is a program's own, so that its user has nobody else beside it.
    pub private: bool,
}

impl Administrators {
    /// Whether this client is one of them.
    pub fn include(&self, client: &Credentials) -> bool {
        client.superuser || self.are_own(client) || self.gid == Some(client.gid)
    }

    /// Whether this client is the daemon's own user, who could stop it without the RNIC.
    pub(crate) fn are_own(&self, client: &Credentials) -> bool {
        client.uid == self.uid && (self.uid != 0 || self.private || client.superuser)
    }
}
