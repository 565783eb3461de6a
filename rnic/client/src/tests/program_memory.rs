//! Memory that the program made itself.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic_ipc::control::{MemoryKind, RefusalCode, RegionSpec, Request};
use rnic_ipc::shm::{MAPPING_MAX, ShmError};

use super::fake::{Fake, refusal};
use crate::{Access, Error};

/// Sixteen bytes among a program's data, not zero.
static DATA: [std::sync::atomic::AtomicU64; 2] =
    [const { std::sync::atomic::AtomicU64::new(7) }; 2];

#[test]
fn addresses_of_a_region_are_the_program_s_own() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let start = NonNull::from(&DATA).cast::<u8>();
    // SAFETY: a static stays, and atomics are all that is made of it.
    let region = unsafe { pd.register_memory(start, 16, Access::LOCAL_WRITE) }.unwrap();
    let address = start.as_ptr().addr() as u64;
    let asked = fake.asked().pop();
    assert!(
        matches!(asked, Some(Request::RegisterMemory(RegionSpec { memory: MemoryKind::Remote, base: at, length: 16, .. })) if at == address),
        "{asked:?}"
    );
    assert_eq!((region.addr(), region.len()), (address, 16));
    assert_eq!(region.slice(8..16).unwrap().addr, address + 8);
    assert_eq!(region.remote(4..16).unwrap().addr, address + 4);
    assert_eq!(region.to_vec(0..8).unwrap(), 7_u64.to_ne_bytes());
}

/// Beside a few bytes a lock may lie, of which a futex(2) would fail: they go to the accessor as long as
/// the RNIC allows it.
#[test]
fn a_small_range_spares_its_neighbours_within_the_limit() {
    const NAME: &str =
        "tests::program_memory::a_small_range_spares_its_neighbours_within_the_limit";
    if rustix::process::geteuid().is_root() {
        // A user without privilege has such calls fail.
        let child = Command::new("/proc/self/exe")
            .args(["--exact", NAME])
            .uid(65_534)
            .gid(65_534)
            .output();
        let child = child.unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && said.contains("1 passed"),
            "{said}"
        );
        return;
    }
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let mut memory = vec![0_u8; 100_000];
    let mut register = |len: usize, access| {
        let start = NonNull::new(memory.as_mut_ptr().wrapping_add(3)).unwrap();
        // SAFETY: the memory is dropped behind the regions, and nobody writes it.
        let region = unsafe { pd.register_memory(start, len, access) };
        drop(region.unwrap());
        let mut asked = fake.asked().into_iter().rev();
        asked.find(|request| !matches!(request, Request::DeregisterMemory { .. }))
    };
    let remote = |asked: Option<Request>| {
        matches!(
            asked,
            Some(Request::RegisterMemory(RegionSpec {
                memory: MemoryKind::Remote,
                ..
            }))
        )
    };
    let adopted = |asked: Option<Request>| {
        matches!(
            asked,
            Some(Request::RegisterMemory(RegionSpec {
                memory: MemoryKind::Adopted,
                ..
            }))
        )
    };
    assert!(remote(register(64, Access::LOCAL_WRITE)));
    // What the accessor can't do, and what it is too slow for.
    assert!(adopted(register(64, Access::ALL)));
    assert!(adopted(register(70_000, Access::LOCAL_WRITE)));
    fake.refuse(|request| {
        matches!(
            request,
            Request::RegisterMemory(RegionSpec {
                memory: MemoryKind::Remote,
                ..
            })
        )
        .then(|| refusal(RefusalCode::Limit))
    });
    assert!(adopted(register(64, Access::LOCAL_WRITE)));
}

/// The RNIC takes a memfd again only while it has a region of it. Another thread may have deregistered the
/// last one when it is asked for the next.
#[test]
fn memory_whose_memfd_is_refused_gets_another() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let mut memory = vec![0_u8; 100_000];
    let asked = AtomicU32::new(0);
    fake.refuse(move |request| {
        let registers = matches!(request, Request::RegisterMemory(_));
        let refused = registers && asked.fetch_add(1, Ordering::Relaxed) < 2;
        refused.then(|| refusal(RefusalCode::BadMemory))
    });
    let start = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: the memory outlives the region.
    let region = unsafe { pd.register_memory(start, 100_000, Access::LOCAL_WRITE) }.unwrap();
    assert!(rnic_adopt::adopted_bytes() >= 100_000);
    drop(region);
    assert_eq!(rnic_adopt::adopted_bytes(), 0);
}

/// A page that is taken for a region which is then refused may be the host's last.
#[test]
fn a_large_region_is_asked_for_before_it_takes_pages() {
    const LARGE: usize = 1 << 40;
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    fake.refuse(|request| {
        matches!(request, Request::MayRegister { length, .. } if *length > 1 << 36)
            .then(|| refusal(RefusalCode::Limit))
    });
    let before = rnic_adopt::adopted_bytes();
    let refused = [
        pd.register(LARGE, Access::LOCAL_WRITE),
        // SAFETY: no byte of it is touched, as the test shows.
        unsafe { pd.register_memory(NonNull::from(&DATA).cast(), LARGE, Access::LOCAL_WRITE) },
    ];
    for made in refused {
        assert!(matches!(made, Err(Error::Refused(_))), "{made:?}");
    }
    let asked = fake.asked();
    let registered = |request: &&Request| matches!(request, Request::RegisterMemory(_));
    assert_eq!(asked.iter().find(registered), None);
    assert_eq!(rnic_adopt::adopted_bytes(), before);

    // Nobody has as much, whatever the RNIC says.
    fake.refuse(|_| None);
    let made = pd.register(LARGE, Access::LOCAL_WRITE);
    assert!(
        matches!(made, Err(Error::Memory(ShmError::NoPages))),
        "{made:?}"
    );
}

#[test]
fn ranges_that_can_t_be_are_refused_and_nobody_is_asked() {
    let (fake, context) = Fake::start();
    let pd = context.alloc_pd().unwrap();
    let before = fake.asked().len();
    let start = NonNull::from(&DATA).cast::<u8>();
    for len in [0, MAPPING_MAX as usize + 1, usize::MAX] {
        // SAFETY: no byte of it is touched.
        let made = unsafe { pd.register_memory(start, len, Access::LOCAL_WRITE) };
        assert!(matches!(made, Err(Error::Memory(_))), "{len}: {made:?}");
    }
    assert_eq!(fake.asked().len(), before);
}
