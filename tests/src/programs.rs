//! Programs of the verbs as Debian builds them, run on the RNIC: two hosts with a daemon each, and this
//! build's `librnic_verbs.so` under the names that programs are linked with.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use rnic::admin::Kind;

use crate::binary;
use crate::daemon::{Daemon, DaemonOptions};
use crate::lab::{Command, Finished, Lab, LinkOptions, Namespace};
use crate::pair::Pair;
use crate::wait;

/// The names of the library. NCCL asks for those without a number first.
pub const NAMES: [&str; 4] = [
    "libibverbs.so",
    "libibverbs.so.1",
    "librdmacm.so",
    "librdmacm.so.1",
];

/// How long a program may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(30);

/// How often a pair of perftest's is begun anew.
const PERFTEST_ATTEMPTS: u32 = 5;

/// How often a measurement of qperf's is begun anew.
const QPERF_ATTEMPTS: u32 = 5;

/// This build's library, where programs find it.
#[derive(Debug)]
pub struct Library(PathBuf);

impl Library {
    /// In a lab's directory, once.
    #[must_use]
    pub fn new(lab: &Lab) -> Self {
        let directory = lab.directory().join("lib");
        std::fs::create_dir(&directory).expect("the lab's directory is ours");
        for name in NAMES {
            let file = binary::path("librnic_verbs.so");
            symlink(file, directory.join(name)).expect("the lab's directory is ours");
        }
        Self(directory)
    }

    /// A program on a daemon's host: its name and arguments, divided by spaces.
    #[must_use]
    pub fn command(&self, daemon: &Daemon, line: &str) -> Command {
        let socket = format!("RNIC_SOCKET={}", daemon.socket().display());
        self.with(daemon.namespace(), &socket, line)
    }

    /// A program in any namespace, which finds its RNIC by a variable of the environment.
    #[must_use]
    pub fn with(&self, namespace: &Namespace, variable: &str, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default();
        assert!(
            std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path)
                .any(|directory| directory.join(program).is_file())),
            "no program {program} here: run scripts/setup"
        );
        namespace
            .command("env")
            .label(program)
            .arg(format!("LD_LIBRARY_PATH={}", self.0.display()))
            .arg(variable)
            .arg(program)
            .args(words)
    }
}

/// Two hosts on which programs of the verbs run.
#[derive(Debug)]
pub struct Programs {
    /// The hosts and their daemons. Servers run on `b`.
    pub pair: Pair,
    library: Library,
}

