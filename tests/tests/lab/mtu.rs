//! An interface's MTU changes while it is open.

use std::time::Duration;

use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::lab::{Family, Host, INTERFACE, Lab, LinkOptions};
use rnic_tests::{tool, wait};

const PORT: u16 = 18515;
const LIMIT: Duration = Duration::from_secs(30);

fn set_mtu(hosts: [&Host; 2], mtu: u32) {
    for host in hosts {
        let mtu = mtu.to_string();
        let words = ["link", "set", "dev", INTERFACE, "mtu", &mtu];
        host.namespace.ip(&words);
    }
}

fn transfer(from: &Daemon, to: &Daemon, host: &Host, family: Family) {
    let at = host.address(family, PORT);
    let server = tool::server(to, "rnic-perf", at, &[]);
    let done = tool::client(from, "rnic-perf", at, &["--bytes", "4M", "--verify"]).run();
    let verified = &tool::report(&done.success())["verified_bytes"];
    assert!(verified.as_u64() > Some(0), "{verified}");
    drop(server);
}

#[test]
fn new_connections_have_what_the_frames_carry_after_the_mtu_was_raised() {
    let mut lab = Lab::new("raised");
    let (a, b) = lab.pair(&LinkOptions::default());
    let options = DaemonOptions::default();
    let [of_a, of_b] = [&a, &b].map(|host| Daemon::start(&lab, host, &options));
    // While there are clients the interface is not opened again.
    let _clients = [&of_a, &of_b].map(|daemon| daemon.open());
    for mtu in [2000, 3000, 1280] {
        set_mtu([&a, &b], mtu);
        let followed = format!("MTU {mtu}, was");
        for daemon in [&of_a, &of_b] {
            wait::until("the MTU is followed", LIMIT, || {
                daemon.log().contains(&followed).then_some(())
            });
        }
        for family in Family::ALL {
            transfer(&of_a, &of_b, &b, family);
        }
        // No path changes with an MTU that frames don't carry.
        let moved = of_a.log().contains("has changed: ");
        assert!(mtu < 1500 || !moved, "{}", of_a.log());
    }
}
