//! How the shards, the host's ports and the paths come together for a connection that begins here, and for one that a
//! peer asked for.

use std::net::SocketAddr;

use rnic_engine::command::{Answer, Command};
use rnic_host::ports::{LocalPort, Reserved, Stamp};
use rnic_ipc::control::{ConnectSpec, MpaOptions, Refusal, RefusalCode};
use rnic_ipc::id::{ClientId, ConnRequestId, QpNum};
use rnic_net::RejectedPaths;

use super::core::Core;
use crate::interface::paths::PathToPeer;
use crate::refuse;
use crate::runtime::{FIRST, To};

impl Core {
    /// Begins to connect a queue pair of a client, by a path that was found: our address and port.
    pub(crate) fn connect(
        &self,
        client: ClientId,
        qp: QpNum,
        spec: ConnectSpec,
        to: PathToPeer,
    ) -> Result<SocketAddr, Refusal> {
        let PathToPeer {
            local,
            path,
            internal_link,
            scope,
        } = to;
        // For further addresses of the peer, which it tells when it answers.
        let peers = self
            .prm()
            .connection_rules(client, &self.interface.config.interface);
        let at = LocalPort::new(spec.transport, SocketAddr::new(local, spec.local_port));
        // What stays within this host is in one shard.
        let within_host = path.is_loopback() || internal_link.is_some();
        let reserved = if within_host {
            self.shards.bring(qp, FIRST)?;
            self.interface.ports.connect(at, scope)?
        } else {
            let shard = self.shards.placement().shard_of(qp);
            let placed = (shard, self.shards.count());
            self.interface.take_port(at, spec.remote, placed, scope)?
        };
        let local = reserved.local();
        let connect = Command::Connect {
            qp,
            spec,
            local,
            path,
            internal_link,
            peers,
        };
        let connecting = self.shards.run(To::Qp(qp), connect);
        let connecting = connecting.map(|(answer, stamp)| (answer, vec![stamp]));
        Ok(match self.finish_reservation(reserved, connecting)? {
            Answer::Connecting { local } => local,
            // No other is given.
            _ => local,
        })
    }

    /// Takes a request that waits with a queue pair.
    pub(crate) fn accept(
        &self,
        request: ConnRequestId,
        qp: QpNum,
        mpa: MpaOptions,
        private_data: Vec<u8>,
    ) -> Result<(), Refusal> {
        self.check_answer(request)?;
        let shard = self.shards.bring_together(request, qp)?;
        let accept = Command::Accept {
            request,
            qp,
            mpa,
            private_data,
        };
        self.shards.run(To::Shard(shard), accept)?;
        self.shards.placement().request_over(request);
        Ok(())
    }

    /// Rejects a request that waits.
    pub(crate) fn reject(
        &self,
        request: ConnRequestId,
        private_data: Vec<u8>,
    ) -> Result<(), Refusal> {
        self.check_answer(request)?;
        let reject = Command::Reject {
            request,
            private_data,
        };
        self.shards.run(To::Request(request), reject)?;
        self.shards.placement().request_over(request);
        Ok(())
    }

    /// That the host lets packets go to the peer of a request. If it does not, TCP or SCTP have answered already,
    /// since they don't ask; that was the last answer.
    fn check_answer(&self, request: ConnRequestId) -> Result<(), Refusal> {
        if self.interface.rejects_nothing() {
            return Ok(());
        }
        let asked = self
            .shards
            .run(To::Request(request), Command::QueryRequest { request })?;
        let (Answer::RequestEnds(Some((local, remote))), _) = asked else {
            return Ok(());
        };
        let Some(rule) = self.interface.rejected_by((local, remote)) else {
            return Ok(());
        };
        self.interface.stale_neighbors.reject(local, remote);
        Err(refuse::refusal(
            RefusalCode::Unreachable,
            &RejectedPaths::refusal(remote, &rule),
        ))
    }

    /// Ends the reservation of a port as the shards answered.
    pub(crate) fn finish_reservation<T>(
        &self,
        reserved: Reserved,
        answer: Result<(T, Vec<Stamp>), Refusal>,
    ) -> Result<T, Refusal> {
        match answer {
            Ok((answer, stamps)) => {
                self.interface.ports.used(reserved, &stamps);
                Ok(answer)
            }
            Err(refusal) => {
                self.interface.ports.failed(reserved);
                Err(refusal)
            }
        }
    }
}
