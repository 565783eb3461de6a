//! What the device measures, in Prometheus's text format.
//!
//! Names and meanings are in `docs/operations.md`; a test keeps both the same. Everything is a count or
//! a level that somebody keeps anyway: to tell it takes one command to the shard, and no lock or clock
//! on the data path.

mod catalogue;
mod text;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rnic_engine::command::{Answer, Command, ShardMetrics};
use rnic_engine::histogram::Histogram;
use rnic_engine::qp::{QpCounters, WorkClass};
use rnic_ipc::control::{Refusal, RefusalCode};
use rnic_ipc::id::ClientId;
use rnic_ipc::inspect::Holding;
use rnic_prm::Credentials;

use crate::client::Client;
use crate::core::{Core, lock};
use catalogue::{DEVICE, Family, LIMITS, PORT, SHARD, STEERING};
pub use text::MetricKind;
use text::{Text, labels};

/// What the device itself measures of clients' requests.
#[derive(Debug, Default)]
pub(crate) struct RequestMetrics {
    refused: [AtomicU64; REFUSALS.len()],
    /// How long registrations that succeeded took.
    registrations: Mutex<Histogram>,
}

/// Each code of a refusal, and its name.
const REFUSALS: [(RefusalCode, &str); 14] = [
    (RefusalCode::Version, "version"),
    (RefusalCode::Malformed, "malformed"),
    (RefusalCode::UnknownObject, "unknown_object"),
    (RefusalCode::Busy, "busy"),
    (RefusalCode::WrongState, "wrong_state"),
    (RefusalCode::Limit, "limit"),
    (RefusalCode::BadMemory, "bad_memory"),
    (RefusalCode::WrongPd, "wrong_pd"),
    (RefusalCode::AddressNotLocal, "address_not_local"),
    (RefusalCode::PortInUse, "port_in_use"),
    (RefusalCode::Unreachable, "unreachable"),
    (RefusalCode::Host, "host"),
    (RefusalCode::ShuttingDown, "shutting_down"),
    (RefusalCode::NotPermitted, "not_permitted"),
];

