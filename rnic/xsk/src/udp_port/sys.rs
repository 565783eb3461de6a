//! The system calls of a UDP socket with their control messages, which rustix does not offer.
//!
//! Invariant: every structure that is passed to the kernel is of the size and layout that the option's documentation
//! gives, and lives, as do the buffers that it points to, until the call is over. What the kernel writes is read by
//! value, and lengths that it says are cut to the buffers'.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, c_void, cmsghdr, mmsghdr, msghdr, sockaddr_storage, socklen_t};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Messages of one call.
pub(super) const MESSAGES_MAX: usize = 8;
/// Buffers of the messages of one call.
pub(super) const PARTS_MAX: usize = 128;

/// Bytes that wait to be received or sent, as far as the host lets anybody have as much.
const BUFFER: c_int = 8 << 20;
const ANY_PORT: u16 = 9;
/// Words of control messages: address, class, size of segments; or an error with addresses.
const CONTROL_WORDS: usize = 24;

type Control = [u64; CONTROL_WORDS];

/// A socket of both families, or of the one that its address has.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// It takes addresses of IPv4 mapped into IPv6's.
    is_v6: bool,
}

/// Where datagrams go, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) local: IpAddr,
    pub(super) remote: SocketAddr,
    /// The Traffic Class, or Type of Service.
    pub(super) class: u8,
}

/// Datagrams to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) route: Route,
    /// How many of the buffers it has.
    pub(super) parts: usize,
    /// Bytes of each datagram but the last, if there are several.
    pub(super) segment: Option<u16>,
}

/// Datagrams that were received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) route: Route,
    pub(super) len: usize,
    /// Bytes of each datagram but the last, if there are several.
    pub(super) segment: Option<usize>,
}

/// An entry of the error queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedError {
    /// That of the datagram.
    pub(super) route: Route,
    /// How many bytes of the datagram are quoted.
    pub(super) len: usize,
    pub(super) errno: u32,
    /// `SO_EE_ORIGIN_LOCAL` and the others of linux/errqueue.h.
    pub(super) origin: u8,
    /// Of the ICMP message.
    pub(super) kind: u8,
    pub(super) code: u8,
    /// The MTU, of what was too large.
    pub(super) info: u32,
}

