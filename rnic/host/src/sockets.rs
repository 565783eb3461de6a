//! An interface's queues as AF_XDP sockets on one UMEM, and the steering program that fills them.

use rnic_steering::{Mode, ModePreference, Steering, SteeringConfig, SteeringError};
use rnic_xsk::{
    BusyPoll, ChunkSize, CopyMode, FramePool, KernelFeature, Port, Umem, UmemConfig, XskError,
    XskPort, XskPortConfig,
};

use super::interface::Interface;
use super::members::Members;
use crate::HostError;

/// Packets that one look at a queue may take from its driver: the NAPI budget of most.
const BUSY_POLL_BUDGET: u16 = 64;

/// How large the sockets of an interface are to be.
#[derive(Clone, Copy, Debug)]
pub struct SocketsConfig {
    /// Packet buffers of all queues together.
    pub frames: u32,
    /// How large each is: [`Sockets::chunk`].
    pub chunk: ChunkSize,
    /// Whether packets may be larger than a frame of the interface.
    pub super_packets: bool,
    /// Entries of each queue's RX and fill ring: a power of two.
    pub rx_ring: u32,
    /// Entries of each queue's TX and completion ring: a power of two.
    pub tx_ring: u32,
    /// Microseconds that one look at a queue may poll its driver; `None` leaves it to interrupts.
    pub busy_poll: Option<u32>,
}

#[derive(Debug)]
pub struct Sockets {
    pub umem: Umem,
    /// Those that are free: all that the sockets have not.
    pub pool: FramePool,
    /// A socket for each RX queue of each member, in their order.
    pub ports: Vec<XskPort>,
}

/// Attaches the steering program to an interface of the calling thread's network namespace: to its members, if it is
/// a bond.
///
/// # Errors
///
/// When the interface, its driver or the process's privileges don't allow it.
pub fn attach(
    interface: &Interface,
    members: &Members,
    mode: ModePreference,
    config: &SteeringConfig,
) -> Result<Steering, HostError> {
    let name = &interface.name;
    let attached = match members.is_bond {
        true => {
            let names = members.all.iter().map(|member| member.name.as_str());
            let names: Vec<_> = names.collect();
            Steering::attach_bond(name, &names, mode, config)
        }
        false => Steering::attach(name, mode, config),
    };
    attached.map_err(|error| steering_error(interface, error))
}

impl Sockets {
    /// The size of packet buffer that the interface's MTU and mode need.
    ///
    /// # Errors
    ///
    /// When the MTU is too large for any, or this kernel lacks what MTU or mode need.
    pub fn chunk(interface: &Interface, mode: ModePreference) -> Result<ChunkSize, HostError> {
        let mtu = interface.defaults.mtu;
        let chunk = ChunkSize::for_mtu(mtu).map_err(|error| match error {
            XskError::MtuTooLarge { mtu, most } => HostError::MtuTooLarge {
                interface: interface.name.clone(),
                mtu,
                most,
            },
            source => HostError::Xsk { source },
        })?;
        if chunk.chunks() > 1 {
            let most = ChunkSize::Bytes4096.largest_mtu();
            let advice = format!("`ip link set dev {} mtu {most}` or less", interface.name);
            let asked = format!("an MTU of {mtu} bytes");
            kernel_has(KernelFeature::SeveralBuffers, interface, asked, advice)?;
        }
        if mode == ModePreference::GenericSeveralBuffers {
            let (asked, advice) = ("super-packets".to_owned(), "use another mode".to_owned());
            kernel_has(
                KernelFeature::GenericSeveralBuffers,
                interface,
                asked,
                advice,
            )?;
            // In smaller ones the largest packet would not find enough.
            return Ok(match chunk {
                ChunkSize::Bytes2048 => ChunkSize::Bytes4096,
                larger => larger,
            });
        }
        Ok(chunk)
    }