impl RequestMetrics {
    /// A request was refused.
    pub(crate) fn count_refusal(&self, code: RefusalCode) {
        let mut both = REFUSALS.iter().zip(&self.refused);
        if let Some((_, count)) = both.find(|((known, _), _)| *known == code) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Memory was registered.
    pub(crate) fn registered(&self, took: Duration) {
        lock(&self.registrations).record(took);
    }
}

/// A family's name, help and kind.
type Head = (&'static str, &'static str, MetricKind);

const INFO: Head = (
    "rnic_info",
    "1; its labels say which interface this RNIC has, how, and the version of the program.",
    MetricKind::Gauge,
);
const REFUSED: Head = (
    "rnic_requests_refused_total",
    "Clients' requests that were refused, by reason.",
    MetricKind::Counter,
);
const WORK: Head = (
    "rnic_work_request_duration_seconds",
    "Time from when the RNIC takes a work request off its send queue to its successful completion.",
    MetricKind::Histogram,
);
const CONNECT: Head = (
    "rnic_connect_duration_seconds",
    "Time that connections which this side opened took from the request to RDMA mode.",
    MetricKind::Histogram,
);
const REGISTRATION: Head = (
    "rnic_registration_duration_seconds",
    "Time that registering memory took.",
    MetricKind::Histogram,
);
const CLIENT_HOLDS: Head = (
    "rnic_client_holds",
    "What a client holds, by the name of the limit.",
    MetricKind::Gauge,
);
const CLIENT_LIMITS: Head = (
    "rnic_client_limit",
    "What one client may hold, by the name of the limit.",
    MetricKind::Gauge,
);
const CLIENT_REFUSED: Head = (
    "rnic_client_requests_refused_total",
    "Requests of a client that were refused.",
    MetricKind::Counter,
);
const CLIENT_BYTES: Head = (
    "rnic_client_memory_bytes_total",
    "Octets placed in a client's memory, or gathered from it.",
    MetricKind::Counter,
);
const CLIENT_WORK: Head = (
    "rnic_client_work_requests_total",
    "Work requests of a client that ended, by how.",
    MetricKind::Counter,
);
const CLIENT_ACCESSES: Head = (
    "rnic_client_accesses_refused_total",
    "What peers asked of a client's memory and queue pairs and did not get.",
    MetricKind::Counter,
);

/// Every metric there can be, by name.
pub fn metric_names() -> Vec<(&'static str, MetricKind)> {
    let counters = [SHARD, DEVICE, PORT].into_iter().flatten();
    let counters = counters.map(|family| (family.name, family.kind));
    let heads = [
        INFO,
        REFUSED,
        WORK,
        CONNECT,
        REGISTRATION,
        CLIENT_HOLDS,
        CLIENT_LIMITS,
        CLIENT_REFUSED,
        CLIENT_BYTES,
        CLIENT_WORK,
        CLIENT_ACCESSES,
    ];
    let heads = heads.map(|(name, _, kind)| (name, kind));
    let more = [STEERING, LIMITS].map(|(name, _)| (name, MetricKind::Counter));
    counters.chain(heads).chain(more).collect()
}

impl Core {
    /// Everything that the device measures.
    pub(crate) fn metrics(&self) -> Result<String, Refusal> {
        let mut shard = None;
        if let (Answer::Metrics(found), _) = self.execute(Command::QueryMetrics)? {
            shard = Some(*found);
        }
        let Some(shard) = shard else {
            return Ok(String::new());
        };
        let mut counters: HashMap<String, u64> = shard.counters.iter().cloned().collect();
        counters.extend(self.device_counters());
        let mut text = Text::default();
        head(&mut text, INFO);
        let info = labels(&[
            ("interface", &self.interface().name),
            ("xdp_mode", &self.xdp_mode),
            ("version", env!("CARGO_PKG_VERSION")),
        ]);
        text.sample(INFO.0, &info, 1);
        families(&mut text, SHARD, &counters, &labels(&[("shard", "0")]));
        families(&mut text, DEVICE, &counters, "");
        ports(&mut text, &counters);
        prefixed(&mut text, STEERING, &counters, "steering_", |name| {
            labels(&[("verdict", name)])
        });
        prefixed(&mut text, LIMITS, &counters, "refused_", |name| {
            let (scope, limit) = name.split_once('_').unwrap_or((name, ""));
            labels(&[("scope", scope), ("limit", limit)])
        });
        self.requests(&mut text);
        times(&mut text, &shard);
        self.clients_metrics(&mut text, &shard.clients);
        Ok(text.finish())
    }

    fn requests(&self, text: &mut Text) {
        let requests = &self.request_metrics;
        head(text, REFUSED);
        for ((_, name), count) in REFUSALS.iter().zip(&requests.refused) {
            let reason = labels(&[("reason", name)]);
            text.sample(REFUSED.0, &reason, count.load(Ordering::Relaxed));
        }
        head(text, REGISTRATION);
        let registrations = *lock(&requests.registrations);
        text.histogram(REGISTRATION.0, "", &registrations);
    }

