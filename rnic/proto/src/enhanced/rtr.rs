//! Ready-to-Receive indications of the peer-to-peer model (RFC 6581 section 9.2).

/// How an initiator says that it is ready to receive, when its application has nothing to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rtr {
    /// A zero-length RDMA Write (flag C).
    Write,
    /// A zero-length RDMA Read (flag D).
    Read,
    /// A zero-length Send, or FULPDU (flag B).
    Send,
}

/// Some of the three indications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtrSet {
    /// [`Rtr::Write`].
    pub write: bool,
    /// [`Rtr::Read`].
    pub read: bool,
    /// [`Rtr::Send`].
    pub send: bool,
}

impl RtrSet {
    /// None of them: the client-server model.
    pub const NONE: Self = Self {
        write: false,
        read: false,
        send: false,
    };
    pub const ALL: Self = Self {
        write: true,
        read: true,
        send: true,
    };

    /// The set of one.
    pub const fn only(rtr: Rtr) -> Self {
        match rtr {
            Rtr::Write => Self {
                write: true,
                ..Self::NONE
            },
            Rtr::Read => Self {
                read: true,
                ..Self::NONE
            },
            Rtr::Send => Self {
                send: true,
                ..Self::NONE
            },
        }
    }

    /// Those in both sets.
    pub const fn and(self, other: Self) -> Self {
        Self {
            write: self.write && other.write,
            read: self.read && other.read,
            send: self.send && other.send,
        }
    }

    /// The one that we would rather have: Write, which costs least, then Read, then Send.
    pub const fn preferred(self) -> Option<Rtr> {
        if self.write {
            Some(Rtr::Write)
        } else if self.read {
            Some(Rtr::Read)
        } else if self.send {
            Some(Rtr::Send)
        } else {
            None
        }
    }

    /// One that is among those that the initiator offers and those that we take; else one that we take, and the
    /// initiator sees that it can't.
    pub(super) fn choose(self, taken: Self) -> Rtr {
        let both = self.and(taken).preferred();
        both.or(taken.preferred()).unwrap_or(Rtr::Write)
    }

    /// Whether it is [`RtrSet::NONE`].
    pub const fn is_empty(self) -> bool {
        self.preferred().is_none()
    }
}
