//! Commands of the control side, each done before the next.

use std::net::SocketAddr;

use rnic_ipc::control::{DisconnectReason, Event, MarkerUse, MpaOptions, QpAttributes};
use rnic_ipc::id::{ClientId, ConnRequestId, ListenerId, QpNum};
use rnic_ipc::ring::WorkQueueConsumer;
use rnic_net::Path;
use rnic_proto::TaggedOffset;
use rnic_proto::mpa::startup::{Initiator, ResponderOptions};
use rnic_xsk::Port;
use userspace_tcp::{ConnId, ConnOptions, ConnectError, Endpoint, FourTuple, Instant, ListenError};

use crate::command::{Answer, Command, CommandError, ShardMetrics};
use crate::conn::{Conn, Phase};
use crate::counters;
use crate::qp::{Qp, WrongQpState};
use crate::shard::ctl::backlog::Backlog;
use crate::shard::ctl::startup::{depths, indications, initiator_options};
use crate::shard::datapath::{QpSlot, Tables};
use crate::shard::{Client, Listener, Shard};
use crate::stag::AddRegionError;

impl<P: Port> Shard<P> {
    /// Does a command.
    pub fn execute(&mut self, command: Command, now: Instant) -> Result<Answer, CommandError> {
        self.dp.now = self.dp.now.max(now);
        self.quiet_until = None;
        self.run_deferred();
        match command {
            Command::AddClient { client, doorbells } => {
                limit("clients", self.clients.len(), self.dp.config.limits.clients)?;
                self.dp.tables.client_stats.add(client);
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
                self.dp.tables.client_stats.remove(client);
                self.guesses.forget(client);
            }
            Command::AddRegion {
                stag,
                pd,
                stream,
                access,
                base,
                memory,
            } => {
                let base = TaggedOffset(base);
                let added = match stream {
                    None => self.dp.tables.stags.add(stag, pd, access, base, memory),
                    Some(qp) => {
                        let user = self.qp(qp)?.qp.user();
                        let stags = &mut self.dp.tables.stags;
                        stags.add_for_stream(stag, user, access, base, memory)
                    }
                };
                added.map_err(region_refused)?;
            }
            Command::AddStag { stag, pd, kind } => {
                let added = self.dp.tables.stags.add_unbound(stag, pd, kind);
                added.map_err(region_refused)?;
            }
            Command::RemoveRegion { stag } => {
                found(self.dp.tables.stags.remove(stag), "STag")?;
            }
            Command::AddCq {
                client,
                cq,
                ring,
                notify,
            } => {
                limit(
                    "completion queues",
                    self.dp.tables.cqs.len(),
                    self.dp.config.limits.cqs,
                )?;
                if !self.dp.tables.cqs.add(client, cq, ring, notify) {
                    return Err(CommandError::Invalid(format!(
                        "completion queue {cq} exists"
                    )));
                }
            }
            Command::RemoveCq { cq } => found(self.dp.tables.cqs.remove(cq), "completion queue")?,
            Command::AddSrq {
                client,
                srq,
                max_sge,
                ring,
            } => {
                let srqs = &mut self.dp.tables.srqs;
                limit(
                    "shared receive queues",
                    srqs.len(),
                    self.dp.config.limits.srqs,
                )?;
                if !srqs.add(client, srq, max_sge as usize, ring) {
                    let exists = format!("shared receive queue {srq} exists");
                    return Err(CommandError::Invalid(exists));
                }
            }
            Command::ArmSrq { srq, limit } => {
                found(self.dp.tables.srqs.arm(srq, limit), "shared receive queue")?;
            }
            Command::RemoveSrq { srq } => {
                found(self.dp.tables.srqs.remove(srq), "shared receive queue")?;
            }
            Command::AddQp {
                client,
                qp,
                attributes,
                sq,
                rq,
            } => self.add_qp(client, qp, attributes, (sq, rq))?,
            Command::RemoveQp { qp } => self.remove_qp(qp)?,
            Command::QueryQp { qp } => return Ok(Answer::QpState(self.qp(qp)?.qp.state())),
            Command::Listen {
                client,
                listener,
                local,
                backlog,
            } => {
                self.listen(client, listener, local, backlog)?;
            }
            Command::Unlisten { listener } => self.unlisten(listener)?,
            Command::Connect {
                qp,
                local,
                remote,
                path,
                mpa,
                private_data,
            } => {
                let tuple = FourTuple::new(local, remote);
                self.connect(qp, tuple, path, &mpa, &private_data)?;
            }
            Command::Accept {
                request,
                qp,
                mpa,
                private_data,
            } => {
                self.accept(request, qp, &mpa, &private_data)?;
            }
            Command::Reject {
                request,
                private_data,
            } => self.reject(request, &private_data)?,
            Command::ModifyQp { qp, state } => self.modify_qp(qp, state)?,
            Command::Disconnect { qp, abort } => self.disconnect(qp, abort)?,
            Command::IcmpErrors { reports } => self.icmp_errors(&reports),
            Command::QueryPaths => return Ok(Answer::Paths(self.paths_in_use())),
            Command::MovePath {
                local,
                remote,
                path,
            } => self.move_path(local, remote, path)?,
            Command::SetPathDefaults(defaults) => self.set_path_defaults(defaults),
            Command::InterfaceGone { interface } => self.interface_gone(&interface),
            Command::LookAtConnections { after } => return Ok(self.look_at_connections(after)),
            Command::LookAtQueuePairs { qps } => return Ok(self.look_at_queue_pairs(&qps)),
            Command::LookAtStags { stags } => return Ok(self.look_at_stags(&stags)),
            Command::DropConnection {
                connection,
                ends,
                owner,
            } => self.drop_connection(connection, ends, owner)?,
            Command::QueryCounters => return Ok(Answer::Counters(self.named_counters())),
            Command::QueryMetrics => return Ok(Answer::Metrics(Box::new(self.metrics()))),
            Command::AddCapture {
                number,
                filter,
                sink,
            } => self.dp.captures.add(number, filter, sink),
            Command::RemoveCapture { number } => {
                return Ok(Answer::Capture(self.dp.captures.remove(number)));
            }
        }
        Ok(Answer::Done)
    }

