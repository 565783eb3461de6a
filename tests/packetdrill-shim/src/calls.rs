//! The C side: the functions of the table, whose errors become errno.
//!
//! Invariant that `unsafe` here builds on, the caller's by the interface's contract: `userdata` is
//! what [`packetdrill_interface_init`] put in the table, and `free` is the last call with it. Other
//! pointers are `memory`'s.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use libc::{
    c_char, c_int, c_long, c_longlong, c_short, c_uint, c_ulong, epoll_event, iovec, loff_t,
    msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval, timezone, useconds_t,
};

use crate::errno::{Errno, Result, fail};
use crate::interface::Interface;
use crate::memory::{
    PARTS_MAX, copy_in, copy_out, endpoint, gather, parts, put, put_endpoint, room, scatter, value,
};
use crate::settings::Settings;
use crate::shim::Shim;

/// Fills in the table for one run of packetdrill. `flags` is what `--so_flags` says, or null; flags
/// that can't be read are complained of on standard error and end the process.
///
/// # Safety
/// `flags` is null or a C string, `interface` is to memory for an [`Interface`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    flags: *const c_char,
    interface: *mut Interface,
) {
    // SAFETY: by the contract above.
    let flags = (!flags.is_null()).then(|| unsafe { CStr::from_ptr(flags) });
    let flags = flags.map_or("".into(), CStr::to_string_lossy);
    let settings = Settings::parse(&flags).unwrap_or_else(|told| {
        eprintln!("{told}");
        std::process::exit(2);
    });
    let userdata = Box::into_raw(Box::new(Shim::new(settings)));
    let table = Interface {
        userdata: userdata.cast(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl: variadic(fcntl),
        ioctl: variadic_long(ioctl),
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    };
    // SAFETY: by the contract above; what was there before is not dropped, it was never ours.
    unsafe { interface.write(table) };
}

type Fcntl = unsafe extern "C" fn(*mut c_void, c_int, c_int, ...) -> c_int;
type Ioctl = unsafe extern "C" fn(*mut c_void, c_int, c_ulong, ...) -> c_int;

/// A function of one optional argument as C declares it. Stable Rust can't define one with `...`.
fn variadic(f: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_long) -> c_int) -> Fcntl {
    // SAFETY: both are function pointers. On Linux's x86-64 and aarch64 an integer argument behind
    // `...` is passed like a named one; when it is absent, the register's content is not used.
    unsafe { std::mem::transmute(f) }
}

/// The same for ioctl(2).
fn variadic_long(
    f: unsafe extern "C" fn(*mut c_void, c_int, c_ulong, *mut c_int) -> c_int,
) -> Ioctl {
    // SAFETY: as above, with a pointer for the integer.
    unsafe { std::mem::transmute(f) }
}

/// Carries out a call and leaves its error in errno; a panic is one of EIO.
fn answer<T: From<i8>>(userdata: *mut c_void, call: impl FnOnce(&Shim) -> Result<T>) -> T {
    // SAFETY: `userdata` is a `Shim` that was not freed yet; it is only shared, and it is `Sync`.
    let Some(shim) = (unsafe { userdata.cast::<Shim>().as_ref() }) else {
        return refuse(libc::EFAULT);
    };
    match catch_unwind(AssertUnwindSafe(|| call(shim))) {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => refuse(errno.0),
        Err(_) => refuse(libc::EIO),
    }
}

fn refuse<T: From<i8>>(number: c_int) -> T {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = number };
    T::from(-1)
}

/// A count as a system call returns it.
fn count(bytes: usize) -> Result<ssize_t> {
    ssize_t::try_from(bytes).or(fail(libc::EOVERFLOW))
}

fn receive(shim: &Shim, fd: c_int, most: usize, flags: c_int) -> Result<Vec<u8>> {
    let nonblocking = flags & libc::MSG_DONTWAIT != 0;
    shim.call(fd, nonblocking, |world| {
        world.receive_bytes(fd, most, flags)
    })
}

fn transmit(shim: &Shim, fd: c_int, bytes: &[u8], flags: c_int) -> Result<ssize_t> {
    let nonblocking = flags & libc::MSG_DONTWAIT != 0;
    let mut done = 0;
    let sent = shim.call(fd, nonblocking, |world| {
        done += world.send_bytes(fd, &bytes[done..], flags)?;
        // The others when there is room for them.
        if done < bytes.len() {
            Err(Errno::AGAIN)
        } else {
            Ok(())
        }
    });
    match sent {
        Err(errno) if done == 0 => Err(errno),
        _ => count(done),
    }
}

unsafe extern "C" fn free(userdata: *mut c_void) {
    if !userdata.is_null() {
        // SAFETY: it came from `Box::into_raw`, and this is the last call with it.
        let shim = unsafe { Box::from_raw(userdata.cast::<Shim>()) };
        // Whatever it does is not C's to hear of.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(shim)));
    }
}

unsafe extern "C" fn socket(data: *mut c_void, domain: c_int, kind: c_int, proto: c_int) -> c_int {
    answer(data, |shim| {
        shim.now(|world| world.open(domain, kind, proto))
    })
}

