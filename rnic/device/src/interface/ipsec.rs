//! The host's IPsec policies: read by a device when it starts and each time that the kernel tells of a change, and given
//! to its shards, which judge by them.

use rnic_engine::command::Command;
use rnic_host::xfrm;
use rnic_net::IpsecPolicies;

use super::Served;
use crate::HostIpsec;
use crate::runtime::log_refusal;

/// The policies that a device read last.
#[derive(Debug, Default)]
pub(crate) struct FollowedIpsec {
    last: IpsecPolicies,
    /// Why they could not be read, if so.
    fault: Option<String>,
}

impl FollowedIpsec {
    /// Reads the policies, and has the shards follow them.
    pub(crate) fn update(&mut self, served: &Served) {
        let indexes: Vec<u32> = served
            .interface
            .l2_interfaces()
            .iter()
            .map(|l2| l2.interface.index)
            .collect();
        let interface = served.interface.name();
        let policies = match xfrm::policies(&indexes) {
            Ok(policies) => policies,
            Err(error) => {
                let fault = error.to_string();
                if self.fault.as_ref() != Some(&fault) {
                    log::warn!(
                        "interface {interface}: the host's IPsec policies can't be read, so those read last hold, or \
                         none: {fault}"
                    );
                }
                self.fault = Some(fault);
                return;
            }
        };
        self.fault = None;
        if policies == self.last {
            return;
        }
        self.last = policies;
        if served.interface.config.host_ipsec == HostIpsec::Refuse {
            let set = (served.shards).all_do(|| Command::SetIpsecPolicies(self.last.clone()));
            log_refusal("the host's IPsec policies", set);
        }
        match served
            .interface
            .config
            .host_ipsec
            .explain(interface, &self.last)
        {
            Some(told) => log::warn!("{told}"),
            None => log::info!("interface {interface}: the host's IPsec forbids nothing any more"),
        }
    }
}