    fn metrics(&self) -> ShardMetrics {
        ShardMetrics {
            counters: self.named_counters(),
            clients: self.dp.tables.client_stats.by_client(),
            work: self.dp.tables.client_stats.times,
            connect: self.connect_times,
        }
    }

    fn named_counters(&self) -> Vec<(String, u64)> {
        counters::named(
            &self.dp.counters,
            self.reassembly.counters(),
            &self.dp.tables.client_stats.total(),
            &self.dp.stack.counters(),
            &self.dp.stack.totals(),
            &self.levels(),
            self.dp.ports.iter().map(Port::statistics),
        )
    }

    pub(in crate::shard) fn qp(&mut self, qp: QpNum) -> Result<&mut QpSlot, CommandError> {
        let slot = self.dp.qps.get_mut(qp.0).ok_or(unknown("queue pair"))?;
        Ok(slot)
    }

    fn add_qp(
        &mut self,
        client: ClientId,
        num: QpNum,
        attributes: QpAttributes,
        (sq, rq): (WorkQueueConsumer, WorkQueueConsumer),
    ) -> Result<(), CommandError> {
        limit(
            "queue pairs",
            self.dp.qps.len(),
            self.dp.config.limits.queue_pairs,
        )?;
        if self.dp.qps.contains(num.0) {
            return Err(CommandError::Invalid(format!("queue pair {num} exists")));
        }
        let srq = attributes.srq;
        let mut qp = Qp::new(client, num, attributes, sq, rq);
        if let Some(srq) = srq {
            let max_sge = self.dp.tables.srqs.max_sge(srq);
            qp.share_receives(srq, max_sge.ok_or(unknown("shared receive queue"))?);
        }
        sound_cqs(&qp, &self.dp.tables)?;
        self.tx.scheduler.queue_pair_added(client);
        qp.provide(&mut self.dp.tables.queue_pool);
        self.dp.tables.stags.stream_added(qp.user());
        let tally = self.dp.tables.client_stats.place_of(client);
        self.dp.qps.insert(num.0, Box::new(QpSlot::new(qp, tally)));
        Ok(())
    }

