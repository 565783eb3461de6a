//! `rdma_getaddrinfo`: names and services, by the host's own resolver.

use std::ffi::{c_char, c_int};
use std::net::SocketAddr;

use libc::{AI_NUMERICHOST, AI_PASSIVE, addrinfo, sockaddr, sockaddr_storage};
use rustix::io::Errno;

use crate::abi::{
    IBV_QPT_RC, RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_TCP, rdma_addrinfo,
};
use crate::cm::addr::{read_sockaddr, to_storage};
use crate::ffi::{Fail, Outcome, Ptr, hand_out_box, take_back_box, zeroable};

zeroable!(rdma_addrinfo, addrinfo);

/// What is handed out, with what its pointers point to.
#[repr(C)]
struct Found {
    abi: rdma_addrinfo,
    source: sockaddr_storage,
    destination: sockaddr_storage,
}

/// The first address of a node and a service: where to listen, with `RAI_PASSIVE`, else where to connect
/// to. Without either they are those of the hints.
pub(crate) fn get_addrinfo(
    node: Ptr<c_char>,
    service: Ptr<c_char>,
    hints: Ptr<rdma_addrinfo>,
) -> Outcome<Ptr<rdma_addrinfo>> {
    let hints = hints.slice(usize::from(!hints.is_null())).first();
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    let port_space = hints.map_or(0, |hints| hints.ai_port_space);
    if port_space != 0 && port_space != RDMA_PS_TCP {
        return Err(Fail::unsupported(format!(
            "port space {port_space:#x}: iWARP has RDMA_PS_TCP only"
        )));
    }
    let given = hints
        .map(|hints| hints.ai_src_addr)
        .filter(|address| !address.is_null());
    let mut source = given.map(read_sockaddr).transpose()?;
    let mut destination = None;
    if !node.is_null() || !service.is_null() {
        let family = hints.map_or(0, |hints| hints.ai_family);
        let resolved = Some(resolve(node, service, flags, family)?);
        match flags & RAI_PASSIVE {
            0 => destination = resolved,
            _ => source = resolved,
        }
    } else if let Some(hints) = hints {
        let given = Some(hints.ai_dst_addr).filter(|address| !address.is_null());
        destination = given.map(read_sockaddr).transpose()?;
    } else {
        return Err(Fail::of(
            Errno::INVAL,
            "neither a node nor a service nor hints",
        ));
    }
    Ok(Found::hand_out(flags, source, destination))
}

impl Found {
    fn hand_out(
        flags: c_int,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
    ) -> Ptr<rdma_addrinfo> {
        let mut found = Box::new(Self {
            abi: crate::ffi::zeroed(),
            source: crate::ffi::zeroed(),
            destination: crate::ffi::zeroed(),
        });
        if let Some(source) = source {
            (found.source, found.abi.ai_src_len) = to_storage(source);
        }
        if let Some(destination) = destination {
            (found.destination, found.abi.ai_dst_len) = to_storage(destination);
        }
        let (from, to) = (found.source.ss_family, found.destination.ss_family);
        found.abi.ai_flags = flags;
        found.abi.ai_family = from.max(to).into();
        found.abi.ai_qp_type = IBV_QPT_RC;
        found.abi.ai_port_space = RDMA_PS_TCP;
        let place = hand_out_box(found);
        Self::point(place);
        place.cast()
    }

    /// Lets its struct point to its own addresses.
    fn point(place: Ptr<Self>) {
        let at = |offset| Ptr::<sockaddr>::from_addr((place.addr() + offset) as u64);
        place.cast::<rdma_addrinfo>().update(|abi| {
            if abi.ai_src_len > 0 {
                abi.ai_src_addr = at(std::mem::offset_of!(Self, source));
            }
            if abi.ai_dst_len > 0 {
                abi.ai_dst_addr = at(std::mem::offset_of!(Self, destination));
            }
        });
    }
}

pub(crate) fn free_addrinfo(info: Ptr<rdma_addrinfo>) {
    drop(take_back_box(info.cast::<Found>()));
}

fn resolve(
    node: Ptr<c_char>,
    service: Ptr<c_char>,
    flags: i32,
    family: i32,
) -> Outcome<SocketAddr> {
    let mut hints: addrinfo = crate::ffi::zeroed();
    hints.ai_socktype = libc::SOCK_STREAM;
    if flags & RAI_PASSIVE != 0 {
        hints.ai_flags |= AI_PASSIVE;
    }
    if flags & RAI_NUMERICHOST != 0 {
        hints.ai_flags |= AI_NUMERICHOST;
    }
    if flags & RAI_FAMILY != 0 || family != 0 {
        hints.ai_family = family;
    }
    let mut list: Ptr<addrinfo> = Ptr::NULL;
    let error = crate::ffi::getaddrinfo(node, service, &hints, &mut list);
    if error != 0 {
        return Err(Fail::of(
            Errno::NODATA,
            format!("no such address (getaddrinfo: {error})"),
        ));
    }
    let address = list.read().map(|first| first.ai_addr);
    let address = address.and_then(|address| read_sockaddr(Ptr::from_raw(address)));
    crate::ffi::freeaddrinfo(list);
    address
}