impl Programs {
    /// The hosts, with everything at its default.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let options = DaemonOptions::default();
        Self::with_each(name, [&options, &options])
    }

    /// The hosts, with daemons of these options on `a` and `b`.
    #[must_use]
    pub fn with_each(name: &str, daemons: [&DaemonOptions; 2]) -> Self {
        Self::of(Pair::with_each(name, &LinkOptions::default(), daemons))
    }

    /// These hosts.
    #[must_use]
    pub fn of(pair: Pair) -> Self {
        let library = Library::new(&pair.lab);
        Self { pair, library }
    }

    /// A program on `a`: its name and arguments, divided by spaces.
    #[must_use]
    pub fn on_a(&self, line: &str) -> Command {
        self.library.command(&self.pair.daemon_a, line)
    }

    /// A program on `b`.
    #[must_use]
    pub fn on_b(&self, line: &str) -> Command {
        self.library.command(&self.pair.daemon_b, line)
    }

    /// A program in any namespace, which finds its RNIC by a variable of the environment.
    #[must_use]
    pub fn with(&self, namespace: &Namespace, variable: &str, line: &str) -> Command {
        self.library.with(namespace, variable, line)
    }

    /// A script that runs a command on `b`, as `ssh` would: its arguments are a host, which is `b` whatever it
    /// says, and the words of the command.
    #[must_use]
    pub fn remote_shell(&self) -> PathBuf {
        let daemon = &self.pair.daemon_b;
        let script = format!(
            "#!/bin/sh\nshift\nexec ip netns exec {} env LD_LIBRARY_PATH={} RNIC_SOCKET={} sh -c \"$*\"\n",
            daemon.namespace().name(),
            self.library.0.display(),
            daemon.socket().display(),
        );
        let place = self.pair.lab.directory().join("remote-shell");
        std::fs::write(&place, script).expect("the lab's directory is ours");
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).expect("it is ours");
        place
    }

    /// Runs a server on `b`, and when it listens a client on `a`, to both ends.
    #[track_caller]
    pub fn run(&self, server: &str, client: &str) -> Both {
        let daemon = &self.pair.daemon_b;
        wait_for_listeners(daemon, "the last server is gone", |count| count == 0);
        let server = self.on_b(server).spawn();
        self.wait_for_listener();
        let client = self.on_a(client).run();
        let server = server.finish(Duration::from_secs(30));
        Both { client, server }
    }

    /// The same for perftest, whose server listens a second time for what it measures, and does not tell
    /// its client when. A client that comes there too early is rejected, by any RDMA adapter, and both start over.
    #[track_caller]
    pub fn run_perftest(&self, line: &str) -> Both {
        for _ in 0..PERFTEST_ATTEMPTS {
            wait_for_listeners(&self.pair.daemon_b, "the last server is gone", |count| {
                count == 0
            });
            let mut server = self.on_b(line).spawn();
            self.wait_for_listener();
            let client = self.on_a(&format!("{line} {}", self.address())).run();
            if client.stderr.contains("RDMA_CM_EVENT_REJECTED") {
                server.kill();
                continue;
            }
            let server = server.finish(Duration::from_secs(30));
            return Both { client, server };
        }
        panic!("{line}: the client was rejected {PERFTEST_ATTEMPTS} times");
    }

    /// Runs the same program on both hosts, which connect their queue pairs by number: the server on `b`, the client on
    /// `a`. The client is begun anew until the server listens at its TCP port in the kernel.
    #[track_caller]
    pub fn run_by_number(&self, line: &str, server_address: &str) -> Both {
        let mut server = self.on_b(line).spawn();
        let client = wait::until("the server listens", LISTEN_LIMIT, || {
            let client = self.on_a(&format!("{line} {server_address}")).run();
            let too_early = client.stderr.contains("Couldn't connect to");
            (!too_early || !server.running()).then_some(client)
        });
        let server = server.finish(Duration::from_secs(30));
        Both { client, server }
    }

    /// Measurements of a second each by one qperf server. It forks for each, and tells the port before it listens
    /// there: a client that is quicker is rejected, and starts over.
    #[track_caller]
    pub fn run_qperf(&self, measurements: &[&str]) {
        let mut server = self.on_b("qperf").spawn();
        for measurement in measurements {
            let client = format!("qperf -t 1 {} -cm 1 {measurement}", self.address());
            let rejected =
                |run: &Finished| run.stdout.contains("rejected") || run.stderr.contains("rejected");
            let measured = (0..QPERF_ATTEMPTS)
                .map(|_| self.on_a(&client).run())
                .find(|run| !rejected(run))
                .expect("not rejected each time")
                .success();
            assert!(measured.stdout.contains(" = "), "{measured}");
        }
        assert!(server.running());
        server.kill();
    }

    /// Waits until somebody listens on `b`.
    #[track_caller]
    pub fn wait_for_listener(&self) {
        wait_for_listener(&self.pair.daemon_b);
    }

    /// The address of the server's host.
    #[must_use]
    pub fn address(&self) -> String {
        self.pair.b.v4.to_string()
    }
}

/// A server and its client, ended.
#[derive(Debug)]
pub struct Both {
    pub client: Finished,
    pub server: Finished,
}

impl Both {
    /// Panics unless both ended with exit code 0.
    #[track_caller]
    #[must_use]
    pub fn success(self) -> Self {
        let Self { client, server } = self;
        assert!(
            client.status.success() && server.status.success(),
            "{client}\n{server}"
        );
        Self { client, server }
    }
}

/// Waits until somebody listens at a daemon.
#[track_caller]
pub fn wait_for_listener(daemon: &Daemon) {
    wait_for_listeners(daemon, "the server listens", |count| count > 0);
}

#[track_caller]
fn wait_for_listeners(daemon: &Daemon, what: &str, enough: impl Fn(usize) -> bool) {
    let context = daemon.open();
    wait::until(what, LISTEN_LIMIT, || {
        let listeners = context.inspect(Kind::Listeners).expect("the daemon tells");
        enough(listeners.len()).then_some(())
    });
}
