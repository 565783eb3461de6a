//! What may change while devices are open: which there are, limits, administrators, timeouts, polling.
//! Everything else is of the moment in which each is opened.

use std::time::Duration;

use rnic_engine::command::{Command, Timeouts};

use crate::device::core::Core;
use crate::device::drain;
use crate::devices::slots::Slot;
use crate::interface::open::check_user_timeout;
use crate::{Change, Configured, DeviceConfig, Devices, refuse};

/// What another configuration may take besides what it changes.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions {
    /// Interfaces with settings that hold from their opening on are opened again where these differ. Else such a
    /// difference is a fault.
    pub reopen: bool,
    /// How long connections of an interface that is closed may take to end in order.
    pub drain: Duration,
}

impl Devices {
    /// Applies other configurations of the devices: all of each, or nothing of any. The limits and administrators of the
    /// first hold for all.
    ///
    /// - An interface that is new is opened, or waited for. One that is named no more is closed.
    /// - Limits of users and of all clients together hold from now on; who holds more keeps it. Those of
    ///   each client hold for clients that come from now on.
    /// - Allow-lists of peers hold for connections that begin from now on.
    /// - Polling, and the timeouts of peers and programs, hold from now on; the keep-alive for connections
    ///   that begin from now on.
    ///
    /// Gives a line for each interface that was to be opened again and could not be. It is tried again.
    ///
    /// # Errors
    ///
    /// A line for each thing that can't change while the devices are open, or can't be at all. Nothing has
    /// changed then.
    pub fn apply(
        &self,
        configs: &[DeviceConfig],
        options: ApplyOptions,
    ) -> Result<Vec<String>, Vec<String>> {
        let slots = self.slots.all();
        let first = crate::devices::check_all(configs).map_err(|error| vec![error.to_string()])?;
        let slot_of = |config: &DeviceConfig| {
            let mut all = slots.iter();
            all.find(|slot| slot.config.interface == config.interface)
        };
        let mut faults = Vec::new();
        let (mut outdated, mut more) = (Vec::new(), Vec::new());
        for config in configs {
            match slot_of(config).map(|slot| (slot.shard, needs_reopen(&slot.config, config))) {
                None => more.push(self.with_common(config.clone())),
                Some((shard, differ)) if options.reopen && !differ.is_empty() => {
                    outdated.push(shard)
                }
                Some((_, differ)) => faults.extend(differ),
            }
            faults.extend(check_user_timeout(config).err().map(|it| it.to_string()));
        }
        faults.extend(self.slots.shared_prm().prm().unfit(&first.limits));
        if !faults.is_empty() {
            return Err(faults);
        }
        let more = self.open_more(more)?;
        let set = (self.slots.shared_prm().prm()).apply(first.limits.clone(), first.administrators);
        if let Err(faults) = set {
            more.iter()
                .filter_map(Slot::device)
                .for_each(|device| device.shutdown());
            return Err(faults);
        }
        for gone in self.replace_slots(configs, more) {
            let Some(device) = gone.any_device() else {
                continue;
            };
            drain([&**device], refuse::not_served, options.drain, || false);
            device.close(&refuse::not_served(&gone.config.interface));
        }
        let interface = |shard: u8| Some(self.slots.one(shard)?.config.interface);
        let outdated = outdated.into_iter().filter_map(interface);
        let reopened = outdated.map(|interface| self.reopen(&interface, options.drain));
        Ok(reopened
            .filter_map(|done| Some(done.err()?.message))
            .collect())
    }

    /// Has these configurations hold, and these slots beside those there are; gives those that are named no more.
    fn replace_slots(&self, configs: &[DeviceConfig], more: Vec<Slot>) -> Vec<Slot> {
        let devices: Vec<_> = self.slots.change(|all| {
            let mut rest: Vec<Slot> = std::mem::take(all).into_iter().chain(more).collect();
            for config in configs {
                let its = |slot: &Slot| slot.config.interface == config.interface;
                if let Some(found) = rest.iter().position(its) {
                    let mut slot = rest.remove(found);
                    // Tables stay as large as they were at the start, also of a device that is opened later.
                    slot.config = DeviceConfig {
                        limits: slot.config.limits,
                        ..config.clone()
                    };
                    all.push(slot);
                }
            }
            rest
        });
        for slot in self.slots.all() {
            let Some(device) = slot.device() else {
                continue;
            };
            device.core().apply(&slot.config);
        }
        devices
    }
}

impl Core {
    /// Applies what may change while it is open.
    pub(crate) fn apply(&self, config: &DeviceConfig) {
        self.apply_peer_rules();
        let timeouts = Timeouts {
            user_timeout: config.user_timeout,
            keepalive: config.keepalive,
            first_byte_timeout: config.first_byte_timeout,
            answer_timeout: config.answer_timeout,
            receive_wait: config.receive_wait,
        };
        let set = self.shards.all_do(|| Command::SetTimeouts(timeouts));
        // One that stops meanwhile needs no settings.
        if let Err(refusal) = set.and_then(|()| self.shards.set_polling(config.polling)) {
            log::debug!("{}: {refusal}", config.interface);
        }
    }
}

/// What differs, and holds from the opening on: a line for each.
fn needs_reopen(opened: &DeviceConfig, asked: &DeviceConfig) -> Vec<String> {
    let others = OTHERS.iter().filter(|(_, same)| !same(opened, asked));
    let others = others.map(|(name, _)| *name);
    let settings = DeviceConfig::SETTINGS.iter();
    let settings = settings.filter(|setting| {
        setting.change == Change::Reopen && (setting.show)(opened) != (setting.show)(asked)
    });
    let all = others.chain(settings.map(|setting| setting.name));
    all.map(|name| {
        format!(
            "interface {}: another {name} asked, which holds from the interface's opening on: reload with \
             --reopen, which ends its connections, or leave it as it was",
            opened.interface
        )
    })
    .collect()
}

type IsSame = fn(&DeviceConfig, &DeviceConfig) -> bool;

/// What also holds from the opening on, and is no [`Setting`](crate::Setting) of an interface.
const OTHERS: [(&str, IsSame); 8] = [
    ("loopback", |a, b| a.loopback == b.loopback),
    ("udp", |a, b| a.udp == b.udp),
    ("vlan", |a, b| a.vlans == b.vlans),
    ("runtime", |a, b| a.runtime == b.runtime),
    ("no_seccomp", |a, b| a.seccomp == b.seccomp),
    ("resolve_timeout", |a, b| {
        a.resolve_timeout == b.resolve_timeout
    }),
    ("flush_timeout", |a, b| a.flush_timeout == b.flush_timeout),
    ("linger_max", |a, b| a.linger_max == b.linger_max),
];

#[cfg(test)]
mod tests;
