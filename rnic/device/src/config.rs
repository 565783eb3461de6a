//! What an RNIC is opened with.

pub(crate) mod cores;
mod declared;
pub(crate) mod dedicated_queues;
pub(crate) mod host_ipsec;
mod number_list;
pub(crate) mod setting;
pub(crate) mod udp_link;
pub(crate) mod vlan;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rnic_engine::shard::SctpUdp;
use rnic_ipc::control::ReceiveWait;
use rnic_prm::{Administrators, Limits};
use rnic_steering::{FloodLimits, ModePreference};
use userspace_tcp::{CongestionControl, KeepAlive};

use crate::{Cores, DedicatedQueues, HostIpsec, UdpLink, VlanConfig};

/// How [`crate::Device::open`] is to open an interface. Versions to come may have more fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceConfig {
    /// The interface, by name, in the network namespace of the calling thread; the device's name when it
    /// has none ([`LoopbackUse::Only`]).
    pub interface: String,
    /// Whether this host's own addresses are served.
    pub loopback: LoopbackUse,
    /// A UDP socket in the stead of an interface ([`DeviceConfig::udp`]). DDP goes over SCTP then, whatever is asked for.
    pub udp: Option<UdpLink>,
    /// How many shards serve it: threads, each with RX queues of its own. Of several there are as many as queues at
    /// most, and connections within the host are in the first one.
    pub shards: ShardCount,
    /// Which processors its shards' threads stay on. A list has one for each.
    pub cores: Cores,
    /// How many RX queues the interface must have. `None` takes it with as many as there are.
    pub queues: Option<u32>,
    /// The RX queues that are the RNIC's alone. `None` takes all. Where there are several devices, as in a bond, the
    /// same of each. Flow rules must bring it its frames (`ethtool -N`): what comes on other queues the kernel gets.
    pub dedicated_queues: Option<DedicatedQueues>,
    /// Its VLANs, by whose tags connections are made and accepted.
    pub vlans: Vec<VlanConfig>,
    /// Which kind of XDP attachment to ask for.
    pub mode: XdpMode,
    /// A pcapng file to write every frame of the RNIC to.
    pub capture: Option<PathBuf>,
    /// Microseconds that one look at a queue may poll its driver (`SO_BUSY_POLL`, with
    /// `SO_PREFER_BUSY_POLL`). `None` leaves packets to interrupts. Without effect on veth.
    pub busy_poll: Option<u32>,
    /// How many frames of unknown flows reach the shard, of all queues together: the rest of a flood is
    /// dropped before, and counted.
    pub flood_limits: FloodLimits,
    /// UMEM frames (packet buffers) for the whole device.
    pub frames: u32,
    /// What each client, and all together, may hold.
    pub limits: Limits,
    /// Who may see all clients' objects and give an operator's orders.
    pub administrators: Administrators,
    /// Who runs the shard.
    pub runtime: Runtime,
    /// What a shard thread does while it has nothing to do.
    pub polling: Polling,
    /// Whether a shard thread may only make the system calls that it needs (seccomp(2)). One that it
    /// makes beside ends the process, by a handler for SIGSYS that is all of the process's.
    pub seccomp: bool,
    /// How long a peer may acknowledge nothing, or owe an answer and be silent, until its connection is
    /// reset with `DisconnectReason::TimedOut`: the user timeout of RFC 9293 section 3.8.3, which wants
    /// 100 s, the default. At least [`DeviceConfig::USER_TIMEOUT_MIN`]; several round trips, or a
    /// retransmission is given no time.
    pub user_timeout: Duration,
    /// How long a peer that connected to a listener may say nothing until it is reset: 5 s by default,
    /// 10 s, which its whole MPA Request has, at most. Above 3 s, after which a peer sends its first byte
    /// again when its SYN had to be (RFC 6298 section 5.7), or a lossy path costs connections.
    pub first_byte_timeout: Duration,
    /// How long a program may take to accept or reject a peer's request until the peer is reset: 60 s by
    /// default. So long one that does not answer keeps a place of its listener's backlog.
    pub answer_timeout: Duration,
    /// How long a Send of a peer for which no receive is posted waits for one, where the queue pair does not say;
    /// not at all by default, as RFC 5041 section 7.1 has it. Over SCTP none waits.
    pub receive_wait: ReceiveWait,
    /// Whether and when idle peers are asked if they are still there (RFC 9293 section 3.8.4); `None`,
    /// the default, never.
    pub keepalive: Option<KeepAlive>,
    /// How much each connection may have in the network: CUBIC (RFC 9438) is the default, and the
    /// only one for networks that are also others'. BBR is experimental.
    pub congestion: CongestionControl,
    /// SCTP in UDP (RFC 6951), for networks that drop SCTP; `None`, the default: packets in UDP are the kernel's, and
    /// associations have none.
    pub sctp_udp: Option<SctpUdp>,
    /// What the host's IPsec policies (`ip xfrm policy`) are for connections over the interface, which go in clear: by
    /// default those that a policy does not allow in clear are refused.
    pub host_ipsec: HostIpsec,
    /// How long an unknown neighbour (RFC 826, RFC 4861) may take to answer.
    pub resolve_timeout: Duration,
    /// How long [`crate::Device::shutdown`] lets resets leave the interface.
    pub flush_timeout: Duration,
    /// How long [`crate::Device::shutdown`] stays at most for peers that may have missed the last
    /// acknowledgment of a connection that ended in order: 3 s by default, and zero not at all.
    pub linger_max: Duration,
}

impl DeviceConfig {
    /// The least [`DeviceConfig::user_timeout`]: TCP's first retransmission comes a second after the
    /// first SYN, and later ones mostly sooner (RFC 6298).
    pub const USER_TIMEOUT_MIN: Duration = Duration::from_secs(1);

