//! The ports of a device's shard: its interface's queues, and its ends of internal links.

use std::os::fd::BorrowedFd;

use crate::error::XskError;
use crate::frame::Frame;
use crate::internal_port::InternalPort;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::port::{Port, PortStatistics};
use crate::umem::Umem;

/// A port of either kind; `Q` is a queue of the interface.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a device has few of them, which stay where they are, and mostly queues"
)]
pub enum DevicePort<Q> {
    Queue(Q),
    /// A link to another device of this process.
    Internal(InternalPort),
}

/// The same of whichever it is.
macro_rules! either {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            DevicePort::Queue($port) => $call,
            DevicePort::Internal($port) => $call,
        }
    };
}

impl<Q: Port> Port for DevicePort<Q> {
    #[inline]
    fn umem(&self) -> &Umem {
        either!(self, port => port.umem())
    }

    #[inline]
    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        either!(self, port => port.receive(pool, out, max))
    }

    #[inline]
    fn receive_within(
        &mut self,
        looks: u32,
        pool: &mut FramePool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> usize {
        either!(self, port => port.receive_within(looks, pool, out, max))
    }

    #[inline]
    fn transmit_room(&mut self) -> usize {
        either!(self, port => port.transmit_room())
    }

    #[inline]
    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame> {
        either!(self, port => port.transmit(frame, cookie))
    }

    #[inline]
    fn flush(&mut self) -> Result<(), XskError> {
        either!(self, port => port.flush())
    }

    #[inline]
    fn unsent(&mut self) -> usize {
        either!(self, port => port.unsent())
    }

    fn copy_transmitted(&self, index: usize, pool: &mut FramePool) -> Option<Frame> {
        either!(self, port => port.copy_transmitted(index, pool))
    }

    #[inline]
    fn completed(&mut self) -> Option<(Frame, u64)> {
        either!(self, port => port.completed())
    }

    #[inline]
    fn refill(&mut self, pool: &mut FramePool) {
        either!(self, port => port.refill(pool));
    }

    fn prepare_sleep(&mut self, pool: &mut FramePool) {
        either!(self, port => port.prepare_sleep(pool));
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        either!(self, port => port.poll_fd())
    }

    #[inline]
    fn frame_capacity(&self) -> usize {
        either!(self, port => port.frame_capacity())
    }

    fn statistics(&self) -> PortStatistics {
        either!(self, port => port.statistics())
    }

    fn of_internal(end: InternalPort) -> Option<Self> {
        Some(DevicePort::Internal(end))
    }

    fn internal(&mut self) -> Option<&mut InternalPort> {
        either!(self, port => port.internal())
    }
}
