//! How connections are asked for, accepted, refused and ended, as their owners command.

use std::net::SocketAddr;

use rnic_ipc::control::{ConnectSpec, DisconnectReason, Event, MarkerUse, MpaOptions, Transport};
use rnic_ipc::id::{ConnRequestId, ListenerId, QpNum};
use rnic_net::{Path, PeerRules};
use rnic_proto::mpa::startup::{Initiator, Negotiated, Responder, ResponderOptions};
use rnic_xsk::Port;
use userspace_net::{ConnId, FourTuple};
use userspace_tcp::{ConnOptions, ConnectError};

use crate::command::CommandError;
use crate::conn::{Asked, Asking, Conn, Phase};
use crate::qp::WrongQpState;
use crate::shard::ctl::Ctl;
use crate::shard::ctl::control::{invalid, unknown};
use crate::shard::ctl::mpa_options::{depths, indications, initiator_options};
use crate::shard::datapath::{Datapath, QpSlot};
use crate::shard::loopback;
use crate::shard::tx::Tx;

impl Ctl {
    /// Begins to connect a queue pair; its local address and port.
    pub(in crate::shard) fn connect<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        num: QpNum,
        way: (FourTuple, Path, usize),
        (spec, peers): (ConnectSpec, PeerRules),
    ) -> Result<SocketAddr, CommandError> {
        let (tuple, path, port) = way;
        dp.check_mtu(&path, port, tuple.remote.addr)?;
        self.check_host_policy(dp, spec.transport, (&tuple, port))?;
        let client = dp.idle_qp(num)?.qp.client();
        let spec = ConnectSpec {
            mpa: loopback::mpa_over(port, &spec.mpa),
            ..spec
        };
        let conn = match spec.transport {
            Transport::Tcp => dp.open(num, way, &spec.mpa, &spec.private_data)?,
            Transport::Sctp => self.open_session(dp, tx, (num, client), way, (spec, peers))?,
        };
        let slot = dp.qp(num)?;
        slot.qp.begin_connecting().map_err(wrong_state)?;
        slot.conn = Some(conn.id);
        let (id, local) = (conn.id, conn.tuple.local);
        self.adopt(dp, tx, conn);
        dp.counters.active_opens += 1;
        self.ask_if_associated(dp, tx, id);
        Ok(local.into())
    }

    pub(super) fn waiting(&self, request: ConnRequestId) -> Result<ConnId, CommandError> {
        self.requests
            .get(&request.0)
            .copied()
            .ok_or(unknown("connection request"))
    }

    pub(in crate::shard) fn accept<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        request: ConnRequestId,
        num: QpNum,
        mpa: &MpaOptions,
        private_data: &[u8],
    ) -> Result<(), CommandError> {
        let id = self.waiting(request)?;
        // A session's request can be answered only once.
        dp.idle_qp(num)?;
        let (conn, listener, asked) = dp.requested(id)?;
        let remote = conn.tuple.remote;
        let mpa = &loopback::mpa_over(conn.port(), mpa);
        let (reply, negotiated) = match asked {
            Asked::Mpa(responder) => accept_mpa(responder, mpa, private_data)?,
            Asked::Session => dp.sctp.sessions.accept(id, mpa, private_data)?,
        };
        dp.qp(num)?.qp.begin_connecting().map_err(wrong_state)?;
        self.requests.remove(&request.0);
        self.no_longer_waiting(listener, id);
        // From here on the queue pair is notified of what happens, and not the listener.
        if let Some(conn) = dp.conns.get_mut(id) {
            conn.phase = Phase::Over;
        }
        if dp.send_startup(id, &reply).is_err() {
            let (qp, reason) = (num, DisconnectReason::LocalError);
            let message = format!("the answer to {remote} could not be sent: no frame is free");
            self.abort(dp, tx, id, reason, None);
            self.end_queue_pair(
                dp,
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
        self.enter_rdma_mode(dp, tx, id, num, &negotiated, Vec::new());
        Ok(())
    }

    pub(in crate::shard) fn reject<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        request: ConnRequestId,
        private_data: &[u8],
    ) -> Result<(), CommandError> {
        self.answer_no(dp, tx, request, Some(private_data))
    }

    /// Refuses a request that no application sees.
    pub(in crate::shard) fn refuse<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        request: ConnRequestId,
    ) -> Result<(), CommandError> {
        self.answer_no(dp, tx, request, None)
    }

    /// The end of a request, with what the application says if it is the one that rejects it.
    fn answer_no<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        request: ConnRequestId,
        private_data: Option<&[u8]>,
    ) -> Result<(), CommandError> {
        let id = self.waiting(request)?;
        let (_, listener, asked) = dp.requested(id)?;
        let reply = match asked {
            // MPA has no other word for it.
            Asked::Mpa(responder) => {
                let reply = responder.reject(private_data.unwrap_or(&[]));
                reply.map_err(invalid)?.bytes().to_vec()
            }
            Asked::Session => dp.sctp.sessions.reject(id, private_data)?,
        };
        self.requests.remove(&request.0);
        self.send_reject(dp, tx, id, listener, &reply);
        Ok(())
    }

    pub(in crate::shard) fn disconnect<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        tx: &mut Tx,
        num: QpNum,
        abort: bool,
    ) -> Result<(), CommandError> {
        let slot = dp.qp(num)?;
        let state = slot.qp.state();
        let id = slot.conn.ok_or_else(|| CommandError::WrongState {
            what: "queue pair",
            found: format!("{state:?}"),
            wanted: "connected or connecting",
        })?;
        let starting = dp
            .conns
            .get(id)
            .is_some_and(|c| matches!(c.phase, Phase::Requesting { .. }));
        if abort || starting {
            self.abort(dp, tx, id, DisconnectReason::Aborted, None);
            return Ok(());
        }
        dp.qp(num)?.qp.disconnect();
        tx.make_ready(dp, id);
        self.update_qp(dp, tx, num);
        Ok(())
    }
}

