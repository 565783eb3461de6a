//! Connection requests that go from one shard of a device to another: the queue pair that is to accept takes its
//! receives from a queue of that other shard.
//!
//! Nothing was sent on such a connection but the handshake, and what was received is in its request. Its flow is the
//! other shard's from the moment in which it leaves: segments that come meanwhile are handed over, and dropped there
//! until the connection has come too ([`Datapath::expects`]). TCP sends them again.

use rnic_ipc::control::{DisconnectReason, Transport};
use rnic_ipc::id::ConnRequestId;
use rnic_xsk::{Frame, Port};
use userspace_net::FourTuple;
use userspace_tcp::Detached;

use crate::command::{CommandError, ShardEvent};
use crate::conn::{Asked, Conn, ConnKind, Phase};
use crate::shard::ctl::Ctl;
use crate::shard::ctl::backlog::Network;
use crate::shard::ctl::control::unknown;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;

#[derive(Debug)]
pub struct MovedRequest {
    request: ConnRequestId,
    conn: Conn,
    tcp: Detached<Frame>,
}

impl Ctl {
    /// Takes a waiting request away, for the sibling of this number.
    pub(super) fn take_request<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        request: ConnRequestId,
        to: u8,
    ) -> Result<Box<MovedRequest>, CommandError> {
        let id = self.waiting(request)?;
        let (conn, listener, asked) = dp.requested(id)?;
        let is_alone = matches!(asked, Asked::Mpa(_)) && conn.kind == ConnKind::Tcp;
        if !is_alone || conn.port() >= dp.interface_ports {
            return Err(unmovable("over SCTP, or from this host"));
        }
        if !conn.inbound.is_empty() {
            return Err(unmovable("with bytes after its request"));
        }
        if !dp.conns.give_flow(id, to) {
            return Err(CommandError::Limit {
                what: "flows that shards know of each other",
                limit: dp.conns.places(),
            });
        }
        let Some(tcp) = dp.stack.detach(id) else {
            dp.conns.take_flow_back(id, to);
            return Err(unmovable("whose peer has ended it"));
        };
        let conn = dp.conns.remove(id);
        let mut conn = conn.ok_or(unknown("connection request"))?;
        conn.inbound.clear(&mut dp.frames);
        self.requests.remove(&request.0);
        self.no_longer_waiting(listener, id);
        tx.scheduler.let_go(id);
        tx.macroflows.leave(id, dp.now);
        Ok(Box::new(MovedRequest { request, conn, tcp }))
    }

    /// Takes in a request that another shard had: it waits here from now on.
    pub(super) fn put_request<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        moved: MovedRequest,
    ) -> Result<(), CommandError> {
        let MovedRequest {
            request,
            mut conn,
            tcp,
        } = moved;
        let tuple = conn.tuple;
        let id = dp.stack.attach(tcp);
        let Some(id) = id else {
            dp.conns.stop_expecting(Transport::Tcp, &tuple);
            let reason = DisconnectReason::LocalError;
            let gone = ShardEvent::RequestGone { request, reason };
            self.events.push_back(gone);
            return Err(CommandError::Limit {
                what: "connections",
                limit: dp.config.limits.connections,
            });
        };
        conn.id = id;
        // They come by whichever queue, of this shard or another.
        conn.came_from(0);
        conn.deadline = None;
        conn.entered = None;
        let (listener, client) = match &conn.phase {
            Phase::Requested {
                listener, client, ..
            } => (Some(*listener), Some(*client)),
            _ => (None, None),
        };
        self.adopt(dp, tx, conn);
        dp.conns.stop_expecting(Transport::Tcp, &tuple);
        self.requests.insert(request.0, id);
        let listener = listener.and_then(|listener| self.listeners.get_mut(&listener.0));
        // Another client's may have the number of one that is gone.
        if let Some(listener) = listener.filter(|listener| Some(listener.client) == client) {
            listener.backlog.enter(id, Network::of(tuple.remote.addr));
            listener.backlog.asked(id);
        }
        if !self.clients.iter().any(|entry| Some(entry.id) == client) {
            // It went meanwhile, and its requests here with it.
            self.abort(dp, tx, id, DisconnectReason::Aborted, None);
            return Err(unknown("client"));
        }
        self.set_deadline(dp, id, dp.config.answer_timeout);
        // The shard that it comes from may have had other policies.
        self.end_if_forbidden(dp, tx, id);
        Ok(())
    }
}

impl<P: Port> Datapath<P> {
    /// Whether a connection with this flow is on its way from another shard.
    pub(in crate::shard) fn expects(&self, tuple: &FourTuple) -> bool {
        self.conns.expects(Transport::Tcp, tuple)
    }
}

fn unmovable(what: &str) -> CommandError {
    CommandError::WrongState {
        what: "connection request",
        found: format!("one {what}, which stays in its shard"),
        wanted: "one over TCP by the interface: accept it with a queue pair that has receives of its own",
    }
}
