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
    /// XDP programs in generic mode that take packets of several buffers. Older kernels copy such a packet into
    /// one buffer, or drop it.
    GenericSeveralBuffers,
}

/// The first release with [`KernelFeature::GenericSeveralBuffers`].
const GENERIC_SEVERAL_BUFFERS: (u32, u32) = (6, 9);

impl KernelFeature {
    pub const ALL: [Self; 3] = [
        Self::SeveralBuffers,
        Self::PreferBusyPoll,
        Self::GenericSeveralBuffers,
    ];

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
            // Nothing that a program may ask tells this.
            Self::GenericSeveralBuffers => {
                let release = rustix::system::uname();
                version(&release.release().to_string_lossy())
                    .is_some_and(|version| version < GENERIC_SEVERAL_BUFFERS)
            }
        }
    }
}

/// The two first numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

impl fmt::Display for KernelFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SeveralBuffers => "frames of several buffers in AF_XDP (Linux 6.6)",
            Self::PreferBusyPoll => "busy polling by AF_XDP sockets (Linux 5.11)",
            Self::GenericSeveralBuffers => "packets of several buffers in generic XDP (Linux 6.9)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_with_two_numbers() {
        assert_eq!(version("6.1.0-56-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.5"), Some((6, 18)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version("unknown"), None);
        assert!(Some((6, 12)) > Some(GENERIC_SEVERAL_BUFFERS));
    }

    /// The tests' kernel has all, for other tests use them.
    #[test]
    fn what_this_kernel_has_is_not_missing() {
        for feature in KernelFeature::ALL {
            assert!(!feature.is_missing(), "{feature}");
        }
    }
}
