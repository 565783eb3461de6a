//! What would hold: the settings, and the limits of everybody who is named. And what would keep the daemon from
//! starting with them on this host ([`faults()`]).

mod faults;

use std::fmt::{self, Display, Formatter};

use rnic_device::{Configured, DeviceConfig, Devices, LoopbackUse, Quota, Resource, UserLimits};
use rnic_host::missing_features;

use crate::names;
use crate::settings::Settings;
pub(crate) use faults::faults;

/// Who is allowed where there is no list.
const EVERYBODY: &str = "everybody";

/// Prints [`Settings`] for people, in the words of the configuration file.
pub(crate) struct Effective<'a>(pub(crate) &'a Settings);

impl Display for Effective<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Settings {
            own,
            user: account,
            devices,
        } = self.0;
        let Some(device) = devices.first() else {
            return Ok(());
        };
        let account = account.map(|account| names::user(account.uid));
        optional(f, "user", account, "whoever starts it")?;
        settings(f, own)?;

        for device in devices {
            interface(f, device)?;
        }
        let limits = &device.limits;
        writeln!(f, "\nthe device:")?;
        line(f, "clients", limits.clients)?;
        quota(f, &limits.device)?;
        line(f, "queue_depth", limits.queue_depth)?;
        line(f, "cq_depth", limits.cq_depth)?;
        line(f, "sges", limits.sges)?;
        line(f, "inline_bytes", limits.inline_bytes)?;
        line(f, "backlog", limits.backlog)?;
        writeln!(f, "\neach client:")?;
        quota(f, &limits.per_client)?;

        let users = &limits.users;
        for (uid, limits) in sorted(&users.by_uid) {
            writeln!(f, "\nuser {}:", names::user(*uid))?;
            user(f, limits)?;
        }
        for (gid, limits) in sorted(&users.by_gid) {
            writeln!(f, "\neach user of group {}:", names::group(*gid))?;
            user(f, limits)?;
        }
        writeln!(f, "\neach other user:")?;
        user(f, &users.others)?;
        for peers in &limits.listener_peers {
            writeln!(f, "\nlisteners at {}:", peers.at)?;
            line(f, "allowed_peers", &peers.allowed)?;
        }
        let policy = Devices::host_policy(devices);
        if !policy.is_empty() {
            writeln!(f, "\nthe host's policy:")?;
        }
        for found in policy {
            writeln!(f, "  {found}")?;
        }
        if let Some(missing) = missing_features() {
            writeln!(f, "\nthe kernel:\n  {missing}")?;
        }
        Ok(())
    }
}

/// A line for each declared setting.
fn settings<C: Configured>(f: &mut Formatter<'_>, config: &C) -> fmt::Result {
    C::SETTINGS
        .iter()
        .try_for_each(|setting| line(f, setting.name, (setting.show)(config)))
}

fn interface(f: &mut Formatter<'_>, device: &DeviceConfig) -> fmt::Result {
    match (device.loopback, device.udp) {
        (_, Some(link)) => writeln!(f, "\nUDP port {link}:")?,
        (LoopbackUse::Only, None) => writeln!(f, "\nloopback alone:")?,
        (LoopbackUse::Off | LoopbackUse::Beside, None) => {
            writeln!(f, "\ninterface {}:", device.interface)?;
        }
    }
    settings(f, device)?;
    let list = device.limits.interface_peers.get(&device.interface);
    optional(f, "allowed_peers", list, EVERYBODY)?;
    for vlan in &device.vlans {
        let networks: Vec<_> = vlan.addresses.iter().map(ToString::to_string).collect();
        let mut of = networks.join(", ");
        if let Some(interface) = &vlan.interface {
            of += &format!(" (the kernel's {interface})");
        }
        line(f, &format!("vlan {}", vlan.id), of.trim_start())?;
    }
    Ok(())
}

fn sorted<T>(map: &std::collections::HashMap<u32, T>) -> Vec<(&u32, &T)> {
    let mut all: Vec<_> = map.iter().collect();
    all.sort_by_key(|(number, _)| **number);
    all
}

fn user(f: &mut Formatter<'_>, limits: &UserLimits) -> fmt::Result {
    line(f, "clients", limits.clients)?;
    quota(f, &limits.quota)?;
    line(
        f,
        "remote_regions of the daemon's own user",
        limits.own_remote_regions,
    )?;
    line(f, "listen_ports", &limits.listen_ports)?;
    line(f, "connects_per_second", limits.connects_per_second)?;
    line(f, "requests_per_second", limits.requests_per_second)?;
    optional(f, "allowed_peers", limits.allowed_peers.as_ref(), EVERYBODY)
}

fn quota(f: &mut Formatter<'_>, quota: &Quota) -> fmt::Result {
    for resource in Resource::ALL {
        line(f, resource.name(), quota.get(resource))?;
    }
    Ok(())
}

fn optional(
    f: &mut Formatter<'_>,
    name: &str,
    value: Option<impl Display>,
    without: &str,
) -> fmt::Result {
    match value {
        Some(value) => line(f, name, value),
        None => line(f, name, without),
    }
}

fn line(f: &mut Formatter<'_>, name: &str, value: impl Display) -> fmt::Result {
    writeln!(f, "  {name:22} {value}")
}
