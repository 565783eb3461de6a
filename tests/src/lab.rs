//! The lab: hosts (network namespaces) joined by veth pairs, and their removal.
//!
//! Names carry the process id and a counter, so that tests run side by side. Dropping a [`Lab`]
//! deletes its namespaces, also while a panic unwinds, and then prints the tails of all logs.

mod cable;
mod forked;
mod link;
mod namespace;
mod process;
mod routed;
mod stale;
mod tap;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub use cable::{Cable, ENDS};
pub use forked::FORKS;
pub use link::{INTERFACE, LinkOptions, default_queues};
pub use namespace::Namespace;
pub use process::{Command, Finished, Process};
pub use routed::Routers;
pub use rustix::process::Signal;
pub use tap::{Outlet, Wiring};

/// Lines of each log that are shown when a test fails.
const TAIL_LINES: usize = 60;

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Hosts of one test.
#[derive(Debug)]
pub struct Lab {
    shared: Arc<Shared>,
    id: String,
    namespaces: Vec<Namespace>,
    links: u8,
}

/// A host: a namespace and its end of a link.
#[derive(Clone, Debug)]
pub struct Host {
    pub namespace: Namespace,
    /// Its IPv4 address, of a /24.
    pub v4: Ipv4Addr,
    /// Its IPv6 address, of a /64.
    pub v6: Ipv6Addr,
}

impl Host {
    /// Its link address, as `ip link` writes it.
    #[must_use]
    pub fn mac(&self) -> String {
        let link = self.namespace.ip(&["-o", "link", "show", "dev", INTERFACE]);
        let mac = link
            .split("link/ether ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        mac.map(str::to_owned)
            .unwrap_or_else(|| panic!("no link address in {link}"))
    }

    /// Tells this host the other's link address, for links over which the kernels can't ask.
    pub fn knows(&self, other: &Host) {
        let mac = other.mac();
        for address in [other.v4.to_string(), other.v6.to_string()] {
            let arguments = [
                "neigh", "replace", &address, "lladdr", &mac, "dev", INTERFACE,
            ];
            self.namespace.ip(&arguments);
        }
    }

    #[must_use]
    pub fn address(&self, family: Family, port: u16) -> SocketAddr {
        let ip = match family {
            Family::V4 => IpAddr::V4(self.v4),
            Family::V6 => IpAddr::V6(self.v6),
        };
        SocketAddr::new(ip, port)
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// 198.18.0.0/15
    V4,
    /// 2001:db8::/32
    V6,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];
}

impl Lab {
    /// An empty lab. Panics unless run as root: a test that needs a lab is never skipped.
    #[must_use]
    pub fn new(name: &str) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test makes network namespaces and loads XDP programs: run it as root \
             (scripts/test does, with sudo when needed)"
        );
        stale::clean();
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::Builder::new()
            .prefix("rniclab-")
            .tempdir()
            .unwrap_or_else(|error| panic!("can't make a directory for the lab: {error}"));
        Self {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                directory,
                logs: AtomicU32::new(0),
            }),
            id: format!("{}{}-{number}", stale::PREFIX, std::process::id()),
            namespaces: Vec::new(),
            links: 0,
        }
    }

    /// Adds a host without a link.
    pub fn namespace(&mut self, role: &str) -> Namespace {
        let name = format!("{}-{role}", self.id);
        let namespace = Namespace::create(name, Arc::clone(&self.shared));
        self.namespaces.push(namespace.clone());
        namespace
    }

    /// Adds two hosts, `.1` and `.2` of a network of their own, joined by a veth pair, or by two and
    /// a cable that changes frames.
    pub fn pair(&mut self, options: &LinkOptions) -> (Host, Host) {
        let (link, a, b) = self.ends();
        if let Some(cable) = options.cable {
            let middle = self.namespace(&format!("{link}m"));
            link::join_over(&a, &middle, &b, options);
            cable.connect(&middle, self.directory());
        } else {
            link::join(&a, &b, options);
        }
        (host(a, link, 1), host(b, link, 2))
    }

    /// Adds two hosts, `.1` and `.2` of a network of their own, and a namespace between them that
    /// has both cables' other ends ([`ENDS`]), for something that joins them. Interfaces wait
    /// rather than lose a packet where the other end can't keep up, and each host knows the other's
    /// link address.
    pub fn over(&mut self, options: &LinkOptions) -> (Host, Namespace, Host) {
        let (link, a, b) = self.ends();
        let middle = self.namespace(&format!("{link}m"));
        link::join_over(&a, &middle, &b, options);
        pfifo(&a, &[INTERFACE]);
        pfifo(&b, &[INTERFACE]);
        pfifo(&middle, &ENDS);
        let (a, b) = (host(a, link, 1), host(b, link, 2));
        a.knows(&b);
        b.knows(&a);
        (a, middle, b)
    }

    /// The namespaces of a new link's two hosts, and the link's number.
    fn ends(&mut self) -> (u8, Namespace, Namespace) {
        let link = self.next_link();
        let a = self.namespace(&format!("{link}a"));
        let b = self.namespace(&format!("{link}b"));
        (link, a, b)
    }

    fn next_link(&mut self) -> u8 {
        self.links = self
            .links
            .checked_add(1)
            .expect("a lab has fewer than 256 links");
        self.links
    }

    /// A directory that goes with the lab: sockets, captures and logs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.shared.directory.path()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.print_logs();
        }
        for namespace in &self.namespaces {
            namespace.delete();
        }
    }
}