impl Socket {
    /// Binds to a port of an address, or of all. `shared`: beside others of this user's that share the port, too.
    pub(super) fn bind(address: Option<IpAddr>, port: u16, shared: bool) -> io::Result<Self> {
        let any = |address: IpAddr| SocketAddr::new(address, port);
        let mut socket = match address {
            Some(address) => Self::new(address.is_ipv6())?,
            // A kernel without IPv6 has IPv4.
            None => Self::new(true).or_else(|_| Self::new(false))?,
        };
        if shared {
            socket.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        let unspecified = || match socket.is_v6 {
            true => any(Ipv6Addr::UNSPECIFIED.into()),
            false => any(Ipv4Addr::UNSPECIFIED.into()),
        };
        let bound = rustix::net::bind(&socket.fd, &address.map_or_else(unspecified, any));
        match (address, bound) {
            // Where IPv6 is switched off nothing is bound to its addresses.
            (None, Err(Errno::ADDRNOTAVAIL)) if socket.is_v6 => {
                socket = Self::new(false)?;
                rustix::net::bind(&socket.fd, &any(Ipv4Addr::UNSPECIFIED.into()))?;
            }
            (_, bound) => bound?,
        }
        Ok(socket)
    }

    fn new(is_v6: bool) -> io::Result<Self> {
        let family = match is_v6 {
            true => AddressFamily::INET6,
            false => AddressFamily::INET,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        let socket = Self { fd, is_v6 };
        for (option, forced) in [
            (libc::SO_RCVBUF, libc::SO_RCVBUFFORCE),
            (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE),
        ] {
            // Without the right to more it is as much as the host allows.
            if socket.set(libc::SOL_SOCKET, forced, BUFFER).is_err() {
                socket.set(libc::SOL_SOCKET, option, BUFFER)?;
            }
        }
        if is_v6 {
            socket.set(libc::SOL_IPV6, libc::IPV6_V6ONLY, 0)?;
            socket.set(libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
            socket.set(libc::SOL_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            socket.set(libc::SOL_IPV6, libc::IPV6_RECVERR, 1)?;
        } else {
            socket.set(libc::SOL_IP, libc::IP_PKTINFO, 1)?;
        }
        socket.set(libc::SOL_IP, libc::IP_RECVTOS, 1)?;
        socket.set(libc::SOL_IP, libc::IP_RECVERR, 1)?;
        socket.set_fragments(false)?;
        // Before Linux 5.0 each datagram comes by itself.
        let _ = socket.set(libc::SOL_UDP, libc::UDP_GRO, 1);
        Ok(socket)
    }

    /// Whether the kernel may send fragments. If not, datagrams have the DF bit, and are refused above the interface's
    /// MTU; what routers say is for the sender to judge (`IP_PMTUDISC_PROBE`).
    pub(super) fn set_fragments(&self, may: bool) -> io::Result<()> {
        let (v4, v6) = match may {
            true => (libc::IP_PMTUDISC_DONT, libc::IPV6_PMTUDISC_DONT),
            false => (libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE),
        };
        if self.is_v6 {
            self.set(libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, v6)?;
        }
        self.set(libc::SOL_IP, libc::IP_MTU_DISCOVER, v4)
    }

    fn set(&self, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
        // SAFETY: the kernel reads one int, which outlives the call.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of::<c_int>() as socklen_t,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(rustix::net::getsockname(&self.fd)?.try_into()?)
    }

    /// Sends messages, whose buffers follow each other in `parts`; says how many were taken, one at least.
    pub(super) fn send(
        &self,
        messages: &[Message],
        parts: &mut [IoSlice<'_>],
    ) -> Result<usize, Errno> {
        let count = messages.len().min(MESSAGES_MAX);
        // SAFETY: these are plain old data, of which all zeros are values.
        let (mut headers, mut names, mut controls): (
            [mmsghdr; MESSAGES_MAX],
            [sockaddr_storage; MESSAGES_MAX],
            [Control; MESSAGES_MAX],
        ) = unsafe { (zeroed(), zeroed(), zeroed()) };
        let mut left = parts;
        for (((message, header), name), control) in messages
            .iter()
            .zip(&mut headers)
            .zip(&mut names)
            .zip(&mut controls)
        {
            let (own, rest) = left.split_at_mut(message.parts.min(left.len()));
            left = rest;
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut *name).cast();
            header.msg_namelen = write_name(name, self.is_v6, message.route.remote);
            // `IoSlice` has the layout of `iovec`.
            header.msg_iov = own.as_mut_ptr().cast();
            header.msg_iovlen = own.len();
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = self.write_control(control, message);
        }
        // SAFETY: each of the `count` headers points to a name, control messages and buffers of the lengths that it says,
        // all of which are borrowed here, and which the kernel reads.
        let sent = unsafe {
            libc::sendmmsg(
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                count as u32,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| last_errno())
    }

    fn write_control(&self, control: &mut Control, message: &Message) -> usize {
        let Route { local, class, .. } = message.route;
        let mut to = ControlWriter { control, len: 0 };
        match local {
            IpAddr::V4(local) if !self.is_v6 => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: in_addr(local),
                    ipi_addr: in_addr(Ipv4Addr::UNSPECIFIED),
                };
                to.put(libc::SOL_IP, libc::IP_PKTINFO, info);
            }
            local => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: in6_addr(mapped(local)),
                    ipi6_ifindex: 0,
                };
                to.put(libc::SOL_IPV6, libc::IPV6_PKTINFO, info);
            }
        }
        if class != 0 {
            match local.is_ipv4() {
                true => to.put(libc::SOL_IP, libc::IP_TOS, c_int::from(class)),
                false => to.put(libc::SOL_IPV6, libc::IPV6_TCLASS, c_int::from(class)),
            }
        }
        if let Some(segment) = message.segment {
            to.put(libc::SOL_UDP, libc::UDP_SEGMENT, segment);
        }
        to.len
    }

    /// Receives one or several datagrams into buffers, which are filled one after the other. None when they came from
    /// or to nobody, or were cut.
    pub(super) fn receive(&self, parts: &mut [IoSliceMut<'_>]) -> Result<Option<Received>, Errno> {
        let (len, name, control, flags) = self.receive_message(parts, libc::MSG_DONTWAIT)?;
        let mut received = Received {
            route: Route {
                local: Ipv4Addr::UNSPECIFIED.into(),
                remote: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
                class: 0,
            },
            len,
            segment: None,
        };
        let Some(remote) = read_name(&name) else {
            return Ok(None);
        };
        received.route.remote = remote;
        let mut is_known = false;
        for_each_control(&control, |level, kind, data| match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                received.segment = data.read::<c_int>().map(|size| size.max(1) as usize);
            }
            _ => is_known |= received.route.read(level, kind, data),
        });
        let whole = flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
        Ok((is_known && whole).then_some(received))
    }

