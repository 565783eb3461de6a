//! The interop tests' set-up: an RNIC on one end of a cable, a peer that is not ours on the other.

use crate::daemon::{Daemon, DaemonOptions};
use crate::lab::{Host, Lab, Outlet, Wiring};
use crate::peer::{Peer, PeerOptions};

/// IP MTU of the cable, in octets.
const MTU: u32 = 1500;

/// A host with a daemon, and a peer. Fields are dropped in this order.
#[derive(Debug)]
pub struct Interop {
    /// The RNIC.
    pub daemon: Daemon,
    /// The machine with siw.
    pub peer: Peer,
    /// The host that the daemon is of.
    pub host: Host,
    /// Where the peer is plugged in.
    pub outlet: Outlet,
    /// What all live in.
    pub lab: Lab,
}

impl Interop {
    /// A stock siw behind a bridge; XDP in native mode.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let native = DaemonOptions {
            mode: Some("native"),
            ..DaemonOptions::default()
        };
        Self::with(name, Wiring::Bridged, &native, &PeerOptions::default())
    }

    /// A daemon and a peer of a certain kind, on a certain cable.
    #[must_use]
    pub fn with(name: &str, wiring: Wiring, daemon: &DaemonOptions, peer: &PeerOptions) -> Self {
        let mut lab = Lab::new(name);
        let (host, outlet) = lab.outlet(wiring, MTU);
        let peer = Peer::boot(&lab, &outlet, peer);
        let daemon = Daemon::start(&lab, &host, daemon);
        Self {
            daemon,
            peer,
            host,
            outlet,
            lab,
        }
    }
}
