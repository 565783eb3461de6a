//! Everything that the daemon runs with: what was said, and the defaults of what was not.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use log::LevelFilter;
use rnic_device::{
    Administrators, AllowList, DeviceConfig, FloodLimits, KeepAlive, Limits, LoopbackUse,
    OnMissing, Polling, Rate, SctpUdp,
};
use rnic_ipc::find::{DEFAULT_SOCKET, runtime_socket};

use crate::cli::{Cli, Given, LinkGiven, Mode, PollingMode};
use crate::config::{self, ConfigError, File, InterfaceGiven};
use crate::metrics::MetricsAddress;
use crate::names::Account;

/// Who may connect when nothing was said.
const SOCKET_MODE: u32 = 0o660;
/// Of a daemon that is one user's.
const SOCKET_MODE_OF_USER: u32 = 0o600;
/// How long connections may take to end in order then.
const DRAIN: Duration = Duration::from_secs(2);

/// Everything that the daemon runs with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) socket: PathBuf,
    pub(crate) socket_mode: u32,
    /// None: the daemon's own.
    pub(crate) socket_group: Option<u32>,
    /// None: nowhere.
    pub(crate) metrics: Option<MetricsAddress>,
    pub(crate) log: LevelFilter,
    /// How long connections may take to end in order when the daemon is told to end.
    pub(crate) drain: Duration,
    /// Whom to become first; none: nobody else.
    pub(crate) user: Option<Account>,
    /// Whether interfaces are waited for.
    pub(crate) on_missing: OnMissing,
    /// One for each interface, each with the same limits.
    pub(crate) devices: Vec<DeviceConfig>,
}

/// Why the daemon does not know what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody named an interface.
    #[error(
        "no interface to open: name one with --interface, or with `interface = \"NAME\"` in the \
         file of --config; or say --loopback, for connections within this host alone"
    )]
    NoInterface,
    /// Both were named.
    #[error(
        "--loopback, which opens no interface, and interface {interface}: leave one of them out (a daemon \
         with an interface makes connections within this host too)"
    )]
    LoopbackAndInterface {
        /// The first.
        interface: String,
    },
    /// What only interfaces have.
    #[error("--loopback opens no interface, and only interfaces have {what}: leave it out")]
    NotOfLoopback {
        /// The setting.
        what: &'static str,
    },
    /// Both were said.
    #[error("loopback and no_loopback: leave one of them out")]
    LoopbackOrNot,
    /// There is no directory of the user's own.
    #[error(
        "no place for the socket of --loopback: XDG_RUNTIME_DIR is not set to an absolute path; name one with --socket, in a \
         directory that only you may enter"
    )]
    NoRuntimeDirectory,
    /// Nobody said when an idle peer is first asked.
    #[error(
        "interface {interface}: {what} without keepalive_idle, which says after how many seconds of \
         silence a peer is first asked: give that too (0 for never), or leave {what} out"
    )]
    NoKeepaliveIdle {
        /// Of which interface.
        interface: String,
        /// What was said.
        what: &'static str,
    },
    /// There is a UDP port to send to, and none to send from.
    #[error(
        "interface {interface}: sctp_udp_peer_port without sctp_udp_port, from which SCTP in UDP is sent: give that too \
         (9899 is registered for it), or leave sctp_udp_peer_port out"
    )]
    NoSctpUdpPort {
        /// Of which interface.
        interface: String,
    },
}

impl Settings {
    /// What the command line says, over what its file says.
    pub(crate) fn new(cli: &Cli) -> Result<Self, SettingsError> {
        let file = cli.config.as_deref().map(config::read).transpose()?;
        let mut settings = Self::of(cli.given.clone(), file.unwrap_or_default())?;
        settings.user = cli.user;
        for device in &mut settings.devices {
            device.administrators.uid = cli.user.map_or(device.administrators.uid, |user| user.uid);
            if cli.private {
                device.administrators.private = true;
                device.limits = Limits::of_one_user();
            }
        }
        Ok(settings)
    }

