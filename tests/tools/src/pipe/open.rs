//! From the settings to a connection that is about to be made.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use rnic_host::{
    HostError, IcmpSocket, Interface, Members, Netlink, Reservation, Sockets, SocketsConfig,
    attach, check_local, find_way,
};
use rnic_net::{Path, TCP_HEADER, ip_header_len};
use rnic_steering::{Protocol, SteeringConfig};
use userspace_net::{FourTuple, Instant};
use userspace_tcp::{Config, KeepAlive};

use super::error::PipeError;
use super::frames::Frames;
use super::host::Host;
use super::link::Link;
use super::paths::Way;
use super::settings::{Role, Settings};
use super::sizes::Sizes;
use super::tcp::Tcp;

/// How long an unknown neighbour may take to answer.
pub(super) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Half-closed connections may be silent for as long as they like.
const FIN_WAIT_2: Duration = Duration::from_secs(30 * 24 * 3600);
/// Connections that there may be at a time: one, and those that want to be it.
const CONNECTIONS: usize = 256;

/// Unanswered keep-alive probes after which a peer is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// What a run works with.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) link: Link,
    pub(super) frames: Frames,
    pub(super) tcp: Tcp,
    /// Our end, which is reserved in the kernel for as long as this lives.
    pub(super) reservation: Reservation,
    /// Errors about what we send.
    pub(super) icmp: Vec<IcmpSocket>,
    /// The kernel's routes and neighbours.
    pub(super) host: Host,
    /// XDP mode.
    pub(super) mode: String,
}

/// Opens the interface and begins to listen or connect.
pub(super) fn open(settings: &Settings) -> Result<Opened, PipeError> {
    let system = |what| move |source| PipeError::System { what, source };
    // Sleeps of some ten microseconds would become twice as long.
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        log::debug!("timer slack: {error}");
    }
    let netlink = Netlink::open().map_err(system("opening a netlink socket"))?;
    let interface = Interface::find(&netlink, &settings.interface)?;
    let (local, way) = ends(&netlink, &interface, settings)?;

    let remote = way.map_or(local, |(remote, _)| remote);
    let headers = ip_header_len(remote.ip()) + TCP_HEADER;
    let mtu = way.map_or(interface.defaults.mtu, |(_, path)| path.mtu);
    let most = u16::try_from((mtu as usize).saturating_sub(headers)).unwrap_or(u16::MAX);
    let mss = settings.mss.map_or(most, |mss| mss.min(most));
    let members = Members::of(&netlink, &interface)?;
    if members.is_bond {
        return Err(PipeError::Bond {
            interface: interface.name,
        });
    }
    let sizes = Sizes::of(settings, mss, members.queues())?;

    let reservation = Reservation::take(rnic::Transport::Tcp, local, interface.index)?;
    let local = reservation.local();
    let mut steering = attach(
        &interface,
        &members,
        settings.mode.into(),
        &SteeringConfig::UNLIMITED,
    )?;
    let mode = steering.mode().to_string();
    // Half of a UMEM with wide frames is for receiving; the other half has as many wide ones.
    let chunk = Sockets::chunk(&interface, settings.mode.into())?;
    let factor = match chunk.chunks() as u32 {
        1 => 1,
        chunks => 2 * chunks,
    };
    let sockets_config = SocketsConfig {
        frames: sizes.frames.saturating_mul(factor),
        chunk,
        super_packets: false,
        rx_ring: sizes.rx_ring,
        tx_ring: sizes.tx_ring,
        busy_poll: None,
    };
    let sockets = Sockets::open(&interface, &members, &sockets_config, &mut steering)?;
    steering
        .claim(Protocol::Tcp, local.ip(), local.port())
        .map_err(|source| HostError::Steering { source })?;

    let icmp = IcmpSocket::open_both(&interface, &mut steering)?;

    let mut secrets = [[0; 16]; 2];
    for secret in &mut secrets {
        getrandom::fill(secret).map_err(|error| PipeError::System {
            what: "random numbers",
            source: std::io::Error::other(error),
        })?;
    }
    let (mut link, mut frames) = Link::new(&interface, sockets, steering, secrets[0]);
    link.refill(&mut frames);
    let config = config(settings, mss, &sizes);
    let zero = Instant::ZERO;
    let mut tcp = Tcp::new(config, secrets[1], zero, sizes.pieces, settings.nodelay);
    match way {
        Some((remote, path)) => {
            let tuple = FourTuple::new(local, remote);
            link.paths.set(tuple, Way { path, port: 0 });
            tcp.connect(zero, tuple, &path)?;
        }
        None => tcp.listen(local)?,
    }
    Ok(Opened {
        link,
        frames,
        tcp,
        reservation,
        icmp,
        host: Host::new(netlink, interface),
        mode,
    })
}

/// Our address (port 0: any), and the peer with the way to it when it is known.
type Ends = (SocketAddr, Option<(SocketAddr, Path)>);

fn ends(netlink: &Netlink, interface: &Interface, settings: &Settings) -> Result<Ends, PipeError> {
    match settings.role {
        Role::Listen(local) => {
            check_local(netlink, interface, local.ip())?;
            Ok((local, None))
        }
        Role::Connect { remote, local } => {
            let (source, path) = find_way(
                netlink,
                interface,
                remote.ip(),
                local,
                Some(RESOLVE_TIMEOUT),
            )?;
            Ok((SocketAddr::new(source, 0), Some((remote, path))))
        }
    }
}

fn config(settings: &Settings, mss: u16, sizes: &Sizes) -> Config {
    Config {
        mss,
        receive_window: settings.window,
        send_queue_segments: sizes.queue_segments,
        window_segments: sizes.queue_segments,
        connections: CONNECTIONS,
        ecn: settings.ecn,
        congestion: settings.congestion,
        pacing: settings.pacing,
        user_timeout: settings.user_timeout,
        keepalive: settings.keepalive.map(|idle| KeepAlive {
            idle,
            interval: idle,
            probes: KEEPALIVE_PROBES,
        }),
        fin_wait_2: FIN_WAIT_2,
        ..Config::default()
    }
}
