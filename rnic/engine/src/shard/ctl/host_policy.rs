//! What the host's kernel would not let its own sockets send or take. By its IPsec policies: the RNIC has no ESP, and the
//! kernel does not see its frames, so what a policy wants blocked or protected is neither sent nor taken. By its routes
//! and rules, where they let nothing go between two addresses.
//!
//! Judged are commands to connect, segments of no connection, further addresses of peers over SCTP and, when the
//! policies or routes change, all connections. Segments of connections are not looked at. What stays within this host is
//! exempt.

use std::net::IpAddr;

use rnic_ipc::control::{DisconnectReason, Transport};
use rnic_ipc::id::ConnRequestId;
use rnic_net::{IpsecPolicies, Protocol, RejectedPaths};
use rnic_xsk::Port;
use userspace_net::{ConnId, Endpoint, FourTuple};

use crate::command::{CommandError, ForbiddenBy, ShardEvent};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::peer_rules::Told;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

/// Connections that one command ends because routes reject them: there may be thousands, and others wait meanwhile.
const ENDED_AT_ONCE: usize = 256;

/// What the host lets nobody send.
#[derive(Debug, Default)]
pub(in crate::shard) struct HostPolicy {
    policies: IpsecPolicies,
    rejected: RejectedPaths,
    dropped: Told,
    ended: Told,
}

/// Why segments are neither sent nor taken.
#[derive(Debug)]
pub(in crate::shard) struct Forbidden {
    by: ForbiddenBy,
    /// The policy, route or rule, for people.
    rule: String,
}

impl HostPolicy {
    /// What is against segments between these ends.
    pub fn forbid<P: Port>(
        &self,
        dp: &Datapath<P>,
        transport: Transport,
        tuple: &FourTuple,
    ) -> Option<Forbidden> {
        let (local, remote) = (tuple.local.addr, tuple.remote.addr);
        if let Some(rule) = self.rejected.find(local, remote) {
            return Some(Forbidden {
                by: ForbiddenBy::Routes,
                rule: rule.to_owned(),
            });
        }
        let rule = self.forbid_clear(dp, transport, tuple)?;
        Some(Forbidden {
            by: ForbiddenBy::Ipsec,
            rule,
        })
    }

    /// The policy against segments in clear between these ends, for people.
    fn forbid_clear<P: Port>(
        &self,
        dp: &Datapath<P>,
        transport: Transport,
        tuple: &FourTuple,
    ) -> Option<String> {
        if self.policies.forbid_nothing() {
            return None;
        }
        let (local, remote) = (tuple.local, tuple.remote);
        let judge = |protocol, local: Endpoint, remote: Endpoint| {
            self.policies.forbid(protocol, local.into(), remote.into())
        };
        match transport {
            Transport::Tcp => judge(Protocol::Tcp, local, remote),
            Transport::Sctp => judge(Protocol::Sctp, local, remote).or_else(|| {
                // As a packet looks outside that may go in UDP.
                let udp = dp.config.sctp_udp?;
                let at = |end: Endpoint, port| Endpoint { port, ..end };
                let peer = udp.peer_port.unwrap_or(udp.port);
                judge(Protocol::Udp, at(local, udp.port), at(remote, peer))
            }),
        }
    }
}

impl Ctl {
    /// That a connection may be made.
    pub(super) fn check_host_policy<P: Port>(
        &self,
        dp: &mut Datapath<P>,
        transport: Transport,
        (tuple, port): (&FourTuple, usize),
    ) -> Result<(), CommandError> {
        if !dp.is_of_interface(port) {
            return Ok(());
        }
        let Some(Forbidden { by, rule }) = self.host_policy.forbid(dp, transport, tuple) else {
            return Ok(());
        };
        *dp.counters.host_policy(by).connects += 1;
        let remote = tuple.remote;
        Err(CommandError::NotPermitted(match by {
            ForbiddenBy::Ipsec => format!(
                "a connection to {remote} asked, but the host's IPsec forbids it in clear, and the RNIC has no ESP: \
                 {rule}; see `ip xfrm policy`, have a policy of a lower priority number allow it, or have the RNIC \
                 ignore them (host_ipsec = \"ignore\")"
            ),
            ForbiddenBy::Routes => RejectedPaths::refusal(remote, &rule),
        }))
    }

