//! `rnicd` on a host of the lab.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rnic::admin::{Kind, Object};

use crate::binary;
use crate::lab::{
    Command, Finished, Host, INTERFACE, Lab, Namespace, Process, Signal, default_queues,
};
use crate::wait;

/// How long a daemon may take until it serves.
const READY_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub struct DaemonOptions {
    /// Writes all its frames to `<socket>.pcapng`.
    pub capture: bool,
    /// `--queues`, when given.
    pub queues: Option<u32>,
    /// `--mode`: native, generic, super-packets or auto, when given.
    pub mode: Option<&'static str>,
    /// `--udp` in the stead of an interface, in a process that has no capability and can get none.
    pub udp: bool,
    pub arguments: Vec<String>,
}

/// A configuration in the lab's directory, which everybody may enter: its file, and the options of a daemon with it.
#[must_use]
pub fn configuration(lab: &Lab, lines: &str) -> (PathBuf, DaemonOptions) {
    let everybodys = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(lab.directory(), everybodys).expect("it is ours");
    let file = lab.directory().join("rnicd.toml");
    configure(&file, lines);
    let options = DaemonOptions {
        arguments: vec!["--config".to_owned(), file.display().to_string()],
        ..DaemonOptions::default()
    };
    (file, options)
}

/// Writes a configuration of the lab's interface that ends with these lines.
pub fn configure(file: &Path, lines: &str) {
    let all = format!("interface = \"{INTERFACE}\"\nidle_spin = 20\n{lines}\n");
    std::fs::write(file, all).expect("the directory is ours");
}

/// A running `rnicd`. Dropping it kills it. A test fails whose daemon had a segment that it could not send.
#[derive(Debug)]
pub struct Daemon {
    // Before the process ends.
    all_sent: AllSent,
    process: Process,
    namespace: Namespace,
    socket: PathBuf,
    capture: Option<PathBuf>,
}

impl Daemon {
    /// Opens the device that it serves.
    #[must_use]
    #[track_caller]
    pub fn open(&self) -> rnic::Context {
        let opened = rnic::Daemon::at(self.socket()).and_then(|daemon| daemon.open(None));
        opened.expect("the daemon serves")
    }

    /// Starts a daemon for the host's end of its link and waits until it serves.
    #[must_use]
    pub fn start(lab: &Lab, host: &Host, options: &DaemonOptions) -> Self {
        let socket = lab
            .directory()
            .join(format!("{}.sock", host.namespace.name()));
        Self::serve(&host.namespace, INTERFACE, &socket, options)
    }

    /// Starts a daemon for any interface and waits until it serves.
    #[must_use]
    pub fn serve(
        namespace: &Namespace,
        interface: &str,
        socket: &Path,
        options: &DaemonOptions,
    ) -> Self {
        let mut command = match options.udp {
            true => without_interface(namespace, socket),
            false => command(namespace, interface, socket),
        };
        let capture = options.capture.then(|| socket.with_extension("pcapng"));
        if let Some(capture) = &capture {
            command = command.arg("--capture").arg(capture);
        }
        if let Some(queues) = options.queues {
            command = command.args(["--queues", &queues.to_string()]);
        }
        if let Some(mode) = options.mode {
            command = command.args(["--mode", mode]);
        }
        if !options.udp
            && default_queues() > 1
            && !options.arguments.iter().any(|said| said == "--shards")
        {
            command = command.args(["--shards", "auto"]);
        }
        let command = command.args(&options.arguments);
        Self::started(command, namespace, socket, capture)
    }

    /// Starts a daemon by a command that was made for it, and waits until it serves.
    #[must_use]
    pub fn started(
        command: Command,
        namespace: &Namespace,
        socket: &Path,
        capture: Option<PathBuf>,
    ) -> Self {
        let mut process = command.spawn();
        let serves = process.says("ready: listening", READY_LIMIT);
        serves.unwrap_or_else(|error| panic!("{error}"));
        assert!(
            socket.exists(),
            "no socket of a ready rnicd: {}",
            process.stderr()
        );
        Self {
            all_sent: AllSent {
                process: process.id(),
                socket: socket.to_path_buf(),
            },
            process,
            namespace: namespace.clone(),
            socket: socket.to_path_buf(),
            capture,
        }
    }