unsafe extern "C" fn bind(
    data: *mut c_void,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    answer(data, |shim| {
        let local = endpoint(address, len)?;
        shim.now(|world| world.bind(fd, local)).map(|()| 0)
    })
}

unsafe extern "C" fn listen(data: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    answer(data, |shim| {
        shim.now(|world| world.listen(fd, backlog)).map(|()| 0)
    })
}

unsafe extern "C" fn accept(
    data: *mut c_void,
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    answer(data, |shim| {
        let (accepted, peer, domain) = shim.call(fd, false, |world| world.accept(fd))?;
        put_endpoint(peer, domain, address, len)?;
        Ok(accepted)
    })
}

unsafe extern "C" fn connect(
    data: *mut c_void,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    answer(data, |shim| {
        let remote = endpoint(address, len)?;
        shim.now(|world| world.connect(fd, remote))?;
        match shim.call(fd, false, |world| world.connected(fd)) {
            Err(Errno::AGAIN) => fail(libc::EINPROGRESS),
            connected => connected.map(|()| 0),
        }
    })
}

unsafe extern "C" fn read(data: *mut c_void, fd: c_int, to: *mut c_void, most: size_t) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { recv(data, fd, to, most, 0) }
}

unsafe extern "C" fn readv(
    data: *mut c_void,
    fd: c_int,
    vector: *const iovec,
    parts_count: c_int,
) -> ssize_t {
    answer(data, |shim| {
        let vector = parts(vector, usize::try_from(parts_count).unwrap_or(usize::MAX))?;
        let bytes = receive(shim, fd, room(&vector), 0)?;
        scatter(&bytes, &vector)?;
        count(bytes.len())
    })
}

unsafe extern "C" fn recv(
    data: *mut c_void,
    fd: c_int,
    to: *mut c_void,
    most: size_t,
    flags: c_int,
) -> ssize_t {
    answer(data, |shim| {
        // Bytes that could not be given out would be lost.
        let lost = flags & libc::MSG_TRUNC != 0;
        if to.is_null() && most > 0 && !lost {
            return fail(libc::EFAULT);
        }
        let bytes = receive(shim, fd, most, flags)?;
        if !lost {
            copy_out(&bytes, to, most)?;
        }
        count(bytes.len())
    })
}

unsafe extern "C" fn recvfrom(
    data: *mut c_void,
    fd: c_int,
    to: *mut c_void,
    most: size_t,
    flags: c_int,
    _: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    // A stream's bytes have no address of their own.
    put(0, len);
    // SAFETY: the same contract.
    unsafe { recv(data, fd, to, most, flags) }
}

unsafe extern "C" fn recvmsg(
    data: *mut c_void,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    answer(data, |shim| {
        let mut header = value(message)?;
        let vector = parts(header.msg_iov, header.msg_iovlen)?;
        let bytes = receive(shim, fd, room(&vector), flags)?;
        scatter(&bytes, &vector)?;
        header.msg_namelen = 0;
        header.msg_controllen = 0;
        header.msg_flags = 0;
        put(header, message);
        count(bytes.len())
    })
}

unsafe extern "C" fn write(
    data: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: the same contract.
    unsafe { send(data, fd, from, len, 0) }
}

unsafe extern "C" fn writev(
    data: *mut c_void,
    fd: c_int,
    vector: *const iovec,
    parts_count: c_int,
) -> ssize_t {
    answer(data, |shim| {
        let vector = parts(vector, usize::try_from(parts_count).unwrap_or(usize::MAX))?;
        transmit(shim, fd, &gather(&vector)?, 0)
    })
}

unsafe extern "C" fn send(
    data: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    answer(data, |shim| transmit(shim, fd, &copy_in(from, len)?, flags))
}

unsafe extern "C" fn sendto(
    data: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    _: *const sockaddr,
    _: socklen_t,
) -> ssize_t {
    // A connection has its peer.
    // SAFETY: the same contract.
    unsafe { send(data, fd, from, len, flags) }
}

unsafe extern "C" fn sendmsg(
    data: *mut c_void,
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    answer(data, |shim| {
        let header = value(message)?;
        if header.msg_controllen > 0 {
            return fail(libc::EOPNOTSUPP);
        }
        let vector = parts(header.msg_iov, header.msg_iovlen)?;
        transmit(shim, fd, &gather(&vector)?, flags)
    })
}

unsafe extern "C" fn fcntl(data: *mut c_void, fd: c_int, command: c_int, flags: c_long) -> c_int {
    // An int, by fcntl(2): what is above it in the register is nobody's.
    let flags = flags as c_int;
    answer(data, |shim| {
        shim.now(|world| world.file_control(fd, command, flags))
    })
}

unsafe extern "C" fn ioctl(
    data: *mut c_void,
    fd: c_int,
    request: c_ulong,
    to: *mut c_int,
) -> c_int {
    answer(data, |shim| {
        // Only requests that have an int to fill in come back.
        let bytes = shim.now(|world| world.waiting(fd, request))?;
        put(bytes, to);
        Ok(0)
    })
}

