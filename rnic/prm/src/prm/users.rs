//! Users: how many clients they have, what these hold together, and how often they connect.

use std::time::{Duration, Instant};

use rnic_ipc::control::Refusal;
use rnic_ipc::id::{ClientId, QpNum};

use super::Prm;
use crate::credentials::Credentials;
use crate::grant::QpUse;
use crate::limits::Usage;
use crate::pace::Pace;
use crate::refusal::{self, Kind};
use crate::refused::Single;
use crate::users::PortRanges;

/// A user with clients, or one who connected within the last second.
#[derive(Debug, Default)]
pub(super) struct User {
    pub(super) clients: u32,
    pub(super) usage: Usage,
    pace: Pace,
    requests: Pace,
}

impl User {
    /// Nothing that it did matters any more.
    fn is_idle(&self, now: Instant) -> bool {
        self.clients == 0 && self.pace.is_idle(now) && self.requests.is_idle(now)
    }
}

/// Requests that a new client counts for: its thread, rings and sockets are made, and taken away.
const NEW_CLIENT: u32 = 10;

impl Prm {
    /// As [`Self::request_waits`], of a user's new client.
    pub fn client_waits(&mut self, credentials: Credentials, now: Instant) -> Duration {
        self.waits(credentials, NEW_CLIENT, now)
    }

    /// How long a client of this user has to wait before its next request, by `requests_per_second`.
    /// It counts as made. Waiting is delay and no refusal: a program that only sets up a lot goes on,
    /// later.
    pub fn request_waits(&mut self, credentials: Credentials, now: Instant) -> Duration {
        self.waits(credentials, 1, now)
    }

    fn waits(&mut self, credentials: Credentials, requests: u32, now: Instant) -> Duration {
        let rate = self.limits.users.of(credentials).requests_per_second;
        if !self.users.contains_key(&credentials.uid) {
            self.users.retain(|_, user| !user.is_idle(now));
        }
        let user = self.users.entry(credentials.uid).or_default();
        let wait = user.requests.book(requests, rate, now);
        if !wait.is_zero() {
            self.requests_delayed += 1;
        }
        wait
    }

    pub fn requests_delayed(&self) -> u64 {
        self.requests_delayed
    }

    /// Leave to connect a queue pair, at this time, from a port that the client names or from any (0).
    ///
    /// # Errors
    ///
    /// `UnknownObject`; `Limit` when the user connects too often; `NotPermitted` when it may not name that port.
    pub fn connect(
        &mut self,
        client: ClientId,
        qp: QpNum,
        port: u16,
        now: Instant,
    ) -> Result<QpUse, Refusal> {
        let granted = self.use_qp(client, qp)?;
        if port != 0 {
            self.check_port(client, port)?;
        }
        let credentials = self.known(client)?;
        let rate = self.limits.users.of(credentials).connects_per_second;
        // Here, because here the time is known, and nobody has to wait for it.
        self.users.retain(|_, user| !user.is_idle(now));
        let user = self.users.entry(credentials.uid).or_default();
        if !user.pace.take(rate, now) {
            self.refused.count(Single::ConnectsPerSecond);
            return Err(refusal::limit(format!(
                "one more connection asked, but user {}'s limit connects_per_second is {rate}: \
                 connect less often, or raise the limit",
                credentials.uid
            )));
        }
        Ok(granted)
    }

    pub(super) fn check_clients(&mut self, credentials: Credentials) -> Result<(), Refusal> {
        let held = self.users.get(&credentials.uid).map_or(0, |u| u.clients);
        let most = self.limits.users.of(credentials).clients;
        if held < most {
            return Ok(());
        }
        self.refused.count(Single::UserClients);
        Err(refusal::limit(format!(
            "one more client asked, but user {}'s limit clients is {most} and {held} are there: end \
             some, or raise the limit",
            credentials.uid
        )))
    }

    pub(super) fn check_port(&mut self, client: ClientId, port: u16) -> Result<(), Refusal> {
        let credentials = self.known(client)?;
        let ports = &self.limits.users.of(credentials).listen_ports;
        let start = self.unprivileged_port_start;
        let message = if *ports == PortRanges::unprivileged() {
            // As the kernel's bind(2) has it, for a user without port ranges.
            if port >= start {
                return Ok(());
            }
            format!(
                "port {port} asked, but the host keeps those below {start} for root \
                 (net.ipv4.ip_unprivileged_port_start): name one from {start} on, or have user {}'s listen_ports \
                 give it",
                credentials.uid
            )
        } else if ports.contains(port) {
            return Ok(());
        } else {
            format!(
                "port {port} asked, but user {}'s limit listen_ports is {ports}: name one \
             of these, or raise the limit",
                credentials.uid
            )
        };
        self.refused.count(Single::ListenPorts);
        Err(refusal::not_allowed(message))
    }

    /// One of the user's clients is gone. A user without clients is forgotten as soon as its last connections
    /// no longer count.
    pub(super) fn client_of_user_gone(&mut self, uid: u32) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.clients = user.clients.saturating_sub(1);
        }
        self.users
            .retain(|_, user| user.clients > 0 || user.pace.was_used() || user.requests.was_used());
    }

    pub(super) fn known(&self, client: ClientId) -> Result<Credentials, Refusal> {
        self.credentials(client)
            .ok_or_else(|| refusal::unknown(Kind::Client, client))
    }
}
