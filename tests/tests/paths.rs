//! Paths of several links: what routers say of segments, and what becomes of the connection.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use rnic::{ConnectOptions, DisconnectReason, Error};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, Lab, LinkOptions, Routers};
use rnic_tests::verbs::Endpoint;

const PORT: u16 = 18515;

/// Two hosts with an RNIC each, two routers between them. Daemons are dropped first.
struct Far {
    daemon_a: Daemon,
    daemon_b: Daemon,
    b: Host,
    routers: Routers,
    _lab: Lab,
}

impl Far {
    fn new(name: &str) -> Self {
        let mut lab = Lab::new(name);
        let (a, b, routers) = lab.routed(&LinkOptions::default());
        let daemon_a = Daemon::start(&lab, &a, &DaemonOptions::default());
        let daemon_b = Daemon::start(&lab, &b, &DaemonOptions::default());
        Self {
            daemon_a,
            daemon_b,
            b,
            routers,
            _lab: lab,
        }
    }
}

#[test]
fn a_connection_that_a_router_prohibits_is_refused_at_once() {
    let far = Far::new("prohibited");
    far.routers.prohibit(&far.b);
    for family in Family::ALL {
        let end = Endpoint::new(&far.daemon_a, 64);
        let start = Instant::now();
        let refused = end
            .qp
            .connect(far.b.address(family, PORT), ConnectOptions::default());
        match refused {
            Err(Error::ConnectFailed { reason, .. }) => {
                assert_eq!(reason, DisconnectReason::Refused, "{family:?}");
            }
            other => panic!("{family:?}: {other:?}"),
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{family:?}");
    }
    assert_eq!(far.daemon_a.counter("icmp_ignored"), 0);
    assert!(far.daemon_a.counter("steering_icmp_taken") >= 2);
    assert!(far.daemon_b.counter("established") == 0);
}