    /// The Unix socket that clients connect to; reachable from every namespace.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The capture file, complete once the daemon has ended.
    #[must_use]
    pub fn capture(&self) -> &Path {
        self.capture
            .as_deref()
            .expect("the test asked for a capture")
    }

    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// All of the RNIC's counters.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let context = rnic::Daemon::at(&self.socket)
            .and_then(|it| it.open(None))
            .expect("the daemon serves");
        let counters = context.counters().expect("the daemon tells its counters");
        counters.into_iter().collect()
    }

    /// One of the RNIC's counters.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.counters();
        let found = counters.get(name);
        *found.unwrap_or_else(|| panic!("no counter {name} in {counters:?}"))
    }

    /// Connections that are not over: those in TIME-WAIT, which last a minute, are.
    #[must_use]
    pub fn live_connections(&self) -> usize {
        let context = rnic::Daemon::at(&self.socket)
            .and_then(|it| it.open(None))
            .expect("the daemon serves");
        let all = context.inspect(Kind::Connections);
        let all = all.expect("the daemon tells its connections");
        let lives = |object: &&Object| match object {
            Object::Connection(one) => one.state != "TIME-WAIT",
            _ => false,
        };
        all.iter().filter(lives).count()
    }

    /// Bytes of memory that it has touched and that are its (resident set size).
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.unwrap_or(0_u64) << 10
    }

    /// How many memfds it has mapped: rings of clients and registered memory.
    #[must_use]
    pub fn shared_mappings(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process.id()));
        maps.map_or(0, |maps| maps.matches("/memfd:").count())
    }

    #[must_use]
    pub fn open_files(&self) -> usize {
        let directory = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(directory).map_or(0, Iterator::count)
    }

    #[must_use]
    pub fn mappings(&self) -> usize {
        let path = format!("/proc/{}/maps", self.process.id());
        std::fs::read_to_string(path).map_or(0, |maps| maps.lines().count())
    }

    #[must_use]
    pub fn threads(&self) -> usize {
        let directory = format!("/proc/{}/task", self.process.id());
        std::fs::read_dir(directory).map_or(0, Iterator::count)
    }

    /// What it has logged until now.
    #[must_use]
    pub fn log(&self) -> String {
        format!("{}{}", self.process.stdout(), self.process.stderr())
    }

    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Has it stand still (SIGSTOP) until it is told to go on, and waits until no thread of it runs: one on
    /// another processor goes on for a moment.
    #[track_caller]
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.id());
        wait::until(
            "no thread of the daemon runs",
            Duration::from_secs(30),
            || {
                let mut tasks = std::fs::read_dir(&tasks).ok()?.flatten();
                let stands = |status: String| status.contains("State:\tT");
                let all = tasks.all(|task| {
                    std::fs::read_to_string(task.path().join("status")).is_ok_and(stands)
                });
                all.then_some(())
            },
        );
    }

    /// Panics if it is not running any more.
    #[track_caller]
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.process.status() {
            panic!("rnicd has ended: {status}\n{}", self.log());
        }
    }

    /// Sends SIGTERM and waits for a clean end.
    #[track_caller]
    pub fn stop(self) -> Finished {
        drop(self.all_sent);
        self.process.terminate().success()
    }

    /// Kills it without a warning and waits until it is gone.
    pub fn kill(mut self) {
        drop(self.all_sent);
        self.process.kill();
    }
}

/// At the end of a daemon that still serves: all that its TCP and SCTP gave to be sent had a way.
#[derive(Debug)]
struct AllSent {
    process: u32,
    socket: PathBuf,
}

impl Drop for AllSent {
    fn drop(&mut self) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process));
        let serves = status.is_ok_and(|status| {
            let state = status.lines().find(|line| line.starts_with("State:"));
            // Neither gone nor stopped by the test.
            state.is_some_and(|state| !state.contains(['T', 'Z']))
        });
        if std::thread::panicking() || !serves {
            return;
        }
        // A test may have had it serve no more clients.
        let Ok(context) = rnic::Daemon::at(&self.socket).and_then(|it| it.open(None)) else {
            return;
        };
        let counters = context.counters().expect("the daemon tells its counters");
        let unsendable = counters.iter().find(|(name, _)| name == "unsendable");
        let (_, segments) = unsendable.expect("the counter of segments that had no way");
        assert_eq!(*segments, 0, "segments that did not leave");
    }
}

/// An `rnicd` that is yet to be started, for tests of what it refuses.
#[must_use]
pub fn command(namespace: &Namespace, interface: &str, socket: &Path) -> Command {
    namespace
        .command(binary::path("rnicd"))
        .args(["--interface", interface, "--socket"])
        .arg(socket)
        .limit(READY_LIMIT)
}

/// An `rnicd --udp` that is yet to be started, without any capability.
fn without_interface(namespace: &Namespace, socket: &Path) -> Command {
    namespace
        .command("setpriv")
        .label("rnicd")
        .args(NO_CAPABILITIES)
        .arg(binary::path("rnicd"))
        .args(["--udp", "--socket"])
        .arg(socket)
        .limit(READY_LIMIT)
}

/// Options of `setpriv` for a program that has no capability and can get none.
pub const NO_CAPABILITIES: [&str; 4] = [
    "--inh-caps=-all",
    "--ambient-caps=-all",
    "--bounding-set=-all",
    "--no-new-privs",
];

/// Whether an XDP program is attached to the interface.
#[must_use]
pub fn xdp_attached(namespace: &Namespace, interface: &str) -> bool {
    namespace
        .ip(&["-d", "link", "show", "dev", interface])
        .contains("xdp")
}

/// Panics unless the interface loses its XDP program soon: the kernel detaches a killed process's
/// program a moment after the process is gone.
pub fn assert_nothing_attached(namespace: &Namespace, interface: &str) {
    wait::until(
        "nothing is attached to the interface",
        Duration::from_secs(30),
        || (!xdp_attached(namespace, interface)).then_some(()),
    );
}

/// The metrics that a daemon serves at a Unix socket.
#[must_use]
pub fn scrape(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).expect("the metrics' socket");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
