//! What the host has in use for the traffic of its own sockets, and the RNIC's frames pass by: packet filters, filters of
//! tc, VRFs, the reverse path filter, BPF programs of the control group. It is named to operators, who may count on it.

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};

use super::cgroup_bpf;
use super::interface::Interface;
use super::netlink::{Netlink, NetlinkError, other};
use super::raw_message::{RawMessage, attributes, word};

/// NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE of linux/netfilter/nf_tables.h.
const GET_TABLE: u16 = 10 << 8 | 1;
/// Bytes of `struct nfgenmsg`.
const NFGENMSG_LEN: usize = 4;
const RTM_GETLINK: u16 = 18;
/// Bytes of `struct ifinfomsg`, and where its index is.
const IFINFOMSG_LEN: usize = 16;
const IFINFOMSG_INDEX: usize = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const RTM_GETQDISC: u16 = 38;
/// Bytes of `struct tcmsg`, and where its interface's index is.
const TCMSG_LEN: usize = 20;
const TCMSG_INDEX: usize = 4;
const TCA_KIND: u16 = 1;
/// The tables of iptables-legacy that are loaded.
const LEGACY_TABLES: [&str; 2] = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];

/// A line for each such thing that is in use on the interface, in the network namespace of the calling thread. What can't
/// be asked for is not named.
pub fn unheeded(interface: &Interface) -> Vec<String> {
    let name = &interface.name;
    let filters = nftables().unwrap_or(0) > 0;
    let legacy = LEGACY_TABLES.iter().any(|path| {
        let tables = std::fs::read_to_string(path);
        tables.is_ok_and(|tables| !tables.is_empty())
    });
    let mut found = Vec::new();
    if filters || legacy {
        let which = if filters { "nftables" } else { "iptables" };
        found.push(format!(
            "interface {name}: the host has rules of {which}, which don't see the RNIC's frames: allowed_peers says \
             which peers may connect"
        ));
    }
    for kind in qdiscs(interface.index).unwrap_or_default() {
        found.push(format!(
            "interface {name}: it has a queueing discipline {kind} of tc, which does not see the RNIC's frames"
        ));
    }
    if let Ok(Some(vrf)) = vrf(interface.index) {
        found.push(format!(
            "interface {name}: it is in a VRF (interface {vrf}), and the RNIC asks for routes without it: serve the \
             interface in a network namespace of its own instead"
        ));
    }
    if let Some(value) = reverse_path_filter(name) {
        found.push(format!(
            "interface {name}: rp_filter is {value}, and the RNIC answers peers whatever the route to them is: \
             allowed_peers says which may connect, and the router has to drop forged addresses"
        ));
    }
    // Without the right to ask, and before Linux 4.15, nothing is known.
    if let Ok(Some((group, programs))) = cgroup_bpf::in_force() {
        let (group, programs) = (group.display(), programs.join(", "));
        found.push(format!(
            "interface {name}: the control group {group} has BPF programs ({programs}), as by systemd's IPAddressDeny=, \
             which don't see the RNIC's frames: allowed_peers says which peers may connect"
        ));
    }
    found
}

/// What rp_filter is for the interface, unless it is off: the greater of the interface's own and that of all.
fn reverse_path_filter(interface: &str) -> Option<u8> {
    let of = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<u8>()
            .ok()
    };
    let found = of("all").max(of(interface))?;
    (found > 0).then_some(found)
}

fn ask(protocol: isize) -> Result<Netlink<RawMessage>, NetlinkError> {
    let opened = Netlink::of(protocol);
    opened.map_err(|error| other("a netlink socket", &error.to_string()))
}

fn nftables() -> Result<usize, NetlinkError> {
    let request = RawMessage::zeroed(GET_TABLE, NFGENMSG_LEN);
    let tables = ask(NETLINK_NETFILTER)?.dump("the tables of nftables", request)?;
    Ok(tables.len())
}

/// The interface's queueing disciplines that filters can be at.
fn qdiscs(index: u32) -> Result<Vec<String>, NetlinkError> {
    let request = RawMessage::zeroed(RTM_GETQDISC, TCMSG_LEN);
    let all = ask(NETLINK_ROUTE)?.dump("the queueing disciplines", request)?;
    let ours = all
        .iter()
        .filter(|message| word(&message.bytes, TCMSG_INDEX) == index);
    let kinds = ours.filter_map(|message| text(message.bytes.get(TCMSG_LEN..)?, TCA_KIND));
    Ok(kinds
        .filter(|kind| ["clsact", "ingress"].contains(&kind.as_str()))
        .collect())
}

/// The index of the VRF that the interface is in.
fn vrf(index: u32) -> Result<Option<u32>, NetlinkError> {
    let netlink = ask(NETLINK_ROUTE)?;
    let link = |index: u32| {
        let mut request = RawMessage::zeroed(RTM_GETLINK, IFINFOMSG_LEN);
        request.bytes[IFINFOMSG_INDEX..][..4].copy_from_slice(&index.to_ne_bytes());
        netlink.get("an interface", request)
    };
    let ours = link(index)?;
    let Some(master) = value(ours.bytes.get(IFINFOMSG_LEN..).unwrap_or(&[]), IFLA_MASTER) else {
        return Ok(None);
    };
    let master = word(master, 0);
    let its = link(master)?;
    let info = value(its.bytes.get(IFINFOMSG_LEN..).unwrap_or(&[]), IFLA_LINKINFO);
    let kind = info.and_then(|info| text(info, IFLA_INFO_KIND));
    Ok((kind.as_deref() == Some("vrf")).then_some(master))
}

fn value(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// The same of one that is a text with a 0 at its end.
fn text(bytes: &[u8], kind: u16) -> Option<String> {
    let text = std::str::from_utf8(value(bytes, kind)?).ok()?;
    Some(text.trim_end_matches('\0').to_owned())
}