/// What all parts of a lab share.
#[derive(Debug)]
struct Shared {
    name: String,
    directory: tempfile::TempDir,
    logs: AtomicU32,
}

impl Shared {
    /// Paths for a program's standard output and standard error.
    fn log_files(&self, label: &str) -> (PathBuf, PathBuf) {
        let number = self.logs.fetch_add(1, Ordering::Relaxed);
        let path = |kind| {
            self.directory
                .path()
                .join(format!("{number:03}-{label}.{kind}.log"))
        };
        (path("out"), path("err"))
    }

    fn print_logs(&self) {
        let Ok(entries) = std::fs::read_dir(self.directory.path()) else {
            return;
        };
        let mut logs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        for log in logs {
            let text = std::fs::read(&log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            if lines.is_empty() {
                continue;
            }
            let file = log.file_name().unwrap_or_default().to_string_lossy();
            eprintln!("--- lab {}: the end of {file} ---", self.name);
            for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
                eprintln!("{line}");
            }
        }
    }
}

/// Gives a namespace on a link its addresses.
fn host(namespace: Namespace, link: u8, number: u8) -> Host {
    addressed(namespace, INTERFACE, link, number)
}

fn addressed(namespace: Namespace, interface: &str, link: u8, number: u8) -> Host {
    let (v4, v6) = (host_v4(link, number), host_v6(link, number));
    namespace.ip(&["addr", "add", &format!("{v4}/24"), "dev", interface]);
    namespace.ip(&[
        "addr",
        "add",
        &format!("{v6}/64"),
        "dev",
        interface,
        "nodad",
    ]);
    Host { namespace, v4, v6 }
}

fn host_v4(link: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, link, number)
}

fn host_v6(link: u8, number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, link.into(), 0, 0, 0, 0, number.into())
}

/// Makes veths wait rather than lose a packet where the other end can't keep up.
fn pfifo(namespace: &Namespace, interfaces: &[&str]) {
    for interface in interfaces {
        namespace.exec(&["tc", "qdisc", "add", "dev", interface, "root", "pfifo"]);
    }
}

/// Runs `ip`, panics when it fails, and gives its output.
fn ip(arguments: &[&str]) -> String {
    let output = std::process::Command::new("ip")
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("can't run ip (scripts/setup installs iproute2): {error}"));
    assert!(
        output.status.success(),
        "ip {}: {}\n{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
