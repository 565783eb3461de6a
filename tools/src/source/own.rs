//! The RNIC in a tool's own process.

use clap::Args;
use rnic::Context;
use rnic::embedded::{CongestionControl, Device, DeviceConfig, Limits, Resource, Runtime, SctpUdp};

use crate::endpoint::ToolError;
use crate::xdp::DeviceMode;

/// The options that ask for one.
#[derive(Clone, Debug, Args)]
pub(super) struct Own {
    /// Use no daemon: open this interface as an RNIC in this process (needs the daemon's rights).
    #[arg(long, global = true, value_name = "INTERFACE", conflicts_with_all = ["socket", "device"])]
    embedded: Option<String>,
    /// XDP mode of that interface [default: auto].
    #[arg(long, global = true, value_enum, requires = "embedded")]
    mode: Option<DeviceMode>,
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

impl Own {
    /// Opens it, if it is asked for, for at least so many queue pairs.
    pub(super) fn open(&self, queue_pairs: u32) -> Option<Result<Context, ToolError>> {
        let config = self.config(self.embedded.as_deref()?, queue_pairs);
        let open = || Ok(Context::embedded(&Device::open(config)?)?);
        Some(open())
    }

    fn config(&self, interface: &str, queue_pairs: u32) -> DeviceConfig {
        let mut config = DeviceConfig::new(interface);
        config.runtime = Runtime::Caller;
        config.limits = limits_for(queue_pairs);
        config.mode = self.mode.unwrap_or(DeviceMode::Auto).into();
        config.congestion = self.congestion.unwrap_or_default();
        config.sctp_udp = self.sctp_udp_port.map(|port| SctpUdp {
            port,
            peer_port: self.sctp_udp_peer_port,
        });
        config
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
