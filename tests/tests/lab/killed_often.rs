//! Clients that are killed at any moment, a hundred of them or as many as `RNIC_TEST_KILLS` says, leave nothing behind.
//! Both daemons hold what they held before, in every table, and no descriptor, thread or mapping more.

use std::net::SocketAddr;
use std::time::Duration;

use rnic_tests::kills::{Ground, Held, Kills};
use rnic_tests::lab::{Command, Family, Process};
use rnic_tests::pair::Pair;
use rnic_tests::tool;

const PORT: u16 = 18515;

/// The first host has the clients, the second the server.
struct Hosts(Pair);

impl Hosts {
    fn at(&self) -> SocketAddr {
        self.0.b.address(Family::V4, PORT)
    }
}

impl Ground for Hosts {
    fn server(&self) -> Process {
        tool::server(&self.0.daemon_b, "rnic-perf", self.at(), &[])
    }

    fn client(&self, operation: &str, length: [&str; 2]) -> Command {
        let more = ["--op", operation, "--size", "30000", "--depth", "4"];
        tool::client(&self.0.daemon_a, "rnic-perf", self.at(), &more).args(length)
    }

    fn held(&self) -> Held {
        let daemons = [&self.0.daemon_a, &self.0.daemon_b];
        let frames = daemons.map(|daemon| daemon.counter("frames_free"));
        Held::of(&daemons, frames.to_vec())
    }

    fn assert_alive(&mut self) {
        self.0.daemon_a.assert_alive();
        self.0.daemon_b.assert_alive();
    }
}

#[test]
fn clients_that_are_killed_at_any_moment_leave_nothing_behind() {
    let mut hosts = Hosts(Pair::new("killed-often"));
    let counts =
        |hosts: &Hosts| ["active_opens", "established"].map(|name| hosts.0.daemon_a.counter(name));
    let before = counts(&hosts);
    let kills = Kills {
        count: 100,
        latest: Duration::from_millis(200),
        servers_too: false,
    };
    kills.leave_nothing_behind(&mut hosts);
    let [began, connected] = counts(&hosts);
    println!(
        "{} had begun to connect, {} were connected",
        began - before[0],
        connected - before[1],
    );
}
