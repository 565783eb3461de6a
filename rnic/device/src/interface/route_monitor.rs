//! Live connections follow the host: when the kernel says that routes, neighbours, addresses or the
//! interface changed, each path in use is looked up again, and frames go where the kernel would send
//! them. The log has changes of the interface's link. A peer that has fallen silent (R1 of RFC 9293 section 3.8.3) has its neighbour asked for, as has a further
//! address of a peer over SCTP, to which no path is known yet. Frames leave by the members of a bond that carry them; queues
//! that are not served are logged. IPsec policies are [followed](super::ipsec), as are routes and rules that
//! [reject](rejections).
//!
//! A thread of its own, so that neither the shard nor any client waits for the kernel.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rnic_engine::command::{Answer, Command, PathInUse};
use rnic_host::Interface;
use rnic_host::address::{addresses, broadcasts};
use rnic_host::changes::{Changes, Hint};
use rnic_host::unheeded::unheeded;
use rnic_host::xfrm;
use rnic_host::{HostError, Members};
use rnic_ipc::threads;
use rnic_net::Path;
use rustix::event::{EventfdFlags, PollFd, PollFlags};

use super::ipsec::FollowedIpsec;
use super::paths::{L2Interface, PathToPeer};
use super::{OpenInterface, Served};
use crate::sync::lock;

/// Between a change and the reaction to it: changes come in bursts.
const GATHERING: Duration = Duration::from_millis(50);
/// For so long an address may be missing: an address is often changed by removing it and adding it again, and an
/// interface that comes up again gets its addresses a moment later.
const ADDRESS_GRACE: Duration = Duration::from_secs(3);
/// Silent peers that wait to be asked about; of more, those with other connections are asked about
/// when these fall silent.
const DOUBTS_MAX: usize = 1024;

mod link;
mod members;
mod persisting;
mod rejections;

use members::FollowedMembers;
use persisting::Persisting;
use rejections::FollowedRejections;

/// Peers that don't answer, each with our address.
#[derive(Debug)]
pub(crate) struct StaleNeighbors {
    peers: Mutex<Pending>,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Pending {
    peers: HashSet<(IpAddr, IpAddr)>,
    /// Those with which a connection was refused, because the host rejects what goes to them.
    rejected: HashSet<(IpAddr, IpAddr)>,
    stopped: bool,
}

impl StaleNeighbors {
    /// None yet.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            peers: Mutex::default(),
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The peer `remote` does not answer. Never waits.
    pub(crate) fn add(&self, local: IpAddr, remote: IpAddr) {
        let mut pending = self.lock();
        if pending.peers.len() < DOUBTS_MAX && pending.peers.insert((local, remote)) {
            self.wake();
        }
    }

    /// A connection with the peer `remote` was refused, because the host rejects what goes to it.
    pub(crate) fn reject(&self, local: IpAddr, remote: IpAddr) {
        let mut pending = self.lock();
        if pending.rejected.len() < DOUBTS_MAX && pending.rejected.insert((local, remote)) {
            self.wake();
        }
    }

    fn stop(&self) {
        self.lock().stopped = true;
        self.wake();
    }

    fn wake(&self) {
        // A full counter wakes as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Takes them all, those that don't answer first; `None` when it is time to end.
    fn take(&self) -> Option<[HashSet<(IpAddr, IpAddr)>; 2]> {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let mut pending = self.lock();
        let pending = &mut *pending;
        let all = [&mut pending.peers, &mut pending.rejected];
        (!pending.stopped).then(|| all.map(std::mem::take))
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        lock(&self.peers)
    }
}

/// The thread. It ends with [`RouteMonitor::stop`].
#[derive(Debug)]
pub(crate) struct RouteMonitor {
    interface: Arc<OpenInterface>,
    thread: JoinHandle<()>,
}

impl RouteMonitor {
    /// Starts it, in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub(crate) fn start(served: Served) -> io::Result<Self> {
        let changes = Changes::open()?;
        let of_ipsec = match Changes::of_ipsec() {
            Ok(changes) => Some(changes),
            Err(error) if xfrm::is_absent(&error) => None,
            Err(error) => {
                let interface = &served.interface.config.interface;
                log::warn!(
                    "interface {interface}: changes of the host's IPsec policies can't be followed, which needs \
                     CAP_NET_ADMIN: {error}"
                );
                None
            }
        };
        // Before there is a client.
        let mut ipsec = FollowedIpsec::default();
        ipsec.update(&served);
        FollowedRejections::read(&served);
        if let Some(L2Interface { interface, .. }) = served.interface.l2_interfaces().first() {
            for line in unheeded(interface) {
                log::info!("{line}");
            }
        }
        let interface = served.interface.clone();
        let thread = Builder::new().name("rnic-host".to_owned());
        let thread = threads::spawn(thread, move || follow(&served, &changes, (of_ipsec, ipsec)))?;
        Ok(Self { interface, thread })
    }

