//! A driver that a test plays: no interface that a test can make tells of a hash, or joins frames.
//!
//! Invariant: what is written lies within the structure that the command has, as linux/ethtool.h lays it out.

use std::cell::RefCell;
use std::io;

use super::{
    ETHTOOL_GFEATURES, ETHTOOL_GRSSH, ETHTOOL_GRXFH, ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS,
    RXFH_HEADER, STRING_BYTES, STRINGS_HEADER, TCP_V4_FLOW,
};

/// The interface that has it.
pub(crate) const INTERFACE: &str = "played";

/// What it answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Driver {
    pub(crate) key: Vec<u8>,
    pub(crate) table: Vec<u32>,
    /// The hash function, and what is done to packets before.
    pub(crate) function: [u8; 2],
    /// What is hashed of TCP over IPv4, and over IPv6.
    pub(crate) fields: [u64; 2],
    /// Features, and whether they are on.
    pub(crate) features: Vec<(&'static str, bool)>,
}

thread_local! {
    static PLAYED: RefCell<Driver> = RefCell::default();
}

/// From now on the thread's interface [`INTERFACE`] has this one.
pub(crate) fn play(driver: Driver) {
    PLAYED.set(driver);
}

/// The answer to a request of this interface, if it is the one.
///
/// # Safety
///
/// As for `super::ethtool`.
pub(super) unsafe fn answer(interface: &str, data: *mut libc::c_char) -> Option<io::Result<()>> {
    // SAFETY: the caller's.
    (interface == INTERFACE)
        .then(|| PLAYED.with_borrow(|driver| unsafe { driver.answer(data.cast()) }))
}

impl Driver {
    /// # Safety
    ///
    /// As for `super::ethtool`.
    unsafe fn answer(&self, data: *mut u8) -> io::Result<()> {
        // SAFETY: each of these words is one of the command's structure.
        let word = |at: usize| unsafe { data.add(at).cast::<u32>().read_unaligned() };
        let put = |at: usize, bytes: &[u8]| {
            // SAFETY: each place is one of the command's structure, with as many bytes as it was asked for.
            unsafe {
                data.add(at)
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
            };
        };
        match word(0) {
            ETHTOOL_GRSSH => {
                let sizes = [self.table.len() as u32, self.key.len() as u32];
                if [word(8), word(12)] == sizes {
                    let table: Vec<u8> = self
                        .table
                        .iter()
                        .copied()
                        .flat_map(u32::to_ne_bytes)
                        .collect();
                    put(RXFH_HEADER, &table);
                    put(RXFH_HEADER + table.len(), &self.key);
                }
                put(8, sizes.map(u32::to_ne_bytes).as_flattened());
                put(16, &self.function);
            }
            ETHTOOL_GRXFH => {
                let of = usize::from(word(4) != TCP_V4_FLOW);
                put(8, &self.fields[of].to_ne_bytes());
            }
            ETHTOOL_GSSET_INFO => put(16, &(self.features.len() as u32).to_ne_bytes()),
            ETHTOOL_GSTRINGS => {
                for (at, (name, _)) in self.features.iter().enumerate() {
                    put(STRINGS_HEADER + at * STRING_BYTES, name.as_bytes());
                }
            }
            ETHTOOL_GFEATURES => {
                let on = self.features.iter().enumerate();
                let active = on.fold(0, |active, (at, (_, is_on))| {
                    active | u32::from(*is_on) << at
                });
                let block = [u32::MAX, active, active, 0];
                put(8, block.map(u32::to_ne_bytes).as_flattened());
            }
            _ => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
        Ok(())
    }
}
