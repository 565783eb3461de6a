//! What the device measures, in Prometheus's text format.
//!
//! Names and meanings are in `docs/operations/metrics.md`; a test keeps both the same. Everything is a
//! count or a level that somebody keeps anyway: to tell it takes one command to the shard, and no lock
//! or clock on the data path.

mod text;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rnic_engine::command::{Answer, Command, ShardMetrics};
use rnic_engine::counters::SHARD;
pub use rnic_engine::metrics::MetricKind;
use rnic_engine::metrics::{Counted, Family};
use rnic_engine::qp::{QpCounters, WorkClass};
use rnic_host::link_state::Link;
use rnic_ipc::control::{MemoryKind, Refusal};
use rnic_ipc::id::ClientId;
use rnic_ipc::inspect::Holding;
use rnic_prm::Credentials;
use rnic_xsk::PortStatistics;

use crate::Device;
use crate::clients::client::Client;
use crate::clients::request_metrics::REFUSALS;
use crate::clients::shared_prm::{InterfaceState, Interfaces};
use crate::device::core::Core;
use crate::observe::counters::OfPrm;
use crate::runtime::counters;
use crate::sync::lock;
use text::{Text, labels};

/// Declares metrics whose samples are no counters: each with its labels, beside those of its shard or interface.
macro_rules! heads {
    ($($name:ident $metric:literal [$($label:literal),*] $help:literal;)+) => {
        $(const $name: Family = Family {
            name: $metric,
            help: $help,
            labels: &[$($label),*],
            members: &[],
        };)+
        const HEADS: &[Family] = &[$($name),+];
    };
}

heads! {
    STEERING "rnic_steering_frames_total" ["verdict"]
        "Frames that the steering program saw, by its verdict.";
    LIMITS "rnic_limit_refusals_total" ["scope", "limit"]
        "Requests refused because a limit was reached or `allowed_peers` does not have the peer, by whose limit or list it was and which.";
    HELD "rnic_resource_usage" ["resource"]
        "What all clients hold together, by the name of the limit's resource.";
    INFO "rnic_info" ["xdp_mode", "version"]
        "1 for each shard of an interface; its labels say how it is served, and the version of the program.";
    OPEN "rnic_interface_open" ["interface"]
        "1 for an interface that is open and has a link, 0 for one that is waited for, down or without a carrier.";
    REFUSED "rnic_requests_refused_total" ["reason"]
        "Clients' requests that were refused, by reason.";
    WORK "rnic_work_request_duration_seconds" ["operation"]
        "Time from when the RNIC takes a work request off its send queue to its successful completion.";
    CONNECT "rnic_connect_duration_seconds" []
        "Time that connections which this side opened took from the request to RDMA mode.";
    REGISTRATION "rnic_registration_duration_seconds" []
        "Time that registering memory took.";
    REGISTERED "rnic_registrations_total" ["memory"]
        "Memory regions that were registered, by how the RNIC reaches their memory.";
    CLIENT_HOLDS "rnic_client_holds" ["limit"]
        "What a client holds, by the name of the limit.";
    CLIENT_LIMITS "rnic_client_limit" ["limit"]
        "What one client may hold, by the name of the limit.";
    CLIENT_REFUSED "rnic_client_requests_refused_total" []
        "Requests of a client that were refused.";
    CLIENT_BYTES "rnic_client_memory_bytes_total" ["direction"]
        "Bytes placed in a client's memory, or gathered from it.";
    CLIENT_WORK "rnic_client_work_requests_total" ["result"]
        "Work requests of a client that ended, by result.";
    CLIENT_ACCESSES "rnic_client_accesses_refused_total" []
        "Accesses by peers to a client's memory and queue pairs that were refused.";
}

const DEVICE: &[Family] = Core::FAMILIES;
const PRM: &[Family] = OfPrm::FAMILIES;
/// Of a port (an AF_XDP socket, or an internal link): each sample has its port's number.
const PORT: &[Family] = PortStatistics::FAMILIES;

