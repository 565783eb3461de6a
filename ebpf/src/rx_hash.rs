//! Which RX queue a NIC brings a flow to: receive side scaling, where the driver tells how it is set up.
//!
//! The NIC hashes the addresses and ports of a packet by a key, as Toeplitz did, and looks the queue up in a table
//! (`ethtool -x`). The operator can change both, so it is asked for each time.

use std::net::IpAddr;

use crate::sys;

/// How an interface chooses queues for TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxHash {
    key: Vec<u8>,
    /// Queues, by the lower bits of the hash.
    table: Vec<u32>,
    /// Whether ports are hashed, over IPv4 and over IPv6.
    ports: [bool; 2],
}

/// Asks the driver of an interface, in the thread's network namespace. `None` when it does not say, or hashes otherwise.
pub fn rx_hash(interface: &str) -> Option<RxHash> {
    let sys::RxHash { key, table } = sys::rx_hash(interface).ok()?;
    if key.is_empty() || table.is_empty() {
        return None;
    }
    let ports = [sys::TCP_V4_FLOW, sys::TCP_V6_FLOW];
    let ports = ports.map(|flow| sys::hashes_ports(interface, flow).unwrap_or(false));
    Some(RxHash { key, table, ports })
}

impl RxHash {
    /// Toeplitz's hash with this key, over addresses and ports, and this table of queues.
    pub fn of(key: Vec<u8>, table: Vec<u32>) -> Self {
        let ports = [true; 2];
        Self { key, table, ports }
    }

    /// The queue to which segments come from `remote` to `local`. `None` when it depends on nothing but the addresses,
    /// or can't be known.
    pub fn queue(&self, remote: (IpAddr, u16), local: (IpAddr, u16)) -> Option<u32> {
        let mut input = Vec::with_capacity(36);
        let with_ports = match (remote.0, local.0) {
            (IpAddr::V4(remote), IpAddr::V4(local)) => {
                input.extend(remote.octets());
                input.extend(local.octets());
                self.ports[0]
            }
            (IpAddr::V6(remote), IpAddr::V6(local)) => {
                input.extend(remote.octets());
                input.extend(local.octets());
                self.ports[1]
            }
            _ => false,
        };
        if !with_ports {
            return None;
        }
        input.extend(remote.1.to_be_bytes());
        input.extend(local.1.to_be_bytes());
        let hash = toeplitz(&self.key, &input)?;
        self.table.get(hash as usize % self.table.len()).copied()
    }
}

/// For each bit of the input that is set, the 32 bits of the key that begin there. `None` when the key is too short.
fn toeplitz(key: &[u8], input: &[u8]) -> Option<u32> {
    if key.len() < input.len() + 4 {
        return None;
    }
    let mut hash = 0;
    for (at, byte) in input.iter().enumerate() {
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|next| key.get(at + next).copied().unwrap_or(0));
        let window = u64::from_be_bytes([0, 0, 0, a, b, c, d, e]);
        for bit in 0..8 {
            if byte & (0x80 >> bit) != 0 {
                hash ^= (window >> (8 - bit)) as u32;
            }
        }
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::driver::{Driver, INTERFACE, play};

    /// The key and the flows by which Microsoft says that a NIC can be verified ("RSS Hashing Types").
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    const FLOWS: [(&str, u16, &str, u16, u32); 6] = [
        ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178),
        ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea),
        ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5c2b_394a),
        (
            "3ffe:2501:200:1fff::7",
            2794,
            "3ffe:2501:200:3::1",
            1766,
            0x4020_7d3d,
        ),
        (
            "3ffe:501:8::260:97ff:fe40:efab",
            14230,
            "ff02::1",
            4739,
            0xdde5_1bbf,
        ),
        (
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            "fe80::200:f8ff:fe21:67cf",
            38024,
            0x02d1_feef,
        ),
    ];

    fn hash(ports: [bool; 2]) -> RxHash {
        RxHash {
            key: KEY.to_vec(),
            // So the queue is the lower 16 bits of the hash.
            table: (0..1 << 16).collect(),
            ports,
        }
    }

    #[test]
    fn flows_come_to_the_queues_of_the_published_hashes() {
        for (remote, remote_port, local, local_port, wanted) in FLOWS {
            let remote = (remote.parse().unwrap(), remote_port);
            let local = (local.parse().unwrap(), local_port);
            let found = hash([true; 2]).queue(remote, local);
            assert_eq!(found, Some(wanted & 0xffff), "{remote:?}");
        }
    }

    #[test]
    fn nothing_is_said_where_ports_are_not_hashed_or_the_key_is_too_short() {
        let v4 = |port| ("198.18.0.1".parse().unwrap(), port);
        let v6 = |port| ("2001:db8::1".parse().unwrap(), port);
        assert_eq!(hash([false, true]).queue(v4(1), v4(2)), None);
        assert!(hash([false, true]).queue(v6(1), v6(2)).is_some());
        assert_eq!(hash([true; 2]).queue(v4(1), v6(2)), None);
        let mut short = hash([true; 2]);
        short.key.truncate(39);
        assert_eq!(short.queue(v6(1), v6(2)), None);
        assert!(short.queue(v4(1), v4(2)).is_some());
    }

    /// `RXH_IP_SRC`, `RXH_IP_DST`, and the ports.
    const FIELDS: u64 = 0x30;
    const PORTS: u64 = 0xc0;

    fn driver() -> Driver {
        Driver {
            key: KEY.to_vec(),
            table: vec![0, 1, 2, 3, 0, 1, 2, 3],
            function: [1, 0],
            fields: [FIELDS | PORTS, FIELDS],
            ..Driver::default()
        }
    }

    #[test]
    fn what_a_driver_tells_of_its_hash_is_taken_over() {
        let expected = |ports| RxHash {
            key: KEY.to_vec(),
            table: driver().table,
            ports,
        };
        play(driver());
        assert_eq!(rx_hash(INTERFACE), Some(expected([true, false])));
        play(Driver {
            fields: [FIELDS, FIELDS | PORTS],
            ..driver()
        });
        assert_eq!(rx_hash(INTERFACE), Some(expected([false, true])));
    }

    /// Another function than Toeplitz's, one of packets that are changed before, one without a key or a table.
    #[test]
    fn of_a_hash_that_cannot_be_computed_nothing_is_said() {
        for function in [[2, 0], [3, 0], [1, 1]] {
            play(Driver {
                function,
                ..driver()
            });
            assert_eq!(rx_hash(INTERFACE), None, "{function:?}");
        }
        play(Driver {
            key: Vec::new(),
            ..driver()
        });
        assert_eq!(rx_hash(INTERFACE), None);
        play(Driver {
            table: Vec::new(),
            ..driver()
        });
        assert_eq!(rx_hash(INTERFACE), None);
    }

    #[test]
    fn the_loopback_tells_of_no_hash() {
        assert_eq!(rx_hash("lo"), None);
    }
}
