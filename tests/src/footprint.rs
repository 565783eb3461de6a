//! What of a daemon is in use: whoever is gone must have left none of it behind.

use std::collections::BTreeMap;

use crate::daemon::Daemon;

/// What goes up and down with clients, beside everything whose name begins with `held_`.
const LEVELS: [&str; 6] = [
    "device_clients",
    "device_ports",
    "connections",
    "queue_pairs",
    "regions",
    "frames_held",
];

/// What is in use of a daemon.
#[derive(Debug)]
pub struct Footprint {
    levels: BTreeMap<String, u64>,
    open_files: usize,
    threads: usize,
    mappings: usize,
}

impl Footprint {
    #[must_use]
    pub fn of(daemon: &Daemon) -> Self {
        // Before anything is asked of the daemon: whoever asks is a client too.
        let (open_files, threads) = (daemon.open_files(), daemon.threads());
        let mappings = daemon.shared_mappings();
        let mut levels = daemon.counters();
        levels.retain(|name, _| LEVELS.contains(&name.as_str()) || name.starts_with("held_"));
        Self {
            levels,
            open_files,
            threads,
            mappings,
        }
    }

    /// Whether no more is in use than it was then.
    #[must_use]
    pub fn is_back_at(&self, before: &Self) -> bool {
        self.levels == before.levels
            && self.open_files <= before.open_files
            && self.threads <= before.threads
            && self.mappings <= before.mappings
    }
}