    fn remove_qp(&mut self, qp: QpNum) -> Result<(), CommandError> {
        let mut slot = self.dp.qps.remove(qp.0).ok_or(unknown("queue pair"))?;
        slot.qp.give_back(&mut self.dp.tables.queue_pool);
        self.dp.tables.stags.stream_removed(slot.qp.user());
        if let Some(id) = slot.conn {
            // With the queue pair gone the end of its connection is told to nobody.
            self.abort(id, DisconnectReason::Aborted, None);
        }
        self.tx.scheduler.queue_pair_removed(slot.qp.client());
        Ok(())
    }

    fn listen(
        &mut self,
        client: ClientId,
        listener: ListenerId,
        local: SocketAddr,
        backlog: u32,
    ) -> Result<(), CommandError> {
        limit(
            "listeners",
            self.listeners.len(),
            self.dp.config.limits.listeners,
        )?;
        // Without the scope and flow label that an IPv6 address may come with.
        let local = SocketAddr::from(Endpoint::from(local));
        let backlog = (backlog.max(1) as usize).min(self.dp.config.limits.connections);
        self.dp
            .stack
            .listen(local.into(), backlog)
            .map_err(|error| match error {
                ListenError::InUse { .. } => CommandError::InUse { local },
            })?;
        self.listening.insert(local, listener);
        self.listeners.insert(
            listener.0,
            Listener {
                client,
                local,
                backlog: Backlog::new(backlog),
            },
        );
        Ok(())
    }

    fn unlisten(&mut self, listener: ListenerId) -> Result<(), CommandError> {
        let entry = self
            .listeners
            .remove(&listener.0)
            .ok_or(unknown("listener"))?;
        self.listening.remove(&entry.local);
        self.dp.stack.unlisten(entry.local.into());
        let waiting = self.dp.conns.ids_where(|conn| match conn.phase {
            Phase::AwaitRequest { listener: of, .. } | Phase::Requested { listener: of, .. } => {
                of == listener
            }
            _ => false,
        });
        for id in waiting {
            self.abort(id, DisconnectReason::Aborted, None);
        }
        self.release(entry.local.into());
        Ok(())
    }

    fn connect(
        &mut self,
        num: QpNum,
        tuple: FourTuple,
        path: Path,
        mpa: &MpaOptions,
        private_data: &[u8],
    ) -> Result<(), CommandError> {
        self.check_mtu(&path, tuple.remote.addr)?;
        let initiator = |markers| {
            initiator_options(mpa, markers)
                .and_then(|options| Initiator::new(options, private_data))
                .map(Box::new)
                .map_err(invalid)
        };
        let unmarked = match mpa.markers {
            MarkerUse::Prefer => Some(initiator(false)?),
            MarkerUse::Off | MarkerUse::Require => None,
        };
        let initiator = initiator(mpa.markers != MarkerUse::Off)?;
        let slot = self.qp(num)?;
        if slot.qp.state() != rnic_ipc::control::QpState::Idle {
            let found = slot.qp.state();
            return Err(wrong_state(WrongQpState {
                found,
                wanted: rnic_ipc::control::QpState::Idle,
            }));
        }
        let options = ConnOptions {
            mss: path.mss(tuple.remote.addr),
        };
        let id =
            self.dp
                .stack
                .connect(self.dp.now, tuple, options)
                .map_err(|error| match error {
                    ConnectError::TooMany { limit } => CommandError::Limit {
                        what: "connections",
                        limit,
                    },
                    ConnectError::InUse { .. } => CommandError::InUse {
                        local: tuple.local.into(),
                    },
                    ConnectError::DropReason { .. } => invalid(error),
                })?;
        let slot = self.qp(num)?;
        slot.qp.begin_connecting().map_err(wrong_state)?;
        slot.conn = Some(id);
        let phase = Phase::Requesting {
            qp: num,
            initiator,
            opened: self.dp.now,
            unmarked,
        };
        let window = self.dp.config.tcp.receive_window;
        let conn = Conn::new(id, tuple, path, 0, window, phase);
        self.adopt(conn);
        self.dp.counters.active_opens += 1;
        Ok(())
    }

