//! The interfaces: a name, a list of names, or a table for each (`[[interface]]`).

use std::ops::Range;
use std::path::PathBuf;

use clap::ValueEnum;
use rnic_device::{
    AllowList, CongestionControl, ParseCongestionControlError, ParseCoresError,
    ParseDedicatedQueuesError, ParseHostIpsecError, ParsePrefixError, ParseShardCountError,
    ShardCount, VlanConfig, VlanId,
};
use toml::de::{DeTable, DeValue};

use super::peers;
use super::reader::{At, Reader};
use crate::cli::{self, LinkGiven, Mode, PollingMode};

/// The keys of an interface's table, in the order in which people are told of them.
const KEYS: [&str; 26] = [
    "name",
    "capture",
    "shards",
    "cores",
    "queues",
    "dedicated_queues",
    "mode",
    "frames",
    "polling",
    "idle_spin",
    "busy_poll",
    "syn_rate",
    "unknown_flow_rate",
    "fragment_rate",
    "user_timeout",
    "first_byte_timeout",
    "answer_timeout",
    "keepalive_idle",
    "keepalive_interval",
    "keepalive_probes",
    "congestion",
    "sctp_udp_port",
    "sctp_udp_peer_port",
    "host_ipsec",
    "allowed_peers",
    "vlan",
];
/// Those of a VLAN's table.
const VLAN_KEYS: [&str; 3] = ["id", "addresses", "interface"];

/// What a file says of one interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InterfaceGiven {
    /// Its name.
    pub(crate) name: String,
    /// What holds for it before what the first part of the file says of all.
    pub(crate) link: LinkGiven,
    /// The peers of connections over it, before what the first part of the file says of all.
    pub(crate) allowed_peers: Option<AllowList>,
    /// Its VLANs.
    pub(crate) vlans: Vec<VlanConfig>,
}

/// `interface`.
pub(super) fn read(reader: &mut Reader<'_>, at: &At<'_>) -> Vec<InterfaceGiven> {
    let elements = match at.value {
        DeValue::Array(_) => reader.list(at).unwrap_or_default(),
        _ => vec![at.clone()],
    };
    let mut found: Vec<InterfaceGiven> = Vec::new();
    for element in elements {
        let Some(one) = one(reader, &element) else {
            continue;
        };
        if found.iter().any(|other| other.name == one.name) {
            let message = format!("interface {} is named twice", one.name);
            reader.fault(element.span(), message);
        }
        found.push(one);
    }
    found
}

/// What an interface's table and the first part of a file both may say; whether this was of it.
pub(super) fn link(reader: &mut Reader<'_>, at: &At<'_>, given: &mut LinkGiven) -> bool {
    match at.key {
        "capture" => given.capture = reader.text(at).map(PathBuf::from),
        "shards" => given.shards = shards(reader, at),
        "cores" => {
            given.cores = reader.parsed(at, |text| {
                text.parse()
                    .map_err(|error: ParseCoresError| error.to_string())
            });
        }
        "queues" => given.queues = reader.number(at, 1..=u32::MAX),
        "dedicated_queues" => {
            given.dedicated_queues = reader.parsed(at, |text| {
                text.parse()
                    .map_err(|error: ParseDedicatedQueuesError| error.to_string())
            });
        }
        "mode" => given.mode = reader.parsed(at, mode),
        "frames" => given.frames = reader.number(at, 1..=u32::MAX),
        "polling" => given.polling = reader.parsed(at, polling),
        "idle_spin" => given.idle_spin = reader.number(at, 0..=1_000_000),
        "busy_poll" => given.busy_poll = reader.number(at, 0..=1_000_000),
        "syn_rate" => given.syn_rate = reader.number(at, 0..=u32::MAX),
        "unknown_flow_rate" => given.unknown_flow_rate = reader.number(at, 0..=u32::MAX),
        "fragment_rate" => given.fragment_rate = reader.number(at, 0..=u32::MAX),
        "user_timeout" => given.user_timeout = reader.number(at, cli::USER_TIMEOUT),
        "first_byte_timeout" => {
            given.first_byte_timeout = reader.number(at, cli::FIRST_BYTE_TIMEOUT);
        }
        "answer_timeout" => given.answer_timeout = reader.number(at, cli::ANSWER_TIMEOUT),
        "keepalive_idle" => given.keepalive_idle = reader.number(at, cli::KEEPALIVE_IDLE),
        "keepalive_interval" => {
            given.keepalive_interval = reader.number(at, cli::KEEPALIVE_INTERVAL);
        }
        "keepalive_probes" => given.keepalive_probes = reader.number(at, cli::KEEPALIVE_PROBES),
        "congestion" => given.congestion = reader.parsed(at, congestion),
        "sctp_udp_port" => given.sctp_udp_port = reader.number(at, 1..=u16::MAX),
        "sctp_udp_peer_port" => given.sctp_udp_peer_port = reader.number(at, 1..=u16::MAX),
        "host_ipsec" => {
            given.host_ipsec = reader.parsed(at, |text| {
                text.parse()
                    .map_err(|error: ParseHostIpsecError| error.to_string())
            });
        }
        _ => return false,
    }
    true
}

