//! Options and flags of rsockets.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libc::{
    IP_TOS, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, IPV6_V6ONLY, O_NONBLOCK, O_RDWR, SO_ACCEPTCONN,
    SO_BROADCAST, SO_DOMAIN, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_OOBINLINE, SO_PROTOCOL,
    SO_RCVBUF, SO_RCVTIMEO, SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDTIMEO, SO_TIMESTAMP,
    SO_TYPE, SOCK_STREAM, SOL_SOCKET, TCP_CONGESTION, TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE,
    TCP_KEEPINTVL, TCP_MAXSEG, TCP_NODELAY, linger, socklen_t,
};
use rustix::io::Errno;

use super::socket::{Family, Phase, State};
use super::stream::Sizes;
use super::wire::IOMAP_MAX;
use crate::ffi::{Fail, Outcome, Ptr};
use crate::qp::LINGER;

/// The level of rsockets' own options (rdma/rsocket.h).
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;

/// Bytes of a ring, from and to.
const RING_MIN: u32 = 4096;
const RING_MAX: u32 = 16 << 20;
const RING: u32 = 1 << 18;

/// Depth of queues when nothing else is asked for, as librdmacm has it.
const QUEUE: u16 = 384;

/// `tcpi_state` of a connection, and of none.
const TCP_ESTABLISHED: u8 = 1;
const TCP_CLOSE: u8 = 7;
/// Bytes of `struct tcp_info` that are reported, at most.
const TCP_INFO_BYTES: usize = 104;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) nonblocking: bool,
    pub(crate) close_on_exec: bool,
    /// IPv6 wildcards listen at IPv4 addresses too.
    pub(crate) only_own_family: bool,
    /// Seconds, when the program has set them.
    linger: Option<c_int>,
    sizes: Sizes,
    keep_alive: bool,
    /// Seconds.
    keep_idle: c_int,
    /// Taken and given back: the connection does as well with any of them.
    reuse: bool,
    out_of_band_inline: bool,
    no_delay: bool,
    inline: c_int,
    type_of_service: c_int,
}

impl Options {
    pub(crate) fn new(nonblocking: bool, close_on_exec: bool) -> Self {
        Self {
            nonblocking,
            close_on_exec,
            only_own_family: false,
            linger: None,
            sizes: Sizes {
                send: RING,
                receive: RING,
                send_queue: QUEUE,
                credits: QUEUE,
                iomap: 0,
            },
            keep_alive: false,
            keep_idle: 7200,
            reuse: false,
            out_of_band_inline: false,
            no_delay: false,
            inline: 64,
            type_of_service: 0,
        }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// After what silence a peer is asked whether it is there, if it is.
    pub(crate) fn keep_alive(&self) -> Option<Duration> {
        let idle = Duration::from_secs(self.keep_idle.unsigned_abs().into());
        self.keep_alive.then_some(idle)
    }

    /// How long closing waits for the end in order; without any time it resets. When the program has not
    /// set `SO_LINGER`, as long as the destruction of a queue pair.
    pub(crate) fn linger(&self) -> Duration {
        match self.linger {
            // Less than none is the longest, as for the kernel.
            Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)),
            None => LINGER,
        }
    }
}

/// A ring of twice what is asked for, as the kernel does it.
fn ring(wanted: c_int) -> u32 {
    let wanted = u32::try_from(wanted).unwrap_or(0);
    wanted.saturating_mul(2).clamp(RING_MIN, RING_MAX)
}

/// Programs of ordinary sockets set these whether they take effect or not.
const UNHEARD: [c_int; 4] = [SO_REUSEPORT, SO_RCVTIMEO, SO_SNDTIMEO, SO_TIMESTAMP];

fn unknown(level: c_int, name: c_int) -> Fail {
    if level == SOL_SOCKET && UNHEARD.contains(&name) {
        return Errno::OPNOTSUPP.into();
    }
    Fail::of(
        Errno::OPNOTSUPP,
        format!("socket option {name} of level {level} is not there"),
    )
}

