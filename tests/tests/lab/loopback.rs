//! Two programs of one host by one daemon: `rnicd --loopback`, which has no interface and no privilege,
//! and the addresses of a daemon that has an interface.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rnic::embedded::{Device, DeviceConfig, Runtime};
use rnic::{Context, WcStatus, WorkRequest};
use rnic_tests::daemon::{Daemon, DaemonOptions};
use rnic_tests::kills::{Ground, Held, Kills};
use rnic_tests::lab::{Command, Family, Lab, LinkOptions, Namespace, Process};
use rnic_tests::tshark::Dissection;
use rnic_tests::user::run_as;
use rnic_tests::verbs::{Endpoint, connect};
use rnic_tests::{binary, tool};

const PORT: u16 = 18515;
/// A user that no host has.
const USER: u32 = 64_716;
const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];
/// How soon the other side must know.
const SOON: Duration = Duration::from_secs(90);

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse::<IpAddr>().unwrap(), PORT)
}

/// A namespace whose own loopback interface is down, and a user there who has nothing but a directory.
struct Nobody {
    namespace: Namespace,
    directory: PathBuf,
    programs: PathBuf,
}

impl Nobody {
    fn new(lab: &mut Lab) -> Self {
        let namespace = lab.namespace("host");
        let programs = lab.directory().join("bin");
        let directory = lab.directory().join("run");
        for path in [&programs, &directory] {
            fs::create_dir(path).unwrap();
        }
        for path in [lab.directory(), &programs] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(&directory, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&directory, Some(USER), Some(USER)).unwrap();
        for program in ["rnicd", "rnic-ping", "rnic-perf"] {
            let _ = binary::copy(program, &programs);
        }
        Self {
            namespace,
            directory,
            programs,
        }
    }

    /// What this user does, who has no capability and can get none.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let directory = self.directory.display();
        self.namespace
            .command("setpriv")
            .args([
                &format!("--reuid={USER}"),
                &format!("--regid={USER}"),
                "--clear-groups",
                "--inh-caps=-all",
                "--ambient-caps=-all",
                "--bounding-set=-all",
                "--no-new-privs",
            ])
            .args(["env", &format!("XDG_RUNTIME_DIR={directory}")])
            .arg(program)
    }

    fn tool(&self, program: &str, role: &str) -> Command {
        self.command(self.programs.join(program))
            .label(&format!("{program}-{role}"))
            .arg(role)
    }

    fn daemon(&self, arguments: &[&str]) -> Daemon {
        let command = self.command(self.programs.join("rnicd"));
        let command = command.arg("--loopback").args(arguments);
        let socket = self.directory.join("rnicd.sock");
        Daemon::started(command, &self.namespace, &socket, None)
    }

    fn server(&self, program: &str, at: SocketAddr) -> Process {
        let server = self.tool(program, "server");
        let mut server = server.args(["--listen", &at.to_string()]).spawn();
        let listens = server.says("listening", tool::LISTEN_LIMIT);
        listens.unwrap_or_else(|error| panic!("{error}"));
        server
    }

    fn client(&self, program: &str, to: SocketAddr, more: &[&str]) -> Command {
        let client = self.tool(program, "client");
        client
            .args(["--connect", &to.to_string(), "--json"])
            .args(more)
    }
}

#[test]
fn a_user_without_any_capability_has_an_rnic_by_the_loopback() {
    let mut lab = Lab::new("loopback-nobody");
    let nobody = Nobody::new(&mut lab);
    let daemon = nobody.daemon(&[]);
    let mode = fs::metadata(daemon.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "others may not connect");
    for address in LOOPBACK {
        let to = at(address);
        let ping = nobody.server("rnic-ping", to);
        let rounds = ["--size", "60000", "--count", "20"];
        let _ = nobody.client("rnic-ping", to, &rounds).run().success();
        drop(ping);
        let _perf = nobody.server("rnic-perf", to);
        for op in ["write", "send", "read"] {
            let more = [
                "--op",
                op,
                "--size",
                "300000",
                "--iterations",
                "100",
                "--verify",
            ];
            let done = nobody.client("rnic-perf", to, &more).run().success();
            let bytes = tool::report(&done)["verified_bytes"].as_u64();
            assert_eq!(bytes, Some(300_000 * 100), "{op}");
        }
        let more = [
            "--op",
            "write",
            "--latency",
            "--size",
            "64",
            "--iterations",
            "500",
        ];
        let _ = nobody.client("rnic-perf", to, &more).run().success();
    }
    let _ = daemon.stop();
    assert_eq!(fs::read_dir(&nobody.directory).unwrap().count(), 0);
}

