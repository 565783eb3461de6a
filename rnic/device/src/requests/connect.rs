//! Listening, connecting, accepting, rejecting, disconnecting.

use std::iter::repeat_with;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rnic_engine::command::Command;
use rnic_host::files::unprivileged_port_start;
use rnic_host::ports::LocalPort;
use rnic_ipc::control::{
    ConnectSpec, JoinSpec, ListenSpec, MpaOptions, PRIVATE_DATA_MAX, QpState, Refusal, RefusalCode,
    Response,
};
use rnic_ipc::id::{ConnRequestId, ListenerId, QpNum};
use rnic_prm::ListenGrant;

use super::ClientSession;
use crate::device::core::PeerRulesLock;
use crate::refuse;
use crate::runtime::To;

impl ClientSession {
    pub(super) fn listen(&self, mut spec: ListenSpec) -> Result<Response, Refusal> {
        spec.transport = self.core().interface.transport(spec.transport);
        let scope = self.core().interface.home(spec.local.ip())?;
        self.follow_port_start();
        let grant = self.core().prm().listen(self.id(), &spec)?;
        // Until the PRM knows of the listener, other rules would not be for it.
        let rules = self.core().lock_peer_rules();
        match self.add_listener(&grant, scope, &rules) {
            Ok(local) => {
                let listener = *grant.listener();
                self.core().prm().listening(grant, local);
                drop(rules);
                log::info!("client {}: listening at {local}", self.id());
                Ok(Response::Listening { listener, local })
            }
            Err(refusal) => {
                self.core().prm().listen_failed(grant);
                Err(refusal)
            }
        }
    }

    /// Gives the PRM the first port that needs no privilege on the host, which may have changed.
    fn follow_port_start(&self) {
        if let Some(port) = unprivileged_port_start() {
            self.core().prm().set_unprivileged_port_start(port);
        }
    }

    fn add_listener(
        &self,
        grant: &ListenGrant,
        scope: u32,
        rules: &PeerRulesLock<'_>,
    ) -> Result<SocketAddr, Refusal> {
        let core = self.core();
        let spec = *grant.spec();
        let at = LocalPort::new(spec.transport, spec.local);
        let reserved = core.interface.ports.listen(at, scope)?;
        let local = reserved.local();
        if let Err(refusal) = core.prm().may_listen_at(grant, local.port()) {
            core.interface.ports.failed(reserved);
            return Err(refusal);
        }
        let listener = *grant.listener();
        let peers = core.listener_rules(rules, self.id(), local);
        let listen = || Command::Listen {
            client: self.id(),
            listener,
            spec: ListenSpec { local, ..spec },
            peers: peers.clone(),
        };
        let listened = core
            .shards
            .all_or_none(repeat_with(listen), || Command::Unlisten { listener });
        core.finish_reservation(reserved, listened.map(|stamps| ((), stamps)))?;
        Ok(local)
    }

    pub(super) fn unlisten(&self, listener: ListenerId) -> Result<(), Refusal> {
        let removal = self.core().prm().unlisten(self.id(), listener)?;
        let unlistened = self.core().shards.all_do(|| Command::Unlisten { listener });
        let at = LocalPort::new(*removal.transport(), *removal.local());
        self.core().interface.ports.unlistened(at);
        self.core().prm().unlistened(removal);
        unlistened
    }

    /// Whether a connection of a queue pair to `remote` need not wait for a neighbour, who is asked otherwise.
    pub(super) fn resolve(
        &self,
        qp: QpNum,
        remote: SocketAddr,
        local: Option<IpAddr>,
        waited: Duration,
    ) -> Result<Response, Refusal> {
        check_remote(remote)?;
        self.check_idle(qp)?;
        let remote = remote.ip();
        match self.core().is_resolved(self.id(), remote, local, waited)? {
            true => Ok(Response::Done),
            false => Ok(Response::Resolving),
        }
    }

    fn check_idle(&self, qp: QpNum) -> Result<(), Refusal> {
        match self.query_qp(qp)? {
            QpState::Idle => Ok(()),
            state => Err(refuse::refusal(
                RefusalCode::WrongState,
                &format!("the queue pair is {state:?}, but must be Idle: create a new one"),
            )),
        }
    }

    /// Finds the path to the peer, which may take seconds, and then connects.
    pub(super) fn connect(&self, qp: QpNum, mut spec: ConnectSpec) -> Result<Response, Refusal> {
        spec.transport = self.core().interface.transport(spec.transport);
        refuse::check_mpa(&spec.mpa, &spec.private_data)?;
        check_remote(spec.remote)?;
        // Refused at once, rather than after the path is found.
        self.check_idle(qp)?;
        let core = self.core();
        let local_port = spec.local_port;
        if local_port != 0 {
            self.follow_port_start();
        }
        let granted = core
            .prm()
            .connect(self.id(), qp, local_port, Instant::now())?;
        let patience = core.interface.config.resolve_timeout;
        let path = core.allowed_path(self.id(), spec.remote.ip(), spec.local, patience)?;
        let local = core.connect(self.id(), *granted.qp(), spec, path)?;
        Ok(Response::Connecting { local })
    }

    /// Joins a queue pair to a peer's, whose neighbour the client has had found if it connects.
    pub(super) fn join(&self, qp: QpNum, spec: &JoinSpec) -> Result<Response, Refusal> {
        refuse::check_mpa(&spec.mpa, &[])?;
        let core = self.core();
        let granted = core.prm().connect(self.id(), qp, 0, Instant::now())?;
        let local = core.join(self.id(), *granted.qp(), spec)?;
        Ok(Response::Connecting { local })
    }

    pub(super) fn accept(
        &self,
        request: ConnRequestId,
        qp: QpNum,
        mpa: MpaOptions,
        private_data: Vec<u8>,
    ) -> Result<(), Refusal> {
        refuse::check_mpa(&mpa, &private_data)?;
        let grant = self.core().prm().accept(self.id(), request, qp)?;
        let (request, qp) = (*grant.request(), *grant.qp());
        self.core().accept(request, qp, mpa, private_data)?;
        self.core().prm().accepted(grant);
        Ok(())
    }

    pub(super) fn reject(
        &self,
        request: ConnRequestId,
        private_data: Vec<u8>,
    ) -> Result<(), Refusal> {
        refuse::check_private_data(&private_data, PRIVATE_DATA_MAX)?;
        let grant = self.core().prm().reject(self.id(), request)?;
        self.core().reject(*grant.request(), private_data)?;
        self.core().prm().rejected(grant);
        Ok(())
    }

    pub(super) fn disconnect(&self, qp: QpNum, abort: bool) -> Result<(), Refusal> {
        let granted = self.core().prm().use_qp(self.id(), qp)?;
        let qp = *granted.qp();
        self.core().leave_join(qp);
        let disconnect = Command::Disconnect { qp, abort };
        self.core().shards.run(To::Qp(qp), disconnect).map(|_| ())
    }
}

fn check_remote(remote: SocketAddr) -> Result<(), Refusal> {
    let address = remote.ip();
    if remote.port() != 0 && !address.is_unspecified() && !address.is_multicast() {
        return Ok(());
    }
    Err(refuse::refusal(
        RefusalCode::Malformed,
        &format!("a connection to {remote} asked: name a unicast address and a port above 0"),
    ))
}
