//! The host's IPsec policies. The RNIC has no ESP, and the kernel does not see its frames: so what a policy wants
//! blocked or protected is neither sent nor taken.
//!
//! Judged are commands to connect, segments of no connection, further addresses of peers over SCTP and, when the
//! policies change, all connections. Segments of connections are not looked at. What stays within this host is exempt.

use rnic_ipc::control::{DisconnectReason, Transport};
use rnic_net::{IpsecPolicies, Protocol};
use rnic_xsk::Port;
use userspace_net::{ConnId, Endpoint, FourTuple};

use crate::command::{CommandError, ShardEvent};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::peer_rules::Told;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

/// What the host lets nobody send in clear.
#[derive(Debug, Default)]
pub(in crate::shard) struct Ipsec {
    policies: IpsecPolicies,
    dropped: Told,
}

impl Ipsec {
    /// The policy against segments between these ends, for people.
    pub fn forbid<P: Port>(
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
    /// That a connection may go in clear.
    pub(super) fn check_clear<P: Port>(
        &self,
        dp: &mut Datapath<P>,
        transport: Transport,
        (tuple, port): (&FourTuple, usize),
    ) -> Result<(), CommandError> {
        if !dp.is_of_interface(port) {
            return Ok(());
        }
        let Some(policy) = self.ipsec.forbid(dp, transport, tuple) else {
            return Ok(());
        };
        dp.counters.ipsec_connects += 1;
        let remote = tuple.remote;
        Err(CommandError::NotPermitted(format!(
            "a connection to {remote} asked, but the host's IPsec forbids it in clear, and the RNIC has no ESP: \
             {policy}; see `ip xfrm policy`, have a policy of a lower priority number allow it, or have the RNIC \
             ignore them (host_ipsec = \"ignore\")"
        )))
    }

    /// Whether a segment of no connection is to be dropped because no answer to it may go in clear, or because it
    /// may not come so.
    pub(super) fn drops_clear<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        transport: Transport,
        tuple: &FourTuple,
    ) -> bool {
        let Some(policy) = self.ipsec.forbid(dp, transport, tuple) else {
            return false;
        };
        dp.counters.ipsec_dropped += 1;
        if let Some(untold) = self.ipsec.dropped.tell(dp.now) {
            self.events.push_back(ShardEvent::IpsecRefused {
                local: tuple.local.into(),
                remote: tuple.remote.into(),
                policy,
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
        self.ipsec.policies = policies;
        if self.ipsec.policies.forbid_nothing() {
            return;
        }
        let ipsec = &self.ipsec;
        tx.link.ways_back.forbid(|tuple, port| {
            dp.is_of_interface(port)
                && [Transport::Tcp, Transport::Sctp]
                    .iter()
                    .any(|transport| ipsec.forbid(dp, *transport, tuple).is_some())
        });
        for id in dp.conns.ids_where(|conn| conn.has_ways()) {
            self.end_if_forbidden(dp, tx, id);
        }
    }

    /// Ends a connection that may not go in clear (any more). Nothing of it is sent, not even a reset: a connection that
    /// is gone leaves a way to its peer that is [forbidden](Self::may_be_told).
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
        let (transport, remote) = (dp.transport(id), conn.tuple.remote);
        let forbid = |(tuple, _)| self.ipsec.forbid(dp, transport, &tuple);
        let Some(policy) = conn.ways().find_map(forbid) else {
            return;
        };
        dp.counters.ipsec_ended += 1;
        let message = format!(
            "the connection with {remote} has ended, because the host's IPsec forbids it in clear now, and the RNIC \
             has no ESP: {policy}; see `ip xfrm policy`"
        );
        log::warn!("{message}");
        self.abort(dp, tx, id, DisconnectReason::HostPolicy, Some(message));
    }

    /// Whether a peer may be told of the end of a connection over the interface.
    pub(super) fn may_be_told<P: Port>(
        &self,
        dp: &Datapath<P>,
        transport: Transport,
        (tuple, port): (&FourTuple, usize),
    ) -> bool {
        !dp.is_of_interface(port) || self.ipsec.forbid(dp, transport, tuple).is_none()
    }
}
