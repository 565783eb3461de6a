//! The host's IPsec policies (RFC 4301 section 4.4.1), as far as they say what may not go in clear. The kernel does not
//! see the RNIC's frames, so whoever sends them asks here.
//!
//! Nothing here encrypts: what a policy wants protected is forbidden, as is what it blocks.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::{Prefix, Protocol};

/// Which packets a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpsecDirection {
    /// Those that this host sends.
    Out,
    /// Those that come to it.
    In,
}

/// As `ip xfrm policy` has it.
impl fmt::Display for IpsecDirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Out => "out",
            Self::In => "in",
        })
    }
}

/// What a policy does with the packets that it selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpsecAction {
    /// They go as they are.
    Clear,
    /// They don't go.
    Block,
    /// They go by a security association.
    Protect,
}

/// A port of a selector: those that are `value` where `mask` has ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSelector {
    /// The bits.
    pub value: u16,
    /// Which of them count; 0 for any port.
    pub mask: u16,
}

impl PortSelector {
    fn selects(self, port: u16) -> bool {
        (port ^ self.value) & self.mask == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpsecPolicy {
    /// Which packets it is for.
    pub direction: IpsecDirection,
    /// Whether it is one of Linux's sub-policies, which hold beside the others.
    pub is_sub: bool,
    /// The policy with the lowest number decides.
    pub priority: u32,
    /// The kernel's number for it.
    pub index: u32,
    pub source: Prefix,
    pub destination: Prefix,
    /// The protocol's number; 0 for any.
    pub protocol: u8,
    pub source_port: PortSelector,
    pub destination_port: PortSelector,
    /// What happens to these packets.
    pub action: IpsecAction,
}

impl IpsecPolicy {
    fn selects(&self, protocol: Protocol, source: SocketAddr, destination: SocketAddr) -> bool {
        (self.protocol == 0 || self.protocol == protocol.number())
            && self.source.contains(source.ip())
            && self.destination.contains(destination.ip())
            && self.source_port.selects(source.port())
            && self.destination_port.selects(destination.port())
    }
}

/// In the words of `ip xfrm policy`.
impl fmt::Display for IpsecPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source, self.destination);
        write!(f, "src {source} dst {destination}")?;
        if self.protocol != 0 {
            write!(f, " proto {}", self.protocol)?;
        }
        let ports = [
            ("sport", self.source_port),
            ("dport", self.destination_port),
        ];
        for (name, port) in ports.into_iter().filter(|(_, port)| port.mask != 0) {
            write!(f, " {name} {}", port.value)?;
        }
        let direction = self.direction;
        let action = match self.action {
            IpsecAction::Clear => "allow",
            IpsecAction::Block => "block",
            IpsecAction::Protect => "tmpl",
        };
        let (priority, index) = (self.priority, self.index);
        write!(
            f,
            " dir {direction} {action} priority {priority} index {index}"
        )
    }
}

/// All policies of a host that may select the RNIC's packets. Cheap to clone; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpsecPolicies(Option<Arc<All>>);

#[derive(Debug, Default, PartialEq, Eq)]
struct All {
    policies: Vec<IpsecPolicy>,
    /// What the host does with packets that none selects: whether it blocks those that go out, and that come in.
    blocks: [bool; 2],
    /// Why everything is forbidden, if it is.
    everything: Option<&'static str>,
}

impl IpsecPolicies {
    /// The most policies: all may be compared for a SYN. Of a host that has more nothing may go in clear.
    pub const MAX: usize = 4096;

    /// These policies; `blocks`: whether the host blocks what no policy of that direction selects (`ip xfrm policy
    /// setdefault`), outward and inward.
    #[must_use]
    pub fn new(policies: Vec<IpsecPolicy>, blocks: [bool; 2]) -> Self {
        let forbids = |policy: &IpsecPolicy| policy.action != IpsecAction::Clear;
        if blocks == [false; 2] && !policies.iter().any(forbids) {
            return Self::default();
        }
        if policies.len() > Self::MAX {
            return Self::forbidding_all("more policies than the RNIC compares, 4096");
        }
        Self(Some(Arc::new(All {
            policies,
            blocks,
            everything: None,
        })))
    }

    /// Nothing may go in clear, because of this, for people.
    #[must_use]
    pub fn forbidding_all(why: &'static str) -> Self {
        Self(Some(Arc::new(All {
            everything: Some(why),
            ..All::default()
        })))
    }

    /// Whether nothing is forbidden.
    #[must_use]
    pub fn forbid_nothing(&self) -> bool {
        self.0.is_none()
    }

    /// Those that forbid something, for people: a line for each.
    pub fn forbidding(&self) -> impl Iterator<Item = String> + '_ {
        let all = self.0.iter();
        all.flat_map(|all| {
            let forbids = |policy: &&IpsecPolicy| policy.action != IpsecAction::Clear;
            let policies = all.policies.iter().filter(forbids);
            let defaults = [IpsecDirection::Out, IpsecDirection::In];
            let defaults = defaults.into_iter().zip(all.blocks);
            let defaults = defaults.filter(|(_, blocks)| *blocks);
            let everything = all.everything.map(str::to_owned);
            everything
                .into_iter()
                .chain(policies.map(IpsecPolicy::to_string))
                .chain(defaults.map(|(direction, _)| default_policy(direction)))
        })
    }

    /// What forbids that packets between these ends go in clear, in both directions; for people.
    #[must_use]
    pub fn forbid(
        &self,
        protocol: Protocol,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<String> {
        let all = self.0.as_ref()?;
        if let Some(why) = all.everything {
            return Some(why.to_owned());
        }
        all.forbid(IpsecDirection::Out, (protocol, local, remote))
            .or_else(|| all.forbid(IpsecDirection::In, (protocol, remote, local)))
    }
}

impl All {
    fn forbid(
        &self,
        direction: IpsecDirection,
        (protocol, source, destination): (Protocol, SocketAddr, SocketAddr),
    ) -> Option<String> {
        let of_kind = |is_sub| {
            let selects = move |policy: &&IpsecPolicy| {
                policy.direction == direction
                    && policy.is_sub == is_sub
                    && policy.selects(protocol, source, destination)
            };
            self.policies.iter().filter(selects)
        };
        let mut found = false;
        for is_sub in [false, true] {
            let Some(first) = of_kind(is_sub).map(|policy| policy.priority).min() else {
                continue;
            };
            found = true;
            // Of several with one priority the kernel takes the oldest, which it does not tell: each has to allow.
            let forbidding = of_kind(is_sub)
                .find(|policy| policy.priority == first && policy.action != IpsecAction::Clear);
            if let Some(policy) = forbidding {
                return Some(format!("policy `{policy}`"));
            }
        }
        let blocks = match direction {
            IpsecDirection::Out => self.blocks[0],
            IpsecDirection::In => self.blocks[1],
        };
        (blocks && !found).then(|| default_policy(direction))
    }
}

/// A default policy that blocks, for people.
fn default_policy(direction: IpsecDirection) -> String {
    format!("default policy `{direction} block`")
}

#[cfg(test)]
mod tests;
