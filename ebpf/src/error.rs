//! What went wrong with steering, on which interface, and what to do about it.

use std::error::Error;
use std::io;
use std::net::IpAddr;

/// Why steering could not be set up or changed. Always the host's doing, or the configuration's.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// There is no such interface.
    #[error("no interface {interface} in this network namespace; `ip link` lists those there are")]
    UnknownInterface { interface: String },
    /// EPERM or EACCES.
    #[error(
        "{interface}: not permitted to {asked}; run as root or give CAP_NET_ADMIN and CAP_BPF \
         (before Linux 5.8: CAP_SYS_ADMIN)"
    )]
    NoPrivilege {
        interface: String,
        asked: &'static str,
    },
    /// EBUSY or EEXIST: somebody else's program is there.
    #[error(
        "{interface}: another XDP program is attached; `ip link show dev {interface}` or `bpftool \
         net` names it; end what attached it, or `ip link set dev {interface} xdp off`"
    )]
    Occupied { interface: String },
    /// EOPNOTSUPP: the driver has no native XDP, or the interface none at all.
    #[error("{interface}: no XDP in {mode} mode here; {advice}")]
    NoXdp {
        interface: String,
        mode: &'static str,
        advice: String,
    },
    /// ENOSPC: the driver has too few queues for XDP.
    #[error(
        "{interface}: too few receive queues for native XDP; a veth needs at least as many \
         receive queues on each end as the other end has transmit queues: make them so with \
         `ethtool -L` (or `ip link add ... numrxqueues N numtxqueues N`)"
    )]
    TooFewQueues { interface: String },
    /// ERANGE: the MTU is too large for native XDP.
    #[error(
        "{interface}: the MTU is too large for native XDP (on a veth it is the peer's that \
         counts): lower it, on both ends, or use generic mode"
    )]
    MtuTooLarge { interface: String },
    /// The kernel's verifier or loader did not take the program.
    #[error("{interface}: the kernel does not take the steering program: {reason}")]
    Load { interface: String, reason: String },
    /// A bond has more members than the program knows.
    #[error(
        "{interface}: a bond of {found} members asked, but {most} can be steered: take some away"
    )]
    TooManyDevices {
        interface: String,
        found: usize,
        most: usize,
    },
    /// The queue does not fit the map of sockets.
    #[error("{interface}: queue {queue} is beyond the {most} queues that can be steered")]
    NoSuchQueue {
        interface: String,
        queue: u32,
        most: u32,
    },
    /// No frame could ever match.
    #[error("{address} port {port} can't be claimed: a unicast address and a port of 1 to 65535")]
    NotUnicast { address: IpAddr, port: u16 },
    /// E2BIG: the table of claims is full.
    #[error("{interface}: all {most} claims are taken; close some listeners or connections")]
    TooManyClaims { interface: String, most: u32 },
    /// Anything else.
    #[error("{interface}: {asked}: {cause}")]
    Kernel {
        interface: String,
        asked: &'static str,
        cause: io::Error,
    },
}

impl SteeringError {
    /// The error for what the kernel said to `asked`.
    pub(crate) fn kernel(interface: &str, asked: &'static str, cause: io::Error) -> Self {
        let interface = interface.to_owned();
        match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NoPrivilege { interface, asked },
            Some(libc::ENODEV) => Self::UnknownInterface { interface },
            _ => Self::Kernel {
                interface,
                asked,
                cause,
            },
        }
    }

    /// As [`kernel`](Self::kernel), for an error of aya's that wraps the kernel's.
    pub(crate) fn from_aya(
        interface: &str,
        asked: &'static str,
        error: &(dyn Error + 'static),
    ) -> Self {
        let cause = match find_errno(error) {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(error.to_string()),
        };
        Self::kernel(interface, asked, cause)
    }
}

/// The error number at the bottom of a chain of errors.
pub(crate) fn find_errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(errno) = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
        {
            return Some(errno);
        }
        next = error.source();
    }
    None
}
