//! The UDP socket of a device that has no interface.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Where a device without an interface takes SCTP in UDP: at a port of all addresses of the host, or of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpLink {
    /// `None`: all addresses.
    pub address: Option<IpAddr>,
    pub port: u16,
}

impl UdpLink {
    /// The port that is registered for SCTP in UDP (RFC 6951 section 5.1).
    pub const PORT: u16 = 9899;
}

impl Default for UdpLink {
    /// All addresses, and the registered port.
    fn default() -> Self {
        Self {
            address: None,
            port: Self::PORT,
        }
    }
}

/// A text that says no [`UdpLink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give [ADDRESS][:PORT], such as `198.18.0.1`, `:9899` or `[2001:db8::1]:9899`")]
pub struct ParseUdpLinkError;

impl FromStr for UdpLink {
    type Err = ParseUdpLinkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Self::checked(Some(address), Self::PORT);
        }
        let (address, port) = match text.rsplit_once(':') {
            Some((address, port)) if !text.ends_with(']') => {
                (address, port.parse().map_err(|_| ParseUdpLinkError)?)
            }
            _ => (text, Self::PORT),
        };
        let bare = address
            .strip_prefix('[')
            .and_then(|address| address.strip_suffix(']'));
        let address = match bare.unwrap_or(address) {
            "" => None,
            address => Some(address.parse().map_err(|_| ParseUdpLinkError)?),
        };
        Self::checked(address, port)
    }
}

impl UdpLink {
    fn checked(address: Option<IpAddr>, port: u16) -> Result<Self, ParseUdpLinkError> {
        let is_host = |address: IpAddr| !address.is_unspecified() && !address.is_multicast();
        match port != 0 && address.is_none_or(is_host) {
            true => Ok(Self { address, port }),
            false => Err(ParseUdpLinkError),
        }
    }
}

impl fmt::Display for UdpLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => write!(f, ":{}", self.port),
            Some(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_any_address_and_the_registered_port() {
        for (text, shown) in [
            ("", ":9899"),
            (":9900", ":9900"),
            ("198.18.0.1", "198.18.0.1:9899"),
            ("198.18.0.1:9900", "198.18.0.1:9900"),
            ("2001:db8::1", "[2001:db8::1]:9899"),
            ("[2001:db8::1]", "[2001:db8::1]:9899"),
            ("[2001:db8::1]:9900", "[2001:db8::1]:9900"),
        ] {
            let link: UdpLink = text.parse().unwrap();
            assert_eq!(link.to_string(), shown);
            assert_eq!(shown.parse(), Ok(link));
        }
        for wrong in [
            ":0",
            ":70000",
            "eth0",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "198.18.0.1:",
            "1:",
        ] {
            assert_eq!(wrong.parse::<UdpLink>(), Err(ParseUdpLinkError), "{wrong}");
        }
    }
}
