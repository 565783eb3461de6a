//! Commands of the control side, each done before the next.

use std::net::SocketAddr;

use rnic_ipc::control::{DisconnectReason, ListenSpec, QpAttributes, RegionSpec};
use rnic_ipc::id::{ClientId, ListenerId, QpNum};
use rnic_ipc::ring::WorkQueueConsumer;
use rnic_net::{PeerRules, ReassemblyCounters};
use rnic_proto::TaggedOffset;
use rnic_xsk::Port;
use userspace_net::{Endpoint, FourTuple};

use crate::command::{Answer, Command, CommandError};
use crate::conn::Phase;
use crate::qp::Qp;
use crate::shard::ctl::Ctl;
use crate::shard::ctl::backlog::Backlog;
use crate::shard::ctl::connect::wrong_state;
use crate::shard::ctl::move_qp::{check_new_qp, enter_qp};
use crate::shard::ctl::{Client, Listener};
use crate::shard::datapath::Datapath;
use crate::shard::datapath::{QpSlot, Tables};
use crate::shard::llp::InUse;
use crate::shard::tx::Tx;
use crate::stag::{AddRegionError, User};

impl Ctl {
    /// Does a command. `fragments`: what the receive path counted of them.
    pub(in crate::shard) fn execute<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        fragments: &ReassemblyCounters,
        command: Command,
    ) -> Result<Answer, CommandError> {
        match command {
            Command::AddClient { client, doorbells } => {
                limit("clients", self.clients.len(), dp.config.limits.clients)?;
                dp.tables.client_stats.add(client);
                self.clients.push(Client {
                    id: client,
                    doorbells,
                    faulted: false,
                });
            }
            Command::RemoveClient { client } => {
                let before = self.clients.len();
                self.clients.retain(|entry| entry.id != client);
                found(self.clients.len() < before, "client")?;
                dp.tables.client_stats.remove(client);
                self.stag_scan_limit.forget(client);
                let unanswered = dp.conns.ids_where(|conn| {
                    matches!(conn.phase, Phase::Requested { client: of, .. } if of == client)
                });
                for id in unanswered {
                    self.abort(dp, tx, id, DisconnectReason::Aborted, None);
                }
            }
            Command::AddRegion {
                stag,
                spec,
                memory,
                word,
            } => {
                let RegionSpec {
                    pd, stream, access, ..
                } = spec;
                let base = TaggedOffset(spec.base);
                let stags = &mut dp.tables.stags;
                let added = match stream {
                    None => stags.add(stag, pd, access, base, memory),
                    Some(qp) => stags.add_for_stream(stag, User { pd, qp }, access, base, memory),
                };
                added.map_err(region_refused)?;
                word.into_iter().for_each(|word| stags.share(stag, word));
            }
            Command::AddStag {
                stag,
                pd,
                kind,
                word,
            } => {
                let stags = &mut dp.tables.stags;
                stags.add_unbound(stag, pd, kind).map_err(region_refused)?;
                word.into_iter().for_each(|word| stags.share(stag, word));
            }
            Command::AddStream { pd, qp } => dp.tables.stags.stream_added(User { pd, qp }),
            Command::RemoveStream { pd, qp } => dp.tables.stags.stream_removed(User { pd, qp }),
            Command::RemoveRegion { stag } => {
                found(dp.tables.stags.remove(stag), "STag")?;
            }
            Command::AddCq {
                client,
                cq,
                ring,
                notify,
            } => {
                limit(
                    "completion queues",
                    dp.tables.cqs.len(),
                    dp.config.limits.cqs,
                )?;
                if !dp.tables.cqs.add(client, cq, ring, notify) {
                    return Err(CommandError::Invalid(format!(
                        "completion queue {cq} exists"
                    )));
                }
            }
            Command::ReplaceCqRing { cq, ring } => {
                found(
                    dp.tables.cqs.replace_ring(cq, ring),
                    "usable completion queue",
                )?;
            }
            Command::FailCq { cq } => {
                found(dp.tables.cqs.fail(cq), "completion queue")?;
            }
            Command::RemoveCq { cq } => found(dp.tables.cqs.remove(cq), "completion queue")?,
            Command::AddSrq {
                client,
                srq,
                max_sge,
                ring,
            } => {
                let srqs = &mut dp.tables.srqs;
                limit("shared receive queues", srqs.len(), dp.config.limits.srqs)?;
                if !srqs.add(client, srq, max_sge as usize, ring) {
                    let exists = format!("shared receive queue {srq} exists");
                    return Err(CommandError::Invalid(exists));
                }
            }
            Command::ArmSrq { srq, limit } => {
                found(dp.tables.srqs.arm(srq, limit), "shared receive queue")?;
            }
            Command::RemoveSrq { srq } => {
                found(dp.tables.srqs.remove(srq), "shared receive queue")?;
            }
            Command::AddQp {
                client,
                qp,
                attributes,
                sq,
                rq,
            } => self.add_qp(dp, tx, client, qp, attributes, (sq, rq))?,
            Command::RemoveQp { qp } => self.remove_qp(dp, tx, qp)?,
            Command::TakeRequest { request, to } => {
                return self.take_request(dp, tx, request, to).map(Answer::Request);
            }
            Command::PutRequest(moved) => self.put_request(dp, tx, *moved)?,
            Command::TakeQp { qp } => return self.take_qp(dp, tx, qp).map(Answer::Qp),
            Command::PutQp(qp) => self.put_qp(dp, tx, *qp)?,
            Command::QueryQp { qp } => return Ok(Answer::QpState(dp.qp(qp)?.qp.state())),
            Command::Listen {
                client,
                listener,
                spec,
                peers,
            } => self.listen(dp, (client, listener), spec, peers)?,
            Command::SetIpsecPolicies(policies) => self.set_ipsec_policies(dp, tx, policies),
            Command::SetRejectedPaths(rejected) => {
                let more = self.set_rejected_paths(dp, tx, rejected);
                return Ok(Answer::Rejected { more });
            }
            Command::SetPeerRules { listener, peers } => self.set_peer_rules(listener, peers)?,
            Command::Unlisten { listener } => self.unlisten(dp, tx, listener)?,
            Command::Connect {
                qp,
                spec,
                local,
                path,
                internal_link,
                peers,
            } => {
                let tuple = FourTuple::new(local, spec.remote);
                let port = dp.first_port(&path, internal_link)?;
                let way = (tuple, path, port);
                let local = self.connect(dp, tx, qp, way, (spec, peers))?;
                return Ok(Answer::Connecting { local });
            }
            Command::SetJoined { qp, reply } => {
                let joining = dp.qp(qp)?.qp.set_joined(reply);
                joining.map_err(wrong_state)?;
            }
            Command::Accept {
                request,
                qp,
                mpa,
                private_data,
            } => {
                self.accept(dp, tx, request, qp, &mpa, &private_data)?;
            }
            Command::QueryRequest { request } => {
                let ends = self.request_ends(dp, request)?;
                return Ok(Answer::RequestEnds(ends));
            }
            Command::Reject {
                request,
                private_data,
            } => self.reject(dp, tx, request, &private_data)?,
            Command::Refuse { request } => self.refuse(dp, tx, request)?,
            Command::SetPeerAccess { qp, access } => dp.qp(qp)?.qp.set_peer_access(access),
            Command::ModifyQp { qp, state } => self.modify_qp(dp, tx, qp, state)?,
            Command::Disconnect { qp, abort } => self.disconnect(dp, tx, qp, abort)?,
            Command::IcmpErrors { reports } => self.icmp_errors(dp, tx, &reports),
            Command::QueryPaths => return Ok(Answer::Paths(dp.paths_in_use())),
            Command::MovePath {
                local,
                remote,
                path,
            } => self.move_path(dp, tx, local, remote, path)?,
            Command::SetPathDefaults(defaults) => dp.set_path_defaults(defaults),
            Command::SetExits { carry } => tx.set_exits(dp, &carry)?,
            Command::SetTimeouts(timeouts) => dp.set_timeouts(timeouts),
            Command::InterfaceGone { interface } => self.interface_gone(dp, tx, &interface),
            Command::AddressGone { address } => self.address_gone(dp, tx, address),
            Command::SetBroadcasts(mut addresses) => {
                addresses.sort_unstable();
                dp.broadcasts = addresses;
            }
            Command::SetInternalLink { link, end } => {
                let before = self.set_internal_link(dp, tx, link, end)?;
                return Ok(Answer::InternalLink(before));
            }
            Command::InspectConnections { after } => return Ok(self.inspect_connections(dp, after)),
            Command::InspectQueuePairs { qps } => return Ok(dp.inspect_queue_pairs(&qps)),
            Command::InspectStags { stags } => return Ok(dp.inspect_stags(&stags)),
            Command::DropConnection {
                connection,
                ends,
                owner,
            } => self.drop_connection(dp, tx, connection, ends, owner)?,
            Command::QueryCounters => {
                return Ok(Answer::Counters(self.named_counters(dp, tx, fragments)));
            }
            Command::QueryMetrics => {
                return Ok(Answer::Metrics(Box::new(self.metrics(dp, tx, fragments))));
            }
            Command::AddCapture {
                number,
                filter,
                sink,
            } => dp.captures.add(number, filter, sink),
            Command::RemoveCapture { number } => {
                return Ok(Answer::Capture(dp.captures.remove(number)));
            }
        }
        Ok(Answer::Done)
    }

    fn add_qp<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        client: ClientId,
        num: QpNum,
        attributes: QpAttributes,
        (sq, rq): (WorkQueueConsumer, WorkQueueConsumer),
    ) -> Result<(), CommandError> {
        check_new_qp(dp, num)?;
        let srq = attributes.srq;
        let wait = attributes.receive_wait;
        let mut qp = Qp::new(client, num, attributes, sq, rq);
        qp.set_receive_wait(wait.unwrap_or(dp.config.receive_wait));
        if let Some(srq) = srq {
            let max_sge = dp.tables.srqs.max_sge(srq);
            qp.share_receives(srq, max_sge.ok_or(unknown("shared receive queue"))?);
        }
        sound_cqs(&qp, &dp.tables)?;
        dp.tables.stags.stream_added(qp.user());
        enter_qp(dp, tx, qp);
        Ok(())
    }

    fn remove_qp<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        qp: QpNum,
    ) -> Result<(), CommandError> {
        let mut slot = dp.qps.remove(qp.0).ok_or(unknown("queue pair"))?;
        slot.qp.give_back(&mut dp.tables.queue_pool);
        dp.tables.stags.stream_removed(slot.qp.user());
        if let Some(id) = slot.conn {
            // With the queue pair gone the end of its connection is not reported.
            self.abort(dp, tx, id, DisconnectReason::Aborted, None);
        }
        tx.scheduler.queue_pair_removed(slot.qp.client());
        Ok(())
    }

    fn listen<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        (client, listener): (ClientId, ListenerId),
        spec: ListenSpec,
        peers: PeerRules,
    ) -> Result<(), CommandError> {
        limit(
            "listeners",
            self.listeners.len(),
            dp.config.limits.listeners,
        )?;
        // Without the scope and flow label that an IPv6 address may come with.
        let local = SocketAddr::from(Endpoint::from(spec.local));
        let transport = spec.transport;
        let backlog = (spec.backlog.max(1) as usize).min(dp.config.limits.connections);
        let listens = dp.llp_mut(transport, |llp, _| llp.listen(local, backlog));
        listens.map_err(|InUse| CommandError::InUse { local })?;
        self.listening.insert((transport, local), listener);
        self.listeners.insert(
            listener.0,
            Listener {
                client,
                transport,
                local,
                backlog: Backlog::new(backlog),
                peers,
            },
        );
        Ok(())
    }

    fn unlisten<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        listener: ListenerId,
    ) -> Result<(), CommandError> {
        let entry = self
            .listeners
            .remove(&listener.0)
            .ok_or(unknown("listener"))?;
        self.listening.remove(&(entry.transport, entry.local));
        dp.llp_mut(entry.transport, |llp, _| llp.unlisten(entry.local));
        // What its client was notified of is the client's to answer.
        let waiting = dp.conns.ids_where(
            |conn| matches!(conn.phase, Phase::AwaitRequest { listener: of, .. } if of == listener),
        );
        for id in waiting {
            self.abort(dp, tx, id, DisconnectReason::Aborted, None);
        }
        self.release(dp, entry.transport, entry.local.into());
        Ok(())
    }
}

