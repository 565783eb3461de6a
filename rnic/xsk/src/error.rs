//! What the kernel refused, on which interface and queue, and what to do about it.

use std::fmt;
use std::io;

/// What was being asked of the kernel when it refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The interface and the queue of it; `None` for the UMEM, which belongs to no interface.
    pub place: Option<(String, u32)>,
    pub asked: String,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((interface, queue)) = &self.place {
            write!(f, "interface {interface}, queue {queue}: ")?;
        }
        f.write_str(&self.asked)
    }
}

/// Why AF_XDP could not do what was asked. Always the host's doing, or the configuration's.
#[derive(Debug, thiserror::Error)]
pub enum XskError {
    /// ENODEV.
    #[error(
        "{request}: no such interface in this network namespace; `ip link` lists those there are"
    )]
    UnknownInterface { request: Request },
    #[error(
        "{request}: the interface has no such queue{}; ask for a lower queue or give it more with \
         `ethtool -L`", available.map(|n| format!(" (it has {n}: 0 to {})", n.saturating_sub(1))).unwrap_or_default()
    )]
    NoSuchQueue {
        request: Request,
        /// How many receive or transmit queues it has, when known.
        available: Option<u32>,
    },
    /// EPERM or EACCES.
    #[error(
        "{request}: not permitted; AF_XDP needs CAP_NET_RAW and CAP_NET_ADMIN, and CAP_BPF for the \
         steering program"
    )]
    NoPrivilege { request: Request },
    /// ENOBUFS or ENOMEM.
    #[error(
        "{request}: the kernel would not lock that much memory; ask for fewer frames, raise \
         `ulimit -l`, or give CAP_IPC_LOCK"
    )]
    NoMemory { request: Request },
    /// EOPNOTSUPP, EAFNOSUPPORT, EPROTONOSUPPORT.
    #[error(
        "{request}: not supported here; the driver may lack zero-copy (use copy mode) or the \
         kernel may lack AF_XDP (CONFIG_XDP_SOCKETS)"
    )]
    NotSupported { request: Request },
    /// EBUSY, also after waiting for a socket that closed a moment ago.
    #[error(
        "{request}: another AF_XDP socket has this queue; end the program that has it (`ss -f xdp` \
         or `ss --xdp -p` shows it) or use another queue"
    )]
    Busy { request: Request },
    /// EINVAL, or a value that can't be right.
    #[error("{request}: not a valid combination: {hint}")]
    Invalid {
        request: Request,
        hint: &'static str,
    },
    /// ENETDOWN or ENXIO.
    #[error(
        "{request}: the interface is down or gone; `ip link set dev NAME up` brings it back up"
    )]
    Down { request: Request },
    /// A frame of the interface's MTU does not fit as many chunks as one may take.
    #[error(
        "an MTU of {mtu} bytes needs more UMEM chunks than a frame may take: at most {most}; \
         lower the interface's MTU"
    )]
    MtuTooLarge {
        /// The interface's MTU, bytes.
        mtu: u32,
        /// The largest that can be carried, bytes.
        most: u32,
    },
    /// Anything else.
    #[error("{request}: {cause}")]
    Kernel { request: Request, cause: io::Error },
}

/// The error for what the kernel (or xsk-rs, which wraps its answer) said to `request`.
pub(crate) fn refusal(request: Request, error: &(dyn std::error::Error + 'static)) -> XskError {
    let found = error.downcast_ref::<io::Error>().or_else(|| {
        error
            .source()
            .and_then(|source| source.downcast_ref::<io::Error>())
    });
    match found {
        Some(found) => match found.raw_os_error() {
            Some(errno) => from_errno(request, errno),
            None => XskError::Kernel {
                request,
                cause: io::Error::other(found.to_string()),
            },
        },
        None => XskError::Kernel {
            request,
            cause: io::Error::other(error.to_string()),
        },
    }
}

/// The error for a kernel's `errno` to `request`.
pub(crate) fn from_errno(request: Request, errno: i32) -> XskError {
    match errno {
        libc::ENODEV => XskError::UnknownInterface { request },
        libc::EPERM | libc::EACCES => XskError::NoPrivilege { request },
        libc::ENOBUFS | libc::ENOMEM => XskError::NoMemory { request },
        libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT => {
            XskError::NotSupported { request }
        }
        libc::EBUSY => XskError::Busy { request },
        libc::ENETDOWN | libc::ENXIO => XskError::Down { request },
        libc::EINVAL => XskError::Invalid {
            request,
            hint: "the queue may not exist (`ethtool -l` shows the number), the UMEM may be bound \
                   to it already, or a ring may be larger than the kernel takes",
        },
        errno => XskError::Kernel {
            request,
            cause: io::Error::from_raw_os_error(errno),
        },
    }
}

#[cfg(test)]
mod tests;
