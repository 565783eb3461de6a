//! One daemon with two interfaces: connections from an address of one to an address of the other, over the
//! internal link that joins their devices.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rnic::{
    ConnectOptions, Context, DeviceName, DisconnectReason, Error, ListenOptions, RefusalCode,
    WcStatus, WorkRequest,
};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::kills::{Ground, Held, Kills};
use rnic_tests::lab::{Command, FORKS, Family, Host, Lab, LinkOptions, Process};
use rnic_tests::tool;
use rnic_tests::tshark::Dissection;
use rnic_tests::verbs::{Endpoint, FULL_ACCESS, connect};
use rustix::fs::{MemfdFlags, SealFlags};

const PORT: u16 = 18540;
const BYTES: usize = 1 << 20;
/// How soon the other side must know.
const SOON: Duration = Duration::from_secs(90);

/// A daemon with two interfaces. Dropped in this order.
struct Joined {
    daemon: Daemon,
    hosts: [Host; 2],
    _far: [Host; 2],
    lab: Lab,
}

impl Joined {
    fn new(name: &str, arguments: &[&str]) -> Self {
        Self::with(name, arguments, &LinkOptions::default())
    }

    fn with(name: &str, arguments: &[&str], link: &LinkOptions) -> Self {
        let mut lab = Lab::new(name);
        let [(first, far1), (second, far2)] = lab.forked(link);
        let mut all = vec!["--interface".to_owned(), FORKS[1].to_owned()];
        let directory = lab.directory().display().to_string();
        all.extend(
            arguments
                .iter()
                .map(|one| one.replace("DIRECTORY", &directory)),
        );
        let options = DaemonOptions {
            arguments: all,
            ..DaemonOptions::default()
        };
        let socket = lab.directory().join("joined.sock");
        Self {
            daemon: Daemon::serve(&first.namespace, FORKS[0], &socket, &options),
            hosts: [first, second],
            _far: [far1, far2],
            lab,
        }
    }

    fn context(&self, device: usize) -> Context {
        let name = DeviceName::Interface(FORKS[device].to_owned());
        rnic::Daemon::at(self.daemon.socket())
            .and_then(|it| it.open(Some(&name)))
            .expect("the device")
    }

    fn at(&self, device: usize, family: Family, port: u16) -> SocketAddr {
        self.hosts[device].address(family, port)
    }

    /// A client of the other device than the one that has the address.
    fn client(&self, program: &str, to: usize, at: SocketAddr, more: &[&str]) -> Command {
        let client = tool::client(&self.daemon, program, at, more);
        client.args(["--device", FORKS[1 - to]])
    }

    fn counter(&self, device: usize, name: &str) -> u64 {
        let counters = self
            .context(device)
            .counters()
            .expect("the daemon tells its counters");
        let found = counters.iter().find(|(found, _)| found == name);
        found
            .unwrap_or_else(|| panic!("no counter {name} in {counters:?}"))
            .1
    }

    /// Ends of two devices; the first began.
    fn connection(&self, from: usize, port: u16) -> (Endpoint, Endpoint) {
        let near = Endpoint::of(self.context(from), BYTES);
        let far = Endpoint::of(self.context(1 - from), BYTES);
        connect(&near, &far, self.at(1 - from, Family::V4, port));
        (near, far)
    }
}

/// The first device has the clients, the second the server.
impl Ground for Joined {
    fn server(&self) -> Process {
        tool::server(&self.daemon, "rnic-perf", self.at(1, Family::V4, PORT), &[])
    }

    fn client(&self, operation: &str, length: [&str; 2]) -> Command {
        let more = ["--op", operation, "--size", "300000", "--depth", "4"];
        let at = self.at(1, Family::V4, PORT);
        Joined::client(self, "rnic-perf", 1, at, &more).args(length)
    }

    fn held(&self) -> Held {
        let frames = [0, 1].map(|device| self.counter(device, "frames_free"));
        Held::of(&[&self.daemon], frames.to_vec())
    }

    fn assert_alive(&mut self) {
        self.daemon.assert_alive();
    }
}

/// The first interface's AF_XDP socket is port 0, its internal link port 1.
#[track_caller]
fn assert_nothing_left_the_interfaces(joined: &Joined) {
    for device in 0..2 {
        assert_eq!(joined.counter(device, "port0_transmitted"), 0);
        assert_eq!(joined.counter(device, "port0_received"), 0);
        let link = ["transmitted", "received"].map(|name| format!("port1_{name}"));
        let link = link.map(|name| joined.counter(device, &name));
        assert!(link.iter().all(|count| *count > 0), "{link:?}");
        assert_eq!(joined.counter(device, "rx_martians"), 0);
    }
}

