//! The hosts on which cases run: a pair for each [`Place`], made when it is first needed.

use std::cell::OnceCell;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::interrupt;
use super::place::{Link, Napi, Place};
use crate::binary;
use crate::daemon::xdp_attached;
use crate::lab::{
    Command, ENDS, Family, Finished, Host, INTERFACE, Lab, LinkOptions, Namespace, Process,
};
use crate::linksim::Linksim;
use crate::programs::Library;

/// How long a program may take until it serves.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// The least time over which what goes over a lossy link is measured: congestion control needs it to
/// find its window.
const LOSSY: Duration = Duration::from_secs(2);
/// How long the kernel may take to detach what a program left attached.
const DETACH_LIMIT: Duration = Duration::from_secs(5);

/// Which of two ends. Each has a core of its own where there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    A = 0,
    B = 1,
}

/// Two hosts, and what has the link between them if it is no cable.
#[derive(Debug)]
struct Pair {
    hosts: [Host; 2],
    middle: Option<Namespace>,
}

/// All pairs of hosts.
#[derive(Debug)]
pub struct Testbed {
    pairs: Vec<(Place, Pair)>,
    lab: Lab,
    library: OnceCell<Library>,
    cores: [usize; 2],
    /// All that may be used.
    allowed: Vec<usize>,
    next_port: u16,
    duration: Duration,
    /// The executable of `rnic-engine`'s benchmark, if it was built.
    pub memory: Option<PathBuf>,
}

