//! Binding an AF_XDP socket to a queue.
//!
//! Invariant: the rings that [`bind`] returns are of one socket, which is bound and uses the UMEM
//! it was asked for; no XDP program is loaded by it.

use std::str::FromStr;
use std::thread;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketType};
use xsk_rs::config::{BindFlags, Interface, LibxdpFlags, QueueSize, SocketConfig};
use xsk_rs::{CompQueue, FillQueue, RxQueue, Socket, TxQueue};

use super::super_send::SuperSend;
use super::{BUSY_PATIENCE, BUSY_PAUSE, CopyMode, XskPortConfig, options};
use crate::error::{Request, XskError, refusal};
use crate::umem::{Binding, KernelSide, Umem, check_ring};

type Rings = (TxQueue, RxQueue, FillQueue, CompQueue);

/// What is asked about a port's queue, for an error.
pub(super) fn request(config: &XskPortConfig, asked: impl Into<String>) -> Request {
    Request {
        place: Some((config.interface.clone(), config.queue)),
        asked: asked.into(),
    }
}

fn bind_request(config: &XskPortConfig) -> Request {
    let mode = match config.copy_mode {
        CopyMode::Automatic => "copy or zero-copy",
        CopyMode::Copy => "copy",
        CopyMode::ZeroCopy => "zero-copy",
    };
    let (rx, tx) = (config.rx_ring, config.tx_ring);
    request(
        config,
        format!("bind an AF_XDP socket ({mode}, RX ring {rx}, TX ring {tx})"),
    )
}

/// The UMEM as the kernel knows it.
pub(super) fn kernel_side<'a>(
    umem: &'a Umem,
    config: &XskPortConfig,
) -> Result<&'a KernelSide, XskError> {
    umem.kernel_side().ok_or_else(|| XskError::Invalid {
        request: bind_request(config),
        hint: "the UMEM is on the heap, unknown to the kernel: make it with Umem::new",
    })
}

/// Binds a socket, waiting out a queue that is busy because its socket closed a moment ago.
pub(super) fn bind(
    umem: &Umem,
    kernel: &KernelSide,
    binding: &mut Binding,
    config: &XskPortConfig,
) -> Result<Rings, XskError> {
    let invalid = |hint| XskError::Invalid {
        request: bind_request(config),
        hint,
    };
    check_ring(config.rx_ring).map_err(invalid)?;
    check_ring(config.tx_ring).map_err(invalid)?;
    let interface =
        Interface::from_str(&config.interface).map_err(|_| XskError::UnknownInterface {
            request: bind_request(config),
        })?;
    binding
        .may_open((config.rx_ring, config.tx_ring))
        .map_err(invalid)?;

    let once = |copy_mode| bind_once((umem, kernel), &interface, config, copy_mode);
    let started = Instant::now();
    loop {
        match once(config.copy_mode) {
            Err(XskError::Busy { .. }) if started.elapsed() < BUSY_PATIENCE => {
                thread::sleep(BUSY_PAUSE);
            }
            Err(XskError::NotSupported { .. }) if config.copy_mode == CopyMode::Automatic => {
                // The kernel turns to copy mode by itself, but for drivers that have zero-copy
                // and refuse it for this UMEM or queue.
                return once(CopyMode::Copy);
            }
            Err(XskError::Invalid { request, .. }) if beyond_queues(config).is_some() => {
                return Err(XskError::NoSuchQueue {
                    request,
                    available: beyond_queues(config),
                });
            }
            result => return result,
        }
    }
}

fn bind_once(
    (umem, kernel): (&Umem, &KernelSide),
    interface: &Interface,
    config: &XskPortConfig,
    copy_mode: CopyMode,
) -> Result<Rings, XskError> {
    let ring = |entries| {
        QueueSize::new(entries).map_err(|_| XskError::Invalid {
            request: bind_request(config),
            hint: "a ring's number of entries must be a power of two",
        })
    };
    let copy = match copy_mode {
        CopyMode::Automatic => BindFlags::empty(),
        CopyMode::Copy => BindFlags::XDP_COPY,
        CopyMode::ZeroCopy => BindFlags::XDP_ZEROCOPY,
    };
    let frags = match umem.chunk().chunks() > 1 || config.super_packets {
        false => BindFlags::empty(),
        true => BindFlags::XDP_USE_SG,
    };
    let socket_config = SocketConfig::builder()
        .rx_queue_size(ring(config.rx_ring)?)
        .tx_queue_size(ring(config.tx_ring)?)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(BindFlags::XDP_USE_NEED_WAKEUP | copy | frags)
        .build();
    // SAFETY: the condition on sharing is met: loading a program is inhibited.
    let made = unsafe { Socket::new(socket_config, &kernel.umem, interface, config.queue) };
    match made {
        Ok((tx, rx, Some((fill, completion)))) => Ok((tx, rx, fill, completion)),
        // The same UMEM has another socket on this queue, and its fill and completion rings.
        Ok((_, _, None)) => Err(XskError::Busy {
            request: bind_request(config),
        }),
        Err(error) => Err(refusal(bind_request(config), &error)),
    }
}

/// The sending side for packets of several segments.
pub(super) fn super_send(config: &XskPortConfig) -> Result<SuperSend, XskError> {
    let request = || request(config, "a packet socket with a vnet header (super-packets)");
    if config.copy_mode != CopyMode::Copy {
        let hint = "super-packets are received by copying: ask for copy mode";
        return Err(XskError::Invalid {
            request: request(),
            hint,
        });
    }
    SuperSend::open(&config.interface, config.tx_ring as usize)
        .map_err(|error| refusal(request(), &error))
}

/// How many queues the interface has, if the one asked for is not among them.
fn beyond_queues(config: &XskPortConfig) -> Option<u32> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    let queues = options::queues(std::os::fd::AsFd::as_fd(&socket), &config.interface)?;
    (config.queue >= queues).then_some(queues)
}