fn one(reader: &mut Reader<'_>, at: &At<'_>) -> Option<InterfaceGiven> {
    match at.value {
        DeValue::String(name) => Some(InterfaceGiven {
            name: name.clone().into_owned(),
            ..InterfaceGiven::default()
        }),
        DeValue::Table(found) => table(reader, found, at.span()),
        _ => {
            reader.wrong_kind(
                at,
                "a name, a list of names, or a table for each ([[interface]])",
            );
            None
        }
    }
}

fn table(
    reader: &mut Reader<'_>,
    found: &DeTable<'_>,
    span: Range<usize>,
) -> Option<InterfaceGiven> {
    let mut given = InterfaceGiven::default();
    let mut named = false;
    for (key, value) in found {
        let at = At::new(key, value);
        match at.key {
            "name" => {
                named = true;
                given.name = reader.text(&at)?;
            }
            "allowed_peers" => given.allowed_peers = peers::allowed(reader, &at),
            "vlan" => given.vlans = vlans(reader, &at),
            _ if link(reader, &at, &mut given.link) => {}
            _ => reader.unknown(&at, &KEYS),
        }
    }
    if !named {
        reader.fault(span, "an interface without its `name`".to_owned());
        return None;
    }
    Some(given)
}

/// `[[interface.vlan]]`.
fn vlans(reader: &mut Reader<'_>, at: &At<'_>) -> Vec<VlanConfig> {
    let elements = reader.list(at).unwrap_or_default();
    let found = elements.iter().filter_map(|element| vlan(reader, element));
    found.collect()
}

fn vlan(reader: &mut Reader<'_>, at: &At<'_>) -> Option<VlanConfig> {
    let (mut id, mut addresses, mut interface) = (None, Vec::new(), None);
    // A value that has a fault was said all the same.
    let (mut has_id, mut has_addresses) = (false, false);
    for (key, value) in reader.table(at)? {
        let at = At::new(key, value);
        has_id |= at.key == "id";
        has_addresses |= matches!(at.key, "addresses" | "interface");
        match at.key {
            "id" => id = reader.number(&at, 1..=4094).and_then(VlanId::new),
            "addresses" => {
                let networks = reader.list(&at).unwrap_or_default();
                let network = |text: &str| {
                    text.parse()
                        .map_err(|error: ParsePrefixError| error.to_string())
                };
                let networks = networks.iter().filter_map(|at| reader.parsed(at, network));
                addresses = networks.collect();
            }
            "interface" => interface = reader.text(&at),
            _ => reader.unknown(&at, &VLAN_KEYS),
        }
    }
    if !has_addresses {
        let message = "a VLAN of nothing: give its `addresses`, or the `interface` that has them";
        reader.fault(at.span(), message.to_owned());
    }
    if !has_id {
        reader.fault(at.span(), "a VLAN without its `id`".to_owned());
    }
    Some(VlanConfig {
        id: id?,
        addresses,
        interface,
    })
}

/// A number or a word.
fn shards(reader: &mut Reader<'_>, at: &At<'_>) -> Option<ShardCount> {
    match at.value {
        DeValue::String(_) => reader.parsed(at, |text| {
            text.parse()
                .map_err(|error: ParseShardCountError| error.to_string())
        }),
        _ => reader
            .number(at, 1..=ShardCount::MAX)
            .map(ShardCount::Number),
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::from_str(text, false)
        .map_err(|_| "give auto, native, generic or super-packets".to_owned())
}

fn congestion(text: &str) -> Result<CongestionControl, String> {
    text.parse()
        .map_err(|error: ParseCongestionControlError| error.to_string())
}

fn polling(text: &str) -> Result<PollingMode, String> {
    PollingMode::from_str(text, false).map_err(|_| "give spin, adaptive or event".to_owned())
}
