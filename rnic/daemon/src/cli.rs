//! The command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use log::LevelFilter;
use rnic_device::{CongestionControl, Cores, DedicatedQueues, HostIpsec, ShardCount, XdpMode};

use crate::metrics::MetricsAddress;

/// A software RNIC (iWARP) on network interfaces, for local clients.
#[derive(Debug, Parser)]
#[command(version = env!("RNIC_VERSION"), about)]
pub(crate) struct Cli {
    /// Read settings and limits from this file. Options of the command line override it
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,

    /// Check the configuration, print the settings and limits that result, and exit. What would keep the
    /// daemon from starting here is printed too, a line for each thing: capabilities and locked memory, the
    /// socket, captures, metrics, the interfaces. Nothing is opened or made. With any such line the exit status is 1
    #[arg(long)]
    pub(crate) check: bool,

    /// Switch to this user, by name or number, before anything is opened, and keep only the
    /// capabilities that are needed. For a daemon started as root
    #[arg(long, value_name = "USER", value_parser = crate::names::account)]
    pub(crate) user: Option<crate::names::Account>,

    /// With --loopback: be the daemon of one program and what it starts, as rnic-run starts it. Its user may do
    /// everything, and is bounded by the host and the size of tables alone
    #[arg(long, requires = "loopback", conflicts_with = "config")]
    pub(crate) private: bool,

    #[command(flatten)]
    pub(crate) given: Given,
}