#[test]
fn a_client_of_one_interface_reaches_the_addresses_of_another_of_its_daemon() {
    let jumbo = LinkOptions {
        mtu: 9000,
        ..LinkOptions::default()
    };
    for (name, link) in [("joined", LinkOptions::default()), ("joined-9000", jumbo)] {
        let joined = Joined::with(name, &[], &link);
        for (to, family) in [
            (1, Family::V4),
            (1, Family::V6),
            (0, Family::V4),
            (0, Family::V6),
        ] {
            let at = joined.at(to, family, PORT);
            let ping = tool::server(&joined.daemon, "rnic-ping", at, &[]);
            let more = ["--size", "60000", "--count", "50"];
            let _ = joined.client("rnic-ping", to, at, &more).run().success();
            drop(ping);
            let _perf = tool::server(&joined.daemon, "rnic-perf", at, &[]);
            for op in ["write", "send", "read"] {
                let more = [
                    "--op",
                    op,
                    "--size",
                    "300000",
                    "--iterations",
                    "25",
                    "--verify",
                ];
                let done = joined.client("rnic-perf", to, at, &more).run().success();
                let bytes = tool::report(&done)["verified_bytes"].as_u64();
                assert_eq!(bytes, Some(300_000 * 25), "{op}");
            }
        }
        assert_nothing_left_the_interfaces(&joined);
        for device in 0..2 {
            assert_eq!(joined.counter(device, "established"), 16);
            // As on a link, what a full one loses is sent again; here nothing fills it.
            assert_eq!(joined.counter(device, "port1_receive_no_frame"), 0);
            assert_eq!(joined.counter(device, "port1_send_dropped"), 0);
        }
    }
}

/// A wake-up that is lost shows as a message that is sent again.
#[test]
fn shards_that_sleep_wake_each_other() {
    for polling in [&["--polling", "event"][..], &[]] {
        let joined = Joined::new("joined-sleep", polling);
        let at = joined.at(1, Family::V4, PORT);
        let _server = tool::server(&joined.daemon, "rnic-perf", at, &[]);
        for op in ["write", "send", "read"] {
            let more = [
                "--op",
                op,
                "--latency",
                "--size",
                "64",
                "--iterations",
                "5000",
            ];
            let done = joined.client("rnic-perf", 1, at, &more).run().success();
            let report = tool::report(&done);
            println!("{polling:?} {op}: {report}");
            let sum = |name| joined.counter(0, name) + joined.counter(1, name);
            // A processor that others need is late, too.
            let again = sum("tcp_timeouts") + sum("tcp_probes");
            assert!(again < 50, "{again} times, {polling:?} {op}: {report}");
        }
        assert_nothing_left_the_interfaces(&joined);
    }
}

#[test]
fn either_side_that_is_killed_ends_the_other_and_leaves_nothing_behind() {
    let mut joined = Joined::new("joined-killed", &[]);
    let kills = Kills {
        count: 20,
        latest: Duration::from_millis(300),
        servers_too: true,
    };
    kills.leave_nothing_behind(&mut joined);
    assert_nothing_left_the_interfaces(&joined);
}

fn memfd() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("rnic-tests", flags).expect("a memfd");
    rustix::fs::ftruncate(&fd, BYTES as u64).expect("memory");
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).expect("a seal");
    fd
}

fn content(memfd: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    let read = rustix::io::pread(memfd, &mut bytes, 0).expect("its bytes");
    assert_eq!(read, BYTES);
    bytes
}

/// RFC 5041 section 8.3.1: when revoking returns, nothing is written any more.
#[test]
fn a_region_that_is_revoked_while_it_is_written_to_is_out_of_reach_at_once() {
    let joined = Joined::new("joined-revoked", &[]);
    for round in 0..20 {
        let (near, far) = joined.connection(round % 2, PORT + round as u16);
        let memfd = memfd();
        let region = far.pd.register_fd(&memfd, 0, BYTES, FULL_ACCESS);
        let region = region.expect("a region");
        let remote = region.remote(0..BYTES).expect("all of it");
        let (begun, under_way) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                // Something else each time.
                for seed in 1.. {
                    near.fill(seed);
                    let all = [near.element(0..BYTES)];
                    (0..8).for_each(|id| near.post(WorkRequest::write(id, &all, remote)));
                    let done = [(); 8].map(|()| near.completion().status);
                    if done != [WcStatus::Success; 8] {
                        return;
                    }
                    let _ = begun.send(());
                }
            });
            under_way.recv_timeout(SOON).expect("a writer");
            std::thread::sleep(Duration::from_millis(3 * round as u64));
            drop(region);
            let then = content(&memfd);
            assert!(then.iter().any(|byte| *byte != 0), "nothing was written");
            writing.join().expect("a writer");
            assert!(content(&memfd) == then, "written after it was revoked");
        });
        assert!(matches!(
            near.ending(),
            DisconnectReason::TerminateReceived { .. }
        ));
        assert!(matches!(
            far.ending(),
            DisconnectReason::TerminateSent { .. }
        ));
    }
    assert_nothing_left_the_interfaces(&joined);
}

