//! The VLANs of an interface (IEEE 802.1Q).

use rnic_net::{Prefix, VlanId};

/// A VLAN of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanConfig {
    pub id: VlanId,
    /// Local addresses that are on it. What comes to them by another VLAN, or by none, is dropped.
    pub addresses: Vec<Prefix>,
    /// The kernel's interface for it, whose addresses, routes and neighbours are used. Without one they
    /// are those of the interface itself.
    pub interface: Option<String>,
}
