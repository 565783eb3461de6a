//! Opening an interface: from its name to shards that are ready to be driven.

mod making;

use std::sync::Mutex;

use rnic_host::HostError;
use rnic_host::address::addresses;
use rnic_host::icmp::IcmpSocket;
use rnic_host::steering_error;
use rnic_host::super_packets::Choice;
use rnic_host::{Interface, Netlink};
use rnic_host::{Members, Sockets, SocketsConfig, attach, joined_frames};
use rnic_net::Vlans;
use rnic_steering::{KnownFlows, ModePreference, SteeringConfig};
use rnic_xsk::{ChunkSize, DevicePort, FramePool, Umem, XskPort};

use super::paths::L2Interface;
use super::{OpenInterface, loopback};
use crate::capture::{CaptureFile, Tap};
use crate::config::cores::{Cores, Stay};
use crate::runtime::Shards;
use crate::{
    DedicatedQueues, DeviceConfig, DeviceError, LoopbackUse, ParseShardCountError, Runtime,
    ShardCount, XdpMode,
};

/// Entries of each ring of each queue.
pub(super) const RING: u32 = 512;
/// Frames for each queue: two rings full, and as many in connections' hands.
const FRAMES_PER_QUEUE: u32 = 4 * RING;

/// An interface that is open, or the loopback alone, before its shards are made.
pub(crate) struct Opened {
    pub(super) interface: OpenInterface,
    pub(super) parts: ShardParts,
}

pub(super) struct ShardParts {
    /// The steering program's table, once for each shard.
    pub(super) flows: Vec<KnownFlows>,
    /// The processor of each shard's thread, if it stays on one.
    pub(super) cores: Vec<Option<u32>>,
    pub(super) umem: Umem,
    pub(super) pool: FramePool,
    /// The interface's, or UDP sockets; none on the loopback.
    pub(super) queues: Vec<DevicePort<XskPort>>,
}

/// An interface with its shards, ready to be driven.
pub(crate) struct Started {
    pub(crate) interface: OpenInterface,
    pub(crate) shards: Shards,
    /// The file that frames are written to, if one is wanted.
    pub(crate) capture: Option<CaptureFile>,
}

/// What is known of an interface before any of it is opened.
pub(crate) struct Found {
    netlink: Netlink,
    vlans: Vlans,
    l2: Vec<L2Interface>,
    /// Of its packet buffers.
    pub(crate) chunk: ChunkSize,
    members: Members,
    choice: Choice,
}

/// Looks up an interface that is to be opened, and whether it can be as `config` says.
pub(crate) fn look_up(config: &DeviceConfig) -> Result<Found, DeviceError> {
    let netlink = Netlink::open().map_err(host("a netlink socket"))?;
    let vlans = vlans(config)?;
    let l2 = find(config, &netlink)?;
    let interface = &l2[0].interface;
    let members = Members::of(&netlink, interface)?;
    let choice = match config.mode {
        XdpMode::Auto => Choice::suits(&netlink, interface, &members),
        asked => Choice::asked(asked.into()),
    };
    let chunk = Sockets::chunk(interface, choice.mode)?;
    Sockets::check_busy_poll(interface, config.busy_poll)?;
    check_queues(config, interface, &members)?;
    let members = served(config, members)?;
    Ok(Found {
        netlink,
        vlans,
        l2,
        chunk,
        members,
        choice,
    })
}

impl Found {
    /// The interface that frames go over.
    pub(crate) fn interface(&self) -> &Interface {
        &self.l2[0].interface
    }

    /// The indexes of that and of its VLANs' interfaces.
    pub(crate) fn indexes(&self) -> Vec<u32> {
        self.l2.iter().map(|l2| l2.interface.index).collect()
    }
}

