//! Who may see everything and give orders.

use crate::credentials::Credentials;

/// Who may see every client's objects and give an operator's orders. Root always may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Administrators {
    /// The daemon's own user.
    pub uid: u32,
    /// A group; who is to be known by it connects with it as effective group (newgrp(1), sg(1)).
    pub gid: Option<u32>,
}

impl Administrators {
    /// Whether this client is one of them.
    pub fn include(&self, client: &Credentials) -> bool {
        client.uid == 0 || client.uid == self.uid || self.gid == Some(client.gid)
    }
}
