//! Which RNIC a tool uses: a daemon's, or one in its own process.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use rnic::{
    CongestionControl, Context, Daemon, Device, DeviceConfig, DeviceName, Driving, Limits,
    ListenOptions, Listener, Resource, SctpUdp,
};

use crate::address::{self, Listen};
use crate::endpoint::ToolError;
use crate::xdp::Mode;

/// The options that say so.
#[derive(Clone, Debug, Args)]
pub struct Door {
    /// The daemon's socket [default: $RNIC_SOCKET, or the first of $XDG_RUNTIME_DIR/rnicd.sock and
    /// /run/rnicd/rnicd.sock that answers].
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Which of the daemon's devices, by its interface or an address of it [default: $RNIC_DEVICE, or
    /// the one that suits the addresses].
    #[arg(long, global = true, value_name = "INTERFACE|ADDRESS")]
    device: Option<DeviceName>,
    /// Use no daemon: open this interface as an RNIC in this process (needs the daemon's rights).
    #[arg(long, global = true, value_name = "INTERFACE", conflicts_with_all = ["socket", "device"])]
    embedded: Option<String>,
    /// XDP mode of that interface [default: auto].
    #[arg(long, global = true, value_enum, requires = "embedded")]
    mode: Option<Mode>,
    /// Congestion control of its connections there: cubic, newreno, dctcp, or bbr, which is
    /// experimental [default: cubic].
    #[arg(long, global = true, value_name = "NAME", requires = "embedded")]
    congestion: Option<CongestionControl>,
    /// Its UDP port for SCTP in UDP (RFC 6951) [default: packets in UDP are dropped].
    #[arg(long, global = true, value_name = "PORT", requires = "embedded")]
    sctp_udp_port: Option<u16>,
    /// The UDP port of the peers that it connects to over SCTP [default: it connects without UDP].
    #[arg(long, global = true, value_name = "PORT", requires = "sctp_udp_port")]
    sctp_udp_peer_port: Option<u16>,
}

/// An interface of a daemon.
#[derive(Debug)]
pub enum Interface {
    /// It is open as this device.
    Open(DeviceName),
    /// The daemon waits for it.
    Waiting {
        /// Its name.
        name: String,
        /// Why it is not open.
        why: String,
    },
}

impl Door {
    /// Listens: at the first of the addresses that is this host's, by the device that has it.
    pub fn listen(
        &self,
        at: &Listen,
        options: ListenOptions,
        queue_pairs: u32,
    ) -> Result<(Context, Listener), ToolError> {
        address::first_usable(at.addresses(), |local| {
            let context = self.open(rnic::device_of(local), queue_pairs)?;
            let listener = Listener::bind_with(&context, local, options)?;
            Ok((context, listener))
        })
    }

    /// Opens it to connect to a peer: of several devices, of which none is named, the one that leads there.
    pub fn open_toward(&self, peer: SocketAddr, queue_pairs: u32) -> Result<Context, ToolError> {
        self.open(Some(rnic::device_toward(peer)), queue_pairs)
    }

    /// An RNIC in this process may have as many queue pairs as that, and as ever if those are fewer.
    fn open(&self, suits: Option<DeviceName>, queue_pairs: u32) -> Result<Context, ToolError> {
        if let Some(interface) = &self.embedded {
            return self.embedded(interface, queue_pairs);
        }
        let daemon = self.daemon()?;
        let named = self.device.clone().or_else(Context::default_device);
        let device = match (named, suits) {
            (Some(named), _) => Some(named),
            // Of an address's scope, that it is not the only device's may not go unnoticed.
            (None, Some(scope @ DeviceName::Interface(_))) => Some(scope),
            (None, suits) if daemon.devices()?.len() > 1 => suits,
            (None, _) => None,
        };
        Ok(daemon.open(device.as_ref())?)
    }

    /// The devices that are meant by no name, or by the one that was given.
    pub fn devices(&self) -> Result<Vec<DeviceName>, ToolError> {
        if let Some(interface) = &self.embedded {
            return Ok(vec![DeviceName::Interface(interface.clone())]);
        }
        match &self.device {
            Some(device) => Ok(vec![device.clone()]),
            None => {
                let names = self.daemon()?.devices()?;
                Ok(names.into_iter().map(DeviceName::Interface).collect())
            }
        }
    }

    /// [`Self::devices`], and the interfaces that the daemon waits for with the reason, in the daemon's order.
    pub fn interfaces(&self) -> Result<Vec<Interface>, ToolError> {
        if self.embedded.is_some() || self.device.is_some() {
            return Ok(self.devices()?.into_iter().map(Interface::Open).collect());
        }
        let state = |(name, why)| match why {
            None => Interface::Open(DeviceName::Interface(name)),
            Some(why) => Interface::Waiting { name, why },
        };
        Ok(self
            .daemon()?
            .interfaces()?
            .into_iter()
            .map(state)
            .collect())
    }

    /// Opens the first device of the daemon.
    pub fn open_any(&self) -> Result<Context, ToolError> {
        Ok(self.daemon()?.open(None)?)
    }

    /// Opens one of [`Self::devices`].
    pub fn open_device(&self, device: &DeviceName) -> Result<Context, ToolError> {
        match &self.embedded {
            Some(interface) => self.embedded(interface, 0),
            None => Ok(self.daemon()?.open(Some(device))?),
        }
    }

    /// The daemon itself.
    ///
    /// # Errors
    ///
    /// When none answers, or the RNIC is to be in this process.
    pub fn daemon(&self) -> Result<Daemon, ToolError> {
        if let Some(interface) = &self.embedded {
            return Err(ToolError::Usage(format!(
                "an order for a daemon, and --embedded {interface}, which uses none: leave that out"
            )));
        }
        Ok(Daemon::find(self.socket.as_deref())?)
    }

    fn embedded(&self, interface: &str, queue_pairs: u32) -> Result<Context, ToolError> {
        let mut config = DeviceConfig::new(interface);
        config.driving = Driving::Inline;
        config.limits = limits_for(queue_pairs);
        config.mode = self.mode.unwrap_or(Mode::Auto).into();
        config.congestion = self.congestion.unwrap_or_default();
        config.sctp_udp = self.sctp_udp_port.map(|port| SctpUdp {
            port,
            peer_port: self.sctp_udp_peer_port,
        });
        Ok(Context::embedded(&Device::open(config)?)?)
    }
}

/// The usual limits, raised where there would be less room than for so many queue pairs of one client.
fn limits_for(queue_pairs: u32) -> Limits {
    let mut limits = Limits::default();
    let users = &mut limits.users;
    let named = users.by_uid.values_mut().chain(users.by_gid.values_mut());
    let users = named.chain([&mut users.others]).map(|user| &mut user.quota);
    for quota in users.chain([&mut limits.per_client, &mut limits.device]) {
        for resource in [Resource::QueuePairs, Resource::ConnectionRequests] {
            quota.set(resource, quota.get(resource).max(queue_pairs.into()));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_queue_pairs_as_asked_for_are_within_everybodys_limits() {
        let limits = limits_for(10_000);
        let users = limits.users.by_uid.values().chain([&limits.users.others]);
        let quotas = users.map(|user| &user.quota);
        for quota in quotas.chain([&limits.per_client, &limits.device]) {
            assert_eq!(quota.get(Resource::QueuePairs), 10_000);
            assert_eq!(quota.get(Resource::ConnectionRequests), 10_000);
        }
        assert_eq!(limits_for(1), Limits::default());
    }
}
