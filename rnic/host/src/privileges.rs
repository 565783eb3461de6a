//! What a thread may still ask of the kernel (capabilities(7)).
//!
//! Capabilities are each thread's own, and one that is started has those of the thread that started
//! it: whoever wants to be rid of them does so before there are others.

use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// What an open device asks of the kernel: to look for a neighbour (NET_ADMIN), to reserve a port
/// below 1024 (NET_BIND_SERVICE), and, before Linux 6.0, to write the steering program's table
/// (BPF).
pub const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::BPF);

/// What opening an interface asks of the kernel in any case: to attach XDP (NET_ADMIN), for AF_XDP and
/// copies of ICMP errors (NET_RAW), and to load the steering program (BPF, PERFMON).
pub const OF_INTERFACES: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON);

/// What opening a device while others are open asks of the kernel.
pub const TO_OPEN: CapabilitySet = NEEDED.union(OF_INTERFACES).union(CapabilitySet::IPC_LOCK);

/// What opening devices asks of the kernel, and making the files that clients and scrapers connect to
/// in directories of anybody's; and what [`keep`] needs.
pub const TO_START: CapabilitySet = TO_OPEN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::SETPCAP);

/// What the kernel asks in the host's own user namespace only: to load the steering program, and to lock more
/// memory than the limit.
const OF_THE_HOST: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK);

/// The inode number of the host's own user namespace: PROC_USER_INIT_INO of linux/proc_ns.h.
const HOST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Those of `wanted` that the calling thread can't use now. Within a user namespace (user_namespaces(7)) it may have
/// some that count for nothing that the RNIC does.
///
/// # Errors
///
/// The kernel's.
pub fn missing(wanted: CapabilitySet) -> Result<CapabilitySet, Errno> {
    let mut usable = capabilities(None)?.effective;
    if in_user_namespace() {
        usable -= OF_THE_HOST;
        if !has_the_network() {
            usable -= CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
        }
    }
    Ok(wanted - usable)
}

/// Whether this process is in a user namespace that is not the host's own.
fn in_user_namespace() -> bool {
    // Where /proc is not mounted it can't be known, and the kernel decides.
    let namespace = std::fs::metadata("/proc/self/ns/user");
    namespace.is_ok_and(|found| found.ino() != HOST_USER_NAMESPACE)
}

/// Whether capabilities count for the network namespace: it belongs to this user namespace, or to one in it. The
/// kernel tells it no otherwise than by what it allows.
fn has_the_network() -> bool {
    let asked = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None);
    asked.err() != Some(Errno::PERM)
}

/// What to do for want of these capabilities, for people.
pub fn advice(wanted: &str) -> String {
    match in_user_namespace() {
        false => format!("run as root, or give {wanted}"),
        true => "this process is in a user namespace (unshare -U, a rootless container), where no capability lets it \
                 load the steering program: start it outside; --loopback needs no privilege"
            .to_owned(),
    }
}

/// Capabilities as capabilities(7) names them.
pub fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names()
        .map(|(name, _)| format!("CAP_{name}"))
        .collect()
}

/// Has the calling thread, and those that it starts, become another user for good, with no groups but
/// this one and, of its capabilities, [`TO_START`]. To be called while there is no other thread.
///
/// # Errors
///
/// The kernel's: EPERM when the thread is not root's.
pub fn become_user(uid: u32, gid: u32) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_keep_capabilities(false)?;
    // The effective ones went with uid 0.
    let kept = capabilities(None)?.permitted & TO_START;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)
}

/// Gives up, for good, all capabilities of the calling thread but these; says which are left.
///
/// # Errors
///
/// The kernel's.
pub fn keep(wanted: CapabilitySet) -> Result<CapabilitySet, Errno> {
    let held = capabilities(None)?;
    // What a program that is executed could have. Without SETPCAP this can't be changed, and
    // no_new_privs serves as well.
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in (CapabilitySet::all() - wanted).iter() {
            // The kernel may not know the newest, nor the bits that have no meaning yet.
            if capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    clear_ambient_capability_set()?;
    let kept = held.permitted & wanted;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)?;
    Ok(kept)
}

/// Gives up all capabilities of the calling thread, which asks nothing of the kernel that needs one.
pub fn renounce(thread: &str) {
    if let Err(errno) = keep(CapabilitySet::empty()) {
        log::warn!("the thread {thread} keeps its capabilities: {errno}");
    }
}
