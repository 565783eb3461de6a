//! Registering memory with the kernel, by xsk-rs.
//!
//! Invariant: the returned `base` is the start of the memory that the returned `umem` keeps mapped,
//! `descriptors.len()` chunks long, and descriptor i's address is `i * chunk + CHUNK_HEADROOM`.

use std::num::NonZeroU32;

use xsk_rs::config::{FrameSize, QueueSize, UmemConfig as XskUmemConfig};
use xsk_rs::umem::frame::FrameDesc;

use super::config::{CHUNK_HEADROOM, HugePages, MAX_FRAMES, PageKind, UmemConfig};
use crate::error::{Request, XskError, refusal};

/// Bytes of a huge page. Other sizes exist, but this is the one that an unqualified MAP_HUGETLB
/// gives on x86-64 and arm64 with 4 KiB pages.
const HUGE_PAGE: u32 = 2 << 20;

/// Memory that the kernel knows.
pub(super) struct Registered {
    pub(super) umem: xsk_rs::Umem,
    pub(super) descriptors: Vec<FrameDesc>,
    pub(super) base: *mut u8,
    pub(super) pages: PageKind,
}

/// Huge pages first when `config` says so, then ordinary ones.
pub(super) fn register(
    config: &UmemConfig,
    request: impl Fn() -> Request,
) -> Result<Registered, XskError> {
    if config.huge_pages == HugePages::Prefer {
        let per_page = HUGE_PAGE / config.chunk.bytes() as u32;
        let rounded = config.frames.next_multiple_of(per_page).min(MAX_FRAMES);
        match create(config, rounded, true, &request) {
            Ok((umem, descriptors)) => {
                return finish(config, umem, descriptors, PageKind::Huge, request);
            }
            // Why is the kernel's advice for a failure, which this is not: most hosts reserve none.
            Err(error) => log::debug!("the UMEM can't lie in huge pages: {error}"),
        }
    }
    let (umem, descriptors) = create(config, config.frames, false, &request)?;
    finish(config, umem, descriptors, PageKind::Ordinary, request)
}

fn create(
    config: &UmemConfig,
    frames: u32,
    huge: bool,
    request: impl Fn() -> Request,
) -> Result<(xsk_rs::Umem, Vec<FrameDesc>), XskError> {
    let invalid = |hint| XskError::Invalid {
        request: request(),
        hint,
    };
    let frame_size = FrameSize::new(config.chunk.bytes() as u32)
        .map_err(|_| invalid("chunks of 2048 or 4096 bytes"))?;
    let ring = |entries| QueueSize::new(entries).map_err(|_| invalid("rings of a power of two"));
    let xsk_config = XskUmemConfig::builder()
        .frame_size(frame_size)
        .fill_queue_size(ring(config.fill_ring)?)
        .comp_queue_size(ring(config.completion_ring)?)
        .frame_headroom(0)
        .build()
        .map_err(|_| invalid("chunks of 2048 or 4096 bytes"))?;
    let frames = NonZeroU32::new(frames).ok_or_else(|| invalid("at least one frame"))?;
    xsk_rs::Umem::new(xsk_config, frames, huge).map_err(|error| refusal(request(), &error))
}

fn finish(
    config: &UmemConfig,
    umem: xsk_rs::Umem,
    mut descriptors: Vec<FrameDesc>,
    pages: PageKind,
    request: impl Fn() -> Request,
) -> Result<Registered, XskError> {
    let layout_is_ours = descriptors.iter().enumerate().all(|(index, descriptor)| {
        descriptor.addr() == index * config.chunk.bytes() + usize::from(CHUNK_HEADROOM)
    });
    let Some(first) = descriptors.first_mut().filter(|_| layout_is_ours) else {
        let hint = "xsk-rs lays chunks out in another way than this crate expects";
        return Err(XskError::Invalid {
            request: request(),
            hint,
        });
    };
    // xsk-rs does not give the start of its memory, only that of a chunk's data. Its provenance
    // is exposed there so that the whole mapping can be reached from it.
    // SAFETY: the descriptor is of this UMEM, and nobody else uses the memory yet.
    let data = unsafe { umem.data_mut(first) }.contents_mut().as_mut_ptr();
    let base = std::ptr::with_exposed_provenance_mut::<u8>(
        data.expose_provenance() - usize::from(CHUNK_HEADROOM),
    );
    Ok(Registered {
        umem,
        descriptors,
        base,
        pages,
    })
}
