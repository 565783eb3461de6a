//! Which peers may connect to listeners at an address and port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use rnic_net::AllowList;

/// The allow-list of peers that connect to listeners at an address and port, whosever they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerPeers {
    pub at: ListenerAddress,
    pub allowed: AllowList,
}

impl ListenerPeers {
    pub const MAX: usize = 256;
}

/// Where listeners are: `198.18.0.1:7471`, `[2001:db8::1]:7471`, or `:7471` at every address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerAddress {
    address: Option<IpAddr>,
    port: u16,
}

impl ListenerAddress {
    /// Whether a listener is there.
    #[must_use]
    pub fn contains(&self, local: SocketAddr) -> bool {
        self.port == local.port() && self.address.is_none_or(|address| address == local.ip())
    }
}

/// What a text is that is no [`ListenerAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "give an address and a port above 0, such as 198.18.0.1:7471 or [2001:db8::1]:7471, or :7471 for every \
     address"
)]
pub struct ParseListenerAddressError;

impl FromStr for ListenerAddress {
    type Err = ParseListenerAddressError;

    fn from_str(text: &str) -> Result<Self, ParseListenerAddressError> {
        let found = match text.strip_prefix(':') {
            Some(port) => port.parse().ok().map(|port| Self {
                address: None,
                port,
            }),
            None => text.parse().ok().map(|at: SocketAddr| Self {
                address: Some(at.ip()),
                port: at.port(),
            }),
        };
        let is_one = |found: &Self| {
            found.port != 0
                && !found
                    .address
                    .is_some_and(|address| address.is_unspecified())
        };
        found.filter(is_one).ok_or(ParseListenerAddressError)
    }
}

impl fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => write!(f, ":{}", self.port),
            Some(address) => SocketAddr::new(address, self.port).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
