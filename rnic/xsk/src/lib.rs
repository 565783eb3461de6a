//! AF_XDP: UMEM, owned frames, rings, and the port that the engine drives.
//!
//! A [`Frame`] is a value that is moved: from a [`FramePool`] into a ring, back out of it, back to
//! the pool. Whoever has the `Frame` has the bytes; using a frame twice does not compile. An Ethernet
//! frame that is larger than a chunk is sent from a wide `Frame`, one stretch of bytes over several
//! chunks, and received as a [`Packet`] of several `Frame`s. A [`Port`] is one interface queue
//! ([`XskPort`]), a UDP socket ([`UdpPort`]), or one end of a link between two devices of one process
//! ([`InternalPort`]); a device has these as [`DevicePort`]s. [`MemoryPort`] is one end of a link in memory for tests.
//!
//! `unsafe` is allowed only in `umem`, in `prefetch`, in `xsk_port`'s `open`, `options` and `rings`, and in `udp_port`'s `sys`,
//! each with its invariant at the top.
//!
//! ```
//! use rnic_xsk::{ChunkSize, MemoryPort, Port, Umem};
//!
//! let (umem, mut pool) = Umem::heap(8, ChunkSize::Bytes2048);
//! let (mut a, mut b) = MemoryPort::pair(&umem, &umem, 4);
//! let mut frame = pool.alloc().expect("there are eight");
//! umem.bytes_mut(&mut frame)[..5].copy_from_slice(b"hello");
//! frame.set_len(5);
//! a.transmit(frame, 0).expect("there is room for four");
//! a.flush().expect("a link in memory is never down");
//!
//! let mut received = Vec::new();
//! assert_eq!(b.receive(&mut pool, &mut received, 4), 1);
//! let (frame, _cookie) = a.completed().expect("it was sent");
//! pool.free(frame);
//! ```

#![deny(unsafe_code)]

mod channel;
mod device_port;
mod error;
mod frame;
mod handover;
mod internal_port;
mod kernel_feature;
mod memory_port;
mod packet;
mod passes;
mod pool;
mod port;
#[allow(unsafe_code)]
pub mod prefetch;
mod send_queue;
mod sync;
mod udp_port;
#[allow(unsafe_code)]
mod umem;
mod xsk_port;

pub use device_port::DevicePort;
pub use error::{Request, XskError};
pub use frame::Frame;
pub use handover::{Handover, HandoverStatistics};
pub use internal_port::{InternalEnd, InternalPort};
pub use kernel_feature::KernelFeature;
pub use memory_port::{MemoryPort, MemoryWire};
pub use packet::Packet;
pub use passes::Passes;
pub use pool::FramePool;
pub use port::{Port, PortStatistics};
pub use udp_port::{LINK_ADDRESS, UdpPort};
pub use umem::{
    CHUNK_HEADROOM, CHUNKS_MAX, ChunkSize, HugePages, MAX_FRAMES, PageKind, Umem, UmemConfig,
};
pub use xsk_port::{BusyPoll, CopyMode, XskPort, XskPortConfig};
