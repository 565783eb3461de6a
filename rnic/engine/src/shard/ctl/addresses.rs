//! Further addresses of a peer over SCTP (RFC 9260 sections 5.4 and 6.4): which of them are used, and how frames get
//! there.
//!
//! A peer lists them when the association is set up, and may list any. So what a rule for peers refuses gets nothing.
//! Once the session is accepted, who owns the shard is asked for the way to each of the others, as with a peer that has
//! fallen silent. Heartbeats find out whether the peer is there.

use std::net::IpAddr;

use rnic_ipc::control::Transport;
use rnic_net::PeerRules;
use rnic_xsk::Port;
use userspace_net::{ConnId, Endpoint, FourTuple};

use crate::shard::ctl::Ctl;
use crate::shard::datapath::Datapath;

impl Ctl {
    /// The peer of an association has told all its addresses, and nothing was sent to the further ones yet.
    pub(in crate::shard) fn take_addresses<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
        peers: &PeerRules,
    ) {
        let Some(assoc) = dp.sctp.sessions.assoc_of(id) else {
            return;
        };
        let Some(conn) = dp.conns.get(id) else {
            return;
        };
        // Within the host there is one way.
        let has_path = dp.goes_over_interface(conn);
        let first = conn.tuple.remote.addr;
        let tuple = conn.tuple;
        let paths: Vec<_> = dp.sctp.stack.paths(assoc).collect();
        let may_be_used = |remote: IpAddr| {
            let tuple = FourTuple {
                remote: Endpoint {
                    addr: remote,
                    ..tuple.remote
                },
                ..tuple
            };
            peers.refused_by(remote).is_none()
                && (self.host_policy)
                    .forbid(dp, Transport::Sctp, &tuple)
                    .is_none()
        };
        let forbidden: Vec<IpAddr> = paths
            .iter()
            .map(|path| path.remote)
            .filter(|remote| !may_be_used(*remote))
            .collect();
        let stack = &mut dp.sctp.stack;
        stack.keep_addresses(dp.now, assoc, |remote| {
            has_path && !forbidden.contains(&remote)
        });
        let others: Vec<_> = stack.paths(assoc).collect();
        let others = others.iter().filter(|path| path.remote != first);
        let further = others.clone().map(|path| path.remote);
        dp.conns.add_peer_addresses(id, further);
        for path in others.filter(|path| path.is_confirmed) {
            dp.conns.confirmed(id, path.remote);
        }
    }

    /// The session is accepted: from now on its peer's claims are worth a look at the host's routes and neighbours.
    pub(in crate::shard) fn resolve_peer_paths<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        id: ConnId,
    ) {
        let Some(assoc) = dp.sctp.sessions.assoc_of(id) else {
            return;
        };
        let id = dp.sctp.sessions.carrier(assoc);
        let Some(conn) = dp.conns.get(id) else {
            return;
        };
        let unknown = conn.paths().filter(|(_, path)| path.is_none());
        let unknown: Vec<IpAddr> = unknown.map(|(tuple, _)| tuple.remote.addr).collect();
        for remote in unknown {
            self.doubt_address(dp, id, remote);
        }
    }
}
