//! Ports that identifiers of this process hold. The RNIC has a port from listening or connecting on; a second
//! identifier is refused when it is bound, as the kernel's connection manager does it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use rustix::io::Errno;

use crate::ffi::{Fail, Outcome};
use crate::lock;
use crate::per_process::PerProcess;

/// By port: the addresses, and whether the holder lets others have them too.
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<HashMap<u16, Vec<(IpAddr, bool)>>>);

static PORTS: PerProcess<Ports> = PerProcess::new(Ports::default);

/// Those of this process.
pub(crate) fn ports() -> &'static Ports {
    PORTS.get()
}

/// A port is held as long as this lives.
#[derive(Debug)]
pub(crate) struct Held {
    ports: &'static Ports,
    port: u16,
    address: (IpAddr, bool),
}

impl Ports {
    /// Takes a port that nobody holds, or only such identifiers as let others have it
    /// (`RDMA_OPTION_ID_REUSEADDR`), and this one does too.
    pub(crate) fn hold(&'static self, local: SocketAddr, reuse: bool) -> Outcome<Held> {
        let (port, address) = (local.port(), (local.ip(), reuse));
        let mut all = lock(&self.0);
        let holders = all.entry(port).or_default();
        let is_held = holders
            .iter()
            .any(|(held, reused)| meet(*held, local.ip()) && !(reuse && *reused));
        if is_held {
            let why = format!("another identifier of this program holds {local}");
            return Err(Fail::of(Errno::ADDRINUSE, why));
        }
        holders.push(address);
        Ok(Held {
            ports: self,
            port,
            address,
        })
    }
}

/// Whether a peer's connection could be to either.
fn meet(a: IpAddr, b: IpAddr) -> bool {
    a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified())
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut all = lock(&self.ports.0);
        let Some(holders) = all.get_mut(&self.port) else {
            return;
        };
        if let Some(own) = holders.iter().position(|held| *held == self.address) {
            holders.swap_remove(own);
        }
        if holders.is_empty() {
            all.remove(&self.port);
        }
    }
}
