//! Two interfaces opened for the link: taps, AF_XDP sockets on one shared memory, their losses.

use rnic_steering::{ModePreference, Tap, number_of_rx_queues};
use rnic_xsk::{
    ChunkSize, FramePool, Port, PortStatistics, Umem, UmemConfig, XskError, XskPort, XskPortConfig,
};
use serde::Serialize;

use super::bridge::{Bridge, Side};
use super::buffers::Buffers;
use super::config::Config;
use super::run::RunError;

/// Entries of the fill and the RX ring of each queue: what may come while the link is not running.
const RECEIVE_RING: u32 = 4096;
/// Entries of the TX and the completion ring of each queue.
const TRANSMIT_RING: u32 = 1024;
/// Frames beside those in rings that the link has at least, for queues and delays.
const LEAST_FRAMES: u32 = 1024;

#[derive(Clone, Debug)]
pub struct CarrierOptions {
    /// The interface on the left, of the calling thread's network namespace.
    pub left: String,
    pub right: String,
    /// Frames that queues and delays may hold, beside those that wait for reception.
    pub frames: u32,
    /// Native or generic XDP.
    pub mode: ModePreference,
}

/// The link's carrier: taps on both interfaces, and the bridge between their ports.
#[derive(Debug)]
pub struct Carrier {
    pub bridge: Bridge<XskPort>,
    taps: [Tap; 2],
    /// What each tap took before there was a socket for it, which was before there was a link.
    unserved_before: [u64; 2],
}

/// What the carrier lost by itself, in packets: the link did not mean to. On a link that keeps up
/// all are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CarrierLoss {
    /// Not received: the RX ring was full, or no frame was there to receive into.
    pub receive: u64,
    /// Not sent: the interface's own queue was full.
    pub send: u64,
    /// Came in on a queue that nobody serves, or was no usable frame.
    pub unusable: u64,
}

impl CarrierLoss {
    pub fn total(&self) -> u64 {
        self.receive + self.send + self.unusable
    }
}

impl Carrier {
    /// Opens both interfaces. From now on their kernel hears nothing from them.
    ///
    /// # Errors
    ///
    /// When an interface is not there, is used by somebody else, or the kernel refuses.
    pub fn open(options: &CarrierOptions, config: &Config) -> Result<Carrier, RunError> {
        if options.left == options.right {
            return Err(RunError::SameInterface(options.left.clone()));
        }
        let names = [&options.left, &options.right];
        let mut queues = [0; 2];
        for (count, name) in queues.iter_mut().zip(names) {
            *count = number_of_rx_queues(name)?;
        }
        let chunk = names.iter().filter_map(|name| mtu(name)).max();
        let chunk = match chunk {
            Some(mtu) => ChunkSize::for_mtu(mtu)?,
            None => ChunkSize::Bytes4096,
        };
        let (umem, mut pool, reserve) = memory(options, chunk, queues.iter().sum())?;
        let [left_name, right_name] = names;
        let (left_tap, left) = open_side(left_name, queues[0], &umem, &mut pool, options.mode)?;
        let (right_tap, right) = open_side(right_name, queues[1], &umem, &mut pool, options.mode)?;
        let buffers = Buffers {
            umem,
            pool,
            reserve,
        };
        let taps = [left_tap, right_tap];
        Ok(Carrier {
            bridge: Bridge::new(left, right, buffers, config),
            unserved_before: taps.each_ref().map(unserved),
            taps,
        })
    }

    /// What the carrier itself has lost on a side.
    pub fn lost(&self, side: usize) -> CarrierLoss {
        let mut lost = CarrierLoss {
            unusable: unserved(&self.taps[side]).saturating_sub(self.unserved_before[side]),
            ..CarrierLoss::default()
        };
        for port in self.bridge.statistics(side) {
            lost.add(&port);
        }
        lost
    }

    /// How the interfaces are served, for people.
    pub fn describe(&self) -> String {
        let [left, right] = &self.taps;
        format!(
            "{} ({} XDP) and {} ({} XDP)",
            left.interface(),
            left.mode(),
            right.interface(),
            right.mode()
        )
    }
}

impl CarrierLoss {
    fn add(&mut self, port: &PortStatistics) {
        self.receive += port.kernel_rx_dropped + port.kernel_rx_ring_full + port.receive_no_frame;
        self.send += port.send_dropped + port.kernel_tx_invalid;
        self.unusable += port.bad_receive_descriptors + port.bad_receive_chains;
    }
}

fn memory(
    options: &CarrierOptions,
    chunk: ChunkSize,
    queues: u32,
) -> Result<(Umem, FramePool, usize), RunError> {
    let rings = queues * (RECEIVE_RING + TRANSMIT_RING);
    let kept = options.frames.max(LEAST_FRAMES);
    // Half of a UMEM with wide frames is for receiving, the other half is wide ones.
    let frames = match chunk.chunks() as u32 {
        1 => rings + kept,
        chunks => 2 * (rings + kept).max(kept.saturating_mul(chunks)),
    };
    let (umem, pool) = Umem::new(&UmemConfig {
        frames,
        chunk,
        fill_ring: RECEIVE_RING,
        completion_ring: TRANSMIT_RING,
        ..UmemConfig::default()
    })?;
    // One batch of each queue is in hands, and the fill rings are short of what is in RX rings.
    let reserve = (queues * TRANSMIT_RING) as usize / 2;
    Ok((umem, pool, reserve))
}

fn open_side(
    interface: &str,
    queues: u32,
    umem: &Umem,
    pool: &mut FramePool,
    mode: ModePreference,
) -> Result<(Tap, Side<XskPort>), RunError> {
    let mut tap = Tap::attach(interface, mode)?;
    let mut ports = Vec::new();
    for queue in 0..queues {
        let mut config = XskPortConfig::new(interface, queue);
        config.rx_ring = RECEIVE_RING;
        config.tx_ring = TRANSMIT_RING;
        let mut port = XskPort::open(umem, config)?;
        port.refill(pool);
        tap.set_queue(queue, port.fd())?;
        ports.push(port);
    }
    Ok((tap, Side { ports }))
}

/// Frames that came in on a queue without a socket.
fn unserved(tap: &Tap) -> u64 {
    let counters = tap.counters();
    let unserved = counters.iter().filter(|(name, _)| *name == "no_socket");
    unserved.map(|(_, count)| count).sum()
}

/// The interface's MTU, where sysfs is this network namespace's; `None` where it can't be known.
fn mtu(interface: &str) -> Option<u32> {
    let path = format!("/sys/class/net/{interface}/mtu");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl From<XskError> for RunError {
    fn from(error: XskError) -> Self {
        RunError::Xsk(error)
    }
}
