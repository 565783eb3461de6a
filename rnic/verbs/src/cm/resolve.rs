//! Addresses and routes of an identifier that is to connect, or to listen.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::io::Errno;

use crate::abi::{RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED};
use crate::cm::CmId;
use crate::cm::addr::reserve_port;
use crate::cm::event::Details;
use crate::cm::id::State;
use crate::cm::net::{unmapped, way_toward};
use crate::cm::ports::ports;
use crate::ffi::{Fail, Outcome};
use crate::process::Process;
use crate::shared::shared;

impl CmId {
    /// Binds it to an address, and to the device that has it. A wildcard is of no device yet; as with the
    /// kernel's connection manager a loopback address isn't either, because every device may have it.
    pub(crate) fn bind(&self, local: SocketAddr) -> Outcome<()> {
        let local = match local.ip().is_unspecified() {
            true => local,
            false => unmapped(local),
        };
        let mut state = self.state();
        if state.local.is_some() {
            return Err(Fail::of(Errno::INVAL, "the identifier is bound already"));
        }
        let (port, reserved) = match local.port() {
            0 => reserve_port(local).map(|(port, reserved)| (port, Some(reserved)))?,
            port => (port, None),
        };
        let local = SocketAddr::new(local.ip(), port);
        let held = ports().hold(local, state.reuse)?;
        if is_of_no_device(local.ip()) {
            // What listening needs: some programs tell their peers the port before they listen.
            for session in Process::current().sessions()? {
                shared(&session)?;
            }
        } else {
            let session = Process::current().session_at(local.ip())?;
            self.bind_to(&mut state, &session)?;
        }
        (state.reserved, state.held) = (reserved, Some(held));
        self.set_local(&mut state, local);
        Ok(())
    }

    /// Finds the device that leads to `remote`, and the address that it has there. Once, as with the kernel's
    /// connection manager.
    pub(crate) fn resolve_addr(
        self: &Arc<Self>,
        source: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Outcome<()> {
        let remote = unmapped(remote);
        self.state().check_unresolved()?;
        let says_something =
            |source: &SocketAddr| !source.ip().is_unspecified() || source.port() != 0;
        if let Some(source) = source.filter(says_something)
            && self.state().local.is_none()
        {
            self.bind(source)?;
        }
        let (local, bound) = {
            let state = self.state();
            (state.local, state.session.is_some())
        };
        if !bound {
            let (session, address) = match local.map(|local| local.ip()) {
                Some(address) if address.is_loopback() => {
                    (Process::current().session_at(address)?, address)
                }
                _ => way_toward(remote)?,
            };
            let port = local.map_or(0, |local| local.port());
            let mut state = self.state();
            self.bind_to(&mut state, &session)?;
            self.set_local(&mut state, SocketAddr::new(address, port));
        }
        let mut state = self.state();
        state.check_unresolved()?;
        self.set_remote(&mut state, remote);
        drop(state);
        self.tell(RDMA_CM_EVENT_ADDR_RESOLVED, Details::default());
        Ok(())
    }

    /// There is nothing to do: the daemon asks the host for the way when it connects.
    pub(crate) fn resolve_route(self: &Arc<Self>) -> Outcome<()> {
        let mut state = self.state();
        if state.remote.is_none() || state.routed {
            let why = "a route without an address (rdma_resolve_addr first), or a second one";
            return Err(Fail::of(Errno::INVAL, why));
        }
        state.routed = true;
        drop(state);
        self.tell(RDMA_CM_EVENT_ROUTE_RESOLVED, Details::default());
        Ok(())
    }
}

impl State {
    /// That it has no peer yet, and listens for none.
    fn check_unresolved(&self) -> Outcome<()> {
        match self.remote.is_none() && self.listeners.is_empty() {
            true => Ok(()),
            false => Err(Fail::of(
                Errno::INVAL,
                "rdma_resolve_addr of an identifier that has a peer's address, or listens",
            )),
        }
    }
}

/// Whether binding to an address leaves open by which device peers come.
fn is_of_no_device(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_loopback()
}