impl<P: Port> Datapath<P> {
    /// Opens a TCP connection; the MPA Request follows when it is established.
    fn open(
        &mut self,
        qp: QpNum,
        (tuple, path, port): (FourTuple, Path, usize),
        mpa: &MpaOptions,
        private_data: &[u8],
    ) -> Result<Conn, CommandError> {
        let initiator = |markers| {
            initiator_options(mpa, markers)
                .and_then(|options| Initiator::new(options, private_data))
                .map(Box::new)
                .map_err(invalid)
        };
        let asking = Asking::Mpa {
            unmarked: match mpa.markers {
                MarkerUse::Prefer => Some(initiator(false)?),
                MarkerUse::Off | MarkerUse::Require => None,
            },
            initiator: initiator(mpa.markers != MarkerUse::Off)?,
        };
        let options = ConnOptions {
            mss: path.mss(tuple.remote.addr),
        };
        let id = self.stack.connect(self.now, tuple, options);
        let id = id.map_err(|error| match error {
            ConnectError::TooMany { limit } => CommandError::Limit {
                what: "connections",
                limit,
            },
            ConnectError::InUse { .. } => CommandError::InUse {
                local: tuple.local.into(),
            },
            ConnectError::DropReason { .. } => invalid(error),
        })?;
        let phase = Phase::Requesting {
            qp,
            asking,
            opened: self.now,
        };
        let window = self.config.tcp.receive_window;
        Ok(Conn::new(id, tuple, path, port, window, phase))
    }

    /// A connection whose request waits for the application, with whose listener that is and what was asked.
    pub(super) fn requested(
        &self,
        id: ConnId,
    ) -> Result<(&Conn, ListenerId, &Asked), CommandError> {
        let conn = self.conns.get(id);
        match conn.map(|conn| (conn, &conn.phase)) {
            Some((
                conn,
                Phase::Requested {
                    listener, asked, ..
                },
            )) => Ok((conn, *listener, asked)),
            _ => Err(unknown("connection request")),
        }
    }

    /// A queue pair that may get a connection.
    fn idle_qp(&mut self, num: QpNum) -> Result<&mut QpSlot, CommandError> {
        let slot = self.qp(num)?;
        slot.qp.check_idle().map_err(wrong_state)?;
        Ok(slot)
    }
}

/// The MPA Reply that takes a request, and what is agreed by it.
fn accept_mpa(
    responder: &Responder,
    mpa: &MpaOptions,
    private_data: &[u8],
) -> Result<(Vec<u8>, Negotiated), CommandError> {
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
    Ok((reply.bytes().to_vec(), negotiated))
}

pub(in crate::shard) fn wrong_state(error: WrongQpState) -> CommandError {
    CommandError::WrongState {
        what: "queue pair",
        found: format!("{:?}", error.found),
        wanted: "Idle",
    }
}
