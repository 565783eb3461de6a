//! Privileged Resource Manager (RFC 5042 section 2.1): who may do what with which object.
//!
//! Every request of a client comes here first. What is granted comes back as a value that only
//! this crate can make, so that no code acts on a shard without a grant. It does no I/O, and
//! a client can never learn from it whether another client's object exists.
//!
//! ```
//! use rnic_prm::{Credentials, Limits, Prm};
//!
//! let mut limits = Limits::default();
//! limits.per_client.protection_domains = 1;
//! let mut prm = Prm::new(limits);
//! let somebody = Credentials { uid: 1000, gid: 1000, pid: 1, superuser: false };
//! let client = *prm.add_client(somebody).unwrap().client();
//! prm.alloc_pd(client).unwrap();
//! let refusal = prm.alloc_pd(client).unwrap_err();
//! assert!(refusal.message.contains("protection_domains"));
//! ```

#![forbid(unsafe_code)]

mod administrators;
mod credentials;
mod grant;
mod limits;
mod pace;
mod peers;
mod prm;
mod refusal;
mod refused;
mod table;
mod users;

pub use administrators::Administrators;
pub use credentials::Credentials;
pub use grant::{
    AcceptGrant, ClientGrant, CqGrant, CqRemoval, CqResize, ListenGrant, ListenerRemoval, QpGrant,
    QpRemoval, QpUse, RegionGrant, RegionRevocation, RejectGrant, SrqGrant, SrqRemoval, SrqUse,
    Step, Teardown,
};
pub use limits::{Limits, Quota, Resource, kept_for_administrators};
pub use pace::Pace;
pub use peers::{ListenerAddress, ListenerPeers, ParseListenerAddressError};
pub use prm::{
    ListedClient, ListedQp, ListedRegion, Listing, LiveListener, Prm, RefusedRequest, STAGS_MAX,
};
pub use users::{PortRanges, UserLimits, Users};
