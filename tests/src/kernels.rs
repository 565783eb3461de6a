//! The RNIC inside a virtual machine, on a kernel that is not this host's: what works there, and what is
//! refused by name. A case is one interface opened in one way, and what is at the other end.

mod bonds;
mod end;
mod lans;
mod machine;
mod table;

use crate::lab::{Lab, Wiring};
use crate::peer::{Peer, PeerKernel, PeerOptions};
pub use bonds::Bonds;
pub use lans::Lans;
use machine::Machine;
pub use table::Table;

/// What a case must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// All transfers pass.
    Works,
    /// The daemon ends and says these words.
    Refused(&'static str),
}

/// What is at the other end of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    /// An RNIC on the host, behind the tap.
    Host,
    /// An RNIC in the machine, on the other end of the veth.
    Rnic,
    /// siw in the machine, on the other end of the veth.
    Siw,
}

/// One interface, opened in one way.
#[derive(Clone, Copy, Debug)]
struct Case {
    driver: &'static str,
    /// `--mode`.
    mode: &'static str,
    queues: u32,
    mtu: u32,
    /// Further options of the daemon's.
    more: &'static str,
    other: Other,
    /// Words that the daemon's log must have.
    says: &'static str,
    expected: Expected,
}

/// Native mode, one queue, 1500 bytes.
const PLAIN: Case = Case {
    driver: "virtio_net",
    mode: "native",
    queues: 1,
    mtu: 1500,
    more: "",
    other: Other::Host,
    says: "",
    expected: Expected::Works,
};

/// Bytes of a large frame's packet.
const LARGE: u32 = 9000;
/// Queues of the machine's network card, and its processors.
const QUEUES: u32 = 2;

/// What a kernel without frames of several buffers in AF_XDP must say.
const NO_SEVERAL: Expected = Expected::Refused("frames of several buffers");

/// A network card whose adapter joins frames, and that the machine can tell to stop or not.
const JOINS: &str = ",csum=on,gso=on,guest_csum=on,guest_tso4=on,guest_tso6=on";
const ALWAYS_JOINS: &str =
    ",csum=on,gso=on,guest_csum=on,guest_tso4=on,guest_tso6=on,ctrl_guest_offloads=off";

/// On the machine's network card: its MTU, what differs from a card without offloads, and the cases.
fn virtio(several_buffers: Expected) -> [(u32, &'static str, Vec<Case>); 4] {
    let case = Case {
        queues: QUEUES,
        ..PLAIN
    };
    let generic = Case {
        mode: "generic",
        ..case
    };
    let large = Case {
        mtu: LARGE,
        expected: several_buffers,
        ..case
    };
    let small = vec![
        case,
        Case { queues: 1, ..case },
        Case {
            more: "--busy-poll 50",
            ..case
        },
        generic,
    ];
    let large = vec![
        large,
        Case {
            mode: "generic",
            ..large
        },
    ];
    let joins = Case {
        driver: "virtio_net, rx-gro-hw on",
        ..case
    };
    // The driver switches it off for XDP.
    let joins = vec![joins];
    let always = Case {
        driver: "virtio_net, rx-gro-hw fixed",
        expected: Expected::Refused("it joins received frames"),
        ..case
    };
    let always = vec![
        always,
        Case {
            mode: "auto",
            says: "it joins received frames (rx-gro-hw), and such frames are lost",
            expected: Expected::Works,
            ..always
        },
    ];
    [
        (PLAIN.mtu, "", small),
        (LARGE, "", large),
        (PLAIN.mtu, JOINS, joins),
        (PLAIN.mtu, ALWAYS_JOINS, always),
    ]
}

/// On one end of a veth pair.
fn veth(several_buffers: Expected) -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in ["native", "generic"] {
        let plain = Case {
            driver: "veth",
            mode,
            other: Other::Rnic,
            ..PLAIN
        };
        cases.push(plain);
        cases.push(Case {
            queues: QUEUES,
            ..plain
        });
        cases.push(Case {
            mtu: LARGE,
            expected: several_buffers,
            ..plain
        });
        cases.push(Case {
            other: Other::Siw,
            ..plain
        });
    }
    cases
}

/// Boots a kernel as often as its network card has to be another, and adds the results to the table.
pub fn run(kernel: PeerKernel, table: &mut Table) {
    let several_buffers = match kernel {
        PeerKernel::Stable => NO_SEVERAL,
        PeerKernel::Backports => Expected::Works,
    };
    for (mtu, network, mut cases) in virtio(several_buffers) {
        if (mtu, network) == (PLAIN.mtu, "") {
            cases.extend(veth(several_buffers));
        }
        let machine = boot(kernel, mtu, network);
        for case in cases {
            let result = match case.other {
                Other::Host => machine.over_tap(&case),
                Other::Rnic | Other::Siw => machine.over_veth(&case),
            };
            table.add(&machine, &case, result);
        }
    }
}

fn boot(kernel: PeerKernel, mtu: u32, network: &str) -> Machine {
    let mut lab = Lab::new("kernels");
    let (host, outlet) = lab.outlet_of_queues(Wiring::Bridged, mtu, QUEUES);
    let options = PeerOptions {
        kernel,
        processors: QUEUES,
        network: network.to_owned(),
        ..PeerOptions::default()
    };
    let peer = Peer::boot(&lab, &outlet, &options);
    Machine::new(lab, host, peer)
}
