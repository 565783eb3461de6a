//! A client's `/proc/self/mem`: whether a descriptor is one, and what it may be used for.
//!
//! Another file of procfs would have us write, with our rights, what the client could not: some ask who
//! writes, and not who opened them. So it has to be the very file that the kernel shows us under the
//! name which the descriptor has.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rnic_engine::region::{RegionMemory, RemoteMemory};
use rnic_ipc::control::{Access, Refusal, RefusalCode, RegionSpec};
use rustix::fs::OFlags;

use crate::clients::client::MemoryHandle;
use crate::refuse;

const PROC_MAGIC: i64 = 0x9fa0;

pub(super) fn open(
    spec: &RegionSpec,
    fd: &OwnedFd,
) -> Result<(RegionMemory, MemoryHandle), Refusal> {
    let owned = fd.try_clone();
    let owned = owned.map_err(|error| refuse::host("another descriptor of memory", error))?;
    if !is_memory(&owned) {
        return Err(bad(
            "the descriptor is not a /proc/self/mem of this host's: open the client's own",
        ));
    }
    let flags = rustix::fs::fcntl_getfl(&owned).unwrap_or(OFlags::WRONLY);
    let mode = flags & OFlags::RWMODE;
    if mode != OFlags::RDWR && (mode != OFlags::RDONLY || writes(spec.access)) {
        return Err(bad(
            "the descriptor of /proc/self/mem does not allow what the region is to: open it for reading and writing",
        ));
    }
    let (start, len) = (spec.base, spec.length);
    for at in [start, start.saturating_add(len - 1)] {
        if rustix::io::pread(&owned, &mut [0; 1], at) != Ok(1) {
            return Err(bad(&format!(
                "the client has no memory at {at:#x}: register what is mapped"
            )));
        }
    }
    let held = Arc::new(owned);
    let memory = RemoteMemory::new(held.clone(), start, len);
    Ok((RegionMemory::Remote(memory), held))
}

fn writes(access: Access) -> bool {
    access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
}

fn is_memory(fd: &OwnedFd) -> bool {
    let on_proc = rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type == PROC_MAGIC);
    let name = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let Some(name) = name.ok().filter(|name| on_proc && is_name(name)) else {
        return false;
    };
    let same =
        |a: rustix::fs::Stat, b: rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    match (rustix::fs::fstat(fd), rustix::fs::lstat(&name)) {
        (Ok(given), Ok(ours)) => same(given, ours),
        _ => false,
    }
}

/// `/proc/NUMBER/mem`.
fn is_name(name: &Path) -> bool {
    let number = name
        .to_str()
        .and_then(|name| name.strip_prefix("/proc/")?.strip_suffix("/mem"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn bad(why: &str) -> Refusal {
    refuse::refusal(
        RefusalCode::BadMemory,
        &format!("memory to register: {why}"),
    )
}