/// A tool in a user, mount, network and PID namespace of its own, in which the daemon's socket is bound to the
/// file `name`.
fn contained(nobody: &Nobody, daemon: &Daemon, name: &str, tool: &str) -> Command {
    let place = nobody.directory.join(name);
    fs::write(&place, "").unwrap();
    std::os::unix::fs::chown(&place, Some(USER), Some(USER)).unwrap();
    let script = format!(
        "mount --bind {} {} && unset XDG_RUNTIME_DIR && RNIC_SOCKET={} exec {}/{tool}",
        daemon.socket().display(),
        place.display(),
        place.display(),
        nobody.programs.display(),
    );
    let container = nobody.command("unshare").args([
        "--user",
        "--map-root-user",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
    ]);
    container.arg(script)
}

#[test]
fn containers_with_nothing_but_the_socket_have_an_rnic_by_the_loopback() {
    let mut lab = Lab::new("loopback-container");
    let nobody = Nobody::new(&mut lab);
    let daemon = nobody.daemon(&[]);
    let mut server = contained(&nobody, &daemon, "server", "rnic-ping server").spawn();
    server.says("listening", SOON).unwrap();
    let client = format!("rnic-ping client {} --count 5", at("127.0.0.1"));
    let said = contained(&nobody, &daemon, "client", &client).run();
    let said = said.success().stdout;
    assert!(said.contains("5 rounds of 64 bytes, all equal"), "{said}");
    assert_eq!(run_as(USER, || daemon.counter("passive_opens")), 1);
}

#[test]
fn a_daemon_of_a_user_says_what_to_do_when_there_is_no_place_for_its_socket() {
    let mut lab = Lab::new("loopback-nowhere");
    let namespace = lab.namespace("host");
    let rnicd = |arguments: &[&str]| {
        let command = namespace.command("env").args(["-u", "XDG_RUNTIME_DIR"]);
        let command = command.arg(binary::path("rnicd")).args(arguments);
        command.run().failure()
    };
    let error = rnicd(&["--loopback"]);
    assert!(error.contains("XDG_RUNTIME_DIR is not set"), "{error}");
    assert!(error.contains("--socket"), "{error}");
    let error = rnicd(&["--loopback", "--interface", "eth0"]);
    assert!(error.contains("leave one of them out"), "{error}");
    let error = rnicd(&["--loopback", "--queues", "2"]);
    assert!(error.contains("only interfaces have queues"), "{error}");
}

/// Two users' daemons beside each other, with listeners at the same port.
#[test]
fn ports_of_the_loopback_are_each_daemons_own() {
    let mut lab = Lab::new("loopback-ports");
    let nobody = Nobody::new(&mut lab);
    let first = nobody.daemon(&[]);
    let socket = lab.directory().join("second.sock");
    let second = nobody.namespace.command(binary::path("rnicd"));
    let second = second.args(["--loopback", "--socket"]).arg(&socket);
    let second = Daemon::started(second, &nobody.namespace, &socket, None);
    let to = at("127.0.0.1");
    let _servers = [
        nobody.server("rnic-ping", to),
        tool::server(&second, "rnic-ping", to, &[]),
    ];
    let rounds = ["--count", "3"];
    for client in [
        nobody.client("rnic-ping", to, &rounds),
        tool::client(&second, "rnic-ping", to, &rounds),
    ] {
        let _ = client.run().success();
    }
    assert_eq!(run_as(USER, || first.counter("passive_opens")), 1);
    assert_eq!(second.counter("passive_opens"), 1);
}

#[test]
fn tshark_dissects_what_a_capture_of_the_loopback_holds() {
    let mut lab = Lab::new("loopback-capture");
    let nobody = Nobody::new(&mut lab);
    let capture = nobody.directory.join("all.pcapng");
    let daemon = nobody.daemon(&["--capture", capture.to_str().unwrap()]);
    let to = at("127.0.0.1");
    let _server = nobody.server("rnic-ping", to);
    let rounds = ["--size", "4096", "--count", "5"];
    let _ = nobody.client("rnic-ping", to, &rounds).run().success();
    let _ = daemon.stop();
    let found = Dissection::of(&capture);
    assert_eq!(found.frames, found.tcp, "{found:?}");
    assert_eq!((found.requests, found.replies), (1, 1), "{found:?}");
    for opcode in ["Read Request", "Read Response", "Write", "Send"] {
        assert!(found.opcode(opcode) >= 5, "{opcode}: {found:?}");
    }
    assert_eq!(found.good_crcs + found.bad_crcs, 0, "no CRC is used");
}

