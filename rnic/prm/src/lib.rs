//! Privileged Resource Manager (RFC 5042 section 2.1): who may do what with which object.
//!
//! Every request of a client comes here first. What is granted comes back as a value that only
//! this crate can make, so that nobody acts on a shard without having asked. It does no I/O, and
//! a client can never learn from it whether another client's object exists.

#![forbid(unsafe_code)]

mod administrators;
mod credentials;
mod grant;
mod limits;
mod pace;
mod prm;
mod refusal;
mod refused;
mod table;
mod users;

pub use administrators::Administrators;
pub use credentials::Credentials;
pub use grant::{
    AcceptGrant, ClientGrant, CqGrant, CqRemoval, ListenGrant, ListenerRemoval, QpGrant, QpRemoval,
    QpUse, RegionGrant, RegionRevocation, RejectGrant, SrqGrant, SrqRemoval, SrqUse, Step,
    Teardown,
};
pub use limits::{Limits, Quota, Resource, kept_for_administrators};
pub use pace::Pace;
pub use prm::{ListedClient, ListedQp, ListedRegion, Listing, Prm, RefusedRequest, STAGS_MAX};
pub use users::{PortRanges, UserLimits, Users};
