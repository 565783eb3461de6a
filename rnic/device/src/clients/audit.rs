//! Log lines for peers and clients that are refused: who, at what, and why. Their own target lets operators find
//! them. The shard bounds those of peers, and the daemon's log those of each kind.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rnic_engine::command::ForbiddenBy;
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_ipc::id::{ClientId, ListenerId};
use rnic_net::ListOwner;

use super::client::Client;
use super::registry::Clients;

pub const TARGET: &str = "audit";

/// A peer that wanted to connect and was not allowed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedPeer {
    pub(crate) client: ClientId,
    pub(crate) listener: ListenerId,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) list: ListOwner,
    /// Others since the last one that was logged.
    pub(crate) untold: u64,
}

pub(crate) fn log_refused_peer(clients: &Clients, interface: &str, refused: &RefusedPeer) {
    let RefusedPeer {
        client,
        listener,
        local,
        remote,
        list,
        untold,
    } = refused;
    let who = clients.get(*client).map(|client| client.credentials);
    let whose = match (list, who) {
        (ListOwner::Interface, _) => format!("interface {interface}"),
        (ListOwner::User, Some(who)) => format!("user {}", who.uid),
        // It is gone meanwhile.
        (ListOwner::User, None) => "its user".to_owned(),
        (ListOwner::Listener, _) => "[[listener]]".to_owned(),
    };
    let who = who.map(|who| format!(" ({who})")).unwrap_or_default();
    let more = match untold {
        0 => String::new(),
        untold => format!("; {untold} more segments were dropped before"),
    };
    log::warn!(
        target: TARGET,
        "peer {remote} is refused at {local}, listener {listener} of client {client}{who}: not in \
         allowed_peers of {whose}{more}"
    );
}

/// A peer has to wait, because streams of its ended by invalid STags so often.
pub(crate) fn log_guesses(
    clients: &Clients,
    client: ClientId,
    remote: IpAddr,
    (streams, pause): (u32, Duration),
    untold: u64,
) {
    let who = clients.get(client).map(|client| client.credentials);
    let who = who.map(|who| format!(" ({who})")).unwrap_or_default();
    let more = match untold {
        0 => String::new(),
        untold => format!("; {untold} more such pauses are not logged"),
    };
    log::warn!(
        target: TARGET,
        "peer {remote} may not connect to client {client}{who} for {pause:?}: {streams} of its streams \
         ended by invalid STags, as when they are guessed{more}"
    );
}

/// A segment was dropped because the host forbids it, as were `untold` others since the last line.
pub(crate) fn log_host_policy_dropped(
    (local, remote): (SocketAddr, SocketAddr),
    (by, rule): (ForbiddenBy, &str),
    untold: u64,
) {
    let more = match untold {
        0 => String::new(),
        untold => format!("; {untold} more segments were dropped before"),
    };
    let why = match by {
        ForbiddenBy::Ipsec => "the host's IPsec forbids it in clear, or an answer to it",
        ForbiddenBy::Routes => "the host rejects an answer to it",
    };
    log::warn!(target: TARGET, "a segment from {remote} to {local} is dropped: {why}, by {rule}{more}");
}

/// A request of a client was refused: a warning if it had no right to make it.
pub(crate) fn log_refusal(client: &Client, refusal: &Refusal) {
    let Client {
        id, credentials, ..
    } = client;
    match refusal.code {
        RefusalCode::NotPermitted => {
            log::warn!(target: TARGET, "client {id} ({credentials}) is refused: {refusal}");
        }
        _ => log::debug!("client {id}: refused: {refusal}"),
    }
}