/// The client is notified by its connection, the server goes on with the next client.
#[test]
fn either_side_of_a_loopback_that_is_killed_ends_the_other_and_leaves_nothing_behind() {
    let mut lab = Lab::new("loopback-killed");
    let nobody = Nobody::new(&mut lab);
    let daemon = nobody.daemon(&[]);
    let kills = Kills {
        count: 20,
        latest: Duration::from_millis(300),
        servers_too: true,
    };
    kills.leave_nothing_behind(&mut Served { nobody, daemon });
}

/// A user and the daemon that this user runs.
struct Served {
    nobody: Nobody,
    daemon: Daemon,
}

impl Ground for Served {
    fn server(&self) -> Process {
        self.nobody.server("rnic-perf", at(LOOPBACK[0]))
    }

    fn client(&self, operation: &str, length: [&str; 2]) -> Command {
        let more = ["--op", operation, "--size", "300000", "--depth", "4"];
        let client = self.nobody.client("rnic-perf", at(LOOPBACK[0]), &more);
        client.args(length)
    }

    fn held(&self) -> Held {
        let daemon = &self.daemon;
        run_as(USER, || {
            Held::of(&[daemon], vec![daemon.counter("frames_free")])
        })
    }

    fn assert_alive(&mut self) {
        self.daemon.assert_alive();
    }
}

/// Not a frame of it goes over the interface.
#[test]
fn a_daemon_of_an_interface_connects_its_own_addresses() {
    let mut lab = Lab::new("loopback-beside");
    let (host, _) = lab.pair(&LinkOptions::default());
    let daemon = Daemon::start(&lab, &host, &DaemonOptions::default());
    let mut addresses = Family::ALL
        .map(|family| host.address(family, PORT))
        .to_vec();
    addresses.extend(LOOPBACK.map(at));
    for to in addresses {
        let server = tool::server(&daemon, "rnic-ping", to, &[]);
        let _ = tool::client(
            &daemon,
            "rnic-ping",
            to,
            &["--size", "50000", "--count", "5"],
        )
        .run()
        .success();
        drop(server);
    }
    assert_eq!(daemon.counter("established"), 8);
    assert_eq!(daemon.counter("port0_transmitted"), 0);
}

#[test]
fn a_daemon_that_is_told_not_to_connects_no_addresses_of_its_own() {
    let mut lab = Lab::new("loopback-off");
    let (host, _) = lab.pair(&LinkOptions::default());
    let options = DaemonOptions {
        arguments: vec!["--no-loopback".to_owned()],
        ..DaemonOptions::default()
    };
    let daemon = Daemon::start(&lab, &host, &options);
    let own = host.address(Family::V4, PORT);
    let _server = tool::server(&daemon, "rnic-ping", own, &[]);
    let client = tool::command(&daemon, "rnic-ping", "client");
    let error = client.args(["--connect", &own.to_string()]).run().failure();
    assert!(error.contains("address of this host itself"), "{error}");
}

/// Two clients of one program, and one client to itself; no daemon.
#[test]
fn embedded_programs_connect_to_themselves() {
    for runtime in [Runtime::Thread, Runtime::Caller] {
        let mut config = DeviceConfig::loopback();
        config.runtime = runtime;
        let device = Device::open(config).unwrap();
        let contexts = [(); 2].map(|()| Context::embedded(&device).unwrap());
        for pair in [[0, 1], [0, 0]] {
            for address in LOOPBACK {
                let end = |index: usize| Endpoint::of(contexts[index].clone(), 100_000);
                let [near, far] = pair.map(end);
                connect(&near, &far, at(address));
                near.fill(7);
                far.post_recv(3, 0..1);
                let element = near.element(0..near.region.len());
                near.post(WorkRequest::write(1, &[element], far.remote()));
                near.post(WorkRequest::send(2, &[near.element(0..1)]));
                let done = [&near, &near, &far].map(Endpoint::completion);
                assert!(done.iter().all(|one| one.status == WcStatus::Success));
                assert!(far.holds(7), "{address}");
            }
        }
    }
}
