//! What the kernel knows of the way to a peer that no frame tells: the route's MTU, and whether the
//! neighbour that frames go to is still there.

use std::net::IpAddr;
use std::time::Duration;

use rnic_host::{Interface, Netlink, Refusal, find_way, route_mtu};
use rnic_net::Path;
use userspace_net::{FourTuple, Instant};

/// Peers whose route is asked for in a second, for whoever likes can send a SYN. Those beyond get
/// the interface's MTU, which path MTU discovery corrects.
const QUESTIONS_PER_SECOND: u32 = 100;

/// The kernel, with what it said last.
#[derive(Debug)]
pub(super) struct Host {
    netlink: Netlink,
    interface: Interface,
    last: Option<(FourTuple, u32)>,
    second: u64,
    questions: u32,
}

impl Host {
    pub(super) fn new(netlink: Netlink, interface: Interface) -> Self {
        Self {
            netlink,
            interface,
            last: None,
            second: 0,
            questions: 0,
        }
    }

    /// The MTU of the route from `tuple.local` to `tuple.remote`, in bytes of an IP packet; the
    /// interface's when the kernel does not say.
    pub(super) fn mtu(&mut self, now: Instant, tuple: &FourTuple) -> u32 {
        match self.last {
            Some((of, mtu)) if of == *tuple => mtu,
            _ => {
                let mtu = self.ask(now, tuple).unwrap_or(self.interface.defaults.mtu);
                self.last = Some((*tuple, mtu));
                mtu
            }
        }
    }

    fn ask(&mut self, now: Instant, tuple: &FourTuple) -> Option<u32> {
        let second = now.as_millis() / 1000;
        if second != self.second {
            (self.second, self.questions) = (second, 0);
        }
        if self.questions == QUESTIONS_PER_SECOND {
            return None;
        }
        self.questions += 1;
        let local = Some(tuple.local.addr);
        match route_mtu(&self.netlink, &self.interface, tuple.remote.addr, local) {
            Ok(mtu) => Some(mtu),
            Err(refusal) => {
                log::info!("{refusal}");
                None
            }
        }
    }

    /// The way to the peer as it is by now; the kernel makes sure of the neighbour, for at most
    /// `patience` if it knows nothing of it.
    ///
    /// # Errors
    ///
    /// Who does not answer, or that there is no route.
    pub(super) fn way(&self, tuple: &FourTuple, patience: Duration) -> Result<Path, Refusal> {
        let local: IpAddr = tuple.local.addr;
        let remote = tuple.remote.addr;
        let (_, path) = find_way(
            &self.netlink,
            &self.interface,
            remote,
            Some(local),
            Some(patience),
        )?;
        Ok(path)
    }
}
