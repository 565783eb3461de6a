//! Allow-lists of peers, before TCP sees their segments. What a peer that no connection is allowed with sends
//! to a listener is dropped without an answer, as by a firewall's DROP.
//!
//! Looked at are segments of no connection, so SYNs and the ACKs that bring back SYN cookies, and the SYNs that
//! open a connection again (TIME-WAIT). Segments of connections pass: their peers were allowed when they
//! began. So do those of this host's own programs, over the loopback and internal links.

use std::net::SocketAddr;
use std::time::Duration;

use rnic_ipc::control::Transport;
use rnic_ipc::id::ListenerId;
use rnic_net::PeerRules;
use rnic_xsk::Port;
use userspace_net::{ConnId, FourTuple, Instant};

use crate::command::{CommandError, ShardEvent};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::control::unknown;
use crate::shard::datapath::Datapath;

/// Events of one kind that are logged, one by one, in one [`WINDOW`]. The others are only counted.
const TOLD: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// What was logged of peers that misbehave in one way.
#[derive(Debug, Default)]
pub(in crate::shard) struct Told {
    /// When the window began.
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Told {
    /// One more: if it is to be logged, with how many were not before it.
    pub fn tell(&mut self, now: Instant) -> Option<u64> {
        let is_over = |since| now.saturating_duration_since(since) >= WINDOW;
        if self.since.is_none_or(is_over) {
            (self.since, self.told) = (Some(now), 0);
        }
        if self.told == TOLD {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

impl Ctl {
    /// Whether a segment from this port, which may begin a connection, is to be dropped because its sender may
    /// not connect to the listener that it is for, or because the [host's policy](super::host_policy) forbids it.
    #[inline(never)]
    pub(in crate::shard) fn refuses_peer<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        (transport, tuple): (Transport, &FourTuple),
        port: usize,
    ) -> bool {
        if !dp.is_of_interface(port) {
            return false;
        }
        if self.drops_stranger(dp, transport, tuple) {
            return true;
        }
        let local = tuple.local.into();
        let listener = self.listening.get(&(transport, local)).copied();
        let entry = listener.and_then(|id| Some((id, self.listeners.get(&id.0)?)));
        let Some((listener, entry)) = entry else {
            return false;
        };
        let Some(list) = entry.peers.refused_by(tuple.remote.addr) else {
            return false;
        };
        *dp.counters.refused_peers(list) += 1;
        if let Some(untold) = self.refused_peers.tell(dp.now) {
            self.events.push_back(ShardEvent::PeerRefused {
                client: entry.client,
                listener,
                local,
                remote: tuple.remote.into(),
                list,
                untold,
            });
        }
        true
    }

    /// Whether a session is begun by a peer who may not connect (any more) to the listener that it is for.
    pub(in crate::shard) fn refuses_session<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
    ) -> bool {
        let Some(conn) = dp.conns.get(id) else {
            return false;
        };
        let (tuple, port) = (conn.tuple, conn.port());
        self.refuses_peer(dp, (Transport::Sctp, &tuple), port)
    }

    /// The rules of the listener there, if there is one.
    pub(in crate::shard) fn rules_at(&self, transport: Transport, local: SocketAddr) -> PeerRules {
        let listener = self.listening.get(&(transport, local));
        let entry = listener.and_then(|id| self.listeners.get(&id.0));
        entry.map_or_else(PeerRules::default, |entry| entry.peers.clone())
    }

    pub(in crate::shard) fn set_peer_rules(
        &mut self,
        listener: ListenerId,
        peers: PeerRules,
    ) -> Result<(), CommandError> {
        let entry = self.listeners.get_mut(&listener.0);
        entry.ok_or(unknown("listener"))?.peers = peers;
        Ok(())
    }
}
