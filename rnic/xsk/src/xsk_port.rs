//! One queue of an interface as a [`Port`]: an AF_XDP socket and its four rings.

use std::os::fd::BorrowedFd;
use std::sync::PoisonError;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::xdp::XdpOptionsFlags;
use rustix::net::{RecvFlags, SendFlags};

use crate::error::{XskError, from_errno, refusal};
use crate::frame::Frame;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::port::{Port, PortStatistics};
use crate::umem::Umem;

mod adaptive_fill;
mod chains;
#[allow(unsafe_code)]
mod open;
#[allow(unsafe_code)]
mod options;
#[allow(unsafe_code)]
mod rings;
mod super_packet;
mod super_send;

pub(crate) use options::prefer_busy_poll;
use rings::{ReceiveSide, TransmitSide};
use super_send::{Front, SuperSend};

/// Who copies a frame between driver and UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// The kernel chooses: zero-copy when the driver has it.
    #[default]
    Automatic,
    /// Always copy: every driver can.
    Copy,
    /// Zero-copy or an error.
    ZeroCopy,
}

/// Busy polling: the driver's receive path runs inside our system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// How long one call may poll, microseconds (`SO_BUSY_POLL`).
    pub microseconds: u32,
    /// How many packets one call may take (`SO_BUSY_POLL_BUDGET`).
    pub budget: u16,
}

/// Which queue of which interface, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XskPortConfig {
    /// The interface's name, in the calling thread's network namespace.
    pub interface: String,
    /// Which of its queues, from 0.
    pub queue: u32,
    /// Entries of the RX ring: a power of two.
    pub rx_ring: u32,
    /// Entries of the TX ring: a power of two.
    pub tx_ring: u32,
    /// Copy or zero-copy.
    pub copy_mode: CopyMode,
    /// Busy polling, or none.
    pub busy_poll: Option<BusyPoll>,
    /// Receive packets of up to 64 KiB in many chunks of 4096 bytes, from an XDP program that takes them. Send
    /// segments of one flow that only continue each other as one such packet.
    pub super_packets: bool,
}

impl XskPortConfig {
    /// A queue of an interface with rings of 512 and everything else left to the kernel.
    pub fn new(interface: impl Into<String>, queue: u32) -> Self {
        Self {
            interface: interface.into(),
            queue,
            rx_ring: 512,
            tx_ring: 512,
            copy_mode: CopyMode::default(),
            busy_poll: None,
            super_packets: false,
        }
    }
}

/// How long an EBUSY of the kernel is waited out: it frees a closed socket's queue with a delay.
const BUSY_PATIENCE: Duration = Duration::from_millis(500);
/// How long to wait before asking again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of an Ethernet header: the kernel has no use for a shorter frame.
const ETHERNET_HEADER: usize = 14;

/// An AF_XDP socket bound to one queue of one interface.
#[derive(Debug)]
pub struct XskPort {
    receive: ReceiveSide,
    transmit: TransmitSide,
    /// Where frames go first, if some may leave as one packet.
    supers: Option<SuperSend>,
    config: XskPortConfig,
    zero_copy: bool,
    statistics: PortStatistics,
    umem: Umem,
}

impl XskPort {
    /// Binds to the queue. Several ports may share `umem`: one for each queue, also of several
    /// interfaces. Call it in a thread in the interface's network namespace. The queue must be
    /// steered to the port ([`fd`](Self::fd)) before anything is received.
    ///
    /// Blocks for up to half a second when the queue is busy.
    ///
    /// # Errors
    ///
    /// [`XskError`] when the kernel refuses.
    pub fn open(umem: &Umem, config: XskPortConfig) -> Result<XskPort, XskError> {
        let kernel = open::kernel_side(umem, &config)?;
        let mut binding = kernel
            .binding
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (tx, rx, fill, completion) = open::bind(umem, kernel, &mut binding, &config)?;
        let frames = umem.frames();
        let supers = match config.super_packets {
            false => None,
            true => Some(open::super_send(&config)?),
        };
        let mut port = XskPort {
            receive: ReceiveSide::new(fill, rx, frames, kernel.fill_ring as usize),
            transmit: TransmitSide::new(tx, completion, umem, config.tx_ring as usize),
            supers,
            config,
            zero_copy: false,
            statistics: PortStatistics::default(),
            umem: umem.clone(),
        };
        binding.opened();
        drop(binding);
        port.zero_copy = rustix::net::sockopt::xdp_options(port.fd())
            .map_err(|errno| port.refused("is it zero-copy", &errno.into()))?
            .contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        if port.zero_copy {
            port.receive.keep_all();
        }
        if let Some(busy_poll) = port.config.busy_poll {
            options::set_busy_poll(port.fd(), busy_poll)
                .map_err(|error| port.refused("busy polling", &error))?;
        }
        log::info!(
            "AF_XDP on {} queue {}: {} mode",
            port.config.interface,
            port.config.queue,
            if port.zero_copy { "zero-copy" } else { "copy" }
        );
        Ok(port)
    }

