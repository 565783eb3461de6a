//! The other shards of an interface: a segment that comes to another shard than its connection's is handed over to that
//! one, as it came. It is received there as if it had come by that shard's own queue.
//!
//! Only segments that were not predicted are looked up ([`FlowOwners`]): those that were are of this shard. With one
//! shard there are no siblings, and nothing is looked up.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rnic_ipc::control::{SHARDS_MAX, Transport};
use rnic_net::{Flow, Protocol};
use rnic_xsk::{Handover, HandoverStatistics, Packet, Passes, Port, Umem};
use userspace_net::{Endpoint, FourTuple};

use super::datapath::Datapath;
use crate::conn::{FlowOwners, OwnFlows};

/// What comes from siblings, as a port: no shard has so many ports.
pub(super) const SIBLINGS: usize = u32::MAX as usize - 1;

/// A shard's place among the shards of its interface.
#[derive(Debug)]
pub struct Siblings {
    own: OwnFlows,
    handover: Handover,
    passes: Passes,
}

impl Siblings {
    /// The places of all shards of an interface, whose frames are of one UMEM. `flows` is how many all may have
    /// together: one for each connection and address of its peer. `depth` packets may be under way from each shard to each other. `secret` is random.
    ///
    /// # Errors
    ///
    /// The kernel's, when it gives no eventfd.
    ///
    /// # Panics
    ///
    /// When there are more than [`SHARDS_MAX`], or `depth` is 0.
    pub fn among(
        shards: usize,
        flows: usize,
        depth: usize,
        secret: [u8; 16],
    ) -> io::Result<Vec<Siblings>> {
        assert!(
            shards <= SHARDS_MAX,
            "{shards} shards of {SHARDS_MAX} at most"
        );
        let owners = Arc::new(FlowOwners::new(flows, secret));
        let handovers = Handover::among(shards, depth)?;
        let passes = Passes::among(shards);
        let place = |(shard, (handover, passes))| Siblings {
            own: OwnFlows::new(shard, &owners),
            handover,
            passes,
        };
        let places = (0..).zip(handovers.into_iter().zip(passes));
        Ok(places.map(place).collect())
    }

    /// What siblings wait for that have taken rights away.
    pub(super) fn passes(&self) -> &Passes {
        &self.passes
    }

    pub(super) fn own_flows(&self) -> OwnFlows {
        self.own.clone()
    }

    /// What comes from others, and goes to them.
    pub(super) fn handover(&mut self) -> &mut Handover {
        &mut self.handover
    }

    /// Readable when something was handed over.
    pub(super) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.handover.poll_fd()
    }

    pub(super) fn statistics(&self) -> HandoverStatistics {
        self.handover.statistics()
    }

    /// The shard that a packet is for, if it is another one. Fragments are first put together where they come.
    fn owner_of(&self, packet: &Packet, umem: &Umem) -> Option<u8> {
        let flow = rnic_net::flow(umem.bytes(packet.first()), packet.len(umem))?;
        let (transport, tuple) = ends(&flow)?;
        self.own.other_owner(transport, &tuple)
    }
}

/// A flow's ends, ours first; none of a fragment.
fn ends(flow: &Flow) -> Option<(Transport, FourTuple)> {
    let (source, destination) = flow.ports.filter(|_| !flow.is_fragment)?;
    let tuple = FourTuple {
        local: Endpoint::new(flow.destination, destination),
        remote: Endpoint::new(flow.source, source),
    };
    let transport = match flow.protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Sctp | Protocol::Udp => Transport::Sctp,
    };
    Some((transport, tuple))
}

impl<P: Port> Datapath<P> {
    /// What was looked up before, siblings may have changed.
    #[inline]
    pub fn begin_pass(&self) {
        if let Some(siblings) = &self.siblings {
            siblings.passes.begin();
        }
    }

    /// Hands a packet from the interface over to the shard that it is for. Gives back what is for this one, or for none.
    #[inline]
    pub fn hand_over(&mut self, packet: Packet, port: usize) -> Option<Packet> {
        match &mut self.siblings {
            Some(siblings) if port < self.interface_ports => {
                let Some(shard) = siblings.owner_of(&packet, &self.frames.umem) else {
                    return Some(packet);
                };
                let pool = &mut self.frames.pool;
                siblings.handover.give(usize::from(shard), packet, pool);
                None
            }
            _ => Some(packet),
        }
    }

    /// Appends up to `max` packets that siblings handed over to `out`; says how many.
    pub fn take_handed_over(&mut self, out: &mut Vec<Packet>, max: usize) -> usize {
        let pool = &mut self.frames.pool;
        let siblings = self.siblings.as_mut();
        siblings.map_or(0, |siblings| siblings.handover.take(pool, out, max))
    }
}
