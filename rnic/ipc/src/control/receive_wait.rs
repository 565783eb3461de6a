//! How long a Send may wait for a receive.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest time that can be said in milliseconds: a day.
pub const RECEIVE_WAIT_MAX: u32 = 86_400_000;

/// How long a Send or Immediate Data for which no receive is posted waits for one.
///
/// As text it is `off`, milliseconds from 1 to [`RECEIVE_WAIT_MAX`], or `forever`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiveWait {
    /// Not at all: it ends the stream, as RFC 5041 section 7.1 has it.
    #[default]
    Off,
    /// So many milliseconds. Then it ends the stream.
    Millis(u32),
    /// As long as the connection lasts.
    Forever,
}

/// A text is no [`ReceiveWait`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not `off`, milliseconds from 1 to {RECEIVE_WAIT_MAX}, or `forever`")]
pub struct ParseReceiveWaitError(String);

impl ReceiveWait {
    /// The longest that one may wait; none where there is no end.
    pub fn longest(self) -> Option<Duration> {
        match self {
            Self::Off => Some(Duration::ZERO),
            Self::Millis(millis) => Some(Duration::from_millis(millis.into())),
            Self::Forever => None,
        }
    }
}

impl FromStr for ReceiveWait {
    type Err = ParseReceiveWaitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "forever" => Ok(Self::Forever),
            _ => text
                .parse()
                .ok()
                .filter(|millis| (1..=RECEIVE_WAIT_MAX).contains(millis))
                .map(Self::Millis)
                .ok_or_else(|| ParseReceiveWaitError(text.to_owned())),
        }
    }
}

impl fmt::Display for ReceiveWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Millis(millis) => write!(f, "{millis}"),
            Self::Forever => f.write_str("forever"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_is_written() {
        for wait in [
            ReceiveWait::Off,
            ReceiveWait::Millis(1),
            ReceiveWait::Millis(RECEIVE_WAIT_MAX),
            ReceiveWait::Forever,
        ] {
            assert_eq!(wait.to_string().parse(), Ok(wait));
        }
        for text in ["", "0", "-1", "86400001", "on", "1s", "Forever"] {
            assert!(text.parse::<ReceiveWait>().is_err(), "{text}");
        }
    }
}
