//! A cable that changes frames on their way: a namespace between two hosts, where a tc program
//! takes each frame in at one end and sends it out at the other.

use std::path::Path;

use super::Namespace;

/// What a cable does to frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cable {
    /// The first host is on an access port, the second on a trunk port of this VLAN: frames are
    /// tagged toward the second, and untagged frames from it are dropped.
    Tagged(u16),
    /// Drops so many of a thousand frames, in both directions, at random.
    Lossy(u16),
    /// Drops what the first host sends over IPv4 to acknowledge and for nothing else.
    NoBareAcks,
    /// The same, but not what reports ranges as well, as the answer to a segment that came again does
    /// (RFC 2883).
    NoPlainAcks,
}

/// The two ends of a cable in its namespace, the first host's and the second host's.
pub const ENDS: [&str; 2] = ["end1", "end2"];

/// Bytes of a TCP header with as many options as there may be.
const TCP_HEADER_MAX: u8 = 60;
/// Bytes of a TCP header with timestamps and no other option.
const TCP_HEADER_TIMESTAMPS: u8 = 32;

impl Cable {
    /// Lets frames pass between the two ends.
    pub(super) fn connect(self, middle: &Namespace, directory: &Path) {
        for (from, to) in [(0, 1), (1, 0)] {
            // Without this a tag travels beside the frame, where XDP on the other side can't see
            // it.
            middle.exec(&["ethtool", "-K", ENDS[from], "txvlan", "off"]);
            let define = match (self, from) {
                (Self::Tagged(id), 0) => format!("-DPUSH={id}"),
                (Self::Tagged(id), _) => format!("-DPOP={id}"),
                (Self::Lossy(per_mille), _) => format!("-DLOSS={per_mille}"),
                (Self::NoBareAcks, 0) => format!("-DBARE_ACKS={TCP_HEADER_MAX}"),
                (Self::NoPlainAcks, 0) => format!("-DBARE_ACKS={TCP_HEADER_TIMESTAMPS}"),
                (Self::NoBareAcks | Self::NoPlainAcks, _) => "-UBARE_ACKS".to_owned(),
            };
            let out = format!("-DOUT={}", index(middle, ENDS[to]));
            let object = directory.join(format!("{}-{from}.o", middle.name()));
            let object = object.to_string_lossy();
            let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lab/cable.bpf.c");
            let compile = ["clang", "-target", "bpf", "-O2", &include, &define, &out];
            middle.exec(&[&compile[..], &["-c", source, "-o", &object]].concat());
            middle.exec(&["tc", "qdisc", "add", "dev", ENDS[from], "clsact"]);
            let filter = ["tc", "filter", "add", "dev", ENDS[from], "ingress"];
            let program = [
                "bpf",
                "direct-action",
                "object-file",
                &object,
                "section",
                "classifier",
            ];
            middle.exec(&[&filter[..], &program].concat());
        }
    }
}

fn index(namespace: &Namespace, interface: &str) -> u32 {
    let line = namespace.ip(&["-o", "link", "show", "dev", interface]);
    let index = line.split(':').next().and_then(|text| text.parse().ok());
    index.unwrap_or_else(|| panic!("no interface index in {line}"))
}