impl State {
    pub(crate) fn set_option(
        &mut self,
        (level, name): (c_int, c_int),
        value: Ptr<c_void>,
        length: socklen_t,
    ) -> Outcome<()> {
        if (level, name) == (SOL_SOCKET, SO_LINGER) {
            check_length(length, size_of::<linger>())?;
            let linger = value.cast::<linger>().read()?;
            self.options.linger = (linger.l_onoff != 0).then_some(linger.l_linger);
            return Ok(());
        }
        if (level, name) == (IPPROTO_TCP, TCP_CONGESTION) {
            return Err(Fail::of(
                Errno::OPNOTSUPP,
                "the congestion control is the daemon's (its configuration)",
            ));
        }
        check_length(length, size_of::<c_int>())?;
        let value = value.cast::<c_int>().read()?;
        let connects = self.connects();
        let options = &mut self.options;
        match (level, name) {
            (SOL_SOCKET, SO_REUSEADDR) => options.reuse = value != 0,
            (SOL_SOCKET, SO_KEEPALIVE) => options.keep_alive = value != 0,
            (SOL_SOCKET, SO_OOBINLINE) => options.out_of_band_inline = value != 0,
            // The rings of a connection stay as they are.
            (SOL_SOCKET, SO_SNDBUF | SO_RCVBUF) if connects => {}
            (SOL_SOCKET, SO_SNDBUF) => options.sizes.send = ring(value),
            (SOL_SOCKET, SO_RCVBUF) => options.sizes.receive = ring(value),
            (IPPROTO_IP, IP_TOS) => options.type_of_service = value,
            (IPPROTO_IPV6, IPV6_V6ONLY) => options.only_own_family = value != 0,
            (IPPROTO_TCP, TCP_NODELAY) => options.no_delay = value != 0,
            (IPPROTO_TCP, TCP_KEEPCNT | TCP_KEEPINTVL | TCP_MAXSEG) => {}
            (IPPROTO_TCP, TCP_KEEPIDLE) if value > 0 => options.keep_idle = value,
            (IPPROTO_TCP, TCP_KEEPIDLE) => return Err(Errno::INVAL.into()),
            (SOL_RDMA, _) => return self.set_own_option(name, value),
            _ => return Err(unknown(level, name)),
        }
        Ok(())
    }

    fn set_own_option(&mut self, name: c_int, value: c_int) -> Outcome<()> {
        if self.connects() {
            return Err(Errno::INVAL.into());
        }
        let mut sizes = self.options.sizes;
        let size = u16::try_from(value).unwrap_or(u16::MAX - 1);
        match name {
            RDMA_SQSIZE => sizes.send_queue = size,
            RDMA_RQSIZE => sizes.credits = size,
            RDMA_INLINE => self.options.inline = value,
            RDMA_IOMAPSIZE => sizes.iomap = size.min(IOMAP_MAX),
            _ => return Err(unknown(SOL_RDMA, name)),
        }
        sizes.check()?;
        self.options.sizes = sizes;
        Ok(())
    }

    pub(crate) fn option(
        &mut self,
        (level, name): (c_int, c_int),
        place: Ptr<c_void>,
        length: Ptr<socklen_t>,
    ) -> Outcome<()> {
        let room = length.read()? as usize;
        let written = match (level, name) {
            (SOL_SOCKET, SO_LINGER) => {
                let value = linger {
                    l_onoff: self.options.linger.is_some().into(),
                    l_linger: self.options.linger.unwrap_or(0),
                };
                place.cast().write_start(&value, room)
            }
            (IPPROTO_TCP, TCP_INFO) => place.cast().write_start(&self.tcp_info(), room),
            (IPPROTO_TCP, TCP_CONGESTION) => place.cast().write_start(b"rnic\0", room),
            _ => place.cast().write_start(&self.number(level, name)?, room),
        };
        length.write(written as socklen_t);
        Ok(())
    }

