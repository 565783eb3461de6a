//! A pair of hosts to measure on: its MTU, and where its receive path runs.

use std::fmt;

/// Where the kernel's receive path of a veth pair runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Napi {
    /// In the sender's system call, on the sender's core.
    Inline,
    /// On the receiver's core, by Receive Packet Steering; XDP is generic.
    Rps,
    /// In a thread for each interface (threaded NAPI), on the receiver's core.
    Threaded,
}

impl Napi {
    pub const ALL: [Self; 3] = [Self::Inline, Self::Rps, Self::Threaded];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Rps => "rps",
            Self::Threaded => "threaded",
        }
    }

    /// What XDP programs are to be attached as.
    #[must_use]
    pub fn xdp_mode(self) -> &'static str {
        match self {
            Self::Inline | Self::Threaded => "native",
            // Native programs run before packets are steered to another core.
            Self::Rps => "generic",
        }
    }
}

/// What is between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// A veth pair without offloads.
    Cable,
    /// A veth pair as it is made: with checksum and segmentation offloads.
    AsItComes,
    /// None: both ends are on one host and connect by 127.0.0.1.
    Loopback,
    /// A link of `linksim` that loses so many of ten thousand packets, each way, and reorders some.
    Lossy(u16),
}

/// What a lossy link does beside losing: a rate that a core can forward, a switch's queue, a round trip
/// of some milliseconds, and packets that are overtaken.
const IMPAIRMENTS: [&str; 5] = [
    "--rate=1Gbit",
    "--queue=500p",
    "--delay=1ms",
    "--reorder=1%",
    "--reorder-by=5",
];

impl Link {
    /// `linksim`'s options, if it is there.
    #[must_use]
    pub fn options(self) -> Option<Vec<String>> {
        match self {
            Self::Cable | Self::AsItComes | Self::Loopback => None,
            Self::Lossy(share) => {
                let loss = format!("--loss={}%", f64::from(share) / 100.0);
                let all = IMPAIRMENTS.map(str::to_owned).into_iter();
                Some(all.chain([loss]).collect())
            }
        }
    }
}

/// Where something runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// IP MTU in bytes.
    pub mtu: u32,
    /// Where packets are received.
    pub napi: Napi,
    /// What packets go over.
    pub link: Link,
    /// Which of several that are alike, for those that are under way at the same time.
    pub cable: u8,
}

impl Place {
    /// Two hosts joined by a veth pair.
    #[must_use]
    pub fn cable(mtu: u32, napi: Napi) -> Self {
        let (link, cable) = (Link::Cable, 0);
        Self {
            mtu,
            napi,
            link,
            cable,
        }
    }

    /// Two hosts joined by a veth pair as it is made.
    #[must_use]
    pub fn as_it_comes(mtu: u32) -> Self {
        Self {
            link: Link::AsItComes,
            ..Self::cable(mtu, Napi::Inline)
        }
    }

    /// One host, whose loopback interface has the MTU that the kernel gives it.
    #[must_use]
    pub fn loopback() -> Self {
        Self {
            link: Link::Loopback,
            ..Self::cable(65_536, Napi::Inline)
        }
    }

    /// Whether the receive path takes no time of the receiver's core, so that this may be busy all the
    /// time.
    #[must_use]
    pub fn leaves_cores_alone(self) -> bool {
        !matches!(self.link, Link::Lossy(_)) && self.napi == Napi::Inline
    }

    /// What RNICs are to attach XDP programs as. A veth as it comes is what users have, and so is the mode.
    #[must_use]
    pub fn xdp_mode(self) -> &'static str {
        match self.link {
            Link::AsItComes => "auto",
            Link::Cable | Link::Loopback | Link::Lossy(_) => self.napi.xdp_mode(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mtu, napi) = (self.mtu, self.napi.name());
        match self.link {
            Link::Loopback => write!(f, "loopback"),
            Link::Cable => write!(f, "{mtu}-{napi}"),
            Link::AsItComes => write!(f, "{mtu}-as-it-comes"),
            Link::Lossy(share) => write!(f, "{mtu}-{napi}-loss-{}", f64::from(share) / 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lossy_link_says_so_in_its_name_and_options() {
        let place = Place {
            link: Link::Lossy(10),
            ..Place::cable(1500, Napi::Inline)
        };
        assert_eq!(place.to_string(), "1500-inline-loss-0.1");
        let options = place.link.options().unwrap_or_default();
        assert!(options.contains(&"--loss=0.1%".to_owned()), "{options:?}");
        assert_eq!(Place::cable(3506, Napi::Rps).to_string(), "3506-rps");
        assert_eq!(Place::as_it_comes(1500).to_string(), "1500-as-it-comes");
    }
}
