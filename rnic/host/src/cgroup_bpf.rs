//! BPF programs of the control group that this process is in (cgroups(7), version 2), which judge packets and calls of its
//! sockets: systemd's `IPAddressDeny=`, `SocketBindDeny=` and others are made of them. The RNIC's frames are no socket's.
//!
//! Invariant of `unsafe` here: the kernel is given the length of an attribute that lives until after the call, and is
//! asked to write nothing but its words.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fd::AsFd;

use super::cgroup;

/// BPF_PROG_QUERY of linux/bpf.h.
const PROG_QUERY: libc::c_long = 16;
/// BPF_F_QUERY_EFFECTIVE: also those of the groups above.
const QUERY_EFFECTIVE: u32 = 1;
/// `enum bpf_attach_type` of linux/bpf.h: what is asked for, and whose name is told. CGROUP_INET_INGRESS and _EGRESS;
/// CGROUP_INET4_BIND, INET6_BIND, INET4_CONNECT and INET6_CONNECT.
const PROGRAMS: [(u32, &str); 6] = [
    (0, "ingress"),
    (1, "egress"),
    (8, "bind4"),
    (9, "bind6"),
    (10, "connect4"),
    (11, "connect6"),
];

/// The `query` member of `union bpf_attr`. Newer kernels write into what follows the count, whatever length they are told.
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
    others: [u64; 12],
}

/// The group's directory, and the kinds of programs that are in force there. Needs CAP_NET_ADMIN.
///
/// # Errors
///
/// The kernel's.
pub(crate) fn in_force() -> io::Result<Option<(PathBuf, Vec<&'static str>)>> {
    let Some(path) = cgroup::of_version_2() else {
        return Ok(None);
    };
    let group = File::open(&path)?;
    let mut found = Vec::new();
    for (attach_type, name) in PROGRAMS {
        if count(group.as_fd(), attach_type)? > 0 {
            found.push(name);
        }
    }
    Ok((!found.is_empty()).then_some((path, found)))
}

/// How many programs of a kind are in force in a group.
fn count(group: BorrowedFd<'_>, attach_type: u32) -> io::Result<u32> {
    let mut query = Query {
        target: group.as_raw_fd().cast_unsigned(),
        attach_type,
        query_flags: QUERY_EFFECTIVE,
        ..Query::default()
    };
    // SAFETY: the attribute is this long and longer than the kernel's, which writes only into it: there is no place for
    // numbers of programs.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_QUERY,
            &raw mut query,
            size_of::<Query>(),
        )
    };
    match done {
        0 => Ok(query.count),
        _ => Err(io::Error::last_os_error()),
    }
}
