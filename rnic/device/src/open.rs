//! Opening an interface: from its name to a shard that is ready to be driven.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rnic_engine::capture::Capture;
use rnic_engine::command::Command;
use rnic_engine::shard::{Shard, ShardConfig, ShardLimits};
use rnic_steering::{IpVersion, ModePreference, Steering, SteeringError};
use rnic_xsk::{
    BusyPoll, ChunkSize, FramePool, Umem, UmemConfig, XskError, XskPort, XskPortConfig,
};
use rustix::io::Errno;

use crate::capture::CaptureFile;
use crate::core::Parts;
use crate::driver::{Drive, Driver, Engine};
use crate::host::address::addresses;
use crate::host::icmp::IcmpSocket;
use crate::host::interface::Interface;
use crate::host::netlink::Netlink;
use crate::{DeviceConfig, DeviceError, Driving, Limits, XdpMode};

/// Entries of each ring of each queue.
const RING: u32 = 512;
/// Frames for each queue: two rings full, and as many in connections' hands.
const FRAMES_PER_QUEUE: u32 = 4 * RING;

/// Packets that one look at a queue may take from its driver: the NAPI budget of most.
const BUSY_POLL_BUDGET: u16 = 64;

/// Opens what `config` says.
pub(crate) fn open(config: DeviceConfig) -> Result<Parts, DeviceError> {
    let host = |what| move |source| DeviceError::Host { what, source };
    let netlink = Netlink::open().map_err(host("a netlink socket"))?;
    let interface = Interface::find(&netlink, &config.interface)?;
    if addresses(&netlink, interface.index)?.is_empty() {
        return Err(DeviceError::NoAddress {
            interface: interface.name,
        });
    }
    let chunk = ChunkSize::for_mtu(interface.mtu).map_err(|error| match error {
        XskError::MtuTooLarge { mtu, most } => DeviceError::MtuTooLarge {
            interface: interface.name.clone(),
            mtu,
            most,
        },
        source => DeviceError::Xsk { source },
    })?;
    let queues = queues(&config, &interface)?;
    check_frames(&config, queues)?;

    let mut steering = Steering::attach(&interface.name, preference(config.mode))
        .map_err(|error| steering_error(&interface, error))?;
    let (umem, pool, ports) = sockets(&config, &interface, chunk, queues, &mut steering)?;
    let xdp_mode = steering.mode().to_string();
    let icmp = icmp_sockets(&interface, &mut steering)?;

    let mut capture = None;
    let mut tap = None;
    if let Some(path) = &config.capture {
        let (file, end) = CaptureFile::create(path, &interface, umem.frame_capacity())?;
        capture = Some(file);
        tap = Some(end);
    }
    let engine = engine(&config, &interface, pool, ports, tap)?;
    let driver = match config.driving {
        Driving::Threaded => Driver::threaded(engine, config.idle_spin),
        Driving::Inline => Driver::inline(Box::new(engine)),
    }
    .map_err(host("a thread for the shard"))?;
    log::info!(
        "interface {}: XDP in {xdp_mode} mode, {queues} queue(s), MTU {}, {} frames of {} octets",
        interface.name,
        interface.mtu,
        umem.frames(),
        chunk.octets()
    );
    let steering = Some(steering);
    Ok(Parts {
        config,
        interface,
        xdp_mode,
        queues,
        netlink,
        steering,
        driver,
        capture,
        icmp,
    })
}

