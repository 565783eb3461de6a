//! Who a client is.

/// A client as the kernel attests it (`SO_PEERCRED`), or the embedding process itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    pub pid: u32,
    /// Whether it is root of the host, by capability and not by its uid alone, which a container's root has too.
    pub superuser: bool,
}

impl std::fmt::Display for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pid {} uid {} gid {}", self.pid, self.uid, self.gid)
    }
}
