//! What sockets are asked for: the system calls, without C around them.

use std::collections::VecDeque;

use libc::{c_int, c_short};
use userspace_net::{Endpoint, FourTuple};
use userspace_tcp::ConnectError;

use crate::connection::{Connection, Stage};
use crate::errno::{Errno, Result, fail};
use crate::world::{Kind, SOCKETS_MAX, Socket, World};

/// Ports of connections whose socket has none (RFC 6335 section 6).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// What send(2) may be asked for, and recv(2).
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;
const RECEIVE_FLAGS: c_int =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_PEEK | libc::MSG_TRUNC;

/// What poll(2) tells unasked.
const ALWAYS: c_short = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

impl World {
    pub(crate) fn open(&mut self, domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int> {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        match domain {
            libc::AF_INET | libc::AF_INET6 => {}
            _ => return fail(libc::EAFNOSUPPORT),
        }
        if kind & !flags != libc::SOCK_STREAM || !matches!(protocol, 0 | libc::IPPROTO_TCP) {
            return fail(libc::EPROTONOSUPPORT);
        }
        let mut socket = Socket::new(Kind::Fresh, domain)?;
        socket.nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        self.add(socket)
    }

    pub(crate) fn bind(&mut self, fd: c_int, local: Endpoint) -> Result<()> {
        let socket = self.socket(fd)?;
        if socket.bound.is_some() || !matches!(socket.kind, Kind::Fresh) {
            return fail(libc::EINVAL);
        }
        socket.bound = Some(local);
        Ok(())
    }

    pub(crate) fn listen(&mut self, fd: c_int, backlog: c_int) -> Result<()> {
        let socket = self.socket(fd)?;
        match (&socket.kind, socket.bound) {
            (Kind::Listening { .. }, _) => Ok(()),
            (Kind::Fresh, Some(local)) if local.port != 0 => {
                let backlog = usize::try_from(backlog).unwrap_or(0).saturating_add(1);
                if self.stack.listen(local, backlog).is_err() {
                    return fail(libc::EADDRINUSE);
                }
                let queue = VecDeque::new();
                self.socket(fd)?.kind = Kind::Listening { local, queue };
                Ok(())
            }
            (Kind::Fresh, _) => fail(libc::EDESTADDRREQ),
            (Kind::Connected(_), _) => fail(libc::EINVAL),
        }
    }

    /// A descriptor for the next connection, and the peer.
    pub(crate) fn accept(&mut self, fd: c_int) -> Result<(c_int, Endpoint, c_int)> {
        if self.sockets.len() >= SOCKETS_MAX {
            return fail(libc::EMFILE);
        }
        let socket = self.socket(fd)?;
        let Kind::Listening { queue, .. } = &mut socket.kind else {
            return fail(libc::EINVAL);
        };
        let id = queue.pop_front().ok_or(Errno::AGAIN)?;
        let domain = socket.domain;
        let mut accepted = Socket::new(Kind::Connected(id), domain)?;
        accepted.mss = socket.mss;
        accepted.choices = socket.choices;
        // It is kept until somebody accepts it, whatever has become of it.
        let connection = self.connections.get(&id);
        let peer = connection.ok_or(Errno(libc::ECONNABORTED))?.tuple.remote;
        let fd = self.add(accepted)?;
        Ok((fd, peer, domain))
    }

    /// Begins to connect; [`World::connected`] says when it is done.
    pub(crate) fn connect(&mut self, fd: c_int, remote: Endpoint) -> Result<()> {
        let socket = self.socket(fd)?;
        let (mss, choices, bound) = (socket.mss, socket.choices, socket.bound);
        match socket.kind {
            Kind::Fresh => {}
            Kind::Connected(id) => {
                let stage = self.connections.get(&id).map(|c| c.stage);
                return match stage {
                    Some(Stage::Opening) => fail(libc::EALREADY),
                    Some(Stage::Open) => fail(libc::EISCONN),
                    _ => fail(self.take_error(fd)?.map_or(libc::EISCONN, |error| error.0)),
                };
            }
            Kind::Listening { .. } => return fail(libc::EISCONN),
        }
        let ours = bound.filter(|local| !local.addr.is_unspecified());
        let addr = ours.map_or(self.settings.local(remote.addr), |local| local.addr);
        let ports = match bound.filter(|local| local.port != 0) {
            Some(local) => local.port..=local.port,
            None => EPHEMERAL,
        };
        for port in ports {
            let tuple = FourTuple::new(Endpoint::new(addr, port), remote);
            let options = self.options(mss, tuple);
            match self.stack.connect(self.now, tuple, options) {
                Ok(id) => {
                    let window = self.settings.config.receive_window;
                    let connection = Connection::new(id, tuple, window, choices);
                    self.connections.insert(id, connection);
                    self.socket(fd)?.kind = Kind::Connected(id);
                    return Ok(());
                }
                Err(ConnectError::InUse { .. }) => {}
                Err(ConnectError::DropReason { .. }) => return fail(libc::ENETUNREACH),
                Err(ConnectError::TooMany { .. }) => return fail(libc::ENOBUFS),
            }
        }
        fail(libc::EADDRNOTAVAIL)
    }

    pub(crate) fn connected(&mut self, fd: c_int) -> Result<()> {
        match self.connection(fd)?.stage {
            Stage::Opening => Err(Errno::AGAIN),
            Stage::Open => Ok(()),
            Stage::Over => match self.take_error(fd)? {
                Some(error) => Err(error),
                None => Ok(()),
            },
        }
    }

    /// Reads up to `most` bytes; none of them at the end of the stream.
    pub(crate) fn receive_bytes(
        &mut self,
        fd: c_int,
        most: usize,
        flags: c_int,
    ) -> Result<Vec<u8>> {
        if flags & !RECEIVE_FLAGS != 0 {
            return fail(libc::EOPNOTSUPP);
        }
        let id = self.connection(fd)?.id;
        let Some(connection) = self.connections.get_mut(&id) else {
            return fail(libc::ENOTCONN);
        };
        if connection.available() > 0 && most > 0 {
            let peek = flags & libc::MSG_PEEK != 0;
            return Ok(connection.read(&mut self.stack, &mut self.heap, most, peek));
        }
        let over = connection.peer_closed || connection.deaf || most == 0;
        match (connection.error.take(), connection.stage) {
            (Some(error), _) => Err(error),
            _ if over => Ok(Vec::new()),
            (None, _) => Err(Errno::AGAIN),
        }
    }

    /// Takes bytes to send, as many as there is room for.
    pub(crate) fn send_bytes(&mut self, fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize> {
        if flags & !SEND_FLAGS != 0 {
            return fail(libc::EOPNOTSUPP);
        }
        let connection = self.connection(fd);
        let id = connection.map_err(|_| Errno(libc::EPIPE))?.id;
        let Some(connection) = self.connections.get_mut(&id) else {
            return fail(libc::EPIPE);
        };
        if let Some(error) = connection.error.take() {
            return Err(error);
        }
        if connection.closing {
            return fail(libc::EPIPE);
        }
        let taken = connection.take(&self.stack, bytes);
        if taken > 0 {
            connection.more = flags & libc::MSG_MORE != 0;
        }
        if taken == 0 && (!bytes.is_empty() || connection.stage == Stage::Opening) {
            return Err(Errno::AGAIN);
        }
        Ok(taken)
    }

    pub(crate) fn shut_down(&mut self, fd: c_int, how: c_int) -> Result<()> {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return fail(libc::EINVAL),
        };
        let connection = self.connection(fd)?;
        if connection.stage == Stage::Over {
            return fail(libc::ENOTCONN);
        }
        connection.deaf |= read;
        connection.closing |= write;
        Ok(())
    }

    pub(crate) fn close(&mut self, fd: c_int) -> Result<()> {
        let Some(socket) = self.sockets.remove(&fd) else {
            return fail(libc::EBADF);
        };
        match socket.kind {
            Kind::Fresh => {}
            Kind::Listening { local, queue } => {
                self.stack.unlisten(local);
                for id in queue {
                    self.stack.abort(id);
                    self.connections.remove(&id);
                }
            }
            Kind::Connected(id) => {
                let Some(connection) = self.connections.get_mut(&id) else {
                    return Ok(());
                };
                connection.closing = true;
                connection.orphan = true;
                // The peer is told that bytes of its are lost (RFC 2525 section 2.17).
                let abort = connection.choices.linger_zero || connection.available() > 0;
                if abort {
                    self.stack.abort(id);
                } else if connection.stage == Stage::Opening {
                    self.stack.close(id);
                }
                if self.stack.info(id).is_none() {
                    self.connections.remove(&id);
                }
            }
        }
        Ok(())
    }

    /// What of `events`, and of what is always told, is so.
    pub(crate) fn ready(&self, fd: c_int, events: c_short) -> c_short {
        let Some(socket) = self.sockets.get(&fd) else {
            return libc::POLLNVAL;
        };
        let told = match &socket.kind {
            Kind::Fresh => libc::POLLOUT | libc::POLLHUP,
            Kind::Listening { queue, .. } if queue.is_empty() => 0,
            Kind::Listening { .. } => libc::POLLIN | libc::POLLRDNORM,
            Kind::Connected(id) => match self.connections.get(id) {
                Some(connection) => self.ready_for(connection),
                None => libc::POLLHUP,
            },
        };
        told & (events | ALWAYS)
    }

    fn ready_for(&self, connection: &Connection) -> c_short {
        let end = connection.peer_closed || connection.deaf;
        let over = connection.stage == Stage::Over;
        let room = connection.room(&self.stack) * 3 >= connection.choices.send_buffer;
        let mut told = 0;
        if connection.available() > 0 || end {
            told |= libc::POLLIN | libc::POLLRDNORM;
        }
        if end {
            told |= libc::POLLRDHUP;
        }
        if room || over || (connection.closing && connection.stage == Stage::Open) {
            told |= libc::POLLOUT | libc::POLLWRNORM;
        }
        if over || (end && connection.closing) {
            told |= libc::POLLHUP;
        }
        if connection.error.is_some() {
            told |= libc::POLLERR;
        }
        told
    }

    /// The socket's connection.
    pub(crate) fn connection(&mut self, fd: c_int) -> Result<&mut Connection> {
        let Kind::Connected(id) = self.socket(fd)?.kind else {
            return fail(libc::ENOTCONN);
        };
        match self.connections.get_mut(&id) {
            Some(connection) => Ok(connection),
            None => fail(libc::ENOTCONN),
        }
    }

    /// What ended the connection, told once.
    pub(crate) fn take_error(&mut self, fd: c_int) -> Result<Option<Errno>> {
        self.socket(fd)?;
        Ok(self.connection(fd).ok().and_then(|c| c.error.take()))
    }
}