unsafe extern "C" fn close(data: *mut c_void, fd: c_int) -> c_int {
    answer(data, |shim| shim.now(|world| world.close(fd)).map(|()| 0))
}

unsafe extern "C" fn shutdown(data: *mut c_void, fd: c_int, how: c_int) -> c_int {
    answer(data, |shim| {
        shim.now(|world| world.shut_down(fd, how)).map(|()| 0)
    })
}

unsafe extern "C" fn getsockopt(
    data: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    to: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    answer(data, |shim| {
        let room = value(len)? as usize;
        let bytes = shim.now(|world| world.option(fd, level, name))?;
        put(copy_out(&bytes, to, room)? as socklen_t, len);
        Ok(0)
    })
}

unsafe extern "C" fn setsockopt(
    data: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    from: *const c_void,
    len: socklen_t,
) -> c_int {
    answer(data, |shim| {
        let bytes = copy_in(from, len as usize)?;
        shim.now(|world| world.set_option(fd, level, name, &bytes))
            .map(|()| 0)
    })
}

unsafe extern "C" fn poll(
    data: *mut c_void,
    fds: *mut pollfd,
    fd_count: nfds_t,
    timeout: c_int,
) -> c_int {
    answer(data, |shim| {
        let most = usize::try_from(fd_count).unwrap_or(usize::MAX);
        if most > PARTS_MAX {
            return fail(libc::EINVAL);
        }
        let asked = (0..most)
            .map(|at| value(fds.wrapping_add(at)))
            .collect::<Result<Vec<pollfd>>>()?;
        let patience = u64::try_from(timeout).map_or(Duration::MAX, Duration::from_millis);
        let told = shim.wait(patience, |world| {
            let told: Vec<c_short> = asked
                .iter()
                // A negative descriptor is to be skipped.
                .map(|asked| match asked.fd {
                    ..0 => 0,
                    fd => world.ready(fd, asked.events),
                })
                .collect();
            if told.iter().all(|told| *told == 0) {
                return Err(Errno::AGAIN);
            }
            Ok(told)
        });
        let told = match told {
            Err(Errno::AGAIN) => vec![0; asked.len()],
            told => told?,
        };
        for (at, (mut asked, told)) in asked.into_iter().zip(&told).enumerate() {
            asked.revents = *told;
            put(asked, fds.wrapping_add(at));
        }
        Ok(told.iter().filter(|told| **told != 0).count() as c_int)
    })
}

unsafe extern "C" fn netdev_send(data: *mut c_void, from: *const c_void, len: size_t) -> c_int {
    answer(data, |shim| {
        let datagram = copy_in(from, len)?;
        shim.now(|world| {
            world.receive(&datagram);
            Ok(0)
        })
    })
}

unsafe extern "C" fn netdev_receive(
    data: *mut c_void,
    to: *mut c_void,
    len: *mut size_t,
    at: *mut c_longlong,
) -> c_int {
    answer(data, |shim| {
        let room = value(len)?;
        let (when, packet) = match shim.packet()? {
            Some((when, packet)) => (when, packet),
            None => (shim.clock()?, Vec::new()),
        };
        put(copy_out(&packet, to, room)?, len);
        put(when.as_micros().cast_signed(), at);
        Ok(0)
    })
}

unsafe extern "C" fn usleep(data: *mut c_void, micros: useconds_t) -> c_int {
    let time = Duration::from_micros(micros.into());
    answer(data, |shim| shim.sleep(time).map(|()| 0))
}

unsafe extern "C" fn gettimeofday(data: *mut c_void, to: *mut timeval, _: *mut timezone) -> c_int {
    answer(data, |shim| {
        let micros = shim.clock()?.as_micros();
        let time = timeval {
            tv_sec: (micros / 1_000_000).cast_signed(),
            tv_usec: (micros % 1_000_000).cast_signed(),
        };
        put(time, to);
        Ok(0)
    })
}

unsafe extern "C" fn epoll_create(_: *mut c_void, _: c_int) -> c_int {
    refuse(libc::ENOSYS)
}

unsafe extern "C" fn epoll_ctl(
    _: *mut c_void,
    _: c_int,
    _: c_int,
    _: c_int,
    _: *mut epoll_event,
) -> c_int {
    refuse(libc::ENOSYS)
}

unsafe extern "C" fn epoll_wait(
    _: *mut c_void,
    _: c_int,
    _: *mut epoll_event,
    _: c_int,
    _: c_int,
) -> c_int {
    refuse(libc::ENOSYS)
}

unsafe extern "C" fn pipe(_: *mut c_void, _: *mut c_int) -> c_int {
    refuse(libc::ENOSYS)
}

unsafe extern "C" fn splice(
    _: *mut c_void,
    _: c_int,
    _: *mut loff_t,
    _: c_int,
    _: *mut loff_t,
    _: size_t,
    _: c_uint,
) -> ssize_t {
    refuse(libc::ENOSYS)
}