    /// What differs in `asked`, and is of the daemon's start: a line for each. Of the devices they say
    /// themselves.
    pub(crate) fn fixed(&self, asked: &Self) -> Vec<String> {
        let Self {
            socket,
            socket_mode,
            socket_group,
            metrics,
            user,
            on_missing,
            log: _,
            drain: _,
            devices: _,
        } = self;
        [
            ("socket", *socket != asked.socket),
            ("socket_mode", *socket_mode != asked.socket_mode),
            ("socket_group", *socket_group != asked.socket_group),
            ("metrics", *metrics != asked.metrics),
            ("no_wait", *on_missing != asked.on_missing),
            ("--user", *user != asked.user),
        ]
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(what, _)| {
            format!(
                "another {what} asked, which holds from the start on: start the daemon again, or leave it \
                 as it was"
            )
        })
        .collect()
    }

    fn of(said: Given, file: File) -> Result<Self, SettingsError> {
        let File {
            given: in_file,
            interfaces,
            allowed_peers,
            mut limits,
        } = file;
        let interfaces = chosen(&said.interface, interfaces);
        let (above, below) = (said.link.clone(), in_file.link.clone());
        let given = said.over(in_file);
        if given.loopback && allowed_peers.is_some() {
            let what = "allowed_peers";
            return Err(SettingsError::NotOfLoopback { what });
        }
        let interfaces = with_loopback(&given, interfaces)?;
        limits.interface_peers = interface_peers(&interfaces, allowed_peers.as_ref());
        let several = interfaces.len() > 1;
        let mut devices = Vec::new();
        for InterfaceGiven {
            name, link, vlans, ..
        } in interfaces
        {
            let own_capture = link.capture.is_some() && above.capture.is_none();
            let mut link = above.clone().over(link).over(below.clone());
            if several && !own_capture {
                link.capture = link.capture.map(|path| with_name(&path, &name));
            }
            let mut device = device(name, link, limits.clone())?;
            device.vlans = vlans;
            device.administrators = Administrators {
                gid: given.admin_group,
                ..device.administrators
            };
            device.seccomp = !given.no_seccomp;
            device.loopback = match (given.loopback, given.no_loopback) {
                (true, _) => LoopbackUse::Only,
                (_, true) => LoopbackUse::Off,
                _ => LoopbackUse::Beside,
            };
            devices.push(device);
        }
        Ok(Self {
            socket: match (given.socket, given.loopback) {
                (Some(socket), _) => socket,
                (None, true) => runtime_socket().ok_or(SettingsError::NoRuntimeDirectory)?,
                (None, false) => PathBuf::from(DEFAULT_SOCKET),
            },
            socket_mode: given.socket_mode.unwrap_or(match given.loopback {
                true => SOCKET_MODE_OF_USER,
                false => SOCKET_MODE,
            }),
            socket_group: given.socket_group,
            metrics: given.metrics,
            log: given.log.unwrap_or(LevelFilter::Info),
            drain: given.drain.map_or(DRAIN, Duration::from_millis),
            user: None,
            on_missing: match given.no_wait {
                true => OnMissing::Fail,
                false => OnMissing::Wait,
            },
            devices,
        })
    }
}

/// The interfaces to open; of the loopback alone a device that has only its name.
fn with_loopback(
    given: &Given,
    interfaces: Vec<InterfaceGiven>,
) -> Result<Vec<InterfaceGiven>, SettingsError> {
    let mut rest = interfaces.into_iter();
    match rest.next() {
        _ if given.loopback && given.no_loopback => Err(SettingsError::LoopbackOrNot),
        Some(first) if given.loopback => Err(SettingsError::LoopbackAndInterface {
            interface: first.name,
        }),
        None if given.loopback => {
            let link = &given.link;
            let of_interfaces = [
                (link.shards.is_some(), "shards"),
                (link.queues.is_some(), "queues"),
                (link.dedicated_queues.is_some(), "dedicated_queues"),
                (link.mode.is_some(), "a mode of XDP"),
                (link.busy_poll.is_some(), "busy_poll"),
                (link.host_ipsec.is_some(), "host_ipsec"),
            ];
            match of_interfaces.into_iter().find(|(said, _)| *said) {
                Some((_, what)) => Err(SettingsError::NotOfLoopback { what }),
                None => Ok(vec![InterfaceGiven {
                    name: DeviceConfig::loopback().interface,
                    ..InterfaceGiven::default()
                }]),
            }
        }
        None => Err(SettingsError::NoInterface),
        Some(first) => Ok(std::iter::once(first).chain(rest).collect()),
    }
}

/// The allow-list of each interface that has one, its own or that of all.
fn interface_peers(
    interfaces: &[InterfaceGiven],
    of_all: Option<&AllowList>,
) -> HashMap<String, AllowList> {
    let list = |one: &InterfaceGiven| {
        let list = one.allowed_peers.as_ref().or(of_all)?;
        Some((one.name.clone(), list.clone()))
    };
    interfaces.iter().filter_map(list).collect()
}

