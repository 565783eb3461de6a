//! Addresses, devices and how connections end: what is the same for identifiers and for rsockets.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rnic::DisconnectReason;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::ffi::{Fail, Outcome};
use crate::process::Process;
use crate::session::Session;

/// In a Terminate: no buffer for a Send (RFC 5041 section 8.2). Programs for InfiniBand count on the sender's
/// retries, which iWARP has not.
const NO_RECEIVE: u16 = 0x1202;

/// An IPv4 address that came IPv6-mapped, as itself.
pub(crate) fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The device that leads to a peer, and the address that it has there.
pub(crate) fn way_toward(remote: SocketAddr) -> Outcome<(Arc<Session>, IpAddr)> {
    let session = Process::current().session_toward(remote.ip())?;
    let local = source_toward(remote, &session.info()?.addresses).ok_or_else(|| {
        let why = format!("no address of {} leads to {remote}", session.interface());
        Fail::of(Errno::ADDRNOTAVAIL, why)
    })?;
    Ok((session, local))
}

/// The address that the host's routes give to what goes to `remote`, if it is one of `own`; else the first
/// of the same family.
pub(crate) fn source_toward(remote: SocketAddr, own: &[IpAddr]) -> Option<IpAddr> {
    let asked = routed_from(remote);
    let routed = asked.ok().map(|address: SocketAddr| address.ip());
    routed.filter(|address| own.contains(address)).or_else(|| {
        own.iter()
            .copied()
            .find(|own| own.is_ipv4() == remote.is_ipv4())
    })
}

/// The address that a socket gets when it is connected to `remote`, of which nothing is sent.
fn routed_from(remote: SocketAddr) -> Result<SocketAddr, Errno> {
    let family = match remote {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    // Not by the C library, whose sockets a program may have replaced by rsockets.
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &remote)?;
    SocketAddr::try_from(rustix::net::getsockname(&socket)?)
}

/// How many peers may wait: as many as the program says, within the RNIC's limit, which is also what 0 means.
pub(crate) fn backlog_within(session: &Session, wanted: c_int) -> Outcome<u32> {
    let most = session.info()?.limits.backlog.max(1);
    let wanted = u32::try_from(wanted).ok().filter(|wanted| *wanted > 0);
    Ok(wanted.unwrap_or(most).min(most))
}

/// Listens by `listen` at an address, at the device that has it, or of a wildcard at each place that it
/// stands for, all with the port of the first one. The port.
pub(crate) fn listen_everywhere(
    local: SocketAddr,
    bound: Option<Arc<Session>>,
    only_own_family: bool,
    mut listen: impl FnMut(&Arc<Session>, SocketAddr) -> Outcome<u16>,
) -> Outcome<u16> {
    let places = match bound {
        Some(session) => vec![(session, local.ip())],
        None if local.ip().is_loopback() => {
            vec![(Process::current().session_at(local.ip())?, local.ip())]
        }
        None => everywhere(local, only_own_family)?,
    };
    let mut port = local.port();
    let mut listens = false;
    let mut refused = None;
    for (session, address) in places {
        match listen(&session, SocketAddr::new(address, port)) {
            Ok(taken) => (port, listens) = (taken, true),
            // Of a wildcard, a device may have no address of its family.
            Err(fail) if fail.errno == Errno::ADDRNOTAVAIL => refused = Some(fail),
            Err(fail) => return Err(fail),
        }
    }
    let nowhere = || Fail::of(Errno::ADDRNOTAVAIL, format!("no RNIC is at {local}"));
    match listens {
        true => Ok(port),
        false => Err(refused.unwrap_or_else(nowhere)),
    }
}

/// The devices and addresses for which a wildcard stands: all of each device, of both families for an IPv6
/// one, unless the program wants only that family. Then link-local addresses, which need an interface to
/// mean something, are left out.
fn everywhere(wildcard: SocketAddr, only_own_family: bool) -> Outcome<Vec<(Arc<Session>, IpAddr)>> {
    let meant = |address: &IpAddr| match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let mut places = Vec::new();
    for session in Process::current().sessions()? {
        if wildcard.is_ipv6() && only_own_family {
            let addresses = session.info()?.addresses.into_iter().filter(meant);
            places.extend(addresses.map(|address| (session.clone(), address)));
        } else {
            places.push((session, wildcard.ip()));
        }
    }
    Ok(places)
}

/// Tells of a connection's end that was not in order. Programs see no more of it than work that is flushed.
pub(crate) fn log_end(what: &str, reason: DisconnectReason, message: &str) {
    use DisconnectReason::{Graceful, PeerFault, TerminateReceived, TerminateSent};
    let level = match reason {
        Graceful => log::Level::Debug,
        TerminateReceived { control } | TerminateSent { control } | PeerFault { control }
            if control == NO_RECEIVE =>
        {
            log::Level::Warn
        }
        _ => log::Level::Info,
    };
    log::log!(level, "{what} ended: {message}");
}

/// The error's number for how a connection ended, or did not come about.
pub(crate) fn errno_of(reason: DisconnectReason) -> Errno {
    match reason {
        DisconnectReason::Refused => Errno::CONNREFUSED,
        DisconnectReason::Reset | DisconnectReason::PeerClosed => Errno::CONNRESET,
        DisconnectReason::TimedOut => Errno::TIMEDOUT,
        _ => Errno::CONNABORTED,
    }
}
