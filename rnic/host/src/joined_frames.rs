//! Offloads that make one frame of several before the RNIC gets it. Such a frame fits no packet buffer, or
//! its checksum is wrong, so what was joined is lost.
//!
//! In native mode XDP comes before the kernel's GRO, and drivers switch hardware GRO off for it. In generic
//! mode the kernel does that for the interface itself, where it can. It does not for interfaces that hand
//! their frames on to this one, such as a bridge's ports.

use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use rnic_steering::{Feature, FeatureState, Features, Mode};

use super::interface::Interface;
use super::members::{Member, Members, has, links, name};
use super::netlink::Netlink;

/// Where frames of an interface come from.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// An interface of this network namespace that receives them first.
    Below(String),
    /// The other end of a veth, in this network namespace.
    OtherEnd(String),
    /// An interface of another network namespace.
    Elsewhere,
}

/// Says in the log what would hand over joined frames, and how to stop it.
pub fn warn(netlink: &Netlink, interface: &Interface, members: &Members, mode: Mode) {
    for Member { name, index, .. } in &members.all {
        let device = Interface {
            name: name.clone(),
            index: *index,
            ..interface.clone()
        };
        for line in find(netlink, &device, mode) {
            log::warn!("interface {name}: {line}");
        }
    }
}

/// A line for each offload.
pub(super) fn find(netlink: &Netlink, interface: &Interface, mode: Mode) -> Vec<String> {
    let own: &[Feature] = match mode {
        Mode::Native => &[Feature::Lro],
        Mode::Generic => &[Feature::Lro, Feature::GroHw],
    };
    let mut lines = advice(&interface.name, "it", "joins received frames", own);
    if mode == Mode::Native {
        return lines;
    }
    for source in sources(netlink, interface) {
        match source {
            Source::Below(name) => {
                let all = [Feature::Gro, Feature::GroHw, Feature::Lro];
                let whose = format!("{name}, from which it gets frames,");
                lines.extend(advice(&name, &whose, "joins received frames", &all));
            }
            Source::OtherEnd(name) => {
                let both = [Feature::Tso, Feature::Tso6];
                let whose = format!("{name}, its other end,");
                lines.extend(advice(&name, &whose, "sends unsplit segments", &both));
            }
            Source::Elsewhere => lines.push(
                "it gets frames in generic mode from an interface of another network namespace, which \
                 can't be seen from here: `ethtool -K NAME gro off lro off tso off` there"
                    .to_owned(),
            ),
        }
    }
    lines
}

/// What to do about those of the features that `name` has on.
fn advice(name: &str, whose: &str, does: &str, features: &[Feature]) -> Vec<String> {
    // One that the kernel does not tell of has none.
    let Ok(found) = Features::of(name) else {
        return Vec::new();
    };
    let mut lines: Vec<String> = features
        .iter()
        .filter_map(|feature| {
            let option = feature.option();
            let what = format!("{whose} {does} ({option}), and such frames are lost");
            line(name, &what, option, found.state(*feature))
        })
        .collect();
    lines.dedup();
    lines
}

fn line(name: &str, what: &str, option: &str, state: FeatureState) -> Option<String> {
    match state {
        FeatureState::Off => None,
        FeatureState::On => Some(format!("{what}: `ethtool -K {name} {option} off`")),
        FeatureState::Fixed => Some(format!(
            "{what}; {name} does not let it be switched off: do so at what {name} is joined to (a \
             virtual machine's host), or use native mode"
        )),
    }
}

/// Where an interface's frames come from, if not from a network adapter of its own.
fn sources(netlink: &Netlink, interface: &Interface) -> Vec<Source> {
    // What the kernel does not tell of is not warned of.
    let links = links(netlink).unwrap_or_default();
    let mut sources = Vec::new();
    for link in &links {
        if link.header.index == interface.index {
            sources.extend(joined_to(link, &links));
        } else if has(link, &LinkAttribute::Controller(interface.index)) {
            sources.extend(name(link).map(Source::Below));
        }
    }
    sources
}

/// What an interface was made on: a veth's other end, or what a macvlan is of.
fn joined_to(link: &LinkMessage, all: &[LinkMessage]) -> Option<Source> {
    let index = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Link(index) => Some(*index),
            _ => None,
        })?;
    let elsewhere = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::LinkNetNsId(_));
    if link.attributes.iter().any(elsewhere) {
        return Some(Source::Elsewhere);
    }
    let found = all.iter().find(|other| other.header.index == index)?;
    let name = name(found)?;
    let veth = LinkInfo::Kind(InfoKind::Veth);
    let is_veth = link.attributes.iter().any(
        |attribute| matches!(attribute, LinkAttribute::LinkInfo(infos) if infos.contains(&veth)),
    );
    Some(match is_veth {
        true => Source::OtherEnd(name),
        false => Source::Below(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_is_on_is_switched_off_here_or_where_the_device_comes_from() {
        let line = |state| line("eth0", "eth0 joins segments (gro)", "gro", state);
        assert_eq!(line(FeatureState::Off), None);
        let on = line(FeatureState::On).unwrap();
        assert!(on.ends_with("`ethtool -K eth0 gro off`"), "{on}");
        let fixed = line(FeatureState::Fixed).unwrap();
        assert!(
            fixed.contains("eth0 does not let it be switched off"),
            "{fixed}"
        );
    }
}