impl Testbed {
    /// Without any pair yet. What is measured is measured for `duration`.
    #[must_use]
    pub fn new(duration: Duration, memory: Option<PathBuf>) -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let allowed: Vec<usize> = cores.collect();
        let first = allowed.first().copied().unwrap_or(0);
        Self {
            pairs: Vec::new(),
            lab: Lab::new("bench"),
            library: OnceCell::new(),
            cores: [first, allowed.get(1).copied().unwrap_or(first)],
            allowed,
            next_port: 20_000,
            duration,
            memory,
        }
    }

    /// The cores of the two hosts.
    #[must_use]
    pub fn cores(&self) -> [usize; 2] {
        self.cores
    }

    /// A directory that goes with the benchmark.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.lab.directory()
    }

    /// The verbs library, where programs find it.
    #[must_use]
    pub fn verbs_library(&self) -> &Library {
        self.library.get_or_init(|| Library::new(&self.lab))
    }

    /// Makes sure that a place is there and free of what ran there before. What comes is the link, if it
    /// is a program: it lasts until it is dropped.
    ///
    /// # Errors
    ///
    /// When an XDP program stays attached, or the host can't receive as the place says.
    pub fn enter(&mut self, place: Place) -> Result<Option<Linksim>, String> {
        if !self.pairs.iter().any(|(other, _)| *other == place) {
            let pair = self.pair(place)?;
            self.pairs.push((place, pair));
        }
        if place.link == Link::Loopback {
            return Ok(None);
        }
        let Pair { hosts, middle } = self.found(place);
        let ends = hosts.iter().map(|host| (&host.namespace, INTERFACE));
        let middles = middle
            .iter()
            .flat_map(|middle| ENDS.map(|end| (middle, end)));
        let begin = Instant::now();
        for (namespace, interface) in ends.chain(middles) {
            while xdp_attached(namespace, interface) {
                if begin.elapsed() > DETACH_LIMIT {
                    return Err(format!("an XDP program stays attached at {place}"));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let (Some(middle), Some(options)) = (middle, place.link.options()) else {
            return Ok(None);
        };
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Linksim::try_start(middle, &options).map(Some)
    }

    fn pair(&mut self, place: Place) -> Result<Pair, String> {
        let before = napi_threads();
        let options = LinkOptions {
            mtu: place.mtu,
            offloads: place.link == Link::AsItComes,
            ..LinkOptions::default()
        };
        let (hosts, middle) = match place.link {
            Link::Cable | Link::AsItComes => {
                let (a, b) = self.lab.pair(&options);
                ([a, b], None)
            }
            Link::Loopback => return Ok(self.one_host(place)),
            Link::Lossy(_) => {
                let (a, middle, b) = self.lab.over(&options);
                ([a, b], Some(middle))
            }
        };
        for (host, core) in hosts.iter().zip(self.cores) {
            receive_on(host, place.napi, core)?;
        }
        if place.napi == Napi::Threaded {
            pin_new_threads(&before, &hosts, self.cores)?;
        }
        Ok(Pair { hosts, middle })
    }

    /// Both ends of the loopback.
    fn one_host(&mut self, place: Place) -> Pair {
        let namespace = self.lab.namespace(&format!("lo{}", place.cable));
        namespace.ip(&["link", "set", "lo", "up"]);
        let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let host = Host { namespace, v4, v6 };
        let (hosts, middle) = ([host.clone(), host], None);
        Pair { hosts, middle }
    }

    fn found(&self, place: Place) -> &Pair {
        let found = self.pairs.iter().find(|(other, _)| *other == place);
        let (_, pair) = found.expect("a place is entered before anything runs there");
        pair
    }

    /// One of the hosts of a place that was [entered](Self::enter).
    #[must_use]
    pub fn host(&self, place: Place, end: End) -> &Host {
        &self.found(place).hosts[end as usize]
    }

    /// An address of host B at which nobody has listened yet.
    pub fn next_address(&mut self, place: Place) -> SocketAddr {
        self.next_port = self.next_port.checked_add(1).unwrap_or(20_000);
        self.host(place, End::B).address(Family::V4, self.next_port)
    }

    /// A command on a host, on the host's own core; where both ends are one host it has all cores.
    #[must_use]
    pub fn command(&self, place: Place, end: End, program: &str) -> Command {
        match place.link {
            Link::Loopback => self.unpinned(place, end, program),
            _ => self.on_core(place, end, program),
        }
    }

    /// A command on a host, on the core of this end.
    #[must_use]
    pub fn on_core(&self, place: Place, end: End, program: &str) -> Command {
        let core = self.cores[end as usize].to_string();
        self.pinned(place, end, &core, program)
    }

    /// A command on a host, on any core but the other end's, if there is another.
    #[must_use]
    pub fn beside(&self, place: Place, end: End, program: &str) -> Command {
        let other = self.cores[1 - end as usize];
        let cores = self.allowed.iter().filter(|core| **core != other);
        let mut cores: Vec<String> = cores.map(usize::to_string).collect();
        if cores.is_empty() {
            cores.push(other.to_string());
        }
        self.pinned(place, end, &cores.join(","), program)
    }

    fn pinned(&self, place: Place, end: End, cores: &str, program: &str) -> Command {
        self.unpinned(place, end, "taskset")
            .label(program)
            .args(["-c", cores])
            .arg(executable(program))
    }

    /// A command on a host, on whatever core is free.
    #[must_use]
    pub fn unpinned(&self, place: Place, end: End, program: &str) -> Command {
        self.host(place, end).namespace.command(executable(program))
    }

    /// How long is measured what needs no network, or goes over a cable.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// How long is measured at a place.
    #[must_use]
    pub fn duration_at(&self, place: Place) -> Duration {
        match place.link {
            Link::Lossy(_) => self.duration.max(LOSSY),
            _ => self.duration,
        }
    }

    /// How long a program that measures for that long may take in all.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.duration.max(LOSSY) * 4 + Duration::from_secs(60)
    }
}

/// One of the workspace's own programs by its path, any other by its name.
fn executable(program: &str) -> PathBuf {
    if program.starts_with("rnic") || program == "linksim" {
        binary::path(program)
    } else {
        PathBuf::from(program)
    }
}

/// Starts a program and waits until it says `word`.
///
/// # Errors
///
/// When it ends instead, or says nothing of it.
pub fn started(command: Command, word: &str) -> Result<Process, String> {
    let mut process = command.spawn();
    process.says(word, READY_LIMIT)?;
    Ok(process)
}

/// Waits for the good end of a program.
///
/// # Errors
///
/// When it ends otherwise, takes too long, or the benchmark is interrupted.
pub fn ended(process: Process, limit: Duration) -> Result<Finished, String> {
    let finished = process.end_within(limit, interrupt::came)?;
    if finished.status.success() {
        Ok(finished)
    } else {
        Err(finished.to_string())
    }
}

/// Lets a host receive in a certain way.
fn receive_on(host: &Host, napi: Napi, core: usize) -> Result<(), String> {
    let write = |file: &str, value: &str| {
        let line = format!("echo {value} > /sys/class/net/{INTERFACE}/{file}");
        let shell = host.namespace.command("sh").args(["-c", &line]).spawn();
        ended(shell, READY_LIMIT).map(drop)
    };
    match napi {
        Napi::Inline => Ok(()),
        Napi::Rps => write("queues/rx-0/rps_cpus", &format!("{:x}", 1_u64 << core)),
        Napi::Threaded => {
            // A veth without this has a NAPI only while an XDP program is attached.
            let gro = ["-K", INTERFACE, "gro", "on"];
            let ethtool = host.namespace.command("ethtool").args(gro).spawn();
            ended(ethtool, READY_LIMIT)?;
            write("threaded", "1")
        }
    }
}

/// Threads of interfaces named [`INTERFACE`], of all namespaces.
fn napi_threads() -> Vec<Pid> {
    let name = format!("napi/{INTERFACE}-");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let threads = entries.filter_map(|entry| {
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        comm.starts_with(&name)
            .then(|| Pid::from_raw(pid))
            .flatten()
    });
    let mut threads: Vec<Pid> = threads.collect();
    threads.sort_by_key(|pid| pid.as_raw_nonzero());
    threads
}

/// Puts each host's thread, which came into being in the order of the hosts, on the host's core.
fn pin_new_threads(before: &[Pid], hosts: &[Host], cores: [usize; 2]) -> Result<(), String> {
    let now = napi_threads();
    let new: Vec<&Pid> = now.iter().filter(|pid| !before.contains(pid)).collect();
    if new.len() != hosts.len() {
        let count = new.len();
        return Err(format!(
            "{count} threads for NAPI came into being, not one for each host"
        ));
    }
    for (pid, core) in new.into_iter().zip(cores) {
        let mut set = CpuSet::new();
        set.set(core);
        sched_setaffinity(Some(*pid), &set)
            .map_err(|error| format!("can't pin a thread for NAPI: {error}"))?;
    }
    Ok(())
}
