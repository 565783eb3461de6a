//! Cables that end in a tap, for a virtual machine that opens it.
//!
//! A tap hands frames to a program one at a time, and XDP on it is slow or generic. So the RNIC's
//! interface is a veth whose other end a bridge joins to the tap ([`Wiring::Bridged`]), or the tap
//! itself ([`Wiring::Direct`]), which the tests try as well.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::link::{self, INTERFACE, LinkOptions};
use super::namespace::Namespace;
use super::{ENDS, Host, Lab, host, host_v4, host_v6, pfifo};

/// The tap's name where it is not the host's [`INTERFACE`].
const TAP: &str = "tap0";
/// What the bridge has of the cable to the host.
const PORT: &str = "port0";

/// What lies between the host's interface and the tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// A veth pair and a bridge: the host's end takes XDP natively.
    Bridged,
    /// Nothing: the host's interface is the tap.
    Direct,
    /// As [`Bridged`](Self::Bridged), with a namespace in between that has [`ENDS`], for something
    /// that joins them.
    Over,
}

/// Where a virtual machine finds its end of the cable.
#[derive(Clone, Debug)]
pub struct Outlet {
    pub namespace: Namespace,
    pub tap: &'static str,
    /// The address that the machine is to have, of the host's /24.
    pub v4: Ipv4Addr,
    /// The address that the machine is to have, of the host's /64.
    pub v6: Ipv6Addr,
    /// MTU of the whole cable, in bytes of IP.
    pub mtu: u32,
    /// Queues of the tap, each way.
    pub queues: u32,
    /// The namespace that has [`ENDS`], with [`Wiring::Over`].
    pub middle: Option<Namespace>,
}

impl Lab {
    /// Adds a host, `.1` of a network of its own, whose cable ends in a tap for the machine `.2`.
    pub fn outlet(&mut self, wiring: Wiring, mtu: u32) -> (Host, Outlet) {
        self.outlet_of_queues(wiring, mtu, 1)
    }

    /// The same, whose tap has several queues.
    pub fn outlet_of_queues(&mut self, wiring: Wiring, mtu: u32, queues: u32) -> (Host, Outlet) {
        let options = LinkOptions {
            mtu,
            ..LinkOptions::default()
        };
        let (link, near, far) = self.ends();
        let mut middle = None;
        let (namespace, tap) = match wiring {
            Wiring::Direct => (near.clone(), INTERFACE),
            Wiring::Bridged => {
                link::veth((&near, INTERFACE), (&far, PORT), &options);
                (far, TAP)
            }
            Wiring::Over => {
                let between = self.namespace(&format!("{link}m"));
                link::veth((&near, INTERFACE), (&between, ENDS[0]), &options);
                link::veth((&between, ENDS[1]), (&far, PORT), &options);
                pfifo(&between, &ENDS);
                middle = Some(between);
                (far, TAP)
            }
        };
        let mut add = vec!["tuntap", "add", "dev", tap, "mode", "tap"];
        if queues > 1 {
            add.push("multi_queue");
        }
        namespace.ip(&add);
        namespace.ip(&["link", "set", "dev", tap, "mtu", &mtu.to_string()]);
        if wiring != Wiring::Direct {
            pfifo(&near, &[INTERFACE]);
            pfifo(&namespace, &[PORT]);
            namespace.ip(&["link", "add", "bridge0", "type", "bridge"]);
            for port in [PORT, TAP] {
                namespace.ip(&["link", "set", "dev", port, "master", "bridge0"]);
            }
            namespace.ip(&["link", "set", "dev", "bridge0", "up"]);
        }
        namespace.ip(&["link", "set", "dev", tap, "up"]);
        let outlet = Outlet {
            namespace,
            tap,
            v4: host_v4(link, 2),
            v6: host_v6(link, 2),
            mtu,
            queues,
            middle,
        };
        (host(near, link, 1), outlet)
    }
}