    /// The defaults of a device that has no interface, and needs no privilege: all its connections are
    /// between addresses of this host.
    pub fn loopback() -> Self {
        Self {
            loopback: LoopbackUse::Only,
            ..Self::new("loopback")
        }
    }

    /// The defaults of a device whose link is a UDP socket, and which needs no privilege. Its connections are with peers
    /// that speak DDP over SCTP in UDP, and between addresses of this host. Peers are asked at the registered port, unless
    /// [`DeviceConfig::sctp_udp`] says another.
    pub fn udp(link: UdpLink) -> Self {
        Self {
            loopback: LoopbackUse::Only,
            udp: Some(link),
            sctp_udp: Some(SctpUdp {
                port: link.port,
                peer_port: Some(UdpLink::PORT),
            }),
            ..Self::new("udp")
        }
    }

    /// The defaults for `interface`.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            loopback: LoopbackUse::default(),
            udp: None,
            shards: ShardCount::ONE,
            cores: Cores::Any,
            queues: None,
            dedicated_queues: None,
            vlans: Vec::new(),
            mode: XdpMode::Auto,
            capture: None,
            busy_poll: None,
            flood_limits: FloodLimits::DEFAULT,
            frames: 4096,
            limits: Limits::default(),
            administrators: Administrators {
                uid: rustix::process::geteuid().as_raw(),
                gid: None,
                private: false,
            },
            runtime: Runtime::Thread,
            polling: Polling::default(),
            seccomp: false,
            user_timeout: Duration::from_secs(100),
            first_byte_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(60),
            receive_wait: ReceiveWait::Off,
            keepalive: None,
            congestion: CongestionControl::default(),
            sctp_udp: None,
            host_ipsec: HostIpsec::Refuse,
            resolve_timeout: Duration::from_secs(3),
            flush_timeout: Duration::from_millis(50),
            linger_max: Duration::from_secs(3),
        }
    }
}

/// How many shards an interface has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardCount {
    /// So many: from 1 to [`ShardCount::MAX`].
    Number(u32),
    /// One for each RX queue, but no more than there are processors for this process.
    Auto,
}

impl ShardCount {
    /// One, which needs no other's help for anything: the default.
    pub const ONE: Self = Self::Number(1);
    /// The most shards of an interface.
    pub const MAX: u32 = rnic_engine::shard::SHARDS_MAX as u32;

    /// How many it is at most, whatever queues there are.
    pub fn most(self) -> u32 {
        self.of(u32::MAX)
    }

    /// How many it is for so many queues.
    pub(crate) fn of(self, queues: u32) -> u32 {
        match self {
            Self::Number(number) => number,
            Self::Auto => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                queues.clamp(1, Self::MAX.min(processors as u32))
            }
        }
    }
}

impl FromStr for ShardCount {
    type Err = ParseShardCountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number = text.parse().ok();
        let number = number.filter(|number| (1..=Self::MAX).contains(number));
        number.map(Self::Number).ok_or(ParseShardCountError)
    }
}

impl std::fmt::Display for ShardCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// A text that says no number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a number from 1 to {}, or `auto`", ShardCount::MAX)]
pub struct ParseShardCountError;

/// What [`crate::Devices`] do about interfaces that are not there, are down, or have no address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissing {
    /// All must be ready at the start. One that is taken away later stays closed.
    Fail,
    /// Each is waited for, and opened when it is ready; also again, when it was taken away. A thread keeps
    /// what that asks of the kernel ([`rnic_host::privileges::TO_OPEN`]).
    #[default]
    Wait,
}

/// Whether connections between addresses of this host are made. They go over no interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoopbackUse {
    /// None are.
    Off,
    /// Those between the interface's addresses; and of 127.0.0.0/8 and ::1, on the first device of a
    /// process; and to addresses of other devices that are opened together and have this too.
    #[default]
    Beside,
    /// Those between any addresses of this host: there is no interface. With [`DeviceConfig::udp`] there are others too.
    Only,
}

/// What a shard thread does while it has nothing to do. A sleeping shard answers tens of microseconds
/// later; one that does not sleep takes a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// Looks again at once, and never sleeps: for a core that no other thread needs.
    Spin,
    /// Looks again until there was nothing to do for so long, and gives way to who else wants the
    /// core meanwhile; then sleeps until a frame, a client or a deadline wakes it.
    Adaptive(Duration),
    /// Sleeps at once.
    Event,
}

impl Polling {
    /// Adaptive, with 50 microseconds.
    pub const DEFAULT: Self = Self::Adaptive(Duration::from_micros(50));
}

impl Default for Polling {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Which kind of XDP attachment is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// [`SuperPackets`](Self::SuperPackets) on a veth or tap with one queue that is given unsplit segments to send
    /// (TSO), where the kernel can; else the driver's own; else the generic one.
    #[default]
    Auto,
    /// The driver's own or nothing.
    Native,
    /// The kernel's, which every interface has.
    Generic,
    /// The kernel's, with packets of up to 64 KiB in many buffers, as hosts that share memory with each other hand
    /// them on (TSO, GRO). From Linux 6.9 on.
    SuperPackets,
}

impl From<XdpMode> for ModePreference {
    fn from(mode: XdpMode) -> Self {
        match mode {
            XdpMode::Auto => Self::NativeThenGeneric,
            XdpMode::Native => Self::NativeOnly,
            XdpMode::Generic => Self::GenericOnly,
            XdpMode::SuperPackets => Self::GenericSeveralBuffers,
        }
    }
}

/// Who runs the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtime {
    /// A thread of the device's own.
    #[default]
    Thread,
    /// Whoever calls [`crate::Device::drive`].
    Caller,
}
