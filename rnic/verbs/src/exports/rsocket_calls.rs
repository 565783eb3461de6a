//! Sockets over RDMA: the calls that wait, one rsocket at a time. What `blocking` says of threads that are
//! cancelled holds here: nothing is held while a call waits, and each attempt looks up the rsocket again.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use libc::{iovec, msghdr, off_t, sockaddr, socklen_t};
use rustix::io::Errno;

use super::blocking::{c, exported};
use super::rsockets::put_address;
use crate::cm::read_sockaddr;
use crate::ffi::{Fail, Outcome, Ptr, long};
use crate::rsocket::{MAX_WAIT, State, Transfer, table};

/// How long a call looks again and again before it sleeps: waking up takes longer.
const SPIN: Duration = Duration::from_micros(10);

/// What the look of a call says that has to wait.
const WAIT: isize = isize::MIN;

/// Does `act` on an rsocket as soon as it can be done.
fn until_done(
    call: &str,
    fd: c_int,
    mut act: impl FnMut(&mut State) -> Outcome<Option<isize>>,
) -> isize {
    loop {
        let done = long(call, || look(fd, &mut act));
        if done != WAIT {
            return done;
        }
        let mut polled = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd of this stack.
        let woken = unsafe { c::poll(&raw mut polled, 1, MAX_WAIT.as_millis() as c_int) };
        let ended = long(call, || {
            table().find(fd)?.end_wait();
            match woken {
                ..0 => Err(Errno::INTR.into()),
                _ => Ok(0),
            }
        });
        if ended < 0 {
            return -1;
        }
    }
}

/// Tries for a while, and then has the caller wait.
fn look(fd: c_int, act: &mut impl FnMut(&mut State) -> Outcome<Option<isize>>) -> Outcome<isize> {
    let socket = table().find(fd)?;
    let mut until = None;
    loop {
        if let Some(done) = socket.attempt(false, &mut *act)? {
            return Ok(done);
        }
        let now = Instant::now();
        if now >= *until.get_or_insert(now + SPIN) {
            break;
        }
        std::thread::yield_now();
    }
    Ok(socket.attempt(true, act)?.unwrap_or(WAIT))
}

/// Transfers bytes. Those that were, when the call ends early, are its count: by a signal, or because
/// another thread closed the rsocket.
fn until_moved(
    call: &str,
    fd: c_int,
    mut transfer: Transfer,
    act: impl Fn(&mut Transfer, &mut State) -> Outcome<Option<isize>>,
) -> isize {
    let ended = until_done(call, fd, |state| act(&mut transfer, state));
    match (ended, transfer.done()) {
        (..0, moved @ 1..) => moved,
        (ended, _) => ended,
    }
}

/// Sends or receives, by the elements of the caller's stack or of the program's.
fn send(call: &str, fd: c_int, parts: Ptr<iovec>, count: usize, flags: c_int) -> isize {
    let transfer = Transfer::new(parts, count, flags);
    until_moved(call, fd, transfer, Transfer::send)
}

fn receive(call: &str, fd: c_int, parts: Ptr<iovec>, count: usize, flags: c_int) -> isize {
    let transfer = Transfer::new(parts, count, flags);
    until_moved(call, fd, transfer, Transfer::receive)
}

fn part(start: Ptr<c_void>, bytes: usize) -> iovec {
    iovec {
        iov_base: start.cast::<c_void>().as_raw(),
        iov_len: bytes,
    }
}

/// The elements of a message, which has nothing but them.
fn parts_of(call: &str, message: Ptr<msghdr>) -> Option<(Ptr<iovec>, usize)> {
    let (mut parts, mut count) = (Ptr::NULL, 0);
    let found = long(call, || {
        let message = message.read()?;
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return Err(Fail::unsupported(
                "control messages on rsockets are not there",
            ));
        }
        (parts, count) = (Ptr::from_raw(message.msg_iov), message.msg_iovlen);
        Ok(0)
    });
    (found == 0).then_some((parts, count))
}

/// A number of elements, as C has it; too many or less than none is the caller's error.
fn count_of(call: &str, count: c_int) -> Option<usize> {
    let count = usize::try_from(count).ok();
    if count.is_none() {
        long(call, || Err(Errno::INVAL.into()));
    }
    count
}

exported!("RDMACM_1.0" raccept);
#[unsafe(export_name = "rnic_verbs_raccept")]
unsafe extern "C-unwind" fn raccept(
    fd: c_int,
    address: Ptr<sockaddr>,
    length: Ptr<socklen_t>,
) -> c_int {
    let accepted = until_done("raccept", fd, |state| {
        let Some((socket, peer)) = state.accept()? else {
            return Ok(None);
        };
        put_address(peer, address, length);
        Ok(Some(table().add(socket) as isize))
    });
    accepted as c_int
}

exported!("RDMACM_1.0" rconnect);
#[unsafe(export_name = "rnic_verbs_rconnect")]
unsafe extern "C-unwind" fn rconnect(
    fd: c_int,
    address: Ptr<sockaddr>,
    _length: socklen_t,
) -> c_int {
    let begun = long("rconnect", || {
        let remote = read_sockaddr(address)?;
        let socket = table().find(fd)?;
        socket.connect(remote)?;
        match socket.with(|state| state.options.nonblocking) {
            true => Err(Errno::INPROGRESS.into()),
            false => Ok(0),
        }
    });
    if begun < 0 {
        return -1;
    }
    until_done("rconnect", fd, |state| state.connected()) as c_int
}

