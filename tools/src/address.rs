//! Where a tool listens, and whom it connects to, on the command line.

use std::net::SocketAddr;
use std::str::FromStr;

use clap::Args;
use rnic::address::AddressError;
use rnic::{Listener, RefusalCode};

use crate::endpoint::ToolError;

/// Where a server listens.
#[derive(Clone, Debug, Args)]
pub struct Listen {
    /// Address and port to listen on: ADDRESS, ADDRESS:PORT, [IPV6]:PORT, [fe80::1%eth0]:PORT, a name of
    /// this host, or :PORT [default: all addresses of the device, and port 18515].
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        default_value = "",
        default_missing_value = "",
        hide_default_value = true
    )]
    listen: Local,
}

impl Listen {
    /// The addresses to try: the first that is this host's is used.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.listen.0
    }
}

/// Whom a client connects to.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Connect {
    /// The server: HOST, HOST:PORT, [IPV6]:PORT or [fe80::1%eth0]:PORT; without a port it is 18515. If the
    /// name has several addresses they are tried in order.
    #[arg(value_name = "HOST[:PORT]")]
    host: Option<Peer>,
    /// The same as an option.
    #[arg(long, value_name = "HOST[:PORT]")]
    connect: Option<Peer>,
}

impl Connect {
    /// The addresses to try, in order. There is at least one.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        let given = self.connect.as_ref().or(self.host.as_ref());
        given.map_or(&[], |peer| &peer.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Local(Vec<SocketAddr>);

impl FromStr for Local {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        rnic::address::local_addresses(text).map(Self)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Peer(Vec<SocketAddr>);

impl FromStr for Peer {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        rnic::address::peer_addresses(text).map(Self)
    }
}

/// What a server says when it listens, with each address if it is all of them.
#[must_use]
pub fn listening(listener: &Listener) -> String {
    let local = listener.local_addr();
    let all: Vec<_> = listener.addresses().map(|at| at.ip().to_string()).collect();
    match local.ip().is_unspecified() {
        true => format!("listening on {local}: {}", all.join(", ")),
        false => format!("listening on {local}"),
    }
}

/// Tries addresses in order until one can be used; any other error than that it can't ends it.
///
/// # Errors
///
/// That of the only address, or those of all.
pub fn first_usable<T>(
    addresses: &[SocketAddr],
    mut attempt: impl FnMut(SocketAddr) -> Result<T, ToolError>,
) -> Result<T, ToolError> {
    let mut failed = Vec::new();
    for address in addresses {
        match attempt(*address) {
            Err(error) if addresses.len() > 1 && is_of_address(&error) => {
                log::info!("{address}: {error}");
                failed.push(format!("{}: {error}", address.ip()));
            }
            done => return done,
        }
    }
    Err(ToolError::NoAddress(failed.join("; ")))
}

/// Whether another address may do better: nothing was sent or received yet.
fn is_of_address(error: &ToolError) -> bool {
    match error {
        ToolError::Rnic(rnic::Error::ConnectFailed { .. }) => true,
        ToolError::Rnic(rnic::Error::Refused(refusal)) => matches!(
            refusal.code,
            RefusalCode::Unreachable | RefusalCode::AddressNotLocal
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
