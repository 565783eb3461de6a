//! The configuration file (TOML): the settings of the command line, and limits.
//!
//! A file with a fault is not used at all. Every fault is reported with its line and column, what was
//! found and what may stand there; an unknown key is a fault.

mod interfaces;
mod limits;
mod peers;
mod reader;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use rnic_device::{AllowList, Configured, DeviceConfig, Limits};
use toml::de::DeTable;

use crate::settings::{DaemonConfig, Given};
pub(crate) use interfaces::InterfaceGiven;
use reader::{At, Reader};

/// The keys at the top that are no settings of the command line.
const TABLES: [&str; 5] = ["allowed_peers", "limits", "user", "group", "listener"];

/// The keys at the top, in the order in which faults name them.
fn keys() -> Vec<&'static str> {
    let settings = DaemonConfig::SETTINGS.iter().map(|setting| setting.name);
    let settings = ["interface"].into_iter().chain(settings);
    settings
        .chain(interfaces::settings())
        .chain(TABLES)
        .collect()
}

#[derive(Debug, Default)]
pub(crate) struct File {
    /// Settings that the command line has too.
    pub(crate) given: Given,
    /// What it says of each interface.
    pub(crate) interfaces: Vec<InterfaceGiven>,
    /// The peers of connections over interfaces whose tables say nothing of theirs.
    pub(crate) allowed_peers: Option<AllowList>,
    /// All limits, with their defaults where it says nothing.
    pub(crate) limits: Limits,
}

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// It can't be read.
    #[error("can't read the configuration {}: {source}: name a file that can be read", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}", lines(.0))]
    Faults(Vec<Fault>),
}

/// Something wrong at one place of a file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    pub(crate) path: PathBuf,
    /// From 1 on.
    pub(crate) line: usize,
    /// In characters, from 1 on.
    pub(crate) column: usize,
    /// What was found, and what may stand there.
    pub(crate) message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, line, column) = (self.path.display(), self.line, self.column);
        write!(f, "{path}:{line}:{column}: {}", self.message)
    }
}

fn lines(faults: &[Fault]) -> String {
    let lines: Vec<_> = faults.iter().map(Fault::to_string).collect();
    lines.join("\n")
}

pub(crate) fn read(path: &Path) -> Result<File, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(path, &text)
}

pub(crate) fn parse(path: &Path, text: &str) -> Result<File, ConfigError> {
    let mut reader = Reader::new(path, text);
    let file = match DeTable::parse(text) {
        Ok(document) => file(&mut reader, document.get_ref()),
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            reader.fault(span, error.message().to_owned());
            File::default()
        }
    };
    match reader.into_faults() {
        faults if faults.is_empty() => Ok(file),
        faults => Err(ConfigError::Faults(faults)),
    }
}

fn file(reader: &mut Reader<'_>, document: &DeTable<'_>) -> File {
    let mut given = Given::default();
    let mut named = Vec::new();
    let mut allowed_peers = None;
    let mut listener_peers = Vec::new();
    let mut limits = limits::Tables::default();
    for (key, value) in document {
        let at = At::new(key, value);
        match at.key {
            "interface" => named = interfaces::read(reader, &at),
            "limits" => limits.limits = reader.table(&at),
            "user" => limits.users = reader.table(&at),
            "group" => limits.groups = reader.table(&at),
            "allowed_peers" => allowed_peers = peers::allowed(reader, &at),
            "listener" => listener_peers = peers::listeners(reader, &at),
            _ if reader.setting::<DaemonConfig>(&at, &mut given.own) => {}
            _ if reader.setting::<DeviceConfig>(&at, &mut given.link) => {}
            _ => reader.unknown(&at, &keys()),
        }
    }
    File {
        given,
        interfaces: named,
        allowed_peers,
        limits: Limits {
            listener_peers,
            ..limits.read(reader)
        },
    }
}
