//! Listening, and the requests that come.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cm::CmId;
use crate::cm::event::{Details, Event};
use crate::cm::identifiers::Identifiers;
use crate::cm::net::{backlog_within, listen_everywhere};
use crate::ffi::Outcome;
use crate::lock;
use crate::process::Process;
use crate::session::Session;
use crate::shared::shared;
use rnic::{ConnectionRequest, ListenOptions};

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
        shared(session)?;
        let backlog = backlog_within(session, backlog)?;
        // No request is reported before the listener is in the table.
        let identifiers = session.part::<Identifiers>();
        let mut listeners = lock(&identifiers.listeners);
        let options = ListenOptions::default()
            .backlog(backlog)
            .transport(Process::transport()?);
        let listener = session.rnic().listen(local, options)?;
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
                && let Ok(request) = listener.accept().wait(Duration::ZERO)
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
