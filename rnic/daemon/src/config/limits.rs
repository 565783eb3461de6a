//! Limits: of the device, of each client, of each user, and of users and groups by name.

use std::ops::RangeInclusive;

use rnic_device::{Limits, PortRanges, Quota, Resource, UserLimits, Users};
use rnic_ipc::ring::RING_SLOTS_MAX;
use rnic_ipc::work::{MAX_INLINE, MAX_SGE};
use toml::de::{DeTable, DeValue};

use super::peers;
use super::reader::{At, Reader};
use crate::names;

/// What the shards' tables of clients are made for.
const CLIENTS_MOST: u32 = 65_536;

/// The tables of a file that say something of limits.
#[derive(Debug, Default)]
pub(super) struct Tables<'a> {
    pub(super) limits: Option<&'a DeTable<'a>>,
    pub(super) users: Option<&'a DeTable<'a>>,
    pub(super) groups: Option<&'a DeTable<'a>>,
}

impl Tables<'_> {
    /// All limits. A user or group that is named has the others' where its table says nothing.
    pub(super) fn read(&self, reader: &mut Reader<'_>) -> Limits {
        let mut limits = Limits::default();
        if let Some(table) = self.limits {
            device(reader, table, &mut limits);
        }
        let others = limits.users.others.clone();
        let mut users = Users {
            others: others.clone(),
            ..Users::default()
        };
        for root in users.by_uid.values_mut() {
            *root = UserLimits {
                listen_ports: root.listen_ports.clone(),
                ..others.clone()
            };
        }
        let mut named = Vec::new();
        for (key, value) in self.users.into_iter().flatten() {
            let at = At::new(key, value);
            let found = names::uid(at.key);
            if let Some(uid) = number_of(reader, &at, found, &mut named) {
                let limits = users.by_uid.entry(uid).or_insert_with(|| others.clone());
                user(reader, &at, limits);
            }
        }
        named.clear();
        for (key, value) in self.groups.into_iter().flatten() {
            let at = At::new(key, value);
            let found = names::gid(at.key);
            if let Some(gid) = number_of(reader, &at, found, &mut named) {
                let limits = users.by_gid.entry(gid).or_insert_with(|| others.clone());
                user(reader, &at, limits);
            }
        }
        limits.users = users;
        limits
    }
}

/// Whom a table's name means; nobody twice.
fn number_of(
    reader: &mut Reader<'_>,
    at: &At<'_>,
    found: Result<u32, String>,
    named: &mut Vec<u32>,
) -> Option<u32> {
    match found {
        Ok(number) if named.contains(&number) => {
            let message = format!("{} has the number {number}, which was named before", at.key);
            reader.wrong_key(at, message);
            None
        }
        Ok(number) => {
            named.push(number);
            Some(number)
        }
        Err(message) => {
            reader.wrong_key(at, message);
            None
        }
    }
}

/// `[limits]`.
fn device(reader: &mut Reader<'_>, table: &DeTable<'_>, limits: &mut Limits) {
    for (key, value) in table {
        let at = At::new(key, value);
        if quota(reader, &at, &mut limits.device) {
            continue;
        }
        let (place, range) = match at.key {
            "clients" => (&mut limits.clients, 1..=CLIENTS_MOST),
            "queue_depth" => (&mut limits.queue_depth, 1..=RING_SLOTS_MAX),
            "cq_depth" => (&mut limits.cq_depth, 1..=RING_SLOTS_MAX),
            "sges" => (&mut limits.sges, 1..=MAX_SGE as u32),
            "inline_bytes" => (&mut limits.inline_bytes, 0..=MAX_INLINE as u32),
            "backlog" => (&mut limits.backlog, 1..=CLIENTS_MOST),
            "client" => {
                client(reader, &at, &mut limits.per_client);
                continue;
            }
            "user" => {
                user(reader, &at, &mut limits.users.others);
                continue;
            }
            _ => {
                let more = [
                    "clients",
                    "queue_depth",
                    "cq_depth",
                    "sges",
                    "inline_bytes",
                    "backlog",
                    "client",
                    "user",
                ];
                reader.unknown(&at, &known(&more));
                continue;
            }
        };
        set(reader, &at, place, range);
    }
}

/// `[limits.client]`.
fn client(reader: &mut Reader<'_>, at: &At<'_>, limits: &mut Quota) {
    for (key, value) in reader.table(at).into_iter().flatten() {
        let at = At::new(key, value);
        if !quota(reader, &at, limits) {
            reader.unknown(&at, &known(&[]));
        }
    }
}

/// `[limits.user]`, `[user.NAME]`, `[group.NAME]`.
fn user(reader: &mut Reader<'_>, at: &At<'_>, limits: &mut UserLimits) {
    for (key, value) in reader.table(at).into_iter().flatten() {
        let at = At::new(key, value);
        if quota(reader, &at, &mut limits.quota) {
            if at.key == Resource::RemoteRegions.name() {
                limits.own_remote_regions = limits.quota.remote_regions;
            }
            continue;
        }
        match at.key {
            "clients" => set(reader, &at, &mut limits.clients, 0..=CLIENTS_MOST),
            "connects_per_second" => {
                set(reader, &at, &mut limits.connects_per_second, 0..=1_000_000);
            }
            "requests_per_second" => {
                set(reader, &at, &mut limits.requests_per_second, 1..=1_000_000);
            }
            "listen_ports" => {
                if let Some(ports) = ports(reader, &at) {
                    limits.listen_ports = ports;
                }
            }
            "allowed_peers" => {
                if let Some(list) = peers::allowed(reader, &at) {
                    limits.allowed_peers = Some(list);
                }
            }
            _ => {
                let more = [
                    "clients",
                    "allowed_peers",
                    "listen_ports",
                    "connects_per_second",
                    "requests_per_second",
                ];
                reader.unknown(&at, &known(&more));
            }
        }
    }
}

/// Takes a key that is a resource's; `false` when it is none.
fn quota(reader: &mut Reader<'_>, at: &At<'_>, quota: &mut Quota) -> bool {
    let mut all = Resource::ALL.into_iter();
    let Some(resource) = all.find(|resource| resource.name() == at.key) else {
        return false;
    };
    if let Some(limit) = reader.number(at, 0..=resource.most()) {
        quota.set(resource, limit);
    }
    true
}

fn set(reader: &mut Reader<'_>, at: &At<'_>, place: &mut u32, range: RangeInclusive<u32>) {
    if let Some(limit) = reader.number(at, range) {
        *place = limit;
    }
}

/// A list of ports and of ranges of them: `[7471, "18515-18600"]`.
fn ports(reader: &mut Reader<'_>, at: &At<'_>) -> Option<PortRanges> {
    let mut ranges = Vec::new();
    for element in reader.list(at)? {
        ranges.push(match element.value {
            DeValue::Integer(_) => {
                let port = reader.number(&element, 1..=u16::MAX)?;
                port..=port
            }
            _ => reader.parsed(&element, port_range)?,
        });
    }
    Some(PortRanges::new(ranges))
}

fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let parse = |text: &str| text.trim().parse().ok().filter(|port| *port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (parse(first), parse(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err("give ports from 1 to 65535, such as \"18515-18600\"".to_owned()),
    }
}

fn known(more: &[&'static str]) -> Vec<&'static str> {
    let resources = Resource::ALL.into_iter().map(Resource::name);
    resources.chain(more.iter().copied()).collect()
}
