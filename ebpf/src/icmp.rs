//! Sockets for ICMP errors about what was claimed (RFC 9293 section 3.9.2.2).
//!
//! The kernel keeps ICMP and hands out copies. What is no error about a claimed address and port is
//! filtered out before it takes room in a socket's queue.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

use crate::error::SteeringError;
use crate::program::Program;

/// Bytes that may wait in a socket, by the kernel's count, which has much overhead for small
/// messages: some hundred errors.
const QUEUE: usize = 128 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    /// ICMP (RFC 792). Messages begin with the IP header; their ICMP checksum was not looked at.
    V4,
    /// ICMPv6 (RFC 4443). Messages come without the IP header and with a right checksum.
    V6,
}

/// Opens a socket, in the calling thread's network namespace.
pub(crate) fn open(
    program: &mut Program,
    interface: &str,
    version: IpVersion,
) -> Result<OwnedFd, SteeringError> {
    let (family, protocol) = match version {
        IpVersion::V4 => (AddressFamily::INET, ipproto::ICMP),
        IpVersion::V6 => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let failed =
        |errno| SteeringError::kernel(interface, "open an ICMP socket", io::Error::from(errno));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol)).map_err(failed)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, QUEUE).map_err(failed)?;
    program.filter_icmp(version, socket.as_fd())?;
    Ok(socket)
}