/// Every metric there can be.
fn all_families() -> impl Iterator<Item = &'static Family> {
    let shard = SHARD.into_iter().flatten();
    shard.chain(DEVICE).chain(PRM).chain(PORT).chain(HEADS)
}

/// Every metric there can be, by name.
pub fn metric_names() -> Vec<(&'static str, MetricKind)> {
    all_families()
        .map(|family| (family.name, family.kind()))
        .collect()
}

/// What one device measured until one moment.
struct Look<'a> {
    core: &'a Core,
    shards: Vec<ShardLook>,
    /// What it counts beside its shards.
    counters: HashMap<String, u64>,
    /// The labels of what it measures beside its shards.
    of_interface: String,
}

struct ShardLook {
    metrics: Box<ShardMetrics>,
    counters: HashMap<String, u64>,
    labels: String,
}

impl<'a> Look<'a> {
    fn at(core: &'a Core) -> Result<Self, Refusal> {
        let interface = ("interface", &*core.interface.config.interface);
        let mut shards = Vec::new();
        for (shard, done) in (0_u32..).zip(core.shards.run_all(|| Command::QueryMetrics)) {
            if let (Answer::Metrics(metrics), _) = done? {
                shards.push(ShardLook {
                    counters: metrics.counters.iter().cloned().collect(),
                    metrics,
                    labels: labels(&[("shard", &shard.to_string()), interface]),
                });
            }
        }
        Ok(Self {
            core,
            shards,
            counters: core.device_counters().into_iter().collect(),
            of_interface: labels(&[interface]),
        })
    }

    fn counted(&self) -> (&HashMap<String, u64>, &str) {
        (&self.counters, &self.of_interface)
    }
}

impl ShardLook {
    fn counted(&self) -> (&HashMap<String, u64>, &str) {
        (&self.counters, &self.labels)
    }
}

