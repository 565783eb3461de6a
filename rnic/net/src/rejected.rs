//! Pairs of addresses between which the host's routes and rules let nothing go: kinds `blackhole`, `unreachable` and
//! `prohibit` of `ip route` and `ip rule`. Whoever owns a shard asks the kernel for them; the shard does not.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The route or rule, for people, of each pair: our address and the peer's.
type Pairs = HashMap<(IpAddr, IpAddr), Arc<str>>;

/// All that are known. Cheap to clone; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedPaths(Option<Arc<Pairs>>);

impl RejectedPaths {
    /// The most pairs; of more, some are left out.
    pub const MAX: usize = 16_384;

    /// These pairs, each of our address and the peer's, with the route or rule, for people.
    #[must_use]
    pub fn new(pairs: impl IntoIterator<Item = ((IpAddr, IpAddr), Arc<str>)>) -> Self {
        let pairs: Pairs = pairs.into_iter().take(Self::MAX).collect();
        Self((!pairs.is_empty()).then(|| Arc::new(pairs)))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The pairs, ours first.
    pub fn pairs(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> + '_ {
        self.0.iter().flat_map(|pairs| pairs.keys().copied())
    }

    /// What rejects packets between these addresses, for people.
    #[must_use]
    pub fn find(&self, local: IpAddr, remote: IpAddr) -> Option<&str> {
        let found = self.0.as_ref()?.get(&(local, remote))?;
        Some(found)
    }

    /// The message for a client whose connection is rejected.
    #[must_use]
    pub fn refusal(remote: impl fmt::Display, rule: &str) -> String {
        format!(
            "a connection with {remote} asked, but the host rejects what goes there, by {rule}: see `ip rule` and \
             `ip route`, and take it away"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_found_with_what_rejects_it_and_no_more_are_kept_than_the_bound() {
        let local = IpAddr::from([198, 18, 0, 1]);
        let remote = |number: u32| IpAddr::from((0xc612_0000 + number).to_be_bytes());
        let why: Arc<str> = "route `prohibit 198.18.0.0/15`".into();
        let most = RejectedPaths::MAX as u32;
        let all = (0..most + 1).map(|number| ((local, remote(number)), why.clone()));
        let all = RejectedPaths::new(all);
        assert_eq!(all.pairs().count(), RejectedPaths::MAX);
        assert_eq!(all.find(local, remote(7)), Some(&*why));
        assert_eq!(all.find(remote(7), local), None);
        assert_eq!(all.find(local, remote(most)), None);
        assert!(RejectedPaths::new([]).is_empty());
    }
}
