//! Features of AF_XDP that some kernels lack, found by asking for them.

use std::fmt;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags};
use rustix::net::{AddressFamily, SocketType};

use crate::xsk_port::prefer_busy_poll;

/// A feature that is used where the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelFeature {
    /// Frames that lie in several chunks (`XDP_USE_SG`).
    SeveralBuffers,
    /// Sockets whose owner polls the driver in its interrupts' stead (`SO_PREFER_BUSY_POLL`).
    PreferBusyPoll,
}

impl KernelFeature {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::SeveralBuffers, Self::PreferBusyPoll];

    /// Whether this kernel is without it. Where it does not tell (no AF_XDP, or no right to it), it is not.
    pub fn is_missing(self) -> bool {
        let Ok(socket) = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None) else {
            return false;
        };
        match self {
            Self::SeveralBuffers => {
                // The kernel looks at the flags first: one that knows them finds no such interface.
                let nowhere = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_USE_SG, u32::MAX >> 1, 0);
                rustix::net::bind(&socket, &nowhere) == Err(Errno::INVAL)
            }
            Self::PreferBusyPoll => prefer_busy_poll(socket.as_fd())
                .is_err_and(|error| error.raw_os_error() == Some(libc::ENOPROTOOPT)),
        }
    }
}

impl fmt::Display for KernelFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SeveralBuffers => "frames of several buffers in AF_XDP (Linux 6.6)",
            Self::PreferBusyPoll => "busy polling by AF_XDP sockets (Linux 5.11)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests' kernel has all, for other tests use them.
    #[test]
    fn what_this_kernel_has_is_not_missing() {
        for feature in KernelFeature::ALL {
            assert!(!feature.is_missing(), "{feature}");
        }
    }
}
