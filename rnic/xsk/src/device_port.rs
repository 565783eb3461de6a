//! The ports of a device's shard: its interface's queues or UDP sockets, and its ends of internal links.

use std::os::fd::BorrowedFd;

use crate::error::XskError;
use crate::frame::Frame;
use crate::internal_port::InternalPort;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::port::{Port, PortStatistics};
use crate::udp_port::UdpPort;
use crate::umem::Umem;

/// A port of any kind; `Q` is a queue of the interface.
#[derive(Debug)]
pub enum DevicePort<Q> {
    Queue(Q),
    /// A link to another device of this process.
    Internal(InternalPort),
    /// A socket in the interface's stead.
    Udp(UdpPort),
}

/// The same of whichever it is.
macro_rules! any {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            DevicePort::Queue($port) => $call,
            DevicePort::Internal($port) => $call,
            DevicePort::Udp($port) => $call,
        }
    };
}

impl<Q: Port> Port for DevicePort<Q> {
    #[inline]
    fn umem(&self) -> &Umem {
        any!(self, port => port.umem())
    }

    #[inline]
    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        any!(self, port => port.receive(pool, out, max))
    }

    #[inline]
    fn receive_within(
        &mut self,
        looks: u32,
        pool: &mut FramePool,
        out: &mut Vec<Packet>,
        max: usize,
    ) -> usize {
        any!(self, port => port.receive_within(looks, pool, out, max))
    }

    #[inline]
    fn transmit_room(&mut self) -> usize {
        any!(self, port => port.transmit_room())
    }

    #[inline]
    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame> {
        any!(self, port => port.transmit(frame, cookie))
    }

    #[inline]
    fn flush(&mut self) -> Result<(), XskError> {
        any!(self, port => port.flush())
    }

    #[inline]
    fn unsent(&mut self) -> usize {
        any!(self, port => port.unsent())
    }

    fn copy_transmitted(&self, index: usize, pool: &mut FramePool) -> Option<Frame> {
        any!(self, port => port.copy_transmitted(index, pool))
    }

    #[inline]
    fn completed(&mut self) -> Option<(Frame, u64)> {
        any!(self, port => port.completed())
    }

    #[inline]
    fn refill(&mut self, pool: &mut FramePool) {
        any!(self, port => port.refill(pool));
    }

    fn prepare_sleep(&mut self, pool: &mut FramePool) {
        any!(self, port => port.prepare_sleep(pool));
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        any!(self, port => port.poll_fd())
    }

    #[inline]
    fn frame_capacity(&self) -> usize {
        any!(self, port => port.frame_capacity())
    }

    #[inline]
    fn is_of_kernel(&self) -> bool {
        any!(self, port => port.is_of_kernel())
    }

    fn statistics(&self) -> PortStatistics {
        any!(self, port => port.statistics())
    }

    fn of_internal(end: InternalPort) -> Option<Self> {
        Some(DevicePort::Internal(end))
    }

    fn internal(&mut self) -> Option<&mut InternalPort> {
        any!(self, port => port.internal())
    }
}
