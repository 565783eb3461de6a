//! The kernel's own TCP counters of a host: what its stack has seen of TCP.

use crate::lab::Namespace;

/// TCP's counters of a namespace (RFC 4022, `/proc/net/snmp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpCounters {
    /// Segments that reached the kernel's TCP, those in error too.
    pub in_segments: u64,
    /// Segments that the kernel's TCP sent, without retransmissions and resets.
    pub out_segments: u64,
    /// Segments that the kernel sent again.
    pub retransmitted: u64,
    /// Segments that the kernel found in error.
    pub in_errors: u64,
    /// Resets that the kernel sent.
    pub out_resets: u64,
}

impl TcpCounters {
    /// Reads them now.
    #[must_use]
    pub fn read(namespace: &Namespace) -> Self {
        let text = namespace.in_thread(|| {
            std::fs::read_to_string("/proc/thread-self/net/snmp")
                .expect("a kernel with TCP has its counters in /proc")
        });
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let names = lines.next().expect("names come first").split_whitespace();
        let values = lines.next().expect("values follow").split_whitespace();
        let pairs: Vec<(&str, &str)> = names.zip(values).collect();
        let value = |wanted: &str| {
            let found = pairs.iter().find(|(name, _)| *name == wanted);
            let (_, value) = found.unwrap_or_else(|| panic!("{wanted} is not in {text}"));
            value
                .parse()
                .unwrap_or_else(|_| panic!("{wanted} is {value}, not a number"))
        };
        Self {
            in_segments: value("InSegs"),
            out_segments: value("OutSegs"),
            retransmitted: value("RetransSegs"),
            in_errors: value("InErrs"),
            out_resets: value("OutRsts"),
        }
    }
}