exported!("RDMACM_1.0" rrecv);
#[unsafe(export_name = "rnic_verbs_rrecv")]
unsafe extern "C-unwind" fn rrecv(
    fd: c_int,
    into: Ptr<c_void>,
    bytes: usize,
    flags: c_int,
) -> isize {
    let mut part = part(into, bytes);
    receive("rrecv", fd, Ptr::to(&mut part), 1, flags)
}

exported!("RDMACM_1.0" rrecvfrom);
#[unsafe(export_name = "rnic_verbs_rrecvfrom")]
unsafe extern "C-unwind" fn rrecvfrom(
    fd: c_int,
    into: Ptr<c_void>,
    bytes: usize,
    flags: c_int,
    address: Ptr<sockaddr>,
    length: Ptr<socklen_t>,
) -> isize {
    let mut part = part(into, bytes);
    let got = receive("rrecvfrom", fd, Ptr::to(&mut part), 1, flags);
    if got > 0 && !address.is_null() {
        long("rrecvfrom", || {
            let socket = table().find(fd)?;
            put_address(
                socket.with(|state| state.remote_as_seen())?,
                address,
                length,
            );
            Ok(0)
        });
    }
    got
}

exported!("RDMACM_1.0" rrecvmsg);
#[unsafe(export_name = "rnic_verbs_rrecvmsg")]
unsafe extern "C-unwind" fn rrecvmsg(fd: c_int, message: Ptr<msghdr>, flags: c_int) -> isize {
    match parts_of("rrecvmsg", message) {
        Some((parts, count)) => receive("rrecvmsg", fd, parts, count, flags),
        None => -1,
    }
}

exported!("RDMACM_1.0" rread);
#[unsafe(export_name = "rnic_verbs_rread")]
unsafe extern "C-unwind" fn rread(fd: c_int, into: Ptr<c_void>, bytes: usize) -> isize {
    let mut part = part(into, bytes);
    receive("rread", fd, Ptr::to(&mut part), 1, 0)
}

exported!("RDMACM_1.0" rreadv);
#[unsafe(export_name = "rnic_verbs_rreadv")]
unsafe extern "C-unwind" fn rreadv(fd: c_int, parts: Ptr<iovec>, count: c_int) -> isize {
    match count_of("rreadv", count) {
        Some(count) => receive("rreadv", fd, parts, count, 0),
        None => -1,
    }
}

exported!("RDMACM_1.0" rsend);
#[unsafe(export_name = "rnic_verbs_rsend")]
unsafe extern "C-unwind" fn rsend(
    fd: c_int,
    from: Ptr<c_void>,
    bytes: usize,
    flags: c_int,
) -> isize {
    let mut part = part(from, bytes);
    send("rsend", fd, Ptr::to(&mut part), 1, flags)
}

exported!("RDMACM_1.0" rsendto);
#[unsafe(export_name = "rnic_verbs_rsendto")]
unsafe extern "C-unwind" fn rsendto(
    fd: c_int,
    from: Ptr<c_void>,
    bytes: usize,
    flags: c_int,
    address: Ptr<sockaddr>,
    length: socklen_t,
) -> isize {
    if !address.is_null() || length > 0 {
        return long("rsendto", || Err(Errno::ISCONN.into()));
    }
    let mut part = part(from, bytes);
    send("rsendto", fd, Ptr::to(&mut part), 1, flags)
}

exported!("RDMACM_1.0" rsendmsg);
#[unsafe(export_name = "rnic_verbs_rsendmsg")]
unsafe extern "C-unwind" fn rsendmsg(fd: c_int, message: Ptr<msghdr>, flags: c_int) -> isize {
    match parts_of("rsendmsg", message) {
        Some((parts, count)) => send("rsendmsg", fd, parts, count, flags),
        None => -1,
    }
}

exported!("RDMACM_1.0" rwrite);
#[unsafe(export_name = "rnic_verbs_rwrite")]
unsafe extern "C-unwind" fn rwrite(fd: c_int, from: Ptr<c_void>, bytes: usize) -> isize {
    let mut part = part(from, bytes);
    send("rwrite", fd, Ptr::to(&mut part), 1, 0)
}

exported!("RDMACM_1.0" rwritev);
#[unsafe(export_name = "rnic_verbs_rwritev")]
unsafe extern "C-unwind" fn rwritev(fd: c_int, parts: Ptr<iovec>, count: c_int) -> isize {
    match count_of("rwritev", count) {
        Some(count) => send("rwritev", fd, parts, count, 0),
        None => -1,
    }
}

exported!("RDMACM_1.0" riomap);
#[unsafe(export_name = "rnic_verbs_riomap")]
unsafe extern "C-unwind" fn riomap(
    fd: c_int,
    start: Ptr<c_void>,
    bytes: usize,
    protection: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = until_done("riomap", fd, |state| {
        state.map(start, bytes, protection, offset)
    });
    mapped as off_t
}

exported!("RDMACM_1.0" riowrite);
#[unsafe(export_name = "rnic_verbs_riowrite")]
unsafe extern "C-unwind" fn riowrite(
    fd: c_int,
    from: Ptr<c_void>,
    bytes: usize,
    offset: off_t,
    flags: c_int,
) -> isize {
    let mut part = part(from, bytes);
    let transfer = Transfer::new(Ptr::to(&mut part), 1, flags);
    until_moved("riowrite", fd, transfer, |transfer, state| {
        transfer.write_mapped(state, offset as u64)
    })
}
