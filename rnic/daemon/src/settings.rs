//! Everything that the daemon runs with: what was said, and the defaults of what was not.

mod declared;
mod given;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rnic_device::{
    Administrators, AllowList, Change, Configured, DeviceConfig, Limits, LoopbackUse, Needs,
    OnMissing, Setting, UdpLink,
};
use rnic_ipc::find::runtime_socket;

use crate::cli::Cli;
use crate::config::{self, ConfigError, File, InterfaceGiven};
use crate::names::Account;
pub(crate) use declared::DaemonConfig;
pub(crate) use given::{Given, Values};

/// Permissions of the socket file of a daemon that is one user's, when none are given.
const SOCKET_MODE_OF_USER: u32 = 0o600;

/// Everything that the daemon runs with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) own: DaemonConfig,
    /// Whom to become first; none: nobody else.
    pub(crate) user: Option<Account>,
    /// One for each interface, each with the same limits.
    pub(crate) devices: Vec<DeviceConfig>,
}

/// Why the daemon does not know what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody named an interface.
    #[error(
        "no interface to open: name one with --interface, or with `interface = \"NAME\"` in the \
         file of --config; or say --loopback, for connections within this host alone, or --udp, for a network by \
         a UDP port"
    )]
    NoInterface,
    /// Both were named.
    #[error(
        "{option}, which opens no interface, and interface {interface}: leave one of them out (a daemon \
         with an interface makes connections within this host too)"
    )]
    LoopbackAndInterface {
        option: &'static str,
        /// The first.
        interface: String,
    },
    /// What only interfaces have.
    #[error("{option} opens no interface, and only interfaces have {what}: leave it out")]
    NotOfLoopback {
        option: &'static str,
        what: &'static str,
    },
    /// Both were said.
    #[error("two of loopback, no_loopback and udp: leave one of them out")]
    LoopbackOrNot,
    /// There is no directory of the user's own.
    #[error(
        "no place for the socket of {option}: XDG_RUNTIME_DIR is not set to an absolute path; name one with --socket, in a \
         directory that only you may enter"
    )]
    NoRuntimeDirectory { option: &'static str },
    /// One means nothing without the other.
    #[error("interface {interface}: {what} without {}, {}, or leave {what} out", .needs.setting, .needs.why)]
    Needs {
        interface: String,
        what: &'static str,
        needs: Needs,
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

    /// Whether interfaces are waited for.
    pub(crate) fn on_missing(&self) -> OnMissing {
        match self.own.no_wait {
            true => OnMissing::Fail,
            false => OnMissing::Wait,
        }
    }

    /// What differs in `asked`, and holds from the daemon's start on: a line for each. What holds from an
    /// interface's opening on [`rnic_device::Devices::apply`] finds.
    pub(crate) fn needs_restart(&self, asked: &Self) -> Vec<String> {
        let settings = DaemonConfig::SETTINGS.iter();
        let settings = settings.filter(|setting| {
            setting.change == Change::Restart
                && (setting.show)(&self.own) != (setting.show)(&asked.own)
        });
        let settings = settings.map(|setting| setting.name);
        let user = (self.user != asked.user).then_some("--user");
        settings
            .chain(user)
            .map(|what| {
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
        let mut own = DaemonConfig::defaults();
        given.own.apply(&mut own);
        if own.loopback && allowed_peers.is_some() {
            return Err(SettingsError::NotOfLoopback {
                option: "--loopback",
                what: "allowed_peers",
            });
        }
        let interfaces = with_loopback(&own, &given.link, interfaces)?;
        limits.interface_peers = interface_peers(&interfaces, allowed_peers.as_ref());
        let several = interfaces.len() > 1;
        let mut devices = Vec::new();
        for InterfaceGiven {
            name, link, vlans, ..
        } in interfaces
        {
            let own_capture = link.has("capture") && !above.has("capture");
            let link = above.clone().over(link).over(below.clone());
            let mut device = device(name, own.udp, &link, limits.clone())?;
            if several && !own_capture {
                let of_all = device.capture.as_ref();
                device.capture = of_all.map(|path| with_name(path, &device.interface));
            }
            device.vlans = vlans;
            device.administrators = Administrators {
                gid: own.admin_group,
                ..device.administrators
            };
            device.seccomp = !own.no_seccomp;
            device.loopback = match (own.without_interface(), own.no_loopback) {
                (Some(_), _) => LoopbackUse::Only,
                (_, true) => LoopbackUse::Off,
                _ => LoopbackUse::Beside,
            };
            devices.push(device);
        }
        if let Some(option) = own.without_interface() {
            if !given.own.has("socket") {
                own.socket =
                    runtime_socket().ok_or(SettingsError::NoRuntimeDirectory { option })?;
            }
            if !given.own.has("socket_mode") {
                own.socket_mode = SOCKET_MODE_OF_USER;
            }
        }
        Ok(Self {
            own,
            user: None,
            devices,
        })
    }
}

/// The interfaces to open; without any a device that has only its name.
fn with_loopback(
    own: &DaemonConfig,
    link: &Values,
    interfaces: Vec<InterfaceGiven>,
) -> Result<Vec<InterfaceGiven>, SettingsError> {
    let mut rest = interfaces.into_iter();
    let said = [own.loopback, own.no_loopback, own.udp.is_some()];
    if said.into_iter().filter(|said| *said).count() > 1 {
        return Err(SettingsError::LoopbackOrNot);
    }
    match (rest.next(), own.without_interface()) {
        (Some(first), Some(option)) => Err(SettingsError::LoopbackAndInterface {
            option,
            interface: first.name,
        }),
        (None, Some(option)) => {
            let applies = |setting: &Setting<DeviceConfig>| match (own.udp, setting.name) {
                // Sockets have shards, as queues have, and their port is said with their address.
                (Some(_), "shards") => true,
                (Some(_), "sctp_udp_port") => false,
                _ => !setting.interface_only,
            };
            let mut settings = DeviceConfig::SETTINGS.iter();
            match settings.find(|it| !applies(it) && link.has(it.name)) {
                Some(Setting { name: what, .. }) => {
                    Err(SettingsError::NotOfLoopback { option, what })
                }
                None => Ok(vec![InterfaceGiven {
                    name: own
                        .udp
                        .map_or_else(DeviceConfig::loopback, DeviceConfig::udp)
                        .interface,
                    ..InterfaceGiven::default()
                }]),
            }
        }
        (None, None) => Err(SettingsError::NoInterface),
        (Some(first), None) => Ok(std::iter::once(first).chain(rest).collect()),
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
    udp: Option<UdpLink>,
    link: &Values,
    limits: Limits,
) -> Result<DeviceConfig, SettingsError> {
    for setting in DeviceConfig::SETTINGS {
        if let Some(needs) = setting.needs.filter(|needs| !link.has(needs.setting))
            && link.has(setting.name)
            && !(udp.is_some() && needs.setting == "sctp_udp_port")
        {
            return Err(SettingsError::Needs {
                interface,
                what: setting.name,
                needs,
            });
        }
    }
    let mut config = udp.map_or_else(|| DeviceConfig::new(interface), DeviceConfig::udp);
    link.apply(&mut config);
    config.limits = limits;
    Ok(config)
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
