//! A host with two interfaces, and behind each of them another host.

use super::link::{self, LinkOptions};
use super::{Host, Lab, addressed};

/// The interfaces of the host that has two.
pub const FORKS: [&str; 2] = ["rnic1", "rnic2"];

impl Lab {
    /// Adds a host with the interfaces [`FORKS`], and a host at the other end of each: what is `.1` and
    /// what is `.2` of each of the two networks.
    pub fn forked(&mut self, options: &LinkOptions) -> [(Host, Host); 2] {
        let middle = self.namespace("fork");
        FORKS.map(|interface| {
            let link = self.next_link();
            let far = self.namespace(&format!("{link}b"));
            link::veth((&middle, interface), (&far, link::INTERFACE), options);
            (
                addressed(middle.clone(), interface, link, 1),
                addressed(far, link::INTERFACE, link, 2),
            )
        })
    }
}