/// What somebody said of the daemon's settings: the command line, or the file, which has the same
/// names. What nobody said has its default in [`crate::settings`].
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct Given {
    /// Interface to open, in this network namespace; may be given several times [default: those of the
    /// configuration file]
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,

    /// Open no interface: serve connections between addresses of this host only. Needs no privilege
    #[arg(long)]
    pub(crate) loopback: bool,

    /// Do not serve connections between addresses of this host, only those over interfaces
    #[arg(long, conflicts_with = "loopback")]
    pub(crate) no_loopback: bool,

    /// End with an error when an interface is not there, is down or has no address, and leave one that is
    /// taken away closed. Without this the daemon serves the others, and opens each when it is ready
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Unix socket that clients connect to [default: /run/rnicd/rnicd.sock; with --loopback rnicd.sock
    /// in $XDG_RUNTIME_DIR]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Permissions of the socket file in octal, which say who may connect [default: 0660; with
    /// --loopback 0600]
    #[arg(long, value_name = "MODE", value_parser = octal)]
    pub(crate) socket_mode: Option<u32>,

    /// Group of the socket file, by name or number [default: the daemon's]
    #[arg(long, value_name = "GROUP", value_parser = crate::names::gid)]
    pub(crate) socket_group: Option<u32>,

    /// Group whose members may administer the RNIC, as root and the daemon's own user may; by name or
    /// number. It must be their effective group when they connect
    #[arg(long, value_name = "GROUP", value_parser = crate::names::gid)]
    pub(crate) admin_group: Option<u32>,

    /// Run without the seccomp filter of the threads that handle packets. For debugging only
    #[arg(long)]
    pub(crate) no_seccomp: bool,

    /// Serve Prometheus metrics at unix:PATH or at a port of the loopback, such as 127.0.0.1:9400
    /// [default: not served]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<MetricsAddress>,

    /// Milliseconds that connections may take to end in order after SIGTERM; those left are reset
    /// [default: 2000]
    #[arg(long, value_name = "MS")]
    pub(crate) drain: Option<u64>,

    /// Log level: off, error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<LevelFilter>,

    #[command(flatten)]
    pub(crate) link: LinkGiven,
}

/// What somebody said of an interface: the command line or the first part of the file of all of them,
/// a table of the file of one.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct LinkGiven {
    /// Write every frame of the RNIC to this file. With several interfaces each has a file of its own,
    /// with the interface's name before the extension
    #[arg(long, value_name = "FILE.pcapng")]
    pub(crate) capture: Option<PathBuf>,

    /// Threads that serve the interface, each with RX queues of its own: a number, or `auto` for one for each queue,
    /// but no more than processors [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<ShardCount>,

    /// Processors that these threads stay on, one for each, such as `2,4-6`; `auto` for those of the queues' interrupts,
    /// or else of the interface's NUMA node [default: any]
    #[arg(long, value_name = "LIST")]
    pub(crate) cores: Option<Cores>,

    /// RX queues that the interface must have [default: any number]
    #[arg(long, value_name = "N")]
    pub(crate) queues: Option<u32>,

    /// RX queues that are the RNIC's alone, such as `6-7`; flow rules (`ethtool -N`) must bring its frames there
    /// [default: all are served]
    #[arg(long, value_name = "LIST")]
    pub(crate) dedicated_queues: Option<DedicatedQueues>,

    /// XDP mode [default: auto]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,

    /// Packet buffers of the interface [default: 4096]
    #[arg(long, value_name = "N")]
    pub(crate) frames: Option<u32>,

    /// What the shard does while it has no work [default: adaptive]
    #[arg(long, value_enum)]
    pub(crate) polling: Option<PollingMode>,

    /// Microseconds to poll without work before sleeping, with adaptive polling [default: 50]
    #[arg(long, value_name = "US")]
    pub(crate) idle_spin: Option<u64>,

    /// Busy-poll the driver for so many microseconds at each poll (drivers with NAPI busy polling)
    #[arg(long, value_name = "US")]
    pub(crate) busy_poll: Option<u32>,

    /// SYNs a second that reach the shard; more are dropped; 0 for no limit [default: 2000]
    #[arg(long, value_name = "N")]
    pub(crate) syn_rate: Option<u32>,

    /// Segments a second of unknown connections that reach the shard; more are dropped; 0 for no limit
    /// [default: 2000]
    #[arg(long, value_name = "N")]
    pub(crate) unknown_flow_rate: Option<u32>,

    /// Fragments a second of unknown connections that reach the shard; more are dropped; 0 for no limit
    /// [default: 200]
    #[arg(long, value_name = "N")]
    pub(crate) fragment_rate: Option<u32>,

    /// Milliseconds after which a peer that acknowledges nothing, or owes an answer and is silent, is
    /// given up: the user timeout of RFC 9293 section 3.8.3, at least 1000 [default: 100000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(USER_TIMEOUT))]
    pub(crate) user_timeout: Option<u64>,

    /// Milliseconds that a peer may be silent after it has connected to a listener [default: 5000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(FIRST_BYTE_TIMEOUT))]
    pub(crate) first_byte_timeout: Option<u64>,

    /// Milliseconds that a program may take to accept or reject a peer's request [default: 60000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(ANSWER_TIMEOUT))]
    pub(crate) answer_timeout: Option<u64>,

    /// Seconds of silence after which an idle peer is probed: keep-alive, RFC 9293 section 3.8.4; 0 for
    /// never [default: 0]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(KEEPALIVE_IDLE))]
    pub(crate) keepalive_idle: Option<u64>,

    /// Seconds between keep-alive probes [default: 75]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(KEEPALIVE_INTERVAL))]
    pub(crate) keepalive_interval: Option<u64>,

    /// Keep-alive probes that a peer may leave unanswered; it is given up one interval after the last
    /// [default: 9]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(probes()))]
    pub(crate) keepalive_probes: Option<u32>,

    /// Congestion control of all connections: cubic, for every network; newreno; dctcp, where all
    /// switches mark early; bbr, which is experimental, for paths that lose packets by chance [default:
    /// cubic]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<CongestionControl>,

    /// UDP port where SCTP in UDP is taken, and from which it is sent (RFC 6951); 9899 is registered for it [default:
    /// none]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) sctp_udp_port: Option<u16>,

    /// UDP port of the peers to which SCTP associations are begun in UDP [default: none, they go without UDP]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) sctp_udp_peer_port: Option<u16>,

    /// What the host's IPsec policies are for the RNIC, which has no ESP: `refuse` refuses connections that they don't
    /// allow in clear, `ignore` makes them in clear [default: refuse]
    #[arg(long, value_name = "WHAT")]
    pub(crate) host_ipsec: Option<HostIpsec>,
}

