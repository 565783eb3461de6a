//! What is claimed, as the steering program looks it up.

use std::net::IpAddr;

use crate::error::SteeringError;

/// The most claims at a time (`max_entries` of the program's table).
pub const MAX_CLAIMS: u32 = 65536;

/// Bytes of `struct claim` in `steer.bpf.c`.
pub(crate) const KEY_LEN: usize = 20;

/// The transport protocol of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP (6).
    Tcp,
    /// SCTP (132).
    Sctp,
}

impl Protocol {
    /// Its number in the IP header.
    pub const fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Sctp => 132,
        }
    }
}

/// `struct claim` in `steer.bpf.c`: protocol, IP version, port (network order), address.
pub(crate) fn key(
    protocol: Protocol,
    address: IpAddr,
    port: u16,
) -> Result<[u8; KEY_LEN], SteeringError> {
    let address = address.to_canonical();
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if port == 0 || address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(SteeringError::NotUnicast { address, port });
    }
    let mut key = [0; KEY_LEN];
    key[0] = protocol.number();
    key[2..4].copy_from_slice(&port.to_be_bytes());
    match address {
        IpAddr::V4(v4) => {
            key[1] = 4;
            key[4..8].copy_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            key[1] = 6;
            key[4..20].copy_from_slice(&v6.octets());
        }
    }
    Ok(key)
}
