//! What DDP goes over.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The protocol below DDP. A listener has one, and a connection that of its listener.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// TCP, with MPA between (RFC 5044).
    #[default]
    Tcp,
    /// SCTP (RFC 5043). Of [`MpaOptions`](super::MpaOptions) the revision says whether IRD and ORD are negotiated (2)
    /// or not (1); CRCs and Markers are not there.
    Sctp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Sctp => "SCTP",
        })
    }
}