/// What may be said of these, here and in the file: as Linux has it for sockets (tcp(7)), but for what
/// leaves no time for a retransmission.
pub(crate) const USER_TIMEOUT: RangeInclusive<u64> = 1000..=86_400_000;
pub(crate) const FIRST_BYTE_TIMEOUT: RangeInclusive<u64> = 100..=10_000;
pub(crate) const ANSWER_TIMEOUT: RangeInclusive<u64> = 1000..=3_600_000;
pub(crate) const KEEPALIVE_IDLE: RangeInclusive<u64> = 0..=32_767;
pub(crate) const KEEPALIVE_INTERVAL: RangeInclusive<u64> = 1..=32_767;
pub(crate) const KEEPALIVE_PROBES: RangeInclusive<u32> = 1..=127;

/// [`KEEPALIVE_PROBES`] in the type that clap wants.
fn probes() -> RangeInclusive<i64> {
    let (least, most) = KEEPALIVE_PROBES.into_inner();
    least.into()..=most.into()
}

impl Given {
    /// What this says, and where it says nothing what `below` says.
    pub(crate) fn over(self, below: Self) -> Self {
        Self {
            interface: match self.interface.is_empty() {
                true => below.interface,
                false => self.interface,
            },
            loopback: self.loopback || below.loopback,
            no_loopback: self.no_loopback || below.no_loopback,
            no_wait: self.no_wait || below.no_wait,
            socket: self.socket.or(below.socket),
            socket_mode: self.socket_mode.or(below.socket_mode),
            socket_group: self.socket_group.or(below.socket_group),
            admin_group: self.admin_group.or(below.admin_group),
            no_seccomp: self.no_seccomp || below.no_seccomp,
            metrics: self.metrics.or(below.metrics),
            drain: self.drain.or(below.drain),
            log: self.log.or(below.log),
            link: self.link.over(below.link),
        }
    }
}

impl LinkGiven {
    /// As [`Given::over`].
    pub(crate) fn over(self, below: Self) -> Self {
        Self {
            capture: self.capture.or(below.capture),
            shards: self.shards.or(below.shards),
            cores: self.cores.or(below.cores),
            queues: self.queues.or(below.queues),
            dedicated_queues: self.dedicated_queues.or(below.dedicated_queues),
            mode: self.mode.or(below.mode),
            frames: self.frames.or(below.frames),
            polling: self.polling.or(below.polling),
            idle_spin: self.idle_spin.or(below.idle_spin),
            busy_poll: self.busy_poll.or(below.busy_poll),
            syn_rate: self.syn_rate.or(below.syn_rate),
            unknown_flow_rate: self.unknown_flow_rate.or(below.unknown_flow_rate),
            fragment_rate: self.fragment_rate.or(below.fragment_rate),
            user_timeout: self.user_timeout.or(below.user_timeout),
            first_byte_timeout: self.first_byte_timeout.or(below.first_byte_timeout),
            answer_timeout: self.answer_timeout.or(below.answer_timeout),
            keepalive_idle: self.keepalive_idle.or(below.keepalive_idle),
            keepalive_interval: self.keepalive_interval.or(below.keepalive_interval),
            keepalive_probes: self.keepalive_probes.or(below.keepalive_probes),
            congestion: self.congestion.or(below.congestion),
            sctp_udp_port: self.sctp_udp_port.or(below.sctp_udp_port),
            sctp_udp_peer_port: self.sctp_udp_peer_port.or(below.sctp_udp_peer_port),
            host_ipsec: self.host_ipsec.or(below.host_ipsec),
        }
    }
}

/// XDP modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Native where the driver has it, else generic
    Auto,
    /// In the driver
    Native,
    /// In the kernel, for any driver
    Generic,
    /// In the kernel, with packets of up to 64 KiB (Linux 6.9): for veth, tap and the like
    SuperPackets,
}

impl From<Mode> for XdpMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::Auto,
            Mode::Native => Self::Native,
            Mode::Generic => Self::Generic,
            Mode::SuperPackets => Self::SuperPackets,
        }
    }
}

/// What a shard does while it has no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PollingMode {
    /// Poll always: takes a core
    Spin,
    /// Poll for a while, then sleep
    Adaptive,
    /// Sleep at once
    Event,
}

/// Permissions as they are written.
pub(crate) fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("give permissions in octal, such as 0660".to_owned()),
    }
}

#[cfg(test)]
mod tests;