/// How many queues to serve: all there are.
fn queues(config: &DeviceConfig, interface: &Interface) -> Result<u32, DeviceError> {
    let found = rnic_steering::number_of_rx_queues(&interface.name)
        .map_err(|error| steering_error(interface, error))?;
    match config.queues {
        Some(asked) if asked != found => Err(DeviceError::BadQueues {
            interface: interface.name.clone(),
            asked,
            found,
        }),
        _ => Ok(found),
    }
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

fn sockets(
    config: &DeviceConfig,
    interface: &Interface,
    chunk: ChunkSize,
    queues: u32,
    steering: &mut Steering,
) -> Result<(Umem, FramePool, Vec<XskPort>), DeviceError> {
    let umem_config = UmemConfig {
        frames: config.frames,
        chunk,
        fill_ring: RING,
        completion_ring: RING,
        ..UmemConfig::default()
    };
    let failed = |error| xsk_error(interface, error);
    let (umem, pool) = Umem::new(&umem_config).map_err(failed)?;
    let mut ports = Vec::new();
    for queue in 0..queues {
        let mut port_config = XskPortConfig::new(&interface.name, queue);
        port_config.rx_ring = RING;
        port_config.tx_ring = RING;
        port_config.busy_poll = config.busy_poll.map(|microseconds| BusyPoll {
            microseconds,
            budget: BUSY_POLL_BUDGET,
        });
        let port = XskPort::open(&umem, port_config).map_err(failed)?;
        steering
            .set_queue(queue, port.fd())
            .map_err(|error| steering_error(interface, error))?;
        ports.push(port);
    }
    Ok((umem, pool, ports))
}

/// For the errors about what will be claimed, of both versions of IP.
fn icmp_sockets(
    interface: &Interface,
    steering: &mut Steering,
) -> Result<Vec<IcmpSocket>, DeviceError> {
    let mut sockets = Vec::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        match steering.icmp_errors(version) {
            Ok(socket) => sockets.push(IcmpSocket { version, socket }),
            // A kernel without IPv6 has no ICMPv6 either.
            Err(SteeringError::Kernel { source, .. })
                if source.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {}
            Err(error) => return Err(steering_error(interface, error)),
        }
    }
    Ok(sockets)
}

fn engine(
    config: &DeviceConfig,
    interface: &Interface,
    pool: FramePool,
    ports: Vec<XskPort>,
    tap: Option<Box<dyn Capture>>,
) -> Result<Engine<XskPort>, DeviceError> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).map_err(|error| DeviceError::Host {
        what: "random numbers",
        source: std::io::Error::other(error),
    })?;
    let zero = Instant::now();
    // A clock before 1970 only makes captures look odd.
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let shard_config = ShardConfig {
        secret,
        mtu: interface.mtu,
        limits: shard_limits(&config.limits),
        receive_reserve: (config.frames / 4) as usize,
        unix_time_at_zero: unix.as_nanos() as u64,
        ..ShardConfig::default()
    };
    let shard = Shard::new(shard_config, pool, ports, userspace_tcp::Instant::ZERO);
    let mut engine = Engine::new(shard, zero);
    if tap.is_some() {
        // The shard has nothing to tell before its first client.
        let (answer, _) = engine.execute(Command::SetCapture(tap), &mut |_| {});
        answer.map_err(|error| DeviceError::BadConfig {
            what: "a capture",
            asked: format!("{:?}", config.capture),
            advice: error.to_string(),
        })?;
    }
    Ok(engine)
}

/// The shard's tables hold what the PRM may grant.
fn shard_limits(limits: &Limits) -> ShardLimits {
    let device = &limits.device;
    ShardLimits {
        clients: limits.clients as usize,
        regions: device.regions as usize,
        cqs: device.completion_queues as usize,
        queue_pairs: device.queue_pairs as usize,
        listeners: device.listeners as usize,
        // Those in TIME-WAIT and those that wait for an answer come on top.
        connections: 2 * device.queue_pairs as usize,
    }
}

fn preference(mode: XdpMode) -> ModePreference {
    match mode {
        XdpMode::Auto => ModePreference::NativeThenGeneric,
        XdpMode::Native => ModePreference::NativeOnly,
        XdpMode::Generic => ModePreference::GenericOnly,
    }
}

fn steering_error(interface: &Interface, error: SteeringError) -> DeviceError {
    match error {
        SteeringError::NoPrivilege { asked, .. } => DeviceError::NoPrivilege {
            interface: interface.name.clone(),
            what: asked.to_owned(),
        },
        source => DeviceError::Steering { source },
    }
}

fn xsk_error(interface: &Interface, error: XskError) -> DeviceError {
    match error {
        XskError::NoPrivilege { request } => DeviceError::NoPrivilege {
            interface: interface.name.clone(),
            what: request.asked,
        },
        source => DeviceError::Xsk { source },
    }
}
