//! VLANs and VRFs of the kernel's, which this host's may lack: two network namespaces of the machine's, joined by a veth
//! pair, with addresses on the kernel's interface for a VLAN only.

use super::machine::Machine;
use super::{Case, PLAIN, boot};
use crate::peer::PeerKernel;

/// The kernel's interface for the VLAN, on either end.
const VLAN: &str = "vlan100";
/// Where the daemon's configuration is, as the machine sees it.
const CONFIG: &str = "--config /host/veth1.toml";

/// A machine whose network namespaces n1 and n2 have the ends of a veth pair, veth1 and veth2, and VLAN 100 on each.
#[derive(Debug)]
pub struct Lans(Machine);

impl Lans {
    #[must_use]
    pub fn boot() -> Self {
        let lans = Self(boot(PeerKernel::Stable, PLAIN.mtu, ""));
        let made = lans.0.peer.run(&format!(
            "set -e
            for end in 1 2; do
                ip netns add n$end
                ip -n n$end link set lo up
            done
            ip -n n1 link add veth1 type veth peer name veth2 netns n2
            for end in 1 2; do
                ip netns exec n$end ethtool -K veth$end tx off
                ip -n n$end addr add 198.18.99.$end/24 dev veth$end
                ip -n n$end link set veth$end up
                ip -n n$end link add link veth$end name {VLAN} type vlan id 100
                ip -n n$end addr add 198.18.100.$end/24 dev {VLAN}
                ip -n n$end link set {VLAN} up
            done
            cat >/host/veth1.toml <<END
[[interface]]
name = \"veth1\"
[[interface.vlan]]
id = 100
interface = \"{VLAN}\"
END"
        ));
        assert_eq!(made.code, 0, "{made}");
        lans
    }

    /// Bytes between an RNIC on veth1, which knows the VLAN by the kernel's interface, and siw on the far end's: the
    /// kernel reads the tags and writes them.
    pub fn carry_bytes_with_siw(&self) {
        let case = Case {
            more: CONFIG,
            ..PLAIN
        };
        let _daemon = self
            .0
            .daemon("n1", "veth1", "veth1", &case)
            .unwrap_or_else(|why| panic!("the daemon does not come up: {why}"));
        self.0
            .against_siw(VLAN)
            .unwrap_or_else(|why| panic!("siw on {VLAN}: {why}"));
    }

    /// What `rnicd --check` says of an interface in a VRF.
    pub fn check_in_vrf(&self) -> String {
        let made = self.0.peer.run(
            "set -e
            ip -n n1 link add vrf7 type vrf table 7
            ip -n n1 link set vrf7 up
            ip -n n1 link set veth1 master vrf7
            ip netns exec n1 /host/rnicd --check --interface veth1 2>&1 || true",
        );
        assert_eq!(made.code, 0, "{made}");
        made.stdout
    }
}
