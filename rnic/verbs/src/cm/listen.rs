//! Listening, and the requests that come.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rnic::{ConnectionRequest, ListenOptions, Listener};
use rustix::io::Errno;

use crate::cm::CmId;
use crate::cm::event::{Details, Event};
use crate::ffi::{Fail, Outcome};
use crate::lock;
use crate::process::Process;
use crate::session::Session;

impl CmId {
    /// Listens where it is bound: of a wildcard at each address that the devices have now.
    pub(crate) fn listen(self: &Arc<Self>, backlog: c_int) -> Outcome<()> {
        let (local, bound, only_own_family) = {
            let mut state = self.state();
            // From here on the RNIC has the port.
            state.reserved = None;
            (state.local, state.session.clone(), state.only_own_family)
        };
        let local = local.unwrap_or_else(|| ([0, 0, 0, 0], 0).into());
        let port = listen_everywhere(local, bound, only_own_family, |session, at| {
            self.listen_at(session, at, backlog)
        })?;
        self.set_local(&mut self.state(), SocketAddr::new(local.ip(), port));
        Ok(())
    }

    fn listen_at(
        self: &Arc<Self>,
        session: &Arc<Session>,
        local: SocketAddr,
        backlog: c_int,
    ) -> Outcome<u16> {
        // What children need, so that the session's thread does not have to make it.
        session.shared()?;
        let backlog = backlog_within(session, backlog)?;
        // No request is told of before the listener is in the table.
        let mut listeners = lock(&session.listeners);
        let options = ListenOptions::default()
            .backlog(backlog)
            .transport(Process::transport()?);
        let listener = Listener::bind_with(session.rnic(), local, options)?;
        let port = listener.local_addr().port();
        listeners.extend(listener.ids().map(|id| (id, self.clone())));
        let mut state = self.state();
        state.backlog = state.backlog.max(backlog);
        state.listeners.push((session.clone(), listener));
        Ok(port)
    }

    /// Tells the program of the requests that have come, as many as may wait on the channel. The RNIC takes
    /// back others whose peers go. The session's thread calls it, and the thread that took a request.
    pub(crate) fn take_requests(self: &Arc<Self>) {
        let state = self.state();
        for (session, listener) in &state.listeners {
            while self.requests.load(Ordering::Acquire) < state.backlog
                && let Ok(request) = listener.accept_request(Duration::ZERO)
            {
                if let Err(fail) = self.tell_request(&state, session, request) {
                    log::warn!("a connection request can't be told to the program: {fail:?}");
                }
            }
        }
    }

    fn tell_request(
        self: &Arc<Self>,
        state: &crate::cm::id::State,
        session: &Arc<Session>,
        request: ConnectionRequest,
    ) -> Outcome<()> {
        let mpa = request.mpa();
        let details = Details {
            private_data: request.private_data().to_vec(),
            responder_resources: mpa.ord,
            initiator_depth: mpa.ird,
            ..Details::default()
        };
        let child = self.child(session, request, &state.channel)?;
        self.tell_event(state, Event::request(self, child, details));
        Ok(())
    }
}

/// How many peers may wait: as many as the program says, within the RNIC's limit, which is also what 0 means.
pub(crate) fn backlog_within(session: &Session, wanted: c_int) -> Outcome<u32> {
    let most = session.info()?.limits.backlog.max(1);
    let wanted = u32::try_from(wanted).ok().filter(|wanted| *wanted > 0);
    Ok(wanted.unwrap_or(most).min(most))
}

/// Listens by `listen` at an address, at the device that has it, or of a wildcard at each place that it
/// stands for, all with the port of the first one. The port.
pub(crate) fn listen_everywhere(
    local: SocketAddr,
    bound: Option<Arc<Session>>,
    only_own_family: bool,
    mut listen: impl FnMut(&Arc<Session>, SocketAddr) -> Outcome<u16>,
) -> Outcome<u16> {
    let places = match bound {
        Some(session) => vec![(session, local.ip())],
        None if local.ip().is_loopback() => {
            vec![(Process::current().session_at(local.ip())?, local.ip())]
        }
        None => everywhere(local, only_own_family)?,
    };
    let mut port = local.port();
    let mut listens = false;
    let mut refused = None;
    for (session, address) in places {
        match listen(&session, SocketAddr::new(address, port)) {
            Ok(taken) => (port, listens) = (taken, true),
            // Of a wildcard, a device may have no address of its family.
            Err(fail) if fail.errno == Errno::ADDRNOTAVAIL => refused = Some(fail),
            Err(fail) => return Err(fail),
        }
    }
    let nowhere = || Fail::of(Errno::ADDRNOTAVAIL, format!("no RNIC is at {local}"));
    match listens {
        true => Ok(port),
        false => Err(refused.unwrap_or_else(nowhere)),
    }
}

/// The devices and addresses for which a wildcard stands: all of each device, of both families for an IPv6
/// one, unless the program wants only that family. Then link-local addresses, which need an interface to
/// mean something, are left out.
fn everywhere(wildcard: SocketAddr, only_own_family: bool) -> Outcome<Vec<(Arc<Session>, IpAddr)>> {
    let meant = |address: &IpAddr| match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let mut places = Vec::new();
    for session in Process::current().sessions()? {
        if wildcard.is_ipv6() && only_own_family {
            let addresses = session.info()?.addresses.into_iter().filter(meant);
            places.extend(addresses.map(|address| (session.clone(), address)));
        } else {
            places.push((session, wildcard.ip()));
        }
    }
    Ok(places)
}