    fn clients_metrics(&self, text: &mut Text, counted: &[(ClientId, QpCounters)]) {
        let limits: Vec<Holding> = self.prm().client_limits();
        head(text, CLIENT_LIMITS);
        for limit in limits {
            text.sample(
                CLIENT_LIMITS.0,
                &labels(&[("limit", &limit.name)]),
                limit.limit,
            );
        }
        let mut clients = Vec::new();
        for client in self.clients() {
            // One that is leaving holds nothing that anybody could ask for.
            if let Some(holds) = self.prm().holdings_of(client.id) {
                clients.push((who(&client), holds, client));
            }
        }
        clients.sort_by_key(|(_, _, client)| client.id);
        head(text, CLIENT_HOLDS);
        for (who, holds, _) in &clients {
            for held in holds {
                let limit = labels(&[("limit", &held.name)]);
                text.sample(CLIENT_HOLDS.0, &format!("{who},{limit}"), held.held);
            }
        }
        head(text, CLIENT_REFUSED);
        for (who, _, client) in &clients {
            text.sample(CLIENT_REFUSED.0, who, client.refused());
        }
        let counted: HashMap<ClientId, &QpCounters> = counted
            .iter()
            .map(|(client, counters)| (*client, counters))
            .collect();
        let found: Vec<(&String, &QpCounters)> = clients
            .iter()
            .filter_map(|(who, _, client)| Some((who, *counted.get(&client.id)?)))
            .collect();
        head(text, CLIENT_BYTES);
        for (who, counters) in &found {
            for (direction, octets) in [
                ("placed", counters.octets_placed),
                ("gathered", counters.octets_gathered),
            ] {
                let labels = format!("{who},direction=\"{direction}\"");
                text.sample(CLIENT_BYTES.0, &labels, octets);
            }
        }
        head(text, CLIENT_WORK);
        for (who, counters) in &found {
            for (result, count) in [
                ("success", counters.work_completed),
                ("error", counters.work_failed),
                ("flushed", counters.work_flushed),
            ] {
                text.sample(CLIENT_WORK.0, &format!("{who},result=\"{result}\""), count);
            }
        }
        head(text, CLIENT_ACCESSES);
        for (who, counters) in &found {
            let refused = counters
                .named()
                .filter(|(name, _)| name.starts_with("refused_"));
            text.sample(
                CLIENT_ACCESSES.0,
                who,
                refused.map(|(_, count)| count).sum(),
            );
        }
    }
}

fn head(text: &mut Text, (name, help, kind): Head) {
    text.family(name, help, kind);
}

/// The labels by which a client is known; its number alone is given to another one later.
fn who(client: &Client) -> String {
    let Credentials { uid, pid, .. } = client.credentials;
    labels(&[
        ("client", &client.id.to_string()),
        ("uid", &uid.to_string()),
        ("pid", &pid.to_string()),
        ("program", &client.program),
    ])
}

fn families(text: &mut Text, all: &[Family], counters: &HashMap<String, u64>, common: &str) {
    for family in all {
        let samples: Vec<(String, u64)> = family
            .members
            .iter()
            .filter_map(|(own, counter)| Some((joined(common, own), *counters.get(*counter)?)))
            .collect();
        put(text, (family.name, family.help, family.kind), samples);
    }
}

/// A family whose counters are there; there is no capture without one, for instance.
fn put(text: &mut Text, family: Head, samples: Vec<(String, u64)>) {
    if samples.is_empty() {
        return;
    }
    head(text, family);
    for (labels, value) in samples {
        text.sample(family.0, &labels, value);
    }
}

fn joined(first: &str, second: &str) -> String {
    match (first, second) {
        ("", one) | (one, "") => one.to_owned(),
        (first, second) => format!("{first},{second}"),
    }
}

fn ports(text: &mut Text, counters: &HashMap<String, u64>) {
    let numbers = (0..).take_while(|port| counters.contains_key(&format!("port{port}_received")));
    let numbers: Vec<u32> = numbers.collect();
    for family in PORT {
        let mut samples = Vec::new();
        for port in &numbers {
            for (own, counter) in family.members {
                if let Some(value) = counters.get(&format!("port{port}_{counter}")) {
                    let common = format!("shard=\"0\",port=\"{port}\"");
                    samples.push((joined(&common, own), *value));
                }
            }
        }
        put(text, (family.name, family.help, family.kind), samples);
    }
}

/// A family of all counters whose names begin alike, each with labels from the rest of its name.
fn prefixed(
    text: &mut Text,
    (name, help): (&'static str, &'static str),
    counters: &HashMap<String, u64>,
    prefix: &str,
    labels: impl Fn(&str) -> String,
) {
    let known = SHARD.iter().flat_map(|family| family.members);
    let known: Vec<&str> = known.map(|(_, counter)| *counter).collect();
    let mut samples: Vec<(String, u64)> = counters
        .iter()
        .filter(|(counter, _)| !known.contains(&counter.as_str()))
        .filter_map(|(counter, value)| Some((labels(counter.strip_prefix(prefix)?), *value)))
        .collect();
    samples.sort();
    put(text, (name, help, MetricKind::Counter), samples);
}

fn times(text: &mut Text, shard: &ShardMetrics) {
    head(text, WORK);
    for class in WorkClass::ALL {
        let labels = labels(&[("shard", "0"), ("operation", class.name())]);
        text.histogram(WORK.0, &labels, shard.work.of(class));
    }
    head(text, CONNECT);
    text.histogram(CONNECT.0, &labels(&[("shard", "0")]), &shard.connect);
}

#[cfg(test)]
mod tests;