    fn number(&mut self, level: c_int, name: c_int) -> Outcome<c_int> {
        let options = &self.options;
        let size = |bytes: u32| c_int::try_from(bytes).unwrap_or(c_int::MAX);
        Ok(match (level, name) {
            (SOL_SOCKET, SO_REUSEADDR) => options.reuse.into(),
            (SOL_SOCKET, SO_KEEPALIVE) => options.keep_alive.into(),
            (SOL_SOCKET, SO_OOBINLINE) => options.out_of_band_inline.into(),
            (SOL_SOCKET, SO_SNDBUF) => size(options.sizes.send),
            (SOL_SOCKET, SO_RCVBUF) => size(options.sizes.receive),
            (SOL_SOCKET, SO_BROADCAST) => 0,
            (SOL_SOCKET, SO_TYPE) => SOCK_STREAM,
            (SOL_SOCKET, SO_PROTOCOL) => IPPROTO_TCP,
            (SOL_SOCKET, SO_DOMAIN) => match self.family {
                Family::V4 => libc::AF_INET,
                Family::V6 => libc::AF_INET6,
            },
            (SOL_SOCKET, SO_ACCEPTCONN) => matches!(self.phase, Phase::Listening(_)).into(),
            (SOL_SOCKET, SO_ERROR) => self.take_error().map_or(0, Errno::raw_os_error),
            (IPPROTO_IP, IP_TOS) => options.type_of_service,
            (IPPROTO_IPV6, IPV6_V6ONLY) => options.only_own_family.into(),
            (IPPROTO_TCP, TCP_NODELAY) => options.no_delay.into(),
            (IPPROTO_TCP, TCP_KEEPCNT | TCP_KEEPINTVL) => 1,
            (IPPROTO_TCP, TCP_KEEPIDLE) => options.keep_idle,
            // An interface's MTU may change: what Ethernet's gives.
            (IPPROTO_TCP, TCP_MAXSEG) => 1448,
            (SOL_RDMA, RDMA_SQSIZE) => options.sizes.send_queue.into(),
            (SOL_RDMA, RDMA_RQSIZE) => options.sizes.credits.into(),
            (SOL_RDMA, RDMA_INLINE) => options.inline,
            (SOL_RDMA, RDMA_IOMAPSIZE) => options.sizes.iomap.into(),
            _ => return Err(unknown(level, name)),
        })
    }

    /// There is a connection, or one is being made.
    fn connects(&self) -> bool {
        matches!(self.phase, Phase::Opening(..) | Phase::Open(_))
    }

    /// What went wrong, reported once: here or by a call.
    fn take_error(&mut self) -> Option<Errno> {
        match &mut self.phase {
            Phase::Open(stream) => stream.take_failure(),
            Phase::Listening(listening) if listening.is_over() => Some(Errno::IO),
            _ => self.error.take(),
        }
    }

    /// Whether there is a connection; of TCP's own numbers none is known here.
    fn tcp_info(&self) -> [u8; TCP_INFO_BYTES] {
        let mut info = [0; TCP_INFO_BYTES];
        info[0] = match self.phase {
            Phase::Open(_) => TCP_ESTABLISHED,
            _ => TCP_CLOSE,
        };
        info
    }

    /// fcntl(2), as far as sockets need it.
    pub(crate) fn control(&mut self, command: c_int, argument: c_int) -> Outcome<c_int> {
        let options = &mut self.options;
        match command {
            libc::F_GETFL if options.nonblocking => return Ok(O_RDWR | O_NONBLOCK),
            libc::F_GETFL => return Ok(O_RDWR),
            libc::F_SETFL => options.nonblocking = argument & O_NONBLOCK != 0,
            libc::F_GETFD if options.close_on_exec => return Ok(libc::FD_CLOEXEC),
            libc::F_GETFD => return Ok(0),
            libc::F_SETFD => options.close_on_exec = argument & libc::FD_CLOEXEC != 0,
            _ => return Err(Fail::unsupported(format!("fcntl command {command}"))),
        }
        Ok(0)
    }
}

fn check_length(length: socklen_t, least: usize) -> Outcome<()> {
    match length as usize >= least {
        true => Ok(()),
        false => Err(Errno::INVAL.into()),
    }
}
