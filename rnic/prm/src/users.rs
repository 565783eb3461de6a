//! What all clients of one user together may hold and do, and whose limits are whose.
//!
//! A user is a uid as the kernel attests it (`SO_PEERCRED`). Limits may be given for a uid, or for
//! each user whose clients come with a gid.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use rnic_net::AllowList;

use crate::credentials::Credentials;
use crate::limits::{Quota, Resource};

/// The first port that is not only the superuser's, as the kernel has it.
pub(crate) const UNPRIVILEGED_PORT_START: u16 = 1024;

/// What all clients of one user together may hold and do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLimits {
    pub clients: u32,
    /// What they may hold.
    pub quota: Quota,
    /// The limit `remote_regions` in place of the quota's, for the daemon's own user: who is that can stop the
    /// daemon by other means as well.
    pub own_remote_regions: u32,
    /// Where they may listen, and which ports they may name to connect from.
    pub listen_ports: PortRanges,
    /// Connections that they may begin in a second, and so many at once after a second without
    /// any.
    pub connects_per_second: u32,
    /// Requests that they may make in a second, and so many at once after a second without any. A client
    /// above that rate waits.
    pub requests_per_second: u32,
    /// The peers with which they may have connections, whichever end begins them. None: all.
    pub allowed_peers: Option<AllowList>,
}

impl UserLimits {
    /// The limit of a resource, for the daemon's own user or for another.
    pub(crate) fn get(&self, resource: Resource, is_own: bool) -> u64 {
        match resource {
            Resource::RemoteRegions if is_own => self.own_remote_regions.into(),
            _ => self.quota.get(resource),
        }
    }
}

impl Default for UserLimits {
    fn default() -> Self {
        Self {
            clients: 64,
            quota: Quota::PER_USER,
            own_remote_regions: 64,
            listen_ports: PortRanges::unprivileged(),
            connects_per_second: 10_000,
            requests_per_second: 2000,
            allowed_peers: None,
        }
    }
}

/// Whose limits are whose: those of the uid; without them those of the gid; else those of all
/// others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users {
    /// Everybody who is not named.
    pub others: UserLimits,
    pub by_uid: HashMap<u32, UserLimits>,
    pub by_gid: HashMap<u32, UserLimits>,
}

impl Users {
    /// What holds for this client's user.
    pub fn of(&self, credentials: Credentials) -> &UserLimits {
        let by_uid = self.by_uid.get(&credentials.uid);
        by_uid
            .or_else(|| self.by_gid.get(&credentials.gid))
            .unwrap_or(&self.others)
    }
}

impl Default for Users {
    /// The same for everybody, but that the superuser may listen at every port.
    fn default() -> Self {
        let others = UserLimits::default();
        let root = UserLimits {
            listen_ports: PortRanges::all(),
            ..others.clone()
        };
        Self {
            others,
            by_uid: HashMap::from([(0, root)]),
            by_gid: HashMap::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRanges(Vec<RangeInclusive<u16>>);

impl PortRanges {
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<u16>>) -> Self {
        Self(ranges.into_iter().collect())
    }

    pub fn all() -> Self {
        Self::new([1..=u16::MAX])
    }

    /// All but those that the kernel keeps for the superuser.
    pub fn unprivileged() -> Self {
        Self::new([UNPRIVILEGED_PORT_START..=u16::MAX])
    }

    /// Whether the port is one of them.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.contains(&port))
    }
}

impl std::fmt::Display for PortRanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (number, range) in self.0.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}