impl<P: Port> Datapath<P> {
    pub(in crate::shard) fn qp(&mut self, qp: QpNum) -> Result<&mut QpSlot, CommandError> {
        let slot = self.qps.get_mut(qp.0).ok_or(unknown("queue pair"))?;
        Ok(slot)
    }
}

/// A queue pair's completions would be lost without an error in a CQ that is dead (RFC 5040 section 8.1.1,
/// requirement 10).
pub(in crate::shard) fn sound_cqs(qp: &Qp, tables: &Tables) -> Result<(), CommandError> {
    match qp.dead_cq(&tables.cqs) {
        None => Ok(()),
        Some(cq) => Err(CommandError::WrongState {
            what: "completion queue",
            found: format!("in error (number {cq})"),
            wanted: "sound: it overflowed; make another",
        }),
    }
}

pub(in crate::shard) fn limit(
    what: &'static str,
    used: usize,
    limit: usize,
) -> Result<(), CommandError> {
    if used < limit {
        Ok(())
    } else {
        Err(CommandError::Limit { what, limit })
    }
}

pub(in crate::shard) fn unknown(what: &'static str) -> CommandError {
    CommandError::Unknown { what }
}

fn found(there: bool, what: &'static str) -> Result<(), CommandError> {
    if there { Ok(()) } else { Err(unknown(what)) }
}

pub(in crate::shard) fn invalid(error: impl std::fmt::Display) -> CommandError {
    CommandError::Invalid(error.to_string())
}

fn region_refused(error: AddRegionError) -> CommandError {
    match error {
        AddRegionError::Full { capacity } => CommandError::Limit {
            what: "STags",
            limit: capacity,
        },
        _ => invalid(error),
    }
}