fn shards<'l>(looks: &'l [Look<'_>]) -> impl Iterator<Item = &'l ShardLook> {
    looks.iter().flat_map(|look| &look.shards)
}

impl Device {
    /// Everything that the device measures, in Prometheus's text format 0.0.4.
    ///
    /// # Errors
    ///
    /// `ShuttingDown`.
    pub fn metrics(&self) -> Result<String, Refusal> {
        of(&[&**self.core()], &self.core().shared_prm().interfaces())
    }
}

/// Everything that the devices of a process measure: those that share a PRM.
///
/// # Errors
///
/// `ShuttingDown`.
pub(crate) fn of(cores: &[&Core], interfaces: &Interfaces) -> Result<String, Refusal> {
    let looks: Result<Vec<_>, _> = cores.iter().map(|core| Look::at(core)).collect();
    let looks = looks?;
    let mut text = Text::default();
    head(&mut text, INFO);
    for look in &looks {
        let more = labels(&[
            ("xdp_mode", &look.core.interface.xdp_mode),
            ("version", env!("CARGO_PKG_VERSION")),
        ]);
        for shard in &look.shards {
            text.sample(INFO.name, &joined(&shard.labels, &more), 1);
        }
    }
    head(&mut text, OPEN);
    for (name, state) in interfaces {
        let device = looks
            .iter()
            .find(|look| look.core.interface.config.interface == *name);
        let has_link = device.is_none_or(|look| look.core.interface.known_link() == Link::Up);
        let is_open = *state == InterfaceState::Open && has_link;
        text.sample(OPEN.name, &labels(&[("interface", name)]), is_open.into());
    }
    for of_shards in SHARD {
        families(&mut text, of_shards, || {
            shards(&looks).map(ShardLook::counted)
        });
    }
    families(&mut text, DEVICE, || looks.iter().map(Look::counted));
    // What the PRM counts is not each device's own.
    let prm = looks.get(..1).unwrap_or(&[]);
    families(&mut text, PRM, || {
        prm.iter().map(|look| (&look.counters, ""))
    });
    ports(&mut text, &looks);
    let verdict = |name: &str| labels(&[("verdict", name)]);
    prefixed(&mut text, STEERING, &looks, "steering_", |look, name| {
        joined(&look.of_interface, &verdict(name))
    });
    prefixed(&mut text, HELD, prm, "held_", |_, name| {
        labels(&[("resource", name)])
    });
    prefixed(&mut text, LIMITS, prm, "refused_", |_, name| {
        let (scope, limit) = name.split_once('_').unwrap_or((name, ""));
        labels(&[("scope", scope), ("limit", limit)])
    });
    requests(&mut text, &looks);
    times(&mut text, &looks);
    clients(&mut text, &looks);
    Ok(text.finish())
}

fn requests(text: &mut Text, looks: &[Look<'_>]) {
    head(text, REFUSED);
    for look in looks {
        let refused = &look.core.request_metrics.refused;
        for ((_, name), count) in REFUSALS.iter().zip(refused) {
            let labels = joined(&look.of_interface, &labels(&[("reason", name)]));
            text.sample(REFUSED.name, &labels, count.load(Ordering::Relaxed));
        }
    }
    head(text, REGISTERED);
    for look in looks {
        let kinds = &look.core.request_metrics.kinds;
        for (kind, count) in MemoryKind::ALL.iter().zip(kinds) {
            let labels = joined(&look.of_interface, &labels(&[("memory", kind.name())]));
            text.sample(REGISTERED.name, &labels, count.load(Ordering::Relaxed));
        }
    }
    head(text, REGISTRATION);
    for look in looks {
        let registrations = *lock(&look.core.request_metrics.registrations);
        text.histogram(REGISTRATION.name, &look.of_interface, &registrations);
    }
}

/// A client, with what it holds and what its queue pairs counted.
struct ClientLook {
    /// The labels by which it is known; its number alone is given to another one later.
    who: String,
    holds: Vec<Holding>,
    counters: Option<QpCounters>,
    client: Arc<Client>,
}

impl ClientLook {
    /// Of the clients of a device.
    fn all(look: &Look<'_>) -> Vec<Self> {
        let mut counted: HashMap<ClientId, QpCounters> = HashMap::new();
        for (client, counters) in look.shards.iter().flat_map(|shard| &shard.metrics.clients) {
            *counted.entry(*client).or_default() += *counters;
        }
        let show = |client: Arc<Client>| {
            // One that is leaving holds nothing that anybody could ask for.
            let holds = look.core.prm().holdings_of(client.id)?;
            Some(Self {
                who: joined(&who(&client), &look.of_interface),
                holds,
                counters: counted.get(&client.id).copied(),
                client,
            })
        };
        look.core
            .clients
            .all()
            .into_iter()
            .filter_map(show)
            .collect()
    }
}

fn clients(text: &mut Text, looks: &[Look<'_>]) {
    let limits = looks.first().map(|look| look.core.prm().client_limits());
    head(text, CLIENT_LIMITS);
    for limit in limits.unwrap_or_default() {
        let labels = labels(&[("limit", &limit.name)]);
        text.sample(CLIENT_LIMITS.name, &labels, limit.limit);
    }
    let mut clients: Vec<_> = looks.iter().flat_map(ClientLook::all).collect();
    clients.sort_by_key(|found| found.client.id);
    head(text, CLIENT_HOLDS);
    for found in &clients {
        for held in &found.holds {
            let labels = joined(&found.who, &labels(&[("limit", &held.name)]));
            text.sample(CLIENT_HOLDS.name, &labels, held.held);
        }
    }
    head(text, CLIENT_REFUSED);
    for found in &clients {
        text.sample(CLIENT_REFUSED.name, &found.who, found.client.refused());
    }
    let counted = || {
        let known = clients.iter();
        known.filter_map(|found| Some((&found.who, found.counters.as_ref()?)))
    };
    head(text, CLIENT_BYTES);
    for (who, counters) in counted() {
        for (direction, bytes) in [
            ("placed", counters.bytes_placed),
            ("gathered", counters.bytes_gathered),
        ] {
            let labels = format!("{who},direction=\"{direction}\"");
            text.sample(CLIENT_BYTES.name, &labels, bytes);
        }
    }
    head(text, CLIENT_WORK);
    for (who, counters) in counted() {
        for (result, count) in [
            ("success", counters.work_completed),
            ("error", counters.work_failed),
            ("flushed", counters.work_flushed),
        ] {
            text.sample(
                CLIENT_WORK.name,
                &format!("{who},result=\"{result}\""),
                count,
            );
        }
    }
    head(text, CLIENT_ACCESSES);
    for (who, counters) in counted() {
        let refused = counters
            .named()
            .into_iter()
            .filter(|(name, _)| name.starts_with("refused_"));
        let count = refused.map(|(_, count)| count).sum();
        text.sample(CLIENT_ACCESSES.name, who, count);
    }
}

fn head(text: &mut Text, family: Family) {
    text.family(family.name, family.help, family.kind());
}

fn who(client: &Client) -> String {
    let Credentials { uid, pid, .. } = client.credentials;
    labels(&[
        ("client", &client.id.to_string()),
        ("uid", &uid.to_string()),
        ("pid", &pid.to_string()),
        ("program", &client.program),
    ])
}

/// Families whose samples are some of these counters, each with the labels beside them.
fn families<'l, C>(text: &mut Text, all: &[Family], counted: impl Fn() -> C)
where
    C: Iterator<Item = (&'l HashMap<String, u64>, &'l str)>,
{
    for family in all {
        let mut samples = Vec::new();
        for (counters, common) in counted() {
            for (own, counter) in family.members {
                if let Some(value) = counters.get(*counter) {
                    samples.push((joined(common, &labels(own)), *value));
                }
            }
        }
        put(text, *family, samples);
    }
}

/// A family whose counters are there; there is no capture without one, for instance.
fn put(text: &mut Text, family: Family, samples: Vec<(String, u64)>) {
    if samples.is_empty() {
        return;
    }
    head(text, family);
    for (labels, value) in samples {
        text.sample(family.name, &labels, value);
    }
}

fn joined(first: &str, second: &str) -> String {
    match (first, second) {
        ("", one) | (one, "") => one.to_owned(),
        (first, second) => format!("{first},{second}"),
    }
}

fn ports(text: &mut Text, looks: &[Look<'_>]) {
    for family in PORT {
        let mut samples = Vec::new();
        for look in looks {
            for (number, shard) in look.shards.iter().enumerate() {
                let counters = &shard.counters;
                let is_there = |n: &usize| counters.contains_key(&format!("port{n}_received"));
                for own_number in (0..).take_while(is_there) {
                    let port = counters::port(look.shards.len(), number, own_number);
                    let common = format!("{},port=\"{port}\"", shard.labels);
                    for (own, counter) in family.members {
                        if let Some(value) = counters.get(&format!("port{own_number}_{counter}")) {
                            samples.push((joined(&common, &labels(own)), *value));
                        }
                    }
                }
            }
        }
        put(text, *family, samples);
    }
}

/// A family of all counters whose names begin alike, each with labels from the rest of its name.
fn prefixed(
    text: &mut Text,
    family: Family,
    looks: &[Look<'_>],
    prefix: &str,
    labels: impl Fn(&Look<'_>, &str) -> String,
) {
    let known = PRM.iter().flat_map(|family| family.members);
    let known: Vec<&str> = known.map(|(_, counter)| *counter).collect();
    let mut samples = Vec::new();
    for look in looks {
        for (counter, value) in &look.counters {
            if let Some(rest) = counter.strip_prefix(prefix)
                && !known.contains(&counter.as_str())
            {
                samples.push((labels(look, rest), *value));
            }
        }
    }
    samples.sort();
    put(text, family, samples);
}

fn times(text: &mut Text, looks: &[Look<'_>]) {
    head(text, WORK);
    for shard in shards(looks) {
        for class in WorkClass::ALL {
            let labels = joined(&shard.labels, &labels(&[("operation", class.name())]));
            text.histogram(WORK.name, &labels, shard.metrics.work.of(class));
        }
    }
    head(text, CONNECT);
    for shard in shards(looks) {
        text.histogram(CONNECT.name, &shard.labels, &shard.metrics.connect);
    }
}

#[cfg(test)]
mod tests;