    /// Whether a segment of no connection is to be dropped because no answer to it may go, or because it may not come.
    pub(super) fn drops_stranger<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        transport: Transport,
        tuple: &FourTuple,
    ) -> bool {
        let Some(Forbidden { by, rule }) = self.host_policy.forbid(dp, transport, tuple) else {
            return false;
        };
        *dp.counters.host_policy(by).dropped += 1;
        if let Some(untold) = self.host_policy.dropped.tell(dp.now) {
            self.events.push_back(ShardEvent::HostPolicyDropped {
                local: tuple.local.into(),
                remote: tuple.remote.into(),
                by,
                rule,
                untold,
            });
        }
        true
    }

    /// Other policies hold from now on, also for the connections that there are.
    pub(in crate::shard) fn set_ipsec_policies<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        policies: IpsecPolicies,
    ) {
        self.host_policy.policies = policies;
        if self.host_policy.policies.forbid_nothing() {
            return;
        }
        self.forbid_return_paths(dp, tx);
        for id in dp.conns.ids_where(|conn| conn.has_path()) {
            self.end_if_forbidden(dp, tx, id);
        }
    }

    /// Our address and the peer's of a request that came over the interface.
    pub(in crate::shard) fn request_ends<P: Port>(
        &self,
        dp: &Datapath<P>,
        request: ConnRequestId,
    ) -> Result<Option<(IpAddr, IpAddr)>, CommandError> {
        let conn = dp.conns.get(self.waiting(request)?);
        let conn = conn.filter(|conn| dp.goes_over_interface(conn));
        Ok(conn.map(|conn| (conn.tuple.local.addr, conn.tuple.remote.addr)))
    }

    /// Between these addresses nothing goes from now on, and between no others. Ends connections, but only so many; says
    /// whether there are more. They end when this is asked for again.
    pub(in crate::shard) fn set_rejected_paths<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        rejected: RejectedPaths,
    ) -> bool {
        self.host_policy.rejected = rejected;
        if self.host_policy.rejected.is_empty() {
            return false;
        }
        self.forbid_return_paths(dp, tx);
        let rejected = &self.host_policy.rejected;
        let mut ids = dp.conns.ids_where(|conn| {
            let rejects = |(tuple, _): (FourTuple, _)| {
                let (local, remote) = (tuple.local.addr, tuple.remote.addr);
                rejected.find(local, remote).is_some()
            };
            conn.has_path() && dp.goes_over_interface(conn) && conn.paths().any(rejects)
        });
        let more = ids.len() > ENDED_AT_ONCE;
        ids.truncate(ENDED_AT_ONCE);
        for id in ids {
            self.end_if_forbidden(dp, tx, id);
        }
        more
    }

    /// What ended before must not answer either.
    fn forbid_return_paths<P: Port>(&self, dp: &Datapath<P>, tx: &mut Tx) {
        let policy = &self.host_policy;
        tx.link.return_paths.forbid(|tuple, port| {
            if !dp.is_of_interface(port) {
                return None;
            }
            let transports = [Transport::Tcp, Transport::Sctp];
            let mut found = transports
                .iter()
                .filter_map(|it| policy.forbid(dp, *it, tuple));
            found.next().map(|forbidden| forbidden.by)
        });
    }

    /// Ends a connection that may not go on. Nothing of it is sent, not even a reset: a connection that is gone leaves a
    /// way to its peer that is [forbidden](Self::forbidden_by).
    pub(super) fn end_if_forbidden<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        id: ConnId,
    ) {
        let Some(conn) = dp.conns.get(id) else {
            return;
        };
        if !dp.goes_over_interface(conn) {
            return;
        }
        let (transport, remote) = (conn.transport(), conn.tuple.remote);
        let forbid = |(tuple, _)| self.host_policy.forbid(dp, transport, &tuple);
        let Some(Forbidden { by, rule }) = conn.paths().find_map(forbid) else {
            return;
        };
        *dp.counters.host_policy(by).ended += 1;
        let message = match by {
            ForbiddenBy::Ipsec => format!(
                "the connection with {remote} has ended, because the host's IPsec forbids it in clear now, and the \
                 RNIC has no ESP: {rule}; see `ip xfrm policy`"
            ),
            ForbiddenBy::Routes => format!(
                "the connection with {remote} has ended, because the host rejects what goes there now, by {rule}: \
                 see `ip rule` and `ip route`, take it away, and connect again"
            ),
        };
        if let Some(untold) = self.host_policy.ended.tell(dp.now) {
            let more = match untold {
                0 => String::new(),
                untold => format!("; {untold} more ended before"),
            };
            log::warn!("{message}{more}");
        }
        self.abort(dp, tx, id, DisconnectReason::HostPolicy, Some(message));
    }

    /// By what a peer may not be notified of the end of a connection over the interface.
    pub(super) fn forbidden_by<P: Port>(
        &self,
        dp: &Datapath<P>,
        transport: Transport,
        (tuple, port): (&FourTuple, usize),
    ) -> Option<ForbiddenBy> {
        let forbidden = self.host_policy.forbid(dp, transport, tuple);
        forbidden
            .filter(|_| dp.is_of_interface(port))
            .map(|it| it.by)
    }
}