    /// That the kernel has what busy polling needs, if it is asked for.
    pub fn check_busy_poll(interface: &Interface, busy_poll: Option<u32>) -> Result<(), HostError> {
        if busy_poll.is_none() {
            return Ok(());
        }
        let (asked, advice) = ("busy polling".to_owned(), "open it without".to_owned());
        kernel_has(KernelFeature::PreferBusyPoll, interface, asked, advice)
    }

    /// Opens a socket on each queue of the interface's members, one member after the other, and has `steering` fill
    /// them.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn open(
        interface: &Interface,
        members: &Members,
        config: &SocketsConfig,
        steering: &mut Steering,
    ) -> Result<Self, HostError> {
        let umem_config = UmemConfig {
            frames: config.frames,
            chunk: config.chunk,
            fill_ring: config.rx_ring,
            completion_ring: config.tx_ring,
            ..UmemConfig::default()
        };
        let failed = |error| xsk_error(interface, error);
        let (umem, mut pool) = Umem::new(&umem_config).map_err(failed)?;
        let mut ports = Vec::new();
        let numbered = members.all.iter().enumerate();
        let queues = numbered
            .flat_map(|(number, one)| one.queues.iter().map(move |queue| (number, one, *queue)));
        for (number, member, queue) in queues {
            let mut port_config = XskPortConfig::new(&member.name, queue);
            port_config.rx_ring = config.rx_ring;
            port_config.tx_ring = config.tx_ring;
            port_config.copy_mode = copy_mode(steering.mode());
            port_config.super_packets = config.super_packets;
            port_config.busy_poll = config.busy_poll.map(|microseconds| BusyPoll {
                microseconds,
                budget: BUSY_POLL_BUDGET,
            });
            let mut port = XskPort::open(&umem, port_config).map_err(failed)?;
            // With zero-copy the kernel's own frames of this queue need them from now on.
            port.refill(&mut pool);
            steering
                .set_queue(number, queue, port.fd())
                .map_err(|error| steering_error(interface, error))?;
            ports.push(port);
        }
        Ok(Self { umem, pool, ports })
    }
}

/// Who copies frames. In generic mode always the kernel: some drivers accept a zero-copy socket without native
/// XDP, and then refuse to send from it.
fn copy_mode(mode: Mode) -> CopyMode {
    match mode {
        Mode::Native => CopyMode::Automatic,
        Mode::Generic => CopyMode::Copy,
    }
}

/// The error when what is asked needs a feature that this kernel is without.
fn kernel_has(
    feature: KernelFeature,
    interface: &Interface,
    asked: String,
    advice: String,
) -> Result<(), HostError> {
    match feature.is_missing() {
        false => Ok(()),
        true => Err(HostError::KernelLacks {
            interface: interface.name.clone(),
            asked,
            feature,
            release: release(),
            advice,
        }),
    }
}

/// What this kernel is without, in one line; none when it has all, or does not tell.
pub fn missing_features() -> Option<String> {
    let missing: Vec<String> = KernelFeature::ALL
        .into_iter()
        .filter(|feature| feature.is_missing())
        .map(|feature| feature.to_string())
        .collect();
    let missing = (!missing.is_empty()).then(|| missing.join(" and "))?;
    Some(format!("Linux {} is without {missing}", release()))
}

/// The kernel's, as `uname -r` has it.
fn release() -> String {
    let uname = rustix::system::uname();
    uname.release().to_string_lossy().into_owned()
}

/// What the steering program's refusal means for an interface.
pub fn steering_error(interface: &Interface, error: SteeringError) -> HostError {
    match error {
        SteeringError::NoPrivilege { asked, .. } => HostError::NoPrivilege {
            interface: interface.name.clone(),
            what: asked.to_owned(),
        },
        source => HostError::Steering { source },
    }
}

fn xsk_error(interface: &Interface, error: XskError) -> HostError {
    match error {
        XskError::NoPrivilege { request } => HostError::NoPrivilege {
            interface: interface.name.clone(),
            what: request.asked,
        },
        source => HostError::Xsk { source },
    }
}
