//! The values of linksim's settings as people write them: `1%`, `500Mbit`, `50ms`, `256p`, `64KiB`.
//!
//! Each type parses itself once, on the command line as in a file, and holds only what can be used.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

/// What a file may give for a value: numbers are taken as their text.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Text {
    String(String),
    Integer(i64),
    Float(f64),
}

impl Text {
    fn parse<T: FromStr<Err = String>>(self) -> Result<T, String> {
        match self {
            Text::String(text) => text.parse(),
            Text::Integer(number) => number.to_string().parse(),
            Text::Float(number) => number.to_string().parse(),
        }
    }
}

macro_rules! from_file {
    ($($name:ty),+) => {$(
        impl TryFrom<Text> for $name {
            type Error = String;

            fn try_from(text: Text) -> Result<Self, String> {
                text.parse()
            }
        }
    )+};
}

from_file!(Share, Rate, Limit, Span, Mtu, Burst);

/// A share of packets, from 0 to 1: `1%`, `0.01`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "Text")]
pub struct Share(f64);

impl Share {
    pub const NONE: Self = Self(0.0);
    pub const ALL: Self = Self(1.0);

    /// Whether this share of all 64-bit numbers has `random` in it.
    pub fn hits(self, random: u64) -> bool {
        // 53 bits are what a double holds exactly.
        ((random >> 11) as f64) < self.0 * (1_u64 << 53) as f64
    }

    pub fn fraction(self) -> f64 {
        self.0
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number.trim(), 0.01),
            None => (text, 1.0),
        };
        let wrong = || format!("'{text}' is not a share: write 1% or 0.01 (at most 100% or 1)");
        let value = number.parse::<f64>().map_err(|_| wrong())? * scale;
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(wrong())
        }
    }
}

/// Bits a second, or no limit: `500Mbit`, `62.5MB` (bytes), `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Text")]
pub struct Rate(Option<u64>);

impl Rate {
    /// Bits a second; `None` when there is no limit.
    pub fn bits(self) -> Option<u64> {
        self.0
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let wrong = || {
            format!(
                "'{text}' is not a rate: write 500Mbit (bits a second) or 62.5MB (bytes a second), \
                 with k, M, G for powers of 1000, or none"
            )
        };
        let rest = text.strip_suffix("/s").unwrap_or(text);
        let (rest, bits) = match (rest.strip_suffix("bit"), rest.strip_suffix('B')) {
            (Some(rest), _) => (rest, 1.0),
            (None, Some(rest)) => (rest, 8.0),
            (None, None) => return Err(wrong()),
        };
        let (number, scale) = match rest.as_bytes().last() {
            Some(b'k' | b'K') => (&rest[..rest.len() - 1], 1e3),
            Some(b'M') => (&rest[..rest.len() - 1], 1e6),
            Some(b'G') => (&rest[..rest.len() - 1], 1e9),
            _ => (rest, 1.0),
        };
        let value = number.trim().parse::<f64>().map_err(|_| wrong())? * scale * bits;
        // Below a kilobit a single frame takes longer than anybody waits.
        if (1e3..=1e12).contains(&value) {
            Ok(Self(Some(value as u64)))
        } else {
            Err(format!("'{text}': a rate is between 1kbit and 1000Gbit"))
        }
    }
}

/// How much a queue may hold: `256p` (packets), `64KiB` (bytes), `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Text")]
pub enum Limit {
    /// As much as there are frames for.
    None,
    /// So many packets.
    Packets(u32),
    /// So many bytes.
    Bytes(u64),
}

impl Limit {
    /// Whether a queue that holds this much is within the limit.
    pub fn holds(self, packets: usize, bytes: u64) -> bool {
        match self {
            Limit::None => true,
            Limit::Packets(most) => packets <= most as usize,
            Limit::Bytes(most) => bytes <= most,
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::None);
        }
        let wrong =
            || format!("'{text}' is not an amount: write 256p (packets), 64KiB (bytes) or none");
        if let Some(packets) = text.strip_suffix('p') {
            return packets.parse().map(Self::Packets).map_err(|_| wrong());
        }
        if text.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong());
        }
        rnic_tools::size::bytes(text)
            .map(Self::Bytes)
            .map_err(|_| wrong())
    }
}

/// A time: `50ms`, `200us`, `1.5s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "Text")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a time: write 50ms, 200us or 1.5s");
        let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
        let found = units
            .iter()
            .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
        let (number, scale) = match found {
            Some(found) => found,
            None if text == "0" => (text, &1.0),
            None => return Err(wrong()),
        };
        let seconds = number.trim().parse::<f64>().map_err(|_| wrong())? * scale;
        if (0.0..=86_400.0).contains(&seconds) {
            Ok(Self(Duration::from_secs_f64(seconds)))
        } else {
            Err(format!("'{text}': a time is between 0 and a day"))
        }
    }
}

/// The most bytes of an IP packet, or no limit: `1400`, `none`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Text")]
pub struct Mtu(Option<u16>);

impl Mtu {
    /// The least MTU of IPv4 (RFC 791).
    const LEAST: u16 = 68;

    /// Bytes; `None` when there is no limit.
    pub fn bytes(self) -> Option<u16> {
        self.0
    }
}

impl FromStr for Mtu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        match text.parse() {
            Ok(bytes) if bytes >= Self::LEAST => Ok(Self(Some(bytes))),
            _ => Err(format!(
                "'{text}' is not an MTU: write bytes of an IP packet, 68 to 65535, or none"
            )),
        }
    }
}

/// Loss in bursts, the Gilbert-Elliott model: `ENTER:LEAVE[:BAD[:GOOD]]`, each a share.
///
/// Before each packet a link in its good state turns bad with the share `enter`, and one in its
/// bad state turns good with `leave`. Then the packet is lost with `bad` (100%) or `good` (0%).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Text")]
pub struct Burst {
    /// From good to bad.
    pub enter: Share,
    /// From bad to good: bursts are of 1/leave packets on average.
    pub leave: Share,
    /// Loss in the bad state.
    pub bad: Share,
    /// Loss in the good state.
    pub good: Share,
}

impl Burst {
    /// Never loses anything.
    pub const NONE: Self = Self {
        enter: Share::NONE,
        leave: Share::ALL,
        bad: Share::ALL,
        good: Share::NONE,
    };
}

impl FromStr for Burst {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let shares: Vec<Share> = text.split(':').map(str::parse).collect::<Result<_, _>>()?;
        match shares[..] {
            [enter, leave, ref rest @ ..] if rest.len() <= 2 => Ok(Self {
                enter,
                leave,
                bad: rest.first().copied().unwrap_or(Share::ALL),
                good: rest.get(1).copied().unwrap_or(Share::NONE),
            }),
            _ => Err(format!(
                "'{text}' is not a burst loss: write ENTER:LEAVE[:BAD[:GOOD]], as in 0.1%:25%"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
