//! The host's IPsec policies, as the kernel has them (XFRM; linux/xfrm.h): those that can select packets of the RNIC's
//! interface. Security associations, which have keys, are not asked for.
//!
//! Left out are policies that select no such packet: of sockets, of forwarded packets, of an XFRM interface (`if_id`),
//! of another interface (`dev`), and those with a mark, which the RNIC's packets don't have. What can't be read of a
//! policy makes it one that forbids.

use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_XFRM;
use rnic_net::{IpsecAction, IpsecDirection, IpsecPolicies, IpsecPolicy, PortSelector, Prefix};
use rustix::io::Errno;

use super::netlink::{Netlink, NetlinkError, other};
use super::raw_message::{RawMessage, attributes, word};

const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
const XFRMA_TMPL: u16 = 5;
const XFRMA_POLICY_TYPE: u16 = 16;
const XFRMA_MARK: u16 = 21;
const XFRMA_IF_ID: u16 = 31;
const XFRM_POLICY_TYPE_SUB: u8 = 1;
const XFRM_POLICY_ALLOW: u8 = 0;
const XFRM_USERPOLICY_BLOCK: u8 = 1;
/// Bytes of `struct xfrm_userpolicy_info`, after which attributes follow.
const POLICY_LEN: usize = 168;
/// Bytes of `struct xfrm_userpolicy_id`.
const POLICY_ID_LEN: usize = 64;
/// The policies that may select packets over the interfaces with these indexes: the one that frames go over first, then
/// those of its VLANs. A kernel without XFRM has none.
///
/// # Errors
///
/// The kernel's, as without CAP_NET_ADMIN.
pub fn policies(interfaces: &[u32]) -> Result<IpsecPolicies, NetlinkError> {
    let netlink = match Netlink::<RawMessage>::of(NETLINK_XFRM) {
        Ok(netlink) => netlink,
        Err(error) if is_absent(&error) => return Ok(IpsecPolicies::default()),
        Err(error) => return Err(other("a socket for IPsec policies", &error.to_string())),
    };
    let all = RawMessage::zeroed(XFRM_MSG_GETPOLICY, POLICY_ID_LEN);
    let all = netlink.dump("the IPsec policies", all)?;
    let mut policies = Vec::new();
    for message in all.iter().filter(|it| it.kind == XFRM_MSG_NEWPOLICY) {
        match policy(&message.bytes, interfaces) {
            Ok(found) => policies.extend(found),
            Err(Unreadable) => {
                let why = "a policy that this RNIC can't read: it is of a newer kernel";
                return Ok(IpsecPolicies::forbidding_all(why));
            }
        }
    }
    let default = RawMessage::zeroed(XFRM_MSG_GETDEFAULT, 4);
    let blocks = match netlink.get("the default IPsec policy", default) {
        // In, forwarded, out.
        Ok(found) => [2, 0].map(|at| found.bytes.get(at) == Some(&XFRM_USERPOLICY_BLOCK)),
        // Before Linux 5.15 there is none.
        Err(error) if error.errno() == Some(Errno::INVAL) => [false; 2],
        Err(error) => return Err(error),
    };
    Ok(IpsecPolicies::new(policies, blocks))
}

/// Whether the kernel has no XFRM.
pub fn is_absent(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::PROTONOSUPPORT)
}

/// A policy is not as linux/xfrm.h has it.
#[derive(Debug, PartialEq, Eq)]
struct Unreadable;

/// A policy, if it can select packets over these interfaces.
fn policy(bytes: &[u8], interfaces: &[u32]) -> Result<Option<IpsecPolicy>, Unreadable> {
    let head = bytes.first_chunk::<POLICY_LEN>().ok_or(Unreadable)?;
    let [direction, action] = [head[160], head[161]];
    let direction = match direction {
        0 => IpsecDirection::In,
        1 => IpsecDirection::Out,
        _ => return Ok(None),
    };
    let mut action = match action {
        XFRM_POLICY_ALLOW => IpsecAction::Clear,
        _ => IpsecAction::Block,
    };
    let mut is_sub = false;
    for (kind, value) in attributes(&bytes[POLICY_LEN..]) {
        match kind {
            XFRMA_TMPL if !value.is_empty() && action == IpsecAction::Clear => {
                action = IpsecAction::Protect;
            }
            XFRMA_POLICY_TYPE => is_sub = value.first() == Some(&XFRM_POLICY_TYPE_SUB),
            // Value, then mask: a packet without a mark has 0.
            XFRMA_MARK if word(value, 0) != 0 => return Ok(None),
            XFRMA_IF_ID if word(value, 0) != 0 => return Ok(None),
            _ => {}
        }
    }
    match word(head, 48) {
        0 => {}
        index if !interfaces.contains(&index) => return Ok(None),
        // It may be of one VLAN alone, and not allow the others' packets.
        _ if interfaces.len() > 1 && action == IpsecAction::Clear => return Ok(None),
        _ => {}
    }
    let family = u16::from_ne_bytes([head[40], head[41]]);
    let prefix = |at: usize, len: u8| prefix(family, &head[at..at + 16], len);
    let destination = prefix(0, head[42]).ok_or(Unreadable)?;
    let source = prefix(16, head[43]).ok_or(Unreadable)?;
    let port = |at: usize| PortSelector {
        value: u16::from_be_bytes([head[at], head[at + 1]]),
        mask: u16::from_be_bytes([head[at + 2], head[at + 3]]),
    };
    Ok(Some(IpsecPolicy {
        direction,
        is_sub,
        priority: word(head, 152),
        index: word(head, 156),
        source,
        destination,
        protocol: head[44],
        source_port: port(36),
        destination_port: port(32),
        action,
    }))
}

fn prefix(family: u16, address: &[u8], len: u8) -> Option<Prefix> {
    let address = match i32::from(family) {
        libc::AF_INET => IpAddr::from(*address.first_chunk::<4>()?),
        libc::AF_INET6 => IpAddr::from(*address.first_chunk::<16>()?),
        _ => return None,
    };
    Prefix::new(address, len.into())
}

#[cfg(test)]
mod tests;
