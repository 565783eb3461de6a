//! A port of TCP or SCTP, taken in the kernel: a socket that is bound and never listens, so that no program of
//! the host gets the same one.

use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rnic_ipc::control::{Refusal, RefusalCode, Transport};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};

/// A port that is ours until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    _socket: OwnedFd,
    local: SocketAddr,
}

impl Reservation {
    /// Binds a socket that never listens; port 0 takes one of the kernel's choice. No
    /// SO_REUSEADDR: the port is ours alone. `scope` is the interface's index, which a link-local
    /// address means nothing without. The caller has seen that the interface has the address. An IPv6
    /// address is taken also before duplicate address detection is done (IPV6_FREEBIND): the listener must be
    /// there when the kernel begins to use it.
    ///
    /// # Errors
    ///
    /// When another program has the port, or the kernel has not the address.
    pub fn take(transport: Transport, local: SocketAddr, scope: u32) -> Result<Self, Refusal> {
        let protocol = match transport {
            Transport::Tcp => ipproto::TCP,
            Transport::Sctp => ipproto::SCTP,
        };
        let (family, address) = match local {
            SocketAddr::V4(_) => (AddressFamily::INET, local),
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => (
                AddressFamily::INET6,
                SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into(),
            ),
            SocketAddr::V6(_) => (AddressFamily::INET6, local),
        };
        let refused = |errno| refused(local, errno);
        let socket = rustix::net::socket_with(
            family,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            Some(protocol),
        )
        .map_err(refused)?;
        if local.is_ipv6() {
            rustix::net::sockopt::set_ipv6_freebind(&socket, true).map_err(refused)?;
        }
        rustix::net::bind(&socket, &address).map_err(refused)?;
        let found = rustix::net::getsockname(&socket).map_err(refused)?;
        let port = SocketAddr::try_from(found).map_err(refused)?.port();
        Ok(Self {
            _socket: socket,
            local: SocketAddr::new(local.ip(), port),
        })
    }

    /// The address with the port that was taken.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// Whether the kernel has ports of this protocol now. Its SCTP is a module, which is never loaded for this: without it
/// no program of the host has such a port.
pub(super) fn kernel_has(transport: Transport) -> bool {
    match transport {
        Transport::Tcp => true,
        Transport::Sctp => std::path::Path::new("/proc/self/net/sctp").exists(),
    }
}

fn refused(local: SocketAddr, errno: Errno) -> Refusal {
    match errno {
        Errno::ADDRINUSE if local.port() == 0 => in_use(local, "the kernel has no free port"),
        Errno::ADDRINUSE => in_use(
            local,
            "a program of this host has it (`ss -anp` shows which)",
        ),
        Errno::ADDRNOTAVAIL => Refusal {
            code: RefusalCode::AddressNotLocal,
            message: format!(
                "{local} asked, but the host does not have that address (any more): see `ip address`"
            ),
        },
        Errno::ACCESS => Refusal {
            code: RefusalCode::Host,
            message: format!(
                "{local} asked, but that port is for privileged programs only: choose a port \
                 of 1024 or above, or give the RNIC CAP_NET_BIND_SERVICE"
            ),
        },
        errno => Refusal {
            code: RefusalCode::Host,
            message: format!("{local} can't be bound: {}", std::io::Error::from(errno)),
        },
    }
}

pub(super) fn in_use(local: SocketAddr, found: &str) -> Refusal {
    Refusal {
        code: RefusalCode::PortInUse,
        message: format!("{local} asked, but {found}: choose another port"),
    }
}
