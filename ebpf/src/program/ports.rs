//! The short way to a claim of TCP's: by its port alone, an entry of an array in place of a hash table's.
//!
//! The table of claims is what counts. This one has, of the claims of a port, one of each IP version
//! at most, and the program looks at the other when it does not find here what it looks for. So an
//! address may be missing here, and must never be here when its claim is not.

use std::ops::Range;

use aya::maps::{Array, MapData, MapError};

use crate::claim::KEY_LEN;

/// Bytes of `struct port` in `steer.bpf.c`: an IPv4 and an IPv6 address, zeros where there is none.
const ENTRY_LEN: usize = 20;

type Entry = [u8; ENTRY_LEN];

/// `PORTS` in `steer.bpf.c`.
pub(super) struct Ports {
    map: Array<MapData, Entry>,
}

impl Ports {
    pub(super) fn new(map: Array<MapData, Entry>) -> Ports {
        Ports { map }
    }

    /// Puts a claim here, unless another has its place.
    ///
    /// The kernel writes an entry byte by byte. What the program may see of that is an address
    /// whose other bytes are still zeros: no other claim's, because a place is empty before.
    pub(super) fn enter(&mut self, key: &[u8; KEY_LEN]) -> Result<(), MapError> {
        let (port, place, address) = parts(key);
        let mut entry = self.map.get(&port, 0)?;
        if entry[place.clone()].iter().any(|byte| *byte != 0) {
            return Ok(());
        }
        entry[place].copy_from_slice(address);
        self.map.set(port, entry, 0)
    }

    /// Takes a claim away, if it is here.
    pub(super) fn remove(&mut self, key: &[u8; KEY_LEN]) -> Result<(), MapError> {
        let (port, place, address) = parts(key);
        let mut entry = self.map.get(&port, 0)?;
        if entry[place.clone()] != *address {
            return Ok(());
        }
        entry[place].fill(0);
        self.map.set(port, entry, 0)
    }
}

/// Of a claim's key: its port, where in the port's entry its address has a place, and the address.
fn parts(key: &[u8; KEY_LEN]) -> (u32, Range<usize>, &[u8]) {
    let port = u16::from_be_bytes([key[2], key[3]]);
    let (place, address) = match key[1] {
        4 => (0..4, &key[4..8]),
        _ => (4..ENTRY_LEN, &key[4..]),
    };
    (port.into(), place, address)
}
