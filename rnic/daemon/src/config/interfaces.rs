//! The interfaces: a name, a list of names, or a table for each (`[[interface]]`).

use std::ops::Range;
use std::path::PathBuf;

use clap::ValueEnum;
use toml::de::{DeTable, DeValue};

use super::reader::{At, Reader};
use crate::cli::{LinkGiven, Mode};

/// The keys of an interface's table, in the order in which people are told of them.
const KEYS: [&str; 7] = [
    "name",
    "capture",
    "queues",
    "mode",
    "frames",
    "idle_spin",
    "busy_poll",
];

/// What a file says of one interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InterfaceGiven {
    /// Its name.
    pub(crate) name: String,
    /// What holds for it before what the first part of the file says of all.
    pub(crate) link: LinkGiven,
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
        "queues" => given.queues = reader.number(at, 1..=u32::MAX),
        "mode" => given.mode = reader.parsed(at, mode),
        "frames" => given.frames = reader.number(at, 1..=u32::MAX),
        "idle_spin" => given.idle_spin = reader.number(at, 0..=1_000_000),
        "busy_poll" => given.busy_poll = reader.number(at, 0..=1_000_000),
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

fn mode(text: &str) -> Result<Mode, String> {
    Mode::from_str(text, false).map_err(|_| "give auto, native or generic".to_owned())
}
