//! Connecting, accepting, rejecting, disconnecting, and their events.

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rnic::{
    AcceptOptions, ConnectOptions, ConnectionEvent, ConnectionRequest, DisconnectReason,
    MpaOptions, RefusalCode,
};
use rustix::io::Errno;

use crate::abi::{
    IBV_QPS_ERR, IBV_QPS_RTS, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_DEVICE_REMOVAL,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_UNREACHABLE, rdma_conn_param,
};
use crate::cm::CmId;
use crate::cm::event::Details;
use crate::cm::id::{Connection, State};
use crate::cm::identifiers::Identifiers;
use crate::cm::net::{errno_of, log_end};
use crate::cm::ports::ports;
use crate::device::MAX_READS;
use crate::ffi::{Fail, Outcome, Ptr};
use crate::lock;
use crate::process::Process;
use crate::qp::{Qp, Qps};
use crate::session::Session;

/// Whether no event of the connection comes after this one.
pub(crate) fn is_end(event: c_int) -> bool {
    matches!(
        event,
        RDMA_CM_EVENT_CONNECT_ERROR
            | RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_REJECTED
            | RDMA_CM_EVENT_DISCONNECTED
            | RDMA_CM_EVENT_DEVICE_REMOVAL
    )
}

/// What a side says of itself when it connects or accepts.
struct Parameters {
    /// The queue pair, for an identifier that has none of its own.
    qp_num: u32,
    private_data: Vec<u8>,
    mpa: MpaOptions,
}

impl Parameters {
    /// Those that the program gives, or else `default` of Reads that it answers and begins.
    fn read(param: Ptr<rdma_conn_param>, default: (u16, u16)) -> Self {
        let mpa = |ird: u16, ord: u16| MpaOptions {
            ird: ird.min(MAX_READS.into()),
            ord: ord.min(MAX_READS.into()),
            ..MpaOptions::default()
        };
        match param.get() {
            None => Self {
                qp_num: 0,
                private_data: Vec::new(),
                mpa: mpa(default.0, default.1),
            },
            Some(param) => Self {
                qp_num: param.qp_num,
                private_data: param
                    .private_data
                    .slice(param.private_data_len.into())
                    .to_vec(),
                mpa: mpa(
                    param.responder_resources.into(),
                    param.initiator_depth.into(),
                ),
            },
        }
    }
}

impl CmId {
    pub(crate) fn connect(self: &Arc<Self>, param: Ptr<rdma_conn_param>) -> Outcome<()> {
        let most = (MAX_READS.into(), MAX_READS.into());
        let Parameters {
            qp_num,
            private_data,
            mpa,
        } = Parameters::read(param, most);
        let (session, qp) = self.ready(qp_num)?;
        let (local, remote) = {
            let mut state = self.state();
            // From here on the RNIC has the port.
            state.reserved = None;
            (state.local, state.remote)
        };
        let Some(remote) = remote else {
            return Err(Fail::of(
                Errno::INVAL,
                "connecting without an address: resolve it first",
            ));
        };
        let options = ConnectOptions::default()
            .private_data(private_data)
            .transport(Process::transport()?)
            .mpa(mpa)
            .local(local.map(|local| local.ip()))
            .local_port(local.map_or(0, |local| local.port()));
        self.in_table(&session, &qp, || {
            qp.rnic().connect(remote, options).detach()?;
            let mut state = self.state();
            self.show_local_of(&state, &qp);
            if let Some(chosen) = qp.rnic().local_addr()
                && local.is_none_or(|local| local.port() == 0)
            {
                state.held = ports().hold(chosen, state.reuse).ok();
            }
            Ok(())
        })
    }

