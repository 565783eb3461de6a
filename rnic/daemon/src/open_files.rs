//! Open files: as many as the host allows, and whether those are as many as clients may take.
//!
//! Whoever takes the last one keeps all others from being accepted. So the limits of what clients hold
//! are to be reached before that of the process.

use rnic_device::{DeviceConfig, Limits};
use rustix::process::{Resource, Rlimit};

/// Of a client: its channel, kick and event socket, and the descriptors that come with a request, or go
/// with a reply and wait to be sealed.
const OF_CLIENT: u64 = 12;
/// Of a client, for each shard beyond the first: a kick, and its other end on the way.
const OF_SHARD: u64 = 2;
/// Of the daemon and its devices: sockets, maps and programs of each interface, metrics, captures.
const OWN: u64 = 512;
/// Threads for clients that are being turned away, beside those of clients that are served.
pub(crate) const SPARE_THREADS: usize = 64;
/// Those among them that one user's clients may have.
pub(crate) const SPARE_THREADS_OF_USER: usize = 4;
/// Threads beyond these, that only administrators' clients may have.
pub(crate) const KEPT_THREADS: usize = 16;
/// The most threads beside those of clients that are served.
const THREADS_BESIDE: usize = SPARE_THREADS + KEPT_THREADS;

/// Takes all the open files that the host allows: the usual limit is for programs that use select(2).
/// Says what is missing.
pub(crate) fn raise(devices: &[DeviceConfig]) {
    let Some(first) = devices.first() else {
        return;
    };
    let allowed = rustix::process::getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: allowed.maximum,
        maximum: allowed.maximum,
    };
    if let Err(errno) = rustix::process::setrlimit(Resource::Nofile, wanted) {
        log::warn!(
            "the limit of open files stays at {:?}: {errno}",
            allowed.current
        );
    }
    let found = rustix::process::getrlimit(Resource::Nofile).current;
    let shards = devices.iter().map(|device| device.shards.most()).max();
    let needed = needed(&first.limits, shards.unwrap_or(1).into());
    if let Some(found) = found.filter(|found| *found < needed) {
        log::warn!(
            "{found} open files are allowed, but clients may take {needed}, after which nobody is \
             accepted: raise the limit (LimitNOFILE, `ulimit -Hn`), or lower those of the configuration"
        );
    }
}

/// What clients may take within their limits, and the daemon's own.
fn needed(limits: &Limits, shards: u64) -> u64 {
    let device = &limits.device;
    let of_client = OF_CLIENT + shards.saturating_sub(1) * OF_SHARD;
    let threads = u64::from(limits.clients) + THREADS_BESIDE as u64;
    [
        threads.saturating_mul(of_client),
        // A socket to notify by.
        device.completion_queues.into(),
        // A port of a connection's own, and one for each listener.
        device.queue_pairs.into(),
        device.listeners.into(),
        // The client's memory.
        match limits.per_client.remote_regions {
            0 => 0,
            _ => device.remote_regions.into(),
        },
        OWN,
    ]
    .into_iter()
    .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limits_fit_what_hosts_allow() {
        let needed = needed(&Limits::default(), 1);
        assert!((10_000..16_384).contains(&needed), "{needed}");
    }

    #[test]
    fn each_limit_counts() {
        let mut limits = Limits::default();
        limits.per_client.remote_regions = 0;
        let before = needed(&limits, 1);
        limits.clients += 10;
        limits.device.completion_queues += 1;
        limits.device.queue_pairs += 1;
        limits.device.listeners += 1;
        assert_eq!(needed(&limits, 1), before + 123);
        limits.per_client.remote_regions = 1;
        limits.device.remote_regions = 100;
        assert_eq!(needed(&limits, 1), before + 223);
        let threads = u64::from(limits.clients) + THREADS_BESIDE as u64;
        assert_eq!(needed(&limits, 4), before + 223 + 6 * threads);
    }
}
