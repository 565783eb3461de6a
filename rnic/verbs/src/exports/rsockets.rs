//! Sockets over RDMA: the calls that never wait. The others are in `rsocket_calls` and `rsocket_poll`.

use std::ffi::{c_int, c_long, c_void};
use std::net::SocketAddr;

use libc::{SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM, sockaddr, socklen_t};
use rustix::io::Errno;

use crate::cm::{read_sockaddr, to_storage};
use crate::ffi::{Fail, Outcome, Ptr, exports};
use crate::rsocket::{Family, Options, Socket, table};

fn make(domain: c_int, kind: c_int, protocol: c_int) -> Outcome<c_int> {
    let family = match domain {
        libc::AF_INET => Family::V4,
        libc::AF_INET6 => Family::V6,
        _ => return Err(Errno::AFNOSUPPORT.into()),
    };
    match kind & !(SOCK_CLOEXEC | SOCK_NONBLOCK) {
        SOCK_STREAM if protocol == 0 || protocol == libc::IPPROTO_TCP => {}
        SOCK_DGRAM => {
            let why = "datagrams (SOCK_DGRAM) need unreliable datagrams, which iWARP does not have";
            return Err(Fail::of(Errno::SOCKTNOSUPPORT, why));
        }
        _ => return Err(Errno::PROTONOSUPPORT.into()),
    }
    let options = Options::new(kind & SOCK_NONBLOCK != 0, kind & SOCK_CLOEXEC != 0);
    let socket = Socket::new(family, options)?;
    Ok(table().add(socket))
}

/// Puts an address where a program wants it, as much as there is space for.
pub(super) fn put_address(address: SocketAddr, place: Ptr<sockaddr>, length: Ptr<socklen_t>) {
    let Some(space) = length.get() else { return };
    let (storage, bytes) = to_storage(address);
    place
        .cast()
        .write_start(&storage, (space as usize).min(bytes as usize));
    length.write(bytes);
}

exports! {
    "RDMACM_1.0" number fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        make(domain, kind, protocol)
    }

    "RDMACM_1.0" cm fn rbind(fd: c_int, address: Ptr<sockaddr>, _length: socklen_t) -> c_int {
        let address = read_sockaddr(address)?;
        table().find(fd)?.with(|state| state.bind(address))
    }

    "RDMACM_1.0" cm fn rlisten(fd: c_int, backlog: c_int) -> c_int {
        table().find(fd)?.listen(backlog)
    }

    "RDMACM_1.0" cm fn rshutdown(fd: c_int, how: c_int) -> c_int {
        table().find(fd)?.with(|state| state.shut_down(how))
    }

    "RDMACM_1.0" cm fn rclose(fd: c_int) -> c_int {
        table().remove(fd)?.close();
        Ok(())
    }

    "RDMACM_1.0" cm fn rgetpeername(
        fd: c_int, address: Ptr<sockaddr>, length: Ptr<socklen_t>,
    ) -> c_int {
        let socket = table().find(fd)?;
        put_address(socket.with(|state| state.remote_as_seen())?, address, length);
        Ok(())
    }

    "RDMACM_1.0" cm fn rgetsockname(
        fd: c_int, address: Ptr<sockaddr>, length: Ptr<socklen_t>,
    ) -> c_int {
        let socket = table().find(fd)?;
        put_address(socket.with(|state| state.local_as_seen()), address, length);
        Ok(())
    }

    "RDMACM_1.0" cm fn rsetsockopt(
        fd: c_int, level: c_int, name: c_int, value: Ptr<c_void>, length: socklen_t,
    ) -> c_int {
        let socket = table().find(fd)?;
        socket.with(|state| state.set_option((level, name), value, length))
    }

    "RDMACM_1.0" cm fn rgetsockopt(
        fd: c_int, level: c_int, name: c_int, value: Ptr<c_void>, length: Ptr<socklen_t>,
    ) -> c_int {
        let socket = table().find(fd)?;
        socket.with(|state| state.option((level, name), value, length))
    }

    /// C declares the argument as one of any number.
    "RDMACM_1.0" number fn rfcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
        let socket = table().find(fd)?;
        // Flags are an int, whose upper half is not defined here.
        socket.with(|state| state.control(command, argument as c_int))
    }

    "RDMACM_1.0" cm fn riounmap(fd: c_int, start: Ptr<c_void>, length: usize) -> c_int {
        let socket = table().find(fd)?;
        socket.with(|state| state.unmap(start, length))
    }
}