    pub(crate) fn accept(self: &Arc<Self>, param: Ptr<rdma_conn_param>) -> Outcome<()> {
        let asked = self.state().request.as_ref().map(ConnectionRequest::mpa);
        let Some(asked) = asked else {
            return Err(Fail::of(Errno::INVAL, "accepting where no peer waits"));
        };
        let Parameters {
            qp_num,
            private_data,
            mpa,
        } = Parameters::read(param, (asked.ord, asked.ird));
        let (session, qp) = self.ready(qp_num)?;
        let options = AcceptOptions::default().private_data(private_data).mpa(mpa);
        self.in_table(&session, &qp, || {
            let request = self.state().request.take();
            let request = request.ok_or_else(|| Fail::of(Errno::INVAL, "another call answers"))?;
            request
                .accept(qp.rnic(), options)
                .detach()
                .map_err(peer_may_be_gone)
        })
    }

    pub(crate) fn reject(&self, private_data: Ptr<u8>, length: u8) -> Outcome<()> {
        let request = self.state().request.take();
        match request {
            Some(request) => request
                .reject(private_data.slice(length.into()))
                .map_err(peer_may_be_gone),
            None => Err(Fail::of(Errno::INVAL, "rejecting where no peer waits")),
        }
    }

    /// Ends the connection in order: what was posted goes out, then what was not done is flushed.
    pub(crate) fn disconnect(&self) -> Outcome<()> {
        let begun = self
            .state()
            .connection
            .as_ref()
            .map(|begun| begun.qp.clone());
        let Some(qp) = begun else {
            return Err(Fail::of(
                Errno::INVAL,
                "disconnecting what was not connected",
            ));
        };
        if self.waits() && self.end_told.load(Ordering::Acquire) {
            return Err(Fail::of(
                Errno::INVAL,
                "disconnecting what has ended, as an earlier call has told",
            ));
        }
        // What has ended, with its queue pair too, is no error: the program was notified of it or will be.
        match qp
            .upgrade()
            .map_or(Ok(()), |qp| qp.rnic().disconnect().detach())
        {
            Ok(()) | Err(rnic::Error::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The device and the queue pair that are to be connected: the identifier's own, or else the one that the
    /// program names by its number.
    fn ready(&self, qp_num: u32) -> Outcome<(Arc<Session>, Arc<Qp>)> {
        let state = self.state();
        let Some(session) = &state.session else {
            return Err(Fail::of(
                Errno::INVAL,
                "no device: rdma_resolve_addr or rdma_bind_addr first",
            ));
        };
        let named = || {
            lock(&session.part::<Qps>().0)
                .get(&qp_num)
                .and_then(Weak::upgrade)
        };
        match self.shown_qp(&state, session).or_else(named) {
            Some(qp) => Ok((session.clone(), qp)),
            None => Err(Fail::of(
                Errno::INVAL,
                format!(
                    "no queue pair: rdma_create_qp first, or name one of {} in qp_num ({qp_num:#x} is none)",
                    session.interface()
                ),
            )),
        }
    }

    /// Begins a connection, whose events are this identifier's from the first on.
    fn in_table(
        self: &Arc<Self>,
        session: &Arc<Session>,
        qp: &Arc<Qp>,
        begin: impl FnOnce() -> Outcome<()>,
    ) -> Outcome<()> {
        let num = qp.rnic().num();
        let identifiers = session.part::<Identifiers>();
        let mut connections = lock(&identifiers.connections);
        let holder = connections.get(&num);
        if self.has_connection() || holder.is_some_and(|id| id.has_connection()) {
            return Err(Fail::of(
                Errno::INVAL,
                "the identifier or the queue pair has a connection already",
            ));
        }
        connections.insert(num, self.clone());
        let connection = Connection {
            num,
            qp: Arc::downgrade(qp),
            ended: false,
        };
        let before = self.state().connection.replace(connection);
        if let Some(before) = before.filter(|before| before.num != num) {
            connections.remove(&before.num);
        }
        drop(connections);
        self.end_told.store(false, Ordering::Release);
        let begun = begin();
        if begun.is_err() {
            lock(&identifiers.connections).remove(&num);
            self.state().connection = None;
        }
        begun
    }

    /// Has one that did not end.
    fn has_connection(&self) -> bool {
        let state = self.state();
        state.connection.as_ref().is_some_and(|begun| !begun.ended)
    }

    /// Tells the program what has come of its connection. The session's thread calls it.
    pub(crate) fn take_connection_events(self: &Arc<Self>) {
        let begun = self
            .state()
            .connection
            .as_ref()
            .map(|begun| begun.qp.clone());
        let Some(qp) = begun.and_then(|qp| qp.upgrade()) else {
            return;
        };
        while let Ok(Some(event)) = qp.rnic().take_event() {
            let (kind, details) = translate(event);
            let connected = kind == RDMA_CM_EVENT_ESTABLISHED;
            if connected {
                qp.note_reads(details.initiator_depth, details.responder_resources);
            }
            qp.note_state(if connected { IBV_QPS_RTS } else { IBV_QPS_ERR });
            let mut state = self.state();
            state.note_connected(connected);
            if connected {
                self.show_local_of(&state, &qp);
            }
            drop(state);
            self.tell(kind, details);
        }
    }

    /// Shows the program the port that its connection is from, which may be one of the host's choice.
    fn show_local_of(&self, _locked: &State, qp: &Qp) {
        if let Some(local) = qp.rnic().local_addr() {
            self.show_local(local);
        }
    }

    /// A connection ends with its queue pair.
    pub(crate) fn queue_pair_gone(self: &Arc<Self>) {
        let was_connected = self.state().note_connected(false);
        if was_connected {
            self.tell(RDMA_CM_EVENT_DISCONNECTED, Details::default());
        }
    }
}

/// Of the objects that an answer names, the request alone goes by itself: with the peer, which is nothing for
/// the log.
fn peer_may_be_gone(error: rnic::Error) -> Fail {
    match error {
        rnic::Error::Refused(refusal) if refusal.code == RefusalCode::UnknownObject => {
            Errno::CONNRESET.into()
        }
        error => error.into(),
    }
}

impl State {
    /// A connection is there, or has ended; whether one was there.
    fn note_connected(&mut self, connected: bool) -> bool {
        if let Some(connection) = &mut self.connection {
            connection.ended = !connected;
        }
        std::mem::replace(&mut self.connected, connected)
    }
}

fn translate(event: ConnectionEvent) -> (c_int, Details) {
    match event {
        ConnectionEvent::Established(established) => {
            let details = Details {
                private_data: established.private_data,
                responder_resources: established.mpa.ird,
                initiator_depth: established.mpa.ord,
                ..Details::default()
            };
            (RDMA_CM_EVENT_ESTABLISHED, details)
        }
        ConnectionEvent::Rejected { private_data, .. } => {
            let details = Details {
                private_data,
                ..Details::failed(Errno::CONNREFUSED)
            };
            (RDMA_CM_EVENT_REJECTED, details)
        }
        ConnectionEvent::ConnectFailed { reason, message } => {
            log::info!("a connection failed: {message}");
            connect_failed(reason)
        }
        ConnectionEvent::Disconnected { reason, message } => {
            log_end("a connection", reason, &message);
            (RDMA_CM_EVENT_DISCONNECTED, Details::default())
        }
        other => {
            log::error!("rdma_cm has no event for {other:?}: the connection counts as failed");
            (
                RDMA_CM_EVENT_CONNECT_ERROR,
                Details::failed(Errno::CONNABORTED),
            )
        }
    }
}

fn connect_failed(reason: DisconnectReason) -> (c_int, Details) {
    let errno = errno_of(reason);
    let event = match errno {
        Errno::CONNREFUSED | Errno::CONNRESET => RDMA_CM_EVENT_REJECTED,
        Errno::TIMEDOUT => RDMA_CM_EVENT_UNREACHABLE,
        _ => RDMA_CM_EVENT_CONNECT_ERROR,
    };
    (event, Details::failed(errno))
}
