//! What libxdp's bookkeeping of a UMEM's sockets requires of us.
//!
//! The first socket of a UMEM is the one that the memory was registered with. It lives in the network namespace
//! where the UMEM was made, keeps the ring sizes of the first attempt to bind it, and stays bound until the UMEM
//! goes. libxdp checks none of this.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Device and inode of a network namespace.
type Namespace = (u64, u64);

/// The sockets of one UMEM.
#[derive(Debug)]
pub(crate) struct Binding {
    made_in: Option<Namespace>,
    /// RX and TX ring entries of the first attempt.
    first_rings: Option<(u32, u32)>,
    /// Open ports.
    live: usize,
    /// Whether a port was ever opened.
    used: bool,
}

impl Binding {
    /// For a UMEM that this thread has just made.
    pub(super) fn new() -> Self {
        Self {
            made_in: namespace_of_thread(),
            first_rings: None,
            live: 0,
            used: false,
        }
    }

    /// Whether this thread may open a port with such rings now; if not, what to do.
    pub(crate) fn may_open(&mut self, rings: (u32, u32)) -> Result<(), &'static str> {
        if self.live > 0 {
            return Ok(());
        }
        if self.used {
            return Err("all ports of this UMEM were closed: make a new UMEM for new ports");
        }
        if namespace_of_thread() != self.made_in {
            return Err(
                "the first port of a UMEM must be opened in the network namespace that \
                        the UMEM was made in",
            );
        }
        if *self.first_rings.get_or_insert(rings) != rings {
            return Err(
                "the first port of a UMEM can be tried again only with the same ring \
                        sizes: make a new UMEM for others",
            );
        }
        Ok(())
    }

    pub(crate) fn opened(&mut self) {
        self.live += 1;
        self.used = true;
    }

    pub(crate) fn closed(&mut self) {
        self.live -= 1;
    }
}

/// `None` when /proc does not tell, which is then the same for every thread.
fn namespace_of_thread() -> Option<Namespace> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").ok()?;
    Some((namespace.dev(), namespace.ino()))
}
