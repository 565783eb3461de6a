//! The laboratory's standard set-up: two hosts on a cable, an RNIC on each.

use std::path::PathBuf;

use crate::daemon::{Daemon, DaemonOptions};
use crate::lab::{Host, Lab, LinkOptions};

/// Two hosts with a daemon each. Fields are dropped in this order: daemons first.
#[derive(Debug)]
pub struct Pair {
    /// The RNIC of `a`.
    pub daemon_a: Daemon,
    /// The RNIC of `b`.
    pub daemon_b: Daemon,
    /// The first host; tests run clients here.
    pub a: Host,
    /// The second host; tests run servers here.
    pub b: Host,
    /// What the hosts live in.
    pub lab: Lab,
}

impl Pair {
    /// A pair with everything at its default.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::with(name, &LinkOptions::default(), &DaemonOptions::default())
    }

    /// A pair with a link and daemons of a certain kind.
    #[must_use]
    pub fn with(name: &str, link: &LinkOptions, daemon: &DaemonOptions) -> Self {
        Self::with_each(name, link, [daemon; 2])
    }

    /// A pair with a link and daemons of a kind each.
    #[must_use]
    pub fn with_each(name: &str, link: &LinkOptions, daemons: [&DaemonOptions; 2]) -> Self {
        let mut lab = Lab::new(name);
        let (a, b) = lab.pair(link);
        let daemon_a = Daemon::start(&lab, &a, daemons[0]);
        let daemon_b = Daemon::start(&lab, &b, daemons[1]);
        Self {
            daemon_a,
            daemon_b,
            a,
            b,
            lab,
        }
    }

    /// Ends both daemons: their captures, whole, and the directory in which they are.
    #[must_use]
    pub fn captures(self) -> (Lab, [PathBuf; 2]) {
        let Self {
            daemon_a,
            daemon_b,
            lab,
            ..
        } = self;
        let captures = [daemon_a, daemon_b].map(|daemon| {
            let capture = daemon.capture().to_path_buf();
            let _ = daemon.stop();
            capture
        });
        (lab, captures)
    }
}