#[test]
fn captures_of_both_devices_show_what_goes_between_them() {
    let joined = Joined::new("joined-capture", &["--capture", "DIRECTORY/all.pcapng"]);
    let at = joined.at(1, Family::V6, PORT);
    let server = tool::server(&joined.daemon, "rnic-ping", at, &[]);
    let rounds = ["--size", "4096", "--count", "5"];
    let _ = joined.client("rnic-ping", 1, at, &rounds).run().success();
    drop(server);
    let _ = joined.daemon.stop();
    for interface in FORKS {
        let found = Dissection::of(
            &joined
                .lab
                .directory()
                .join(format!("all-{interface}.pcapng")),
        );
        assert_eq!(found.frames, found.tcp, "{interface}: {found:?}");
        assert_eq!(
            (found.requests, found.replies),
            (1, 1),
            "{interface}: {found:?}"
        );
        for opcode in ["Read Request", "Read Response", "Write", "Send"] {
            assert!(
                found.opcode(opcode) >= 5,
                "{interface}: {opcode}: {found:?}"
            );
        }
        assert!(
            found.good_crcs > 0 && found.bad_crcs == 0,
            "{interface}: {found:?}"
        );
    }
}

#[test]
fn an_interface_that_is_deleted_ends_its_connections_with_the_other() {
    let joined = Joined::new("joined-gone", &[]);
    let (near, far) = joined.connection(0, PORT);
    joined.hosts[0]
        .namespace
        .ip(&["link", "delete", "dev", FORKS[0]]);
    match near.qp.disconnected().wait(Duration::from_secs(30)) {
        Err(Error::Disconnected { reason, .. }) => {
            assert_eq!(reason, DisconnectReason::InterfaceGone);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(far.ending(), DisconnectReason::Reset);
    // Its addresses are nobody's.
    let late = Endpoint::of(joined.context(1), 4096);
    let at = joined.at(0, Family::V4, PORT);
    assert!(
        late.qp
            .connect(at, ConnectOptions::default())
            .wait(Duration::from_secs(10))
            .is_err()
    );
}

#[test]
fn what_can_not_be_connected_is_refused_by_name() {
    let joined = Joined::new("joined-refused", &[]);
    let near = Endpoint::of(joined.context(0), 4096);
    let refused = |to: SocketAddr, local: Option<&str>| {
        let options =
            ConnectOptions::default().local(local.map(|it| it.parse().expect("an address")));
        match near.qp.connect(to, options).wait(Duration::from_secs(10)) {
            Err(Error::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let (v4, v6) = (
        joined.at(1, Family::V4, PORT),
        joined.at(1, Family::V6, PORT),
    );
    let own = joined.at(0, Family::V4, PORT).ip().to_string();
    for (to, local, code) in [
        (v6, own.clone(), RefusalCode::Unreachable),
        (v4, "127.0.0.1".to_owned(), RefusalCode::Unreachable),
        (v4, v4.ip().to_string(), RefusalCode::AddressNotLocal),
    ] {
        let refusal = refused(to, Some(&local));
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.message.contains(FORKS[0]), "{refusal}");
    }
    // 127.0.0.1 is the first device's.
    let second = joined.context(1);
    let local = "127.0.0.1:7000";
    let _first = joined
        .context(0)
        .listen(local, ListenOptions::default().backlog(1))
        .expect("it may");
    let refusal = match second.listen(local, ListenOptions::default().backlog(1)) {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal.code, RefusalCode::AddressNotLocal, "{refusal}");
    assert!(refusal.message.contains(FORKS[1]), "{refusal}");
    drop(joined);

    let off = Joined::new("joined-off", &["--no-loopback"]);
    let near = Endpoint::of(off.context(0), 4096);
    match near
        .qp
        .connect(off.at(1, Family::V4, PORT), ConnectOptions::default())
        .wait(Duration::from_secs(10))
    {
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::Unreachable);
            assert!(
                refusal.message.contains("device whose interface"),
                "{refusal}"
            );
        }
        other => panic!("{other:?}"),
    }
}