    /// The socket, for the steering program's map.
    pub fn fd(&self) -> BorrowedFd<'_> {
        rings::borrow_fd(self.receive.socket())
    }

    /// Whether the driver puts frames straight into the UMEM.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    pub fn config(&self) -> &XskPortConfig {
        &self.config
    }

    /// Has the kernel send what is in the TX ring.
    fn flush_ring(&mut self) -> Result<(), Errno> {
        let fd = rings::borrow_fd(self.receive.socket());
        self.transmit
            .flush(self.zero_copy, &mut self.statistics, || {
                rustix::net::send(fd, &[], SendFlags::DONTWAIT).map(|_| ())
            })
    }

    /// Sends what is queued: in its order, so the ring is empty before the packet socket sends.
    #[inline(never)]
    fn flush_supers(&mut self) -> Result<(), Errno> {
        while let Some(supers) = &mut self.supers {
            match supers.front(&self.umem) {
                Front::Empty => break,
                Front::Single(frame, cookie) => {
                    let Some(kernel) = self.umem.kernel_side() else {
                        break;
                    };
                    let staged = self.transmit.stage(&self.umem, kernel, frame, cookie);
                    if let Err(frame) = staged {
                        supers.put_back(frame, cookie);
                        break;
                    }
                }
                Front::Several(run) => {
                    self.flush_ring()?;
                    if self.transmit.unsent() > 0 {
                        break;
                    }
                    let Some(supers) = &mut self.supers else {
                        break;
                    };
                    if !supers.send(run, &self.umem, &mut self.statistics)? {
                        break;
                    }
                }
            }
        }
        self.flush_ring()
    }

    fn refused(&self, asked: &str, error: &std::io::Error) -> XskError {
        refusal(open::request(&self.config, asked), error)
    }

    /// Lets the driver run when it waits for that, or when we are to poll for it.
    fn wake_receive(&self) {
        if self.config.busy_poll.is_some() || self.receive.needs_wakeup() {
            let nothing: &mut [u8] = &mut [];
            // Whatever it says (nothing to do, interface down), the RX ring and `flush` tell.
            let _ = rustix::net::recv(self.fd(), nothing, RecvFlags::DONTWAIT);
        }
    }
}

impl Drop for XskPort {
    fn drop(&mut self) {
        if let Some(kernel) = self.umem.kernel_side() {
            kernel
                .binding
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .closed();
        }
    }
}

impl Port for XskPort {
    fn umem(&self) -> &Umem {
        &self.umem
    }

    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        self.receive_within(1, pool, out, max)
    }

    fn receive_within(
        &mut self,
        looks: u32,
        pool: &mut FramePool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> usize {
        let count = self
            .receive
            .receive(&self.umem, pool, out, (max, looks), &mut self.statistics);
        if count == 0 {
            self.wake_receive();
        }
        count
    }

    fn transmit_room(&mut self) -> usize {
        let ring = self.transmit.room();
        match &self.supers {
            None => ring,
            Some(supers) => supers.room(ring),
        }
    }

    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame> {
        let len = frame.len();
        assert!(len >= ETHERNET_HEADER, "{len} bytes are no Ethernet frame");
        let ring = match self.supers {
            None => 0,
            Some(_) => self.transmit.room(),
        };
        let taken = match (&mut self.supers, self.umem.kernel_side()) {
            (Some(supers), _) if supers.room(ring) == 0 => Err(frame),
            (Some(supers), _) => {
                assert!(self.umem.owns(&frame), "a frame of another UMEM");
                supers.push(frame, cookie);
                Ok(())
            }
            (None, Some(kernel)) => self.transmit.stage(&self.umem, kernel, frame, cookie),
            (None, None) => Err(frame),
        };
        if taken.is_ok() {
            self.statistics.transmitted += 1;
            self.statistics.transmitted_bytes += len as u64;
        } else {
            self.statistics.transmit_ring_full += 1;
        }
        taken
    }

    fn flush(&mut self) -> Result<(), XskError> {
        let flushed = match self
            .supers
            .as_ref()
            .is_some_and(|supers| supers.unsent() > 0)
        {
            false => self.flush_ring(),
            true => self.flush_supers(),
        };
        flushed
            .map_err(|errno| from_errno(open::request(&self.config, "send"), errno.raw_os_error()))
    }

    fn unsent(&mut self) -> usize {
        let queued = self.supers.as_ref().map_or(0, SuperSend::unsent);
        queued + self.transmit.unsent()
    }

    fn copy_transmitted(&self, index: usize, pool: &mut FramePool) -> Option<Frame> {
        match (&self.supers, self.transmit.sent(index)) {
            (Some(supers), None) => supers.copy(&self.umem, index, pool),
            (_, sent) => self.umem.copy_spread(sent?, pool),
        }
    }

    fn completed(&mut self) -> Option<(Frame, u64)> {
        if let Some(supers) = &mut self.supers
            && let Some(done) = supers.completed(&mut self.statistics)
        {
            return Some(done);
        }
        self.transmit.completed(&self.umem, &mut self.statistics)
    }

    fn refill(&mut self, pool: &mut FramePool) {
        if let Some(kernel) = self.umem.kernel_side() {
            self.receive.refill(&self.umem, &kernel.descriptors, pool);
        }
    }

    fn prepare_sleep(&mut self, pool: &mut FramePool) {
        self.receive.expect_many();
        self.refill(pool);
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd())
    }

    fn frame_capacity(&self) -> usize {
        self.umem.frame_capacity()
    }

    fn statistics(&self) -> PortStatistics {
        let mut statistics = self.statistics;
        // Fails only for a socket that is not of AF_XDP.
        if let Ok(kernel) = self.receive.socket().xdp_statistics() {
            statistics.kernel_rx_dropped = kernel.rx_dropped();
            statistics.kernel_rx_ring_full = kernel.rx_ring_full();
            statistics.kernel_fill_ring_empty = kernel.rx_fill_ring_empty_descs();
            statistics.kernel_rx_invalid = kernel.rx_invalid_descs();
            statistics.kernel_tx_invalid = kernel.tx_invalid_descs();
            statistics.kernel_tx_ring_empty = kernel.tx_ring_empty_descs();
        }
        statistics
    }
}
