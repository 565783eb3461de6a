//! The interfaces: a name, a list of names, or a table for each (`[[interface]]`).

use std::ops::Range;

use rnic_device::{AllowList, Configured, DeviceConfig, ParsePrefixError, VlanConfig, VlanId};
use toml::de::{DeTable, DeValue};

use super::peers;
use super::reader::{At, Reader};
use crate::settings::Values;

/// The settings that an interface's table and the first part of a file both may have.
pub(super) fn settings() -> impl Iterator<Item = &'static str> {
    DeviceConfig::SETTINGS.iter().map(|setting| setting.name)
}

/// The keys of an interface's table, in the order in which faults name them.
fn keys() -> Vec<&'static str> {
    let settings = ["name"].into_iter().chain(settings());
    settings.chain(["allowed_peers", "vlan"]).collect()
}

/// Those of a VLAN's table.
const VLAN_KEYS: [&str; 3] = ["id", "addresses", "interface"];

/// What a file says of one interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InterfaceGiven {
    pub(crate) name: String,
    /// What holds for it before what the first part of the file says of all.
    pub(crate) link: Values,
    /// The peers of connections over it, before what the first part of the file says of all.
    pub(crate) allowed_peers: Option<AllowList>,
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
            _ if reader.setting::<DeviceConfig>(&at, &mut given.link) => {}
            _ => reader.unknown(&at, &keys()),
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