    /// Ends the thread.
    pub(crate) fn stop(self) {
        self.interface.stale_neighbors.stop();
        if self.thread.join().is_err() {
            log::error!("the thread that follows the host panicked");
        }
    }
}

fn follow(served: &Served, changes: &Changes, ipsec: (Option<Changes>, FollowedIpsec)) {
    let (of_ipsec, mut ipsec) = ipsec;
    let mut missing = Persisting::new(ADDRESS_GRACE);
    let mut rejections = FollowedRejections::new();
    let mut members = FollowedMembers::new(Instant::now());
    // It may have had none when it was opened.
    link::update(served, &served.interface.interface());
    set_broadcasts(served, &served.interface.l2_interfaces());
    loop {
        let wake = &served.interface.stale_neighbors.wake;
        let mut all = vec![
            PollFd::new(wake, PollFlags::IN),
            PollFd::new(changes, PollFlags::IN),
        ];
        let sockets = of_ipsec.iter();
        all.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        // EINTR: a look-up that finds no change does no harm.
        let now = Instant::now();
        let patience = [missing.patience(now), rejections.patience(now)]
            .into_iter()
            .flatten()
            .fold(members.patience(now), Duration::min);
        let patience = patience.try_into().ok();
        let _ = rustix::event::poll(&mut all, patience.as_ref());
        // At once: nothing is to go in clear for longer than it must.
        if of_ipsec.as_ref().is_some_and(Changes::take_any) {
            ipsec.update(served);
        }
        let mut gathering = [PollFd::new(wake, PollFlags::IN)];
        let _ = rustix::event::poll(&mut gathering, GATHERING.try_into().ok().as_ref());
        let Some([silent, refused]) = served.interface.stale_neighbors.take() else {
            return;
        };
        let l2_interfaces = served.interface.l2_interfaces();
        let mut indexes: Vec<u32> = l2_interfaces.iter().map(|l2| l2.interface.index).collect();
        indexes.extend(served.interface.members.iter().flat_map(Members::indexes));
        let Hint { changed, rejecting } = changes.take(&indexes);
        for (local, remote) in silent {
            log::debug!("{remote} does not answer, or no path there is known");
            // What the kernel has yet to find out it tells as a change.
            follow_route(served, (local, remote), None, Some(Duration::ZERO));
        }
        if let Some(L2Interface { interface, .. }) = l2_interfaces.first() {
            if changed {
                link::update(served, interface);
            }
            members.update(served, interface, changed, Instant::now());
        }
        if changed {
            update(served, &l2_interfaces);
            set_broadcasts(served, &l2_interfaces);
        }
        if changed || !missing.is_empty() {
            end_of_addresses(served, &l2_interfaces, &mut missing);
        }
        if rejecting {
            FollowedRejections::read(served);
        }
        if changed || !refused.is_empty() || rejections.patience(now).is_some() {
            rejections.update(served, &l2_interfaces, &refused);
        }
    }
}

/// Ends connections from addresses that the interface no longer has.
fn end_of_addresses(
    served: &Served,
    l2_interfaces: &[L2Interface],
    missing: &mut Persisting<IpAddr>,
) {
    // The kernel takes IPv6 addresses from an interface that is down: that is not their end. What the kernel
    // can't tell now is looked at again with the next change.
    let Some(present) = present_addresses(served, l2_interfaces) else {
        return missing.forget();
    };
    let Some(paths) = paths_in_use(served) else {
        return;
    };
    let used: HashSet<IpAddr> = paths.iter().map(|path| path.local).collect();
    for address in missing.update(used.difference(&present).copied(), Instant::now()) {
        let interface = &served.interface.config.interface;
        log::warn!("{address} was taken away from interface {interface}: its connections end");
        // A shard that has stopped has none.
        let _ = served.shards.all_do(|| Command::AddressGone { address });
    }
}

/// The addresses of a device's interfaces; `None` when one of them is down or gone.
fn present_addresses(served: &Served, l2_interfaces: &[L2Interface]) -> Option<HashSet<IpAddr>> {
    let netlink = served.interface.netlink.as_ref()?;
    let mut present = HashSet::new();
    for L2Interface { interface, .. } in l2_interfaces {
        let found = Interface::find(netlink, &interface.name).ok()?;
        if found.index != interface.index {
            return None;
        }
        present.extend(addresses(netlink, interface.index).ok()?);
    }
    Some(present)
}

/// Gives the shards the broadcast addresses of the interfaces' subnets. While an interface can't be asked, as
/// when it is gone, what they know stays.
fn set_broadcasts(served: &Served, l2_interfaces: &[L2Interface]) {
    let Some(netlink) = &served.interface.netlink else {
        return;
    };
    let of = |l2: &L2Interface| broadcasts(netlink, l2.interface.index);
    let found: Result<Vec<_>, _> = l2_interfaces.iter().map(of).collect();
    if let Ok(found) = found {
        let found = found.concat();
        let _ = served
            .shards
            .all_do(|| Command::SetBroadcasts(found.clone()));
    }
}

/// Brings the shards to the present state of the host.
fn update(served: &Served, l2_interfaces: &[L2Interface]) {
    let Some((
        L2Interface {
            interface: known, ..
        },
        of_vlans,
    )) = l2_interfaces.split_first()
    else {
        return;
    };
    let Some(netlink) = &served.interface.netlink else {
        return;
    };
    let interface = match Interface::find(netlink, &known.name) {
        Ok(interface) if interface.index == known.index => interface,
        // Gone, or moved to another namespace; another of its name is not the one that was opened.
        Ok(_) | Err(HostError::UnknownInterface { .. }) => return served.interface_gone(),
        // Down: nothing leads anywhere until it is up.
        Err(_) => return,
    };
    if interface != *known {
        log::info!(
            "interface {} changed: MTU {}, was {}",
            interface.name,
            interface.defaults.mtu,
            known.defaults.mtu
        );
        served.interface.set_interface(interface.clone());
        let defaults = interface.defaults;
        let _ = served.shards.all_do(|| Command::SetPathDefaults(defaults));
    }
    for l2 in of_vlans {
        // One that is gone or down leads nowhere until it is back.
        if let Ok(interface) = Interface::find(netlink, &l2.interface.name)
            && interface.index == l2.interface.index
        {
            served.interface.set_interface(interface);
        }
    }
    let Some(paths) = paths_in_use(served) else {
        return;
    };
    for PathInUse {
        local,
        remote,
        path: used,
    } in paths
    {
        // A tag that is not of the address's VLAN came with the peer's frames.
        let has_foreign_tag = used.is_some_and(|used| used.vlan.is_some());
        if !has_foreign_tag || !served.interface.config.vlans.is_empty() {
            // An unknown neighbor was asked for when its address was told. Were it asked for with each change, its
            // failure would be the next one.
            let timeout = used.map(|_| Duration::ZERO);
            follow_route(served, (local, remote), used, timeout);
        }
    }
}

/// The paths that any shard uses, each once; none when one has stopped.
fn paths_in_use(served: &Served) -> Option<Vec<PathInUse>> {
    let mut all = Vec::new();
    for found in served.shards.run_all(|| Command::QueryPaths) {
        let Ok((Answer::Paths(paths), _)) = found else {
            return None;
        };
        all.extend(paths);
    }
    // Those of one pair of addresses come together.
    all.sort_by_key(|it| (it.local, it.remote, it.path.map(|path| path.vlan)));
    all.dedup();
    Some(all)
}

/// Has the shards send as the host would. `used`: how it does, where that is known. `timeout` as in
/// [`OpenInterface::outward_path`].
fn follow_route(
    served: &Served,
    (local, remote): (IpAddr, IpAddr),
    used: Option<Path>,
    timeout: Option<Duration>,
) {
    match served.interface.outward_path(remote, Some(local), timeout) {
        // A tag that is not of the address's VLAN came with the peer's frames.
        Ok(PathToPeer { path, .. })
            if used.is_some_and(|used| path == used || path.vlan != used.vlan) => {}
        Ok(PathToPeer { path, .. }) => match served.shards.all_do(|| Command::MovePath {
            local,
            remote,
            path,
        }) {
            Ok(_) if used.is_none() => {
                log::debug!("the route from {local} to {remote}: {path}");
            }
            Ok(_) => log::info!("the route from {local} to {remote} has changed: {path}"),
            Err(refusal) => {
                log::warn!("the route from {local} to {remote} can't be taken: {refusal}");
            }
        },
        Err(refusal) => {
            log::debug!("the route from {local} to {remote} can't be taken: {refusal}");
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_woken(stale: &StaleNeighbors) -> bool {
        let mut fds = [PollFd::new(&stale.wake, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    }

    /// The thread may sleep for long.
    #[test]
    fn each_thing_to_do_wakes_the_thread() {
        let ends = |last| ([198, 18, 0, 1].into(), [198, 18, 0, last].into());
        let stale = StaleNeighbors::new().unwrap();
        assert!(!is_woken(&stale));
        stale.add(ends(2).0, ends(2).1);
        assert!(is_woken(&stale));
        assert_eq!(
            stale.take(),
            Some([HashSet::from([ends(2)]), HashSet::new()])
        );
        assert!(!is_woken(&stale));
        stale.reject(ends(3).0, ends(3).1);
        assert!(is_woken(&stale));
        assert_eq!(
            stale.take(),
            Some([HashSet::new(), HashSet::from([ends(3)])])
        );
        stale.stop();
        assert!(is_woken(&stale));
        assert_eq!(stale.take(), None);
    }
}
