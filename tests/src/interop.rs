//! The interop tests' set-up: an RNIC on one end of a cable, a peer that is not ours on the other.

use crate::daemon::{self, Daemon, DaemonOptions};
use crate::lab::{Host, INTERFACE, Lab, Outlet, Signal, Wiring};
use crate::linksim::Linksim;
use crate::peer::{Peer, PeerOptions};

/// IP MTU of the cable, in bytes.
const MTU: u32 = 1500;

/// A host with a daemon, and a peer. Fields are dropped in this order.
#[derive(Debug)]
pub struct Interop {
    pub daemon: Daemon,
    pub peer: Peer,
    options: DaemonOptions,
    link: Option<Linksim>,
    pub host: Host,
    /// Where the peer is plugged in.
    pub outlet: Outlet,
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
        let started = Daemon::start(&lab, &host, daemon);
        Self {
            daemon: started,
            peer,
            options: daemon.clone(),
            link: None,
            host,
            outlet,
            lab,
        }
    }

    /// A stock siw behind a link that forwards nothing before [`link`](Self::link); XDP in native
    /// mode.
    #[must_use]
    pub fn over(name: &str) -> Self {
        let native = DaemonOptions {
            mode: Some("native"),
            ..DaemonOptions::default()
        };
        Self::with(name, Wiring::Over, &native, &PeerOptions::default())
    }

    /// Kills the daemon without a warning.
    pub fn kill_daemon(&mut self) {
        self.daemon.signal(Signal::KILL);
        daemon::assert_nothing_attached(&self.host.namespace, INTERFACE);
    }

    /// Starts a daemon like the one that was killed, in its place.
    pub fn start_daemon(&mut self) {
        self.daemon = Daemon::start(&self.lab, &self.host, &self.options);
    }

    /// Joins host and peer by a link with these options of linksim's, in place of the one there was.
    /// The host is on its left.
    pub fn link(&mut self, options: &[&str]) {
        let middle = self.outlet.middle.as_ref();
        let middle = middle.expect("a set-up with something between host and peer");
        self.link = None;
        self.link = Some(Linksim::start(middle, options));
    }
}
