//! What would keep devices from being opened, found out without opening any.

use rnic_host::unheeded::unheeded;
use rnic_host::{files, privileges, xfrm};
use rnic_xsk::ChunkSize;
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use crate::devices::check_all;
use crate::interface::open::{check_user_timeout, host, look_up};
use crate::{DeviceConfig, DeviceError, Devices, LoopbackUse, OnMissing};

impl Devices {
    /// Everything that would keep the calling thread from opening these, as far as this is known without
    /// opening one. Looked at are the settings, interface and capture of each, the thread's capabilities, and
    /// the process's limit of locked memory. Nothing is changed, and no file is made.
    ///
    /// An interface that is not there or not ready is a fault where it is not waited for. Its packet buffers then
    /// count as those of the smallest MTU.
    pub fn check(configs: &[DeviceConfig], on_missing: OnMissing) -> Vec<DeviceError> {
        let mut faults: Vec<_> = check_all(configs).err().into_iter().collect();
        let (mut interfaces, mut bytes) = (Vec::new(), 0_u64);
        for config in configs {
            faults.extend(check_user_timeout(config).err());
            faults.extend(capture_fault(config));
            if config.loopback == LoopbackUse::Only {
                continue;
            }
            let chunk = match look_up(config) {
                Ok(found) => found.chunk,
                Err(error) => {
                    let waited_for = on_missing == OnMissing::Wait && error.is_absence();
                    faults.extend((!waited_for).then_some(error));
                    ChunkSize::default()
                }
            };
            interfaces.push(config.interface.clone());
            bytes = bytes.saturating_add(u64::from(config.frames) * chunk.bytes() as u64);
        }
        if !interfaces.is_empty() {
            let allowed = getrlimit(Resource::Memlock).current;
            let wanted = privileges::OF_INTERFACES | CapabilitySet::IPC_LOCK;
            match privileges::missing(wanted) {
                Ok(missing) => faults.extend(privilege_faults(interfaces, missing, bytes, allowed)),
                Err(errno) => faults.push(host("the capabilities of this thread")(errno.into())),
            }
        }
        faults
    }
}

impl Devices {
    /// What of the host's policy is in use on these interfaces, and holds for the RNIC by refusing, or not at all: a line
    /// for each. Nothing of it keeps them from being opened.
    pub fn host_policy(configs: &[DeviceConfig]) -> Vec<String> {
        let mut lines = Vec::new();
        let interfaces = configs
            .iter()
            .filter(|config| config.loopback != LoopbackUse::Only);
        for config in interfaces {
            // One that is not there has nothing.
            let Ok(found) = look_up(config) else { continue };
            match xfrm::policies(&found.indexes()) {
                Ok(policies) => {
                    lines.extend(config.host_ipsec.explain(&config.interface, &policies));
                }
                Err(error) => lines.push(format!(
                    "interface {}: the host's IPsec policies can't be read: {error}",
                    config.interface
                )),
            }
            lines.extend(unheeded(found.interface()));
        }
        lines
    }
}

/// That the capture's file can't be written.
fn capture_fault(config: &DeviceConfig) -> Option<DeviceError> {
    let path = config.capture.as_ref()?;
    let cause = files::check_for_owner(path).err()?;
    Some(DeviceError::Capture {
        path: path.clone(),
        cause,
    })
}

/// What interfaces with so many bytes of packet buffers lack, where these capabilities are missing and so many
/// bytes may be locked.
fn privilege_faults(
    interfaces: Vec<String>,
    missing: CapabilitySet,
    asked: u64,
    allowed: Option<u64>,
) -> Vec<DeviceError> {
    let mut faults = Vec::new();
    let in_any_case = missing & privileges::OF_INTERFACES;
    if !in_any_case.is_empty() {
        faults.push(DeviceError::NoCapabilities {
            interfaces,
            missing: privileges::names(in_any_case),
        });
    }
    // The kernel counts packet buffers of all sockets of a user together.
    if let Some(allowed) = allowed.filter(|allowed| asked > *allowed)
        && missing.contains(CapabilitySet::IPC_LOCK)
    {
        faults.push(DeviceError::LockedMemory { asked, allowed });
    }
    faults
}

#[cfg(test)]
mod tests;
