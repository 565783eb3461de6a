//! Ports of connections that begin here. Where the NIC's hash is known, a port is chosen by which the peer's segments
//! come to a queue of the connection's shard. Otherwise another shard hands them over.

use std::net::{IpAddr, SocketAddr};

use rnic_host::Members;
use rnic_host::ports::{LocalPort, Reserved};
use rnic_ipc::control::{Refusal, RefusalCode, Transport};
use rnic_steering::{RxHash, rx_hash};

use super::OpenInterface;

/// Ports that programs are given (RFC 6335 section 6).
const DYNAMIC: std::ops::RangeInclusive<u16> = 49152..=65535;
/// Ports that are looked at: of 64 shards each has 32 among them.
const LOOKS: u16 = 2048;
/// Ports that fit and are tried, of which others may have some.
const TRIES: usize = 16;

impl OpenInterface {
    /// Takes a port for a connection of a shard, of so many, to `remote` over the interface: the one that is named, or one that
    /// suits the shard, or any.
    pub(crate) fn take_port(
        &self,
        at: LocalPort,
        remote: SocketAddr,
        (shard, shards): (usize, usize),
        scope: u32,
    ) -> Result<Reserved, Refusal> {
        let may_choose = shards > 1 && at.local.port() == 0 && at.transport == Transport::Tcp;
        // Which member of a bond the peer's segments come by is for others to choose.
        let alone = match &self.members {
            Some(Members {
                is_bond: false,
                all,
            }) => all.first(),
            _ => None,
        };
        let member = alone.filter(|_| may_choose);
        let known = member.and_then(|member| Some((member, rx_hash(&member.name)?)));
        if let Some((member, hash)) = known {
            let mut first = [0; 2];
            // Any start will do.
            let _ = getrandom::fill(&mut first);
            let first = u16::from_ne_bytes(first);
            let search = PortSearch {
                remote: (remote.ip(), remote.port()),
                local: at.local.ip(),
                queues: &member.queues,
                shard,
                shards,
            };
            for port in search.ports(&hash, first) {
                let chosen = LocalPort::new(at.transport, SocketAddr::new(at.local.ip(), port));
                match self.ports.connect(chosen, scope) {
                    Err(refusal) if refusal.code == RefusalCode::PortInUse => {}
                    taken => return taken,
                }
            }
        }
        self.ports.connect(at, scope)
    }
}

struct PortSearch<'q> {
    /// Those that are served. The nth is of shard n modulo their number.
    queues: &'q [u32],
    remote: (IpAddr, u16),
    local: IpAddr,
    shard: usize,
    shards: usize,
}

impl PortSearch<'_> {
    /// Some ports by which the peer's segments come to the shard. `first`: where to begin, of all numbers.
    fn ports(&self, hash: &RxHash, first: u16) -> impl Iterator<Item = u16> {
        let all = DYNAMIC.end() - DYNAMIC.start() + 1;
        let nth = move |look: u16| DYNAMIC.start() + (first.wrapping_add(look)) % all;
        let suits = move |port: &u16| {
            let queue = hash.queue(self.remote, (self.local, *port));
            let place = |queue: u32| self.queues.iter().position(|served| *served == queue);
            let place = queue.and_then(place);
            place.is_some_and(|place| place % self.shards == self.shard)
        };
        (0..LOOKS).map(nth).filter(suits).take(TRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_are_dynamic_and_bring_the_answers_to_the_shard() {
        let hash = RxHash::of((0..=255).collect(), (0..128).collect());
        let queues: Vec<u32> = (0..128).collect();
        for shards in [2, 3, 8] {
            for shard in 0..shards {
                let search = PortSearch {
                    remote: ("198.18.0.2".parse().unwrap(), 7471),
                    local: "198.18.0.1".parse().unwrap(),
                    queues: &queues,
                    shard,
                    shards,
                };
                for first in [0, 40_000, u16::MAX] {
                    let ports: Vec<_> = search.ports(&hash, first).collect();
                    assert_eq!(ports.len(), TRIES);
                    for port in ports {
                        assert!(DYNAMIC.contains(&port));
                        let queue = hash.queue(search.remote, (search.local, port));
                        assert_eq!(queue.unwrap() as usize % shards, shard);
                    }
                }
            }
        }
    }
}
