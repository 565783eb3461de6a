//! What may change while devices are open: limits, administrators, timeouts, polling. Everything else is
//! of the moment in which they are opened.

use rnic_engine::command::{Command, Timeouts};
use rnic_ipc::control::Refusal;

use crate::core::Core;
use crate::open::check_user_timeout;
use crate::{DeviceConfig, Devices};

impl Devices {
    /// Other configurations of the same devices, in the same order: all of each, or nothing of any. The
    /// limits and administrators of the first hold for all.
    ///
    /// - Limits of users and of all clients together hold from now on; who holds more keeps it. Those of
    ///   each client hold for clients that come from now on.
    /// - Polling, and the timeouts of peers and programs, hold from now on; the keep-alive for connections
    ///   that begin from now on.
    ///
    /// # Errors
    ///
    /// A line for each thing that can't change while the devices are open, or can't be at all. Nothing has
    /// changed then.
    pub fn reconfigure(&self, configs: &[DeviceConfig]) -> Result<(), Vec<String>> {
        let slots = self.slots.all();
        let opened: Vec<_> = slots.iter().map(|slot| &*slot.config.interface).collect();
        let asked: Vec<_> = configs.iter().map(|config| &*config.interface).collect();
        let Some(first) = configs.first().filter(|_| opened == asked) else {
            return Err(vec![format!(
                "interfaces {} asked, but {} are open: start the daemon again, or leave them as they were",
                asked.join(", "),
                opened.join(", ")
            )]);
        };
        let mut faults = Vec::new();
        for (slot, config) in slots.iter().zip(configs) {
            faults.extend(fixed(&slot.config, config));
            faults.extend(check_user_timeout(config).err().map(|it| it.to_string()));
        }
        let shared_prm = self.slots.shared_prm();
        let mut prm = shared_prm.prm();
        faults.extend(prm.unfit(&first.limits));
        if !faults.is_empty() {
            return Err(faults);
        }
        prm.reconfigure(first.limits.clone(), first.administrators)?;
        drop(prm);
        for (slot, config) in slots.iter().zip(configs) {
            let known = self.slots.change_one(slot.shard, |slot| {
                // Tables stay as large as they were at the start, also of a device that is opened later.
                slot.config = DeviceConfig {
                    limits: slot.config.limits.clone(),
                    ..config.clone()
                };
                slot.device().cloned()
            });
            let Some(device) = known.flatten() else {
                continue;
            };
            // One that stops meanwhile needs no settings.
            if let Err(refusal) = device.core().reconfigure(config) {
                log::debug!("{}: {refusal}", config.interface);
            }
        }
        Ok(())
    }
}

impl Core {
    fn reconfigure(&self, config: &DeviceConfig) -> Result<(), Refusal> {
        let timeouts = Timeouts {
            user_timeout: config.user_timeout,
            keepalive: config.keepalive,
            first_byte_timeout: config.first_byte_timeout,
            answer_timeout: config.answer_timeout,
        };
        self.execute(Command::SetTimeouts(timeouts))?;
        let set = self.driver.set_polling(config.polling);
        set.map_err(crate::refuse::stopped)
    }
}

/// What differs, and is of the moment in which a device is opened: a line for each.
fn fixed(opened: &DeviceConfig, asked: &DeviceConfig) -> Vec<String> {
    let DeviceConfig {
        interface,
        loopback,
        queues,
        vlans,
        mode,
        capture,
        busy_poll,
        flood_limits,
        frames,
        driving,
        seccomp,
        congestion,
        resolve_timeout,
        flush_timeout,
        linger_max,
        limits: _,
        administrators: _,
        polling: _,
        user_timeout: _,
        first_byte_timeout: _,
        answer_timeout: _,
        keepalive: _,
    } = opened;
    [
        ("loopback", *loopback != asked.loopback),
        ("queues", *queues != asked.queues),
        ("vlan", *vlans != asked.vlans),
        ("mode", *mode != asked.mode),
        ("capture", *capture != asked.capture),
        ("busy_poll", *busy_poll != asked.busy_poll),
        (
            "syn_rate, stranger_rate or fragment_rate",
            *flood_limits != asked.flood_limits,
        ),
        ("frames", *frames != asked.frames),
        ("driving", *driving != asked.driving),
        ("no_seccomp", *seccomp != asked.seccomp),
        ("congestion", *congestion != asked.congestion),
        ("resolve_timeout", *resolve_timeout != asked.resolve_timeout),
        ("flush_timeout", *flush_timeout != asked.flush_timeout),
        ("linger_max", *linger_max != asked.linger_max),
    ]
    .into_iter()
    .filter(|(_, differs)| *differs)
    .map(|(what, _)| {
        format!(
            "interface {interface}: another {what} asked, which holds from the start on: start the daemon \
             again, or leave it as it was"
        )
    })
    .collect()
}

#[cfg(test)]
mod tests;
