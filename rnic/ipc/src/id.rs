//! Names of the objects that a client holds. Each is a number of its own type, so that none is
//! taken for another. All are chosen by the Privileged Resource Manager; a client that invents one
//! is refused.

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A client of the daemon (or the embedding program itself).
    ClientId
    /// A Protection Domain (RFC 5042 section 2.1).
    PdId
    /// A Completion Queue.
    CqId
    /// A Shared Receive Queue.
    SrqId
    /// A Queue Pair number.
    QpNum
    /// A listening (address, port).
    ListenerId
    /// A connection that a peer asked for and that is neither accepted nor rejected yet.
    ConnRequestId
}
