//! The caller's memory: pointers become values here.
//!
//! Invariant, the caller's by the contract of each system call: a pointer that is not null is to as
//! much memory as the call says, which nobody else writes or reads meanwhile. What a caller may not
//! have initialized is never read: it is only copied to.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{c_int, iovec, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use userspace_net::Endpoint;

use crate::errno::{Result, fail};

/// Most parts of a vector (IOV_MAX), and descriptors of one poll.
pub(crate) const PARTS_MAX: usize = 1024;

/// The caller's bytes, copied.
pub(crate) fn copy_in(from: *const c_void, len: usize) -> Result<Vec<u8>> {
    if len == 0 {
        return Ok(Vec::new());
    }
    if from.is_null() || isize::try_from(len).is_err() {
        return fail(libc::EFAULT);
    }
    let mut bytes = vec![0; len];
    // SAFETY: `from` is to `len` bytes of the caller's, `bytes` has as many.
    unsafe { std::ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), len) };
    Ok(bytes)
}

/// To the caller's memory of `room` bytes; says how many there was room for.
pub(crate) fn copy_out(bytes: &[u8], to: *mut c_void, room: usize) -> Result<usize> {
    let len = bytes.len().min(room);
    if len > 0 {
        if to.is_null() {
            return fail(libc::EFAULT);
        }
        // SAFETY: `to` is to `room` bytes of the caller's, which is at least `len`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), len) };
    }
    Ok(len)
}

/// A value of the caller's, copied.
pub(crate) fn value<T: Copy>(from: *const T) -> Result<T> {
    if from.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: `from` is to a `T` of the caller's, aligned or not.
    Ok(unsafe { from.read_unaligned() })
}

/// A value to the caller's memory, if it wants it.
pub(crate) fn put<T>(value: T, to: *mut T) {
    if !to.is_null() {
        // SAFETY: `to` is to room for a `T`, aligned or not.
        unsafe { to.write_unaligned(value) };
    }
}

/// A vector of parts.
pub(crate) fn parts(vector: *const iovec, count: usize) -> Result<Vec<iovec>> {
    if count > PARTS_MAX {
        return fail(libc::EINVAL);
    }
    (0..count)
        .map(|at| value(vector.wrapping_add(at)))
        .collect()
}

pub(crate) fn gather(vector: &[iovec]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in vector {
        bytes.extend(copy_in(part.iov_base, part.iov_len)?);
    }
    Ok(bytes)
}

/// Bytes that the parts have room for.
pub(crate) fn room(vector: &[iovec]) -> usize {
    vector
        .iter()
        .fold(0, |room, part| room.saturating_add(part.iov_len))
}

pub(crate) fn scatter(mut bytes: &[u8], vector: &[iovec]) -> Result<()> {
    for part in vector {
        bytes = &bytes[copy_out(bytes, part.iov_base, part.iov_len)?..];
    }
    Ok(())
}

/// An address of IPv4, or of IPv6, which may be one of IPv4 in disguise.
pub(crate) fn endpoint(from: *const sockaddr, len: socklen_t) -> Result<Endpoint> {
    let len = len as usize;
    if from.is_null() {
        return fail(libc::EFAULT);
    }
    if len < size_of::<sockaddr>() {
        return fail(libc::EINVAL);
    }
    match c_int::from(value(from)?.sa_family) {
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            let v4 = value(from.cast::<sockaddr_in>())?;
            let address = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(Endpoint::new(address.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            let v6 = value(from.cast::<sockaddr_in6>())?;
            let address = IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)).to_canonical();
            Ok(Endpoint::new(address, u16::from_be(v6.sin6_port)))
        }
        libc::AF_INET | libc::AF_INET6 => fail(libc::EINVAL),
        _ => fail(libc::EAFNOSUPPORT),
    }
}

/// An address as a socket of `domain` tells it.
pub(crate) fn put_endpoint(
    endpoint: Endpoint,
    domain: c_int,
    to: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<()> {
    if to.is_null() || len.is_null() {
        return Ok(());
    }
    let room = value(len)? as usize;
    let port = endpoint.port.to_be();
    let mut bytes = Vec::with_capacity(size_of::<sockaddr_in6>());
    bytes.extend((domain as libc::sa_family_t).to_ne_bytes());
    bytes.extend(port.to_ne_bytes());
    match endpoint.addr {
        IpAddr::V4(v4) if domain == libc::AF_INET => {
            bytes.extend(v4.octets());
            bytes.resize(size_of::<sockaddr_in>(), 0);
        }
        addr => {
            let v6 = match addr {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            bytes.extend([0; 4]); // flow information
            bytes.extend(v6.octets());
            bytes.resize(size_of::<sockaddr_in6>(), 0);
        }
    }
    copy_out(&bytes, to.cast(), room)?;
    put(bytes.len() as socklen_t, len);
    Ok(())
}