    /// Takes an entry of the error queue, with as much of the datagram as fits. None of one that names no datagram.
    pub(super) fn take_error(&self, quoted: &mut [u8]) -> Result<Option<QueuedError>, Errno> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE;
        let mut parts = [IoSliceMut::new(quoted)];
        let (len, name, control, _) = self.receive_message(&mut parts, flags)?;
        let Some(remote) = read_name(&name) else {
            return Ok(None);
        };
        let mut route = Route {
            local: Ipv4Addr::UNSPECIFIED.into(),
            remote,
            class: 0,
        };
        let mut error = None;
        for_each_control(&control, |level, kind, data| match (level, kind) {
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                error = data.read::<libc::sock_extended_err>();
            }
            _ => {
                route.read(level, kind, data);
            }
        });
        Ok(error.map(|error| QueuedError {
            route,
            len,
            errno: error.ee_errno,
            origin: error.ee_origin,
            kind: error.ee_type,
            code: error.ee_code,
            info: error.ee_info,
        }))
    }

    fn receive_message(
        &self,
        parts: &mut [IoSliceMut<'_>],
        flags: c_int,
    ) -> Result<(usize, sockaddr_storage, ReceivedControl, c_int), Errno> {
        let room = parts.iter().map(|part| part.len()).sum();
        // SAFETY: these are plain old data, of which all zeros are values.
        let (mut header, mut name): (msghdr, sockaddr_storage) = unsafe { (zeroed(), zeroed()) };
        let mut words: Control = [0; CONTROL_WORDS];
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = size_of::<sockaddr_storage>() as socklen_t;
        // `IoSliceMut` has the layout of `iovec`.
        header.msg_iov = parts.as_mut_ptr().cast();
        header.msg_iovlen = parts.len();
        header.msg_control = words.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>();
        // SAFETY: the header points to a name, control messages and buffers of the lengths that it says, all of which are
        // borrowed mutably here.
        let len = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut header, flags) };
        let len = usize::try_from(len).map_err(|_| last_errno())?.min(room);
        let control = ReceivedControl {
            words,
            len: header.msg_controllen.min(size_of::<Control>()),
        };
        Ok((len, name, control, header.msg_flags))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Route {
    /// Reads what a control message says of a datagram's way; whether it said the local address.
    fn read(&mut self, level: c_int, kind: c_int, data: ControlData) -> bool {
        match (level, kind) {
            (libc::SOL_IP, libc::IP_PKTINFO) => {
                let info = data.read::<libc::in_pktinfo>();
                let local =
                    info.map(|info| Ipv4Addr::from_bits(u32::from_be(info.ipi_addr.s_addr)));
                self.local = local.map_or(self.local, IpAddr::V4);
                local.is_some()
            }
            (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                let info = data.read::<libc::in6_pktinfo>();
                let local = info.map(|info| Ipv6Addr::from(info.ipi6_addr.s6_addr));
                self.local = local.map_or(self.local, |local| IpAddr::V6(local).to_canonical());
                local.is_some()
            }
            (libc::SOL_IP, libc::IP_TOS) => {
                self.class = data.read::<u8>().unwrap_or(0);
                false
            }
            (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                self.class = data.read::<c_int>().unwrap_or(0) as u8;
                false
            }
            _ => false,
        }
    }
}

/// [`UdpPort::path`](super::UdpPort::path).
pub(super) fn path(remote: IpAddr, local: Option<IpAddr>) -> io::Result<(IpAddr, u32)> {
    let (family, level, option) = match remote {
        IpAddr::V4(_) => (AddressFamily::INET, libc::SOL_IP, libc::IP_MTU),
        IpAddr::V6(_) => (AddressFamily::INET6, libc::SOL_IPV6, libc::IPV6_MTU),
    };
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if let Some(local) = local {
        rustix::net::bind(&fd, &SocketAddr::new(local, 0))?;
    }
    // It sends nothing, so any port will do.
    rustix::net::connect(&fd, &SocketAddr::new(remote, ANY_PORT))?;
    let found = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
    let (mut mtu, mut len): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: the kernel writes one int and its length, both of which outlive the call.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw mut mtu).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok((found.ip(), mtu.cast_unsigned())),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Control messages that the kernel wrote.
