//! Memory of this process that is in no memfd, to be registered by `/proc/self/mem`; and descriptors
//! that are something else.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use rnic_ipc::control::{Access, MemoryKind, RegionSpec, Request};
use rnic_ipc::id::{PdId, QpNum};
use rnic_ipc::shm::SharedMemory;

use crate::chance::Chance;
use crate::life::REGION;

/// There as long as the process, so that what a daemon writes after the end of a session is in nobody's
/// way.
static OWN: LazyLock<SharedMemory> =
    LazyLock::new(|| SharedMemory::anonymous(REGION).expect("the host has memory"));

/// Where memory is that may be registered.
pub fn start() -> u64 {
    OWN.as_ptr().expose_provenance() as u64
}

/// Mostly for memory that there is.
pub fn request(chance: &mut Chance, pd: PdId, qp: QpNum) -> Request {
    let (address, length) = match chance.one_in(4) {
        true => (chance.odd(), chance.odd()),
        false => {
            let from = chance.below(REGION as u64);
            (start() + from, REGION as u64 - from)
        }
    };
    Request::RegisterMemory(RegionSpec {
        pd,
        stream: chance.one_in(4).then_some(qp),
        access: Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC.when(chance.one_in(8)),
        base: address,
        length,
        offset: 0,
        memory: MemoryKind::Remote,
    })
}

/// Mostly this process's memory, open for reading and writing.
pub fn descriptor(chance: &mut Chance) -> Option<OwnedFd> {
    let (path, writes) = match chance.below(10) {
        0 => ("/proc/self/mem", false),
        1 => ("/proc/self/status", false),
        2 => ("/proc/self/oom_score_adj", true),
        3 => ("/dev/zero", true),
        _ => ("/proc/self/mem", true),
    };
    let opened = File::options().read(true).write(writes).open(path);
    opened.ok().map(OwnedFd::from)
}
