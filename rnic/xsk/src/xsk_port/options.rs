//! Socket options and device queries that neither xsk-rs nor rustix offers.
//!
//! Invariant: every structure passed to the kernel is of the size and layout that the option's
//! documentation gives, and lives on the stack for the whole call.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::BusyPoll;

/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` of asm-generic/socket.h, which libc lacks.
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// `PACKET_VNET_HDR` of linux/if_packet.h.
const PACKET_VNET_HDR: libc::c_int = 15;

/// Bytes that a packet socket may have sent and the device not: what a full queue of super-packets takes.
const SEND_BUFFER: libc::c_int = 8 << 20;

/// `ETHTOOL_GCHANNELS` of linux/ethtool.h.
const ETHTOOL_GCHANNELS: u32 = 0x3c;

pub(super) fn set_busy_poll(socket: BorrowedFd<'_>, wanted: BusyPoll) -> io::Result<()> {
    let microseconds = wanted.microseconds.min(i32::MAX as u32) as libc::c_int;
    prefer_busy_poll(socket)?;
    set(socket, libc::SO_BUSY_POLL, microseconds)?;
    set(
        socket,
        SO_BUSY_POLL_BUDGET,
        libc::c_int::from(wanted.budget),
    )
}

/// Has the kernel leave the driver's interrupts off while the socket's owner polls.
pub(crate) fn prefer_busy_poll(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, SO_PREFER_BUSY_POLL, 1)
}

fn set(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_at(socket, (libc::SOL_SOCKET, option), value)
}

fn set_at(
    socket: BorrowedFd<'_>,
    (level, option): (libc::c_int, libc::c_int),
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the kernel reads one int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `struct ethtool_channels` of linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// A socket that sends packets over an interface, each behind a `struct virtio_net_hdr`, and receives none.
pub(super) fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let index = rustix::net::netdevice::name_to_index(
        rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?,
        interface,
    )?;
    let socket = rustix::net::socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    let fd = socket.as_fd();
    set_at(fd, (libc::SOL_PACKET, PACKET_VNET_HDR), 1)?;
    // Without the right to more it is as much as the host allows.
    if set(fd, libc::SO_SNDBUFFORCE, SEND_BUFFER).is_err() {
        set(fd, libc::SO_SNDBUF, SEND_BUFFER)?;
    }
    // SAFETY: `sockaddr_ll` is plain old data: all zeros is a value of it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index.cast_signed();
    // SAFETY: the kernel reads one `sockaddr_ll`, which outlives the call.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How many queues an AF_XDP socket may be bound to: as the kernel counts, those for receiving or
/// those for sending, whichever are more. `None` when the driver can't tell.
pub(super) fn queues(socket: BorrowedFd<'_>, interface: &str) -> Option<u32> {
    let mut channels = Channels {
        command: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    // SAFETY: `ifreq` is plain old data: all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The kernel wants a zero after the name.
    if interface.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.as_bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: for SIOCETHTOOL with this command the kernel reads and writes one `ifreq` and the
    // one `ethtool_channels` that it points to; both outlive the call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    (result == 0).then(|| {
        channels
            .combined
            .saturating_add(channels.rx.max(channels.tx))
    })
}