/// Opens what `config` says, as the device of a number of its own.
pub(crate) fn open(config: DeviceConfig, number: u8) -> Result<Opened, DeviceError> {
    check_user_timeout(&config)?;
    check_sctp_udp(&config)?;
    if config.loopback == LoopbackUse::Only {
        return loopback::open(config, number);
    }
    let Found {
        netlink,
        vlans,
        l2,
        chunk,
        members,
        choice,
    } = look_up(&config)?;
    let interface = l2[0].interface.clone();
    let cores = |members: &Members| {
        let shards = shards(&config, members);
        // Members have their queues in the same order, and their interrupts as the operator set them.
        let first = &members.all[0];
        let cores = config.cores.of(shards, &first.name, &first.queues);
        cores.map_err(host("the processors of this process"))
    };
    let _stay = Stay::on(&cores(&members)?).map_err(host("a processor"))?;

    let steering_config = SteeringConfig {
        limits: config.flood_limits.shared_by(members.queues()),
        sctp_udp_port: config.sctp_udp.map(|udp| udp.port),
    };
    let mut steering = attach(&interface, &members, choice.mode, &steering_config)?;
    // Some drivers add queues for XDP.
    let members = Members::of(&netlink, &interface)?;
    let members = served(&config, members)?;
    let (queues, shards) = (members.queues(), shards(&config, &members));
    let cores = cores(&members)?;
    let sockets_config = SocketsConfig {
        frames: config.frames,
        chunk,
        super_packets: choice.mode == ModePreference::GenericSeveralBuffers,
        rx_ring: RING,
        tx_ring: RING,
        busy_poll: config.busy_poll,
    };
    if !sockets_config.super_packets {
        joined_frames::warn(&netlink, &interface, &members, steering.mode());
    }
    let Sockets { umem, pool, ports } =
        Sockets::open(&interface, &members, &sockets_config, &mut steering)?;
    let xdp_mode = match sockets_config.super_packets {
        true => "generic with super-packets".to_owned(),
        false => steering.mode().to_string(),
    };
    let icmp = IcmpSocket::open_both(&interface, &mut steering)?;

    let flows: Result<Vec<_>, _> = (0..shards).map(|_| steering.known_flows()).collect();
    let flows = flows.map_err(|error| steering_error(&interface, error))?;
    let why = choice.why.map_or(String::new(), |why| format!(" ({why})"));
    log::info!(
        "interface {}: XDP in {xdp_mode} mode{why}, {queues} queue(s), {shards} shard(s), MTU {}, {} frames of {} bytes",
        interface.name,
        interface.defaults.mtu,
        umem.frames(),
        chunk.bytes()
    );
    if let Some(dedicated) = &config.dedicated_queues {
        log::info!(
            "interface {}: queues {dedicated} are the RNIC's, to which flow rules must bring its frames (`ethtool -N`)",
            interface.name
        );
    }
    let mut opened =
        OpenInterface::new((config, number), l2, umem.frame_capacity(), Some(steering))?;
    opened.vlans = vlans;
    opened.xdp_mode = xdp_mode;
    opened.mode = choice.mode;
    opened.netlink = Some(netlink);
    opened.members = Some(members);
    opened.icmp_sockets = Mutex::new(icmp);
    Ok(Opened {
        interface: opened,
        parts: ShardParts {
            flows,
            cores,
            umem,
            pool,
            queues: ports.into_iter().map(DevicePort::Queue).collect(),
        },
    })
}

impl Opened {
    /// Makes its shards, ready to be driven.
    pub(crate) fn start(self) -> Result<Started, DeviceError> {
        let Self { interface, parts } = self;
        let found = interface.interface();
        let (capture, tap) = capture_file(&interface.config, &found, interface.frame_bytes)?;
        // Not before the capture's thread is there.
        let _stay = Stay::on(&parts.cores).map_err(host("a processor"))?;
        let shards = making::shards(&interface, parts, tap)?;
        Ok(Started {
            interface,
            shards,
            capture,
        })
    }
}

pub(crate) fn host(what: &'static str) -> impl FnOnce(std::io::Error) -> DeviceError {
    move |cause| DeviceError::Host { what, cause }
}

/// The file that the configuration wants frames written to, and the end that takes them.
fn capture_file(
    config: &DeviceConfig,
    interface: &Interface,
    frame_bytes: usize,
) -> Result<(Option<CaptureFile>, Option<Tap>), DeviceError> {
    match &config.capture {
        None => Ok((None, None)),
        Some(path) => {
            let (file, tap) = CaptureFile::create(path, interface, frame_bytes)?;
            Ok((Some(file), Some(tap)))
        }
    }
}

/// The VLANs of local addresses.
fn vlans(config: &DeviceConfig) -> Result<Vlans, DeviceError> {
    let mut vlans = Vlans::default();
    for vlan in &config.vlans {
        for addresses in &vlan.addresses {
            if !vlans.add(*addresses, vlan.id) {
                return Err(DeviceError::BadConfig {
                    what: "a number of VLANs' networks",
                    asked: format!("more than {}", Vlans::MAX),
                    advice: "name wider networks, or fewer".to_owned(),
                });
            }
        }
    }
    Ok(vlans)
}