struct ReceivedControl {
    words: Control,
    /// Bytes.
    len: usize,
}

/// The data of a control message.
#[derive(Clone, Copy)]
struct ControlData {
    data: *const c_void,
    len: usize,
}

impl ControlData {
    /// The value, if the message has as many bytes. `T` is an integer or made of integers.
    fn read<T: Copy>(self) -> Option<T> {
        // SAFETY: `for_each_control` made it of `len` bytes that live; any bytes are a value of a `T`.
        (self.len >= size_of::<T>()).then(|| unsafe { self.data.cast::<T>().read_unaligned() })
    }
}

fn for_each_control(control: &ReceivedControl, mut each: impl FnMut(c_int, c_int, ControlData)) {
    // SAFETY: plain old data, of which all zeros are a value.
    let mut header: msghdr = unsafe { zeroed() };
    header.msg_control = control.words.as_ptr().cast_mut().cast();
    header.msg_controllen = control.len;
    // SAFETY: `msg_control` has `msg_controllen` bytes, of which these take no further ones; they only read.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !next.is_null() {
        // SAFETY: it is not null, so a whole header is there.
        let cmsghdr {
            cmsg_len,
            cmsg_level,
            cmsg_type,
            ..
        } = unsafe { next.read_unaligned() };
        // SAFETY: as above.
        let data = unsafe { libc::CMSG_DATA(next) };
        let before = data.addr() - control.words.as_ptr().addr();
        let said = cmsg_len.saturating_sub(data.addr() - next.addr());
        let data = ControlData {
            data: data.cast(),
            len: said.min(control.len.saturating_sub(before)),
        };
        each(cmsg_level, cmsg_type, data);
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
    }
}

/// Writes control messages one after the other.
struct ControlWriter<'a> {
    control: &'a mut Control,
    /// Bytes.
    len: usize,
}

impl ControlWriter<'_> {
    fn put<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        let bytes = size_of::<T>() as u32;
        // SAFETY: they only compute.
        let (len, space) = unsafe { (libc::CMSG_LEN(bytes), libc::CMSG_SPACE(bytes)) };
        assert!(self.len + space as usize <= size_of::<Control>());
        // SAFETY: the assertion leaves `space` bytes there, which are a header and a `T`, aligned as words.
        unsafe {
            let header = self
                .control
                .as_mut_ptr()
                .byte_add(self.len)
                .cast::<cmsghdr>();
            (*header).cmsg_len = len as usize;
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
        }
        self.len += space as usize;
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn in_addr(address: Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: address.to_bits().to_be(),
    }
}

fn in6_addr(address: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr {
        s6_addr: address.octets(),
    }
}

/// Writes an address as a socket of this family takes it; its length.
fn write_name(name: &mut sockaddr_storage, is_v6: bool, to: SocketAddr) -> socklen_t {
    let name: *mut sockaddr_storage = name;
    match to {
        SocketAddr::V4(to) if !is_v6 => {
            // SAFETY: there is room for any address, aligned for any.
            let name = unsafe { &mut *name.cast::<libc::sockaddr_in>() };
            name.sin_family = libc::AF_INET as u16;
            name.sin_port = to.port().to_be();
            name.sin_addr = in_addr(*to.ip());
            size_of::<libc::sockaddr_in>() as socklen_t
        }
        to => {
            // SAFETY: as above.
            let name = unsafe { &mut *name.cast::<libc::sockaddr_in6>() };
            name.sin6_family = libc::AF_INET6 as u16;
            name.sin6_port = to.port().to_be();
            name.sin6_addr = in6_addr(mapped(to.ip()));
            size_of::<libc::sockaddr_in6>() as socklen_t
        }
    }
}

/// An address that the kernel wrote.
fn read_name(name: &sockaddr_storage) -> Option<SocketAddr> {
    let from: *const sockaddr_storage = name;
    match c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which address it is; any bytes are one.
            let name = unsafe { from.cast::<libc::sockaddr_in>().read() };
            let address = Ipv4Addr::from_bits(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddr::new(address.into(), u16::from_be(name.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { from.cast::<libc::sockaddr_in6>().read() };
            let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(match address.to_ipv4_mapped() {
                Some(address) => SocketAddr::new(address.into(), port),
                None => SocketAddrV6::new(address, port, 0, name.sin6_scope_id).into(),
            })
        }
        _ => None,
    }
}

fn last_errno() -> Errno {
    let errno = io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(errno.unwrap_or(libc::EIO))
}
