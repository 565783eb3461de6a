//! The sentences in which requests are refused.

use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_ipc::id::PdId;

use crate::credentials::Credentials;

/// A kind of object, as a client reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Client,
    Pd,
    Region,
    Cq,
    Srq,
    Qp,
    Listener,
    Request,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Pd => "protection domain",
            Self::Region => "memory region with STag",
            Self::Cq => "completion queue",
            Self::Srq => "shared receive queue",
            Self::Qp => "queue pair",
            Self::Listener => "listener",
            Self::Request => "connection request",
        }
    }

    fn origin(self) -> &'static str {
        match self {
            Self::Client => "say Hello first",
            Self::Pd => "name one that AllocPd gave",
            Self::Region => "name one that RegisterMemory or AllocStag gave",
            Self::Cq => "name one that CreateCq gave",
            Self::Srq => "name one that CreateSrq gave",
            Self::Qp => "name one that CreateQp gave",
            Self::Listener => "name one that Listen gave",
            Self::Request => "name one that a ConnectRequest event gave and that was not answered",
        }
    }
}

/// The same for an object that does not exist and for one of another client.
pub(crate) fn unknown(kind: Kind, id: impl std::fmt::Display) -> Refusal {
    Refusal {
        code: RefusalCode::UnknownObject,
        message: format!("this client has no {} {id}: {}", kind.name(), kind.origin()),
    }
}

pub(crate) fn busy(kind: Kind, id: impl std::fmt::Display, users: u32, by: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Busy,
        message: format!(
            "{} {id} is still used by {users} {by}: remove them first",
            kind.name()
        ),
    }
}

/// `kind` is of the protection domain `found`, but the object that is to use it of `wanted`.
pub(crate) fn wrong_pd(
    kind: Kind,
    id: impl std::fmt::Display,
    found: PdId,
    wanted: PdId,
) -> Refusal {
    Refusal {
        code: RefusalCode::WrongPd,
        message: format!(
            "{} {id} is of protection domain {found}, but was to be used in {wanted}: make both in \
             one",
            kind.name()
        ),
    }
}

/// The device's table of `limit` objects is full.
pub(crate) fn full(kind: Kind, limit: u32) -> Refusal {
    Refusal {
        code: RefusalCode::Limit,
        message: format!(
            "one more {} asked, but the device holds {limit}, its limit: release some, or raise \
             the limit",
            kind.name()
        ),
    }
}

/// `what` is outside `1..=limit`, where `limit` is called `name`.
pub(crate) fn out_of_range(what: &str, asked: u64, name: &str, limit: u64) -> Refusal {
    let code = if asked > limit {
        RefusalCode::Limit
    } else {
        RefusalCode::Malformed
    };
    Refusal {
        code,
        message: format!(
            "{what} of {asked} asked, but it must be at least 1 and at most {limit} ({name}): ask \
             for something between"
        ),
    }
}

/// `what` is more than `limit`, which is called `name`.
pub(crate) fn too_much(what: &str, asked: u64, name: &str, limit: u64) -> Refusal {
    Refusal {
        code: RefusalCode::Limit,
        message: format!(
            "{asked} bytes of {what} asked, but at most {limit} ({name}) are possible: ask for less"
        ),
    }
}

pub(crate) fn limit(message: String) -> Refusal {
    Refusal {
        code: RefusalCode::Limit,
        message,
    }
}

/// A refusal for the limit `remote_regions`, with what that is about.
pub(crate) fn remote_region(refusal: Refusal) -> Refusal {
    Refusal {
        message: format!(
            "{}. These regions are of memory that can't be put into a memfd (.data, a stack, a mapping of a file, \
             shared memory): register memory of the heap or of an anonymous private mapping, or have the \
             administrator set remote_regions in [user.NAME] or [group.NAME]",
            refusal.message
        ),
        ..refusal
    }
}

/// For a sentence that names a limit: how much of it is not for this client.
pub(crate) fn kept(kept: u64) -> String {
    match kept {
        0 => String::new(),
        kept => format!(" ({kept} of them kept for administrators)"),
    }
}

/// An order that is not this client's to give.
pub(crate) fn not_permitted(who: &Credentials, group: Option<u32>) -> Refusal {
    let group = group.map_or(String::new(), |gid| format!(", or of group {gid}"));
    let lacks = match who.uid {
        0 => ", without CAP_SYS_ADMIN on the daemon's host (as root of a container is)",
        _ => "",
    };
    Refusal {
        code: RefusalCode::NotPermitted,
        message: format!(
            "this is for administrators, but the client is of uid {} and gid {}{lacks}: ask as root of the \
             host, as the daemon's user{group}",
            who.uid, who.gid
        ),
    }
}

/// Something that is not this client's user's to have, however much is free.
pub(crate) fn not_allowed(message: String) -> Refusal {
    Refusal {
        code: RefusalCode::NotPermitted,
        message,
    }
}

pub(crate) fn malformed(message: impl Into<String>) -> Refusal {
    Refusal {
        code: RefusalCode::Malformed,
        message: message.into(),
    }
}