/// The interfaces of the command line, each with what the file says of it; or else the file's.
fn chosen(said: &[String], in_file: Vec<InterfaceGiven>) -> Vec<InterfaceGiven> {
    if said.is_empty() {
        return in_file;
    }
    let find = |name: &String| {
        let known = in_file.iter().find(|one| one.name == *name).cloned();
        known.unwrap_or_else(|| InterfaceGiven {
            name: name.clone(),
            ..InterfaceGiven::default()
        })
    };
    said.iter().map(find).collect()
}

fn device(
    interface: String,
    link: LinkGiven,
    limits: Limits,
) -> Result<DeviceConfig, SettingsError> {
    let keepalive = keepalive(&interface, &link)?;
    let sctp_udp = sctp_udp(&interface, &link)?;
    let mut config = DeviceConfig::new(interface);
    let take = |given: Option<u64>, setting: &mut Duration| {
        *setting = given.map_or(*setting, Duration::from_millis);
    };
    take(link.user_timeout, &mut config.user_timeout);
    take(link.first_byte_timeout, &mut config.first_byte_timeout);
    take(link.answer_timeout, &mut config.answer_timeout);
    config.polling = polling(&link, config.polling);
    config.flood_limits = flood_limits(&link, config.flood_limits);
    config.shards = link.shards.unwrap_or(config.shards);
    config.cores = link.cores.unwrap_or(config.cores);
    config.queues = link.queues;
    config.dedicated_queues = link.dedicated_queues;
    config.capture = link.capture;
    config.mode = link.mode.unwrap_or(Mode::Auto).into();
    config.busy_poll = link.busy_poll;
    config.frames = link.frames.unwrap_or(config.frames);
    config.keepalive = keepalive;
    config.congestion = link.congestion.unwrap_or(config.congestion);
    config.sctp_udp = sctp_udp;
    config.host_ipsec = link.host_ipsec.unwrap_or_default();
    config.limits = limits;
    Ok(config)
}

/// How many frames of unknown flows reach the shard.
fn flood_limits(link: &LinkGiven, defaults: FloodLimits) -> FloodLimits {
    FloodLimits {
        syns: link.syn_rate.map_or(defaults.syns, Rate::of),
        unknown_flows: link
            .unknown_flow_rate
            .map_or(defaults.unknown_flows, Rate::of),
        fragments: link.fragment_rate.map_or(defaults.fragments, Rate::of),
    }
}

/// How SCTP goes in UDP, if it does.
fn sctp_udp(interface: &str, link: &LinkGiven) -> Result<Option<SctpUdp>, SettingsError> {
    let peer_port = link.sctp_udp_peer_port;
    match link.sctp_udp_port {
        None if peer_port.is_some() => Err(SettingsError::NoSctpUdpPort {
            interface: interface.to_owned(),
        }),
        port => Ok(port.map(|port| SctpUdp { port, peer_port })),
    }
}

/// What the shard does without work. How long it spins is said for adaptive polling only.
fn polling(link: &LinkGiven, default: Polling) -> Polling {
    match (link.polling, link.idle_spin) {
        (Some(PollingMode::Spin), _) => Polling::Spin,
        (Some(PollingMode::Event), _) => Polling::Event,
        (Some(PollingMode::Adaptive) | None, Some(spin)) => {
            Polling::Adaptive(Duration::from_micros(spin))
        }
        (Some(PollingMode::Adaptive) | None, None) => default,
    }
}

/// How idle peers are asked, if they are.
fn keepalive(interface: &str, link: &LinkGiven) -> Result<Option<KeepAlive>, SettingsError> {
    let without_idle = |what| SettingsError::NoKeepaliveIdle {
        interface: interface.to_owned(),
        what,
    };
    let defaults = KeepAlive::default();
    let seconds = |said: Option<u64>, default| said.map_or(default, Duration::from_secs);
    match link.keepalive_idle {
        None if link.keepalive_interval.is_some() => Err(without_idle("keepalive_interval")),
        None if link.keepalive_probes.is_some() => Err(without_idle("keepalive_probes")),
        None | Some(0) => Ok(None),
        Some(idle) => Ok(Some(KeepAlive {
            idle: Duration::from_secs(idle),
            interval: seconds(link.keepalive_interval, defaults.interval),
            probes: link.keepalive_probes.unwrap_or(defaults.probes),
        })),
    }
}

/// The same file with a name before its extension.
fn with_name(path: &Path, name: &str) -> PathBuf {
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_os_string();
    let mut file = part(path.file_stem());
    file.push(format!("-{name}"));
    if let Some(extension) = path.extension() {
        file.push(".");
        file.push(extension);
    }
    path.with_file_name(file)
}

#[cfg(test)]
mod tests;