/// The interface and those of the kernel for its VLANs, all up, one with an address at least. The first is
/// the interface itself.
pub(crate) fn find(
    config: &DeviceConfig,
    netlink: &Netlink,
) -> Result<Vec<L2Interface>, DeviceError> {
    let mut l2 = vec![L2Interface {
        interface: Interface::find(netlink, &config.interface)?,
        vlan: None,
    }];
    for vlan in &config.vlans {
        if let Some(name) = &vlan.interface {
            l2.push(L2Interface {
                interface: Interface::find(netlink, name)?,
                vlan: Some(vlan.id),
            });
        }
    }
    for one in &l2 {
        if !addresses(netlink, one.interface.index)
            .map_err(HostError::from)?
            .is_empty()
        {
            return Ok(l2);
        }
    }
    Err(DeviceError::NoAddress {
        interface: config.interface.clone(),
    })
}

fn check_queues(
    config: &DeviceConfig,
    interface: &Interface,
    members: &Members,
) -> Result<(), DeviceError> {
    let found = members.queues();
    match config.queues {
        Some(asked) if asked != found => Err(DeviceError::BadQueues {
            interface: interface.name.clone(),
            asked,
            found,
        }),
        _ => Ok(()),
    }
}

/// How many shards serve an interface with these members.
fn shards(config: &DeviceConfig, members: &Members) -> u32 {
    match config.shards {
        ShardCount::Number(number) => number,
        ShardCount::Auto => members.shards(config.shards.of(members.queues())),
    }
}

/// The members with those of their queues that are asked for.
fn served(config: &DeviceConfig, members: Members) -> Result<Members, DeviceError> {
    let dedicated = config.dedicated_queues.as_ref();
    let members = members.only(dedicated.map(DedicatedQueues::as_slice))?;
    check_members(config, &members)?;
    Ok(members)
}

/// That the members' queues are as shards and frames need them.
fn check_members(config: &DeviceConfig, members: &Members) -> Result<(), DeviceError> {
    let (queues, shards) = (members.queues(), shards(config, members));
    check_shards(config, shards)?;
    if !members.suit(shards) {
        let advice = match members.is_bond {
            false => format!("{queues} queue(s) serve as many shards at most: see `ethtool -l`"),
            true => "each member of a bond needs a multiple of as many queues: see `ethtool -l`"
                .to_owned(),
        };
        return Err(bad_shards(shards, advice));
    }
    check_frames(config, queues)
}

fn bad_shards(shards: u32, advice: String) -> DeviceError {
    DeviceError::BadConfig {
        what: "a number of shards",
        asked: shards.to_string(),
        advice,
    }
}

/// That so many shards can be driven.
pub(crate) fn check_shards(config: &DeviceConfig, shards: u32) -> Result<(), DeviceError> {
    let advice = if shards == 0 || shards > ShardCount::MAX {
        ParseShardCountError.to_string()
    } else if let Cores::List(list) = &config.cores
        && list.len() != shards as usize
    {
        return Err(DeviceError::BadConfig {
            what: "processors for the shards",
            asked: config.cores.to_string(),
            advice: format!("there are {shards} shards: name one for each"),
        });
    } else if shards > 1 && config.runtime == Runtime::Caller {
        "several need threads: have them driven so".to_owned()
    } else {
        return Ok(());
    };
    Err(bad_shards(shards, advice))
}

fn check_frames(config: &DeviceConfig, queues: u32) -> Result<(), DeviceError> {
    let least = FRAMES_PER_QUEUE.saturating_mul(queues);
    if config.frames >= least {
        return Ok(());
    }
    Err(DeviceError::BadConfig {
        what: "a number of UMEM frames",
        asked: config.frames.to_string(),
        advice: format!("{queues} queue(s) need at least {least}"),
    })
}

pub(crate) fn check_user_timeout(config: &DeviceConfig) -> Result<(), DeviceError> {
    let least = DeviceConfig::USER_TIMEOUT_MIN;
    if config.user_timeout >= least {
        return Ok(());
    }
    Err(DeviceError::BadConfig {
        what: "a user timeout",
        asked: format!("{:?}", config.user_timeout),
        advice: format!("give {least:?} or more, so that lost segments can be sent again"),
    })
}

/// Port 0 stands for no port.
fn check_sctp_udp(config: &DeviceConfig) -> Result<(), DeviceError> {
    match config.sctp_udp {
        Some(udp) if udp.port == 0 || udp.peer_port == Some(0) => Err(DeviceError::BadConfig {
            what: "SCTP in UDP",
            asked: format!("{udp:?}"),
            advice: "give ports from 1 on (9899 is registered for it), or leave them out"
                .to_owned(),
        }),
        _ => Ok(()),
    }
}
