//! What a link is to do: from a file, the command line, or both.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::settings::{Impairments, Settings};
use super::units::Span;

/// A whole link.
#[derive(Clone, Debug)]
pub struct Config {
    /// What all decisions come from.
    pub seed: u64,
    /// To the right, to the left.
    pub settings: [Settings; 2],
    /// Changes of each, in the order in which they were given.
    pub changes: [Vec<Change>; 2],
}

/// When a change comes into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this time after the start.
    At(Duration),
    /// For the packet after so many have come in this direction, and those behind it.
    After(u64),
}

/// A change of one direction's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub when: When,
    pub set: Impairments,
}

/// Which direction something is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Toward {
    #[default]
    Both,
    Right,
    Left,
}

impl Toward {
    fn includes(self, direction: usize) -> bool {
        match self {
            Toward::Both => true,
            Toward::Right => direction == 0,
            Toward::Left => direction == 1,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct File {
    pub left: Option<String>,
    pub right: Option<String>,
    /// What all decisions come from.
    pub seed: Option<u64>,
    pub both: Impairments,
    /// What the direction to the right does beside or instead.
    pub to_right: Impairments,
    /// What the direction to the left does beside or instead.
    pub to_left: Impairments,
    pub change: Vec<Planned>,
}

/// What one place, a file or a command line, says of impairments.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    pub both: &'a Impairments,
    /// Of the direction to the right, and to the left.
    pub own: [&'a Impairments; 2],
}

/// A change as it is asked for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Planned {
    pub at: Option<Span>,
    /// Or after so many packets.
    pub after: Option<u64>,
    #[serde(default)]
    pub toward: Toward,
    pub set: Impairments,
}

/// Why there can be no such link.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: {reason}")]
    File {
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// A change has no time, or two.
    #[error("a change needs either at=TIME or after=PACKETS, and this one has {0}")]
    When(&'static str),
    /// Settings that can't have been meant.
    #[error("to the {toward}: {doubt}")]
    Doubt {
        toward: &'static str,
        doubt: &'static str,
    },
}

impl File {
    /// Reads a TOML file.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Read`], and [`ConfigError::File`] which says the line.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        toml::from_str(&text).map_err(|error| ConfigError::File {
            path: path.to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })
    }

    /// What it says of impairments.
    pub fn layer(&self) -> Layer<'_> {
        Layer {
            both: &self.both,
            own: [&self.to_right, &self.to_left],
        }
    }
}

impl Config {
    /// Lays what was asked for on top of each other, the last on top, each of both directions
    /// first.
    ///
    /// # Errors
    ///
    /// [`ConfigError::When`] and [`ConfigError::Doubt`].
    pub fn new(seed: u64, layers: &[Layer<'_>], planned: &[Planned]) -> Result<Self, ConfigError> {
        let mut config = Self {
            seed,
            settings: [Settings::default(), Settings::default()],
            changes: [Vec::new(), Vec::new()],
        };
        for (direction, toward) in ["right", "left"].into_iter().enumerate() {
            let settings = &mut config.settings[direction];
            for layer in layers {
                settings.apply(layer.both);
                settings.apply(layer.own[direction]);
            }
            let mut later = settings.clone();
            for planned in planned {
                if planned.toward.includes(direction) {
                    let (when, set) = (planned.when()?, planned.set.clone());
                    later.apply(&set);
                    config.changes[direction].push(Change { when, set });
                }
            }
            for state in [settings, &mut later] {
                if let Some(doubt) = state.doubt() {
                    return Err(ConfigError::Doubt { toward, doubt });
                }
            }
        }
        Ok(config)
    }
}

impl Planned {
    fn when(&self) -> Result<When, ConfigError> {
        match (self.at, self.after) {
            (Some(at), None) => Ok(When::At(at.0)),
            (None, Some(packets)) => Ok(When::After(packets)),
            (None, None) => Err(ConfigError::When("neither")),
            (Some(_), Some(_)) => Err(ConfigError::When("both")),
        }
    }
}

/// `at=TIME` or `after=PACKETS`, perhaps `toward=right|left|both`, and what is to be set; with
/// commas between them.
impl FromStr for Planned {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut at, mut after, mut toward, mut rest) = (None, None, Toward::Both, Vec::new());
        for pair in text.split(',') {
            match pair.split_once('=') {
                Some(("at", value)) => at = Some(value.parse()?),
                Some(("after", value)) => {
                    let packets = value.parse();
                    after =
                        Some(packets.map_err(|_| format!("'{value}' is not a number of packets"))?);
                }
                Some(("toward", "right")) => toward = Toward::Right,
                Some(("toward", "left")) => toward = Toward::Left,
                Some(("toward", "both")) => toward = Toward::Both,
                Some(("toward", value)) => {
                    return Err(format!("'{value}' is none of right, left, both"));
                }
                _ => rest.push(pair),
            }
        }
        let set = Impairments::from_pairs(rest)?;
        let planned = Self {
            at,
            after,
            toward,
            set,
        };
        planned.when().map_err(|error| error.to_string())?;
        Ok(planned)
    }
}

#[cfg(test)]
mod tests;
