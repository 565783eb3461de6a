//! How many requests each limit has refused.

use crate::limits::Resource;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    Client,
    User,
    Device,
}

/// Limits that are no part of a quota.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Single {
    DeviceClients,
    UserClients,
    ListenPorts,
    ConnectsPerSecond,
    QueueDepth,
    CqDepth,
    Sges,
    InlineBytes,
    Backlog,
    InterfacePeers,
    UserPeers,
}

impl Single {
    const ALL: [Self; 11] = [
        Self::DeviceClients,
        Self::UserClients,
        Self::ListenPorts,
        Self::ConnectsPerSecond,
        Self::QueueDepth,
        Self::CqDepth,
        Self::Sges,
        Self::InlineBytes,
        Self::Backlog,
        Self::InterfacePeers,
        Self::UserPeers,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::DeviceClients | Self::UserClients => "clients",
            Self::ListenPorts => "listen_ports",
            Self::ConnectsPerSecond => "connects_per_second",
            Self::QueueDepth => "queue_depth",
            Self::CqDepth => "cq_depth",
            Self::Sges => "sges",
            Self::InlineBytes => "inline_bytes",
            Self::Backlog => "backlog",
            Self::InterfacePeers | Self::UserPeers => "allowed_peers",
        }
    }

    fn whose(self) -> &'static str {
        match self {
            Self::UserClients | Self::ListenPorts | Self::ConnectsPerSecond | Self::UserPeers => {
                "user"
            }
            Self::InterfacePeers => "interface",
            _ => "device",
        }
    }
}

/// Counts of refusals.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    held: [[u64; Resource::ALL.len()]; 3],
    single: [u64; Single::ALL.len()],
}

impl Refused {
    pub(crate) fn count_held(&mut self, whose: Whose, resource: Resource) {
        self.held[whose as usize][resource as usize] += 1;
    }

    pub(crate) fn count(&mut self, limit: Single) {
        self.single[limit as usize] += 1;
    }

    /// Every limit's count, in a fixed order.
    pub(crate) fn named(&self) -> impl Iterator<Item = (String, u64)> {
        let held = [Whose::Client, Whose::User, Whose::Device]
            .into_iter()
            .zip(["client", "user", "device"])
            .flat_map(move |(whose, name)| {
                Resource::ALL.into_iter().map(move |resource| {
                    let count = self.held[whose as usize][resource as usize];
                    (format!("refused_{name}_{}", resource.name()), count)
                })
            });
        let single = Single::ALL.into_iter().map(|limit| {
            let count = self.single[limit as usize];
            (format!("refused_{}_{}", limit.whose(), limit.name()), count)
        });
        held.chain(single)
    }
}
