//! Which XDP mode suits an interface where the operator leaves the choice to us: native, or generic with
//! super-packets (TCP packets of up to 64 KiB).
//!
//! A veth or a tap hands on what its other end sends unsplit (TSO), so the cost of a packet is paid once for 45
//! segments. A network card has its own XDP, mostly without copying, and keeps it.

use netlink_packet_route::link::InfoKind;
use rnic_steering::{Feature, FeatureState, Features, ModePreference};
use rnic_xsk::KernelFeature;

use super::interface::Interface;
use super::members::{Members, kind, link};
use super::netlink::Netlink;

/// The mode that suits an interface, and what speaks for or against super-packets where it is of a kind that may have
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub mode: ModePreference,
    pub why: Option<String>,
}

impl Choice {
    /// What the operator asked for.
    pub fn asked(mode: ModePreference) -> Self {
        Self { mode, why: None }
    }

    /// What suits an interface of the calling thread's network namespace, which has these members.
    pub fn suits(netlink: &Netlink, interface: &Interface, members: &Members) -> Self {
        // A kernel that does not tell has none of them.
        let found = link(netlink, interface).ok();
        let kind = match found.as_ref().and_then(kind) {
            Some(InfoKind::Veth) => "a veth",
            Some(InfoKind::Tun) => "a tap",
            _ => return Self::asked(ModePreference::NativeThenGeneric),
        };
        let segments = Features::of(&interface.name)
            .is_ok_and(|features| features.state(Feature::Tso) != FeatureState::Off);
        Self::of(
            kind,
            segments,
            members.queues(),
            KernelFeature::GenericSeveralBuffers.is_missing(),
        )
    }

    fn of(kind: &str, segments: bool, queues: u32, old: bool) -> Self {
        let against = match (segments, queues) {
            _ if old => Some(format!(
                "no super-packets: this kernel is without {}",
                KernelFeature::GenericSeveralBuffers
            )),
            (false, _) => Some("no super-packets: tso is off".to_owned()),
            // The kernel chooses the queue that a super-packet leaves by, and so the shard that gets it.
            (true, 2..) => Some(format!("no super-packets: it has {queues} queues")),
            _ => None,
        };
        match against {
            Some(why) => Self {
                mode: ModePreference::NativeThenGeneric,
                why: Some(format!("{kind}, {why}")),
            },
            None => Self {
                mode: ModePreference::GenericSeveralBuffers,
                why: Some(format!("{kind} with tso")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_veth_is_served_with_super_packets_unless_something_speaks_against_it() {
        let with = Choice::of("a veth", true, 1, false);
        assert_eq!(with.mode, ModePreference::GenericSeveralBuffers);
        assert_eq!(with.why.as_deref(), Some("a veth with tso"));
        for (segments, queues, old, word) in [
            (false, 1, false, "tso is off"),
            (true, 2, false, "2 queues"),
            (true, 1, true, "Linux 6.9"),
        ] {
            let without = Choice::of("a tap", segments, queues, old);
            assert_eq!(without.mode, ModePreference::NativeThenGeneric);
            let why = without.why.unwrap();
            assert!(why.starts_with("a tap, no super-packets"), "{why}");
            assert!(why.contains(word), "{why}");
        }
    }
}