    fn waiting(&self, request: ConnRequestId) -> Result<ConnId, CommandError> {
        self.requests
            .get(&request.0)
            .copied()
            .ok_or(unknown("connection request"))
    }

    fn accept(
        &mut self,
        request: ConnRequestId,
        num: QpNum,
        mpa: &MpaOptions,
        private_data: &[u8],
    ) -> Result<(), CommandError> {
        let id = self.waiting(request)?;
        let gone = || unknown("connection request");
        let conn = self.dp.conns.get(id).ok_or_else(gone)?;
        let Phase::Requested {
            listener,
            responder,
            ..
        } = &conn.phase
        else {
            return Err(gone());
        };
        let (listener, remote) = (*listener, conn.tuple.remote);
        let options = ResponderOptions {
            crc: mpa.crc,
            markers: match mpa.markers {
                MarkerUse::Off => false,
                MarkerUse::Prefer => responder.markers_wanted(),
                MarkerUse::Require => true,
            },
            aligned: mpa.aligned,
            depths: depths(mpa),
            rtr: indications(mpa.rtr),
        };
        let (reply, negotiated) = responder.accept(&options, private_data).map_err(invalid)?;
        self.qp(num)?.qp.begin_connecting().map_err(wrong_state)?;
        self.requests.remove(&request.0);
        self.no_longer_waiting(listener, id);
        // From here on the queue pair is told of what happens, and not the listener.
        self.dp.conns.get_mut(id).ok_or_else(gone)?.phase = Phase::Over;
        if self.send_startup(id, reply.bytes()).is_err() {
            let (qp, reason) = (num, DisconnectReason::LocalError);
            let message = format!("the MPA Reply to {remote} could not be sent: no frame is free");
            self.abort(id, reason, None);
            self.end_queue_pair(
                qp,
                reason,
                Event::ConnectFailed {
                    qp,
                    reason,
                    message,
                },
            );
            return Ok(());
        }
        self.enter_rdma_mode(id, num, &negotiated, false, Vec::new());
        Ok(())
    }

    fn reject(&mut self, request: ConnRequestId, private_data: &[u8]) -> Result<(), CommandError> {
        let id = self.waiting(request)?;
        let gone = || unknown("connection request");
        let conn = self.dp.conns.get(id).ok_or_else(gone)?;
        let Phase::Requested {
            listener,
            responder,
            ..
        } = &conn.phase
        else {
            return Err(gone());
        };
        let listener = *listener;
        let reply = responder.reject(private_data).map_err(invalid)?;
        self.requests.remove(&request.0);
        self.send_reject(id, listener, reply.bytes());
        Ok(())
    }

    pub(in crate::shard) fn disconnect(
        &mut self,
        num: QpNum,
        abort: bool,
    ) -> Result<(), CommandError> {
        let slot = self.qp(num)?;
        let state = slot.qp.state();
        let id = slot.conn.ok_or_else(|| CommandError::WrongState {
            what: "queue pair",
            found: format!("{state:?}"),
            wanted: "connected or connecting",
        })?;
        let starting = self
            .dp
            .conns
            .get(id)
            .is_some_and(|c| matches!(c.phase, Phase::Requesting { .. }));
        if abort || starting {
            self.abort(id, DisconnectReason::Aborted, None);
            return Ok(());
        }
        self.qp(num)?.qp.disconnect();
        self.tx.make_ready(&mut self.dp, id);
        self.settle(num);
        Ok(())
    }
}

/// A queue pair's completions would be lost without a word in a CQ that died (RFC 5040 section
/// 8.1.1, requirement 10).
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

fn limit(what: &'static str, used: usize, limit: usize) -> Result<(), CommandError> {
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

fn wrong_state(error: WrongQpState) -> CommandError {
    CommandError::WrongState {
        what: "queue pair",
        found: format!("{:?}", error.found),
        wanted: "Idle",
    }
}
