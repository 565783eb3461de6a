//! setsockopt(2), getsockopt(2), fcntl(2) and ioctl(2), as far as the stack has something behind an
//! option; others are refused.

use std::time::Duration;

use libc::{c_int, c_ulong};
use userspace_tcp::{CongestionControl, KeepAlive};

use crate::connection::Choices;
use crate::errno::{Result, fail};
use crate::tcp_info;
use crate::world::{Kind, World};

impl World {
    pub(crate) fn set_option(
        &mut self,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: &[u8],
    ) -> Result<()> {
        self.socket(fd)?;
        match (level, name) {
            // A port can be bound by any number of sockets; only one listens.
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => integer(value).map(drop),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                // Doubled, as Linux does (socket(7)).
                let bytes = integer(value)?.max(1024).saturating_mul(2);
                self.choose(fd, |choices| choices.send_buffer = bytes as usize)
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let on = integer(value)? != 0;
                let seconds = integer(value.get(4..).unwrap_or_default())?;
                if on && seconds != 0 {
                    return fail(libc::EOPNOTSUPP);
                }
                self.choose(fd, |choices| choices.linger_zero = on)
            }
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
                let wanted = (integer(value)? != 0).then(KeepAlive::default);
                self.keep_alive(fd, wanted)
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
                let on = integer(value)? != 0;
                self.choose(fd, |choices| choices.nodelay = on)?;
                self.flush(fd, on)
            }
            (libc::IPPROTO_TCP, libc::TCP_CORK) => {
                let on = integer(value)? != 0;
                self.choose(fd, |choices| choices.corked = on)?;
                self.flush(fd, !on)
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                let mss = u16::try_from(integer(value)?).ok();
                match mss.filter(|mss| (88..=32_767).contains(mss)) {
                    Some(mss) => self.socket(fd)?.mss = Some(mss),
                    None => return fail(libc::EINVAL),
                }
                Ok(())
            }
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                let millis = match u64::try_from(integer(value)?) {
                    Ok(0) => self.settings.config.user_timeout,
                    Ok(millis) => Duration::from_millis(millis),
                    Err(_) => return fail(libc::EINVAL),
                };
                let id = self.connection(fd)?.id;
                self.stack.set_user_timeout(id, self.now, millis);
                Ok(())
            }
            _ => fail(libc::ENOPROTOOPT),
        }
    }

    pub(crate) fn option(&mut self, fd: c_int, level: c_int, name: c_int) -> Result<Vec<u8>> {
        let socket = self.socket(fd)?;
        let (choices, mss) = (socket.choices, socket.mss);
        let value = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => self.take_error(fd)?.map_or(0, |error| error.0),
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => choices.send_buffer as c_int,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                matches!(socket.kind, Kind::Listening { .. }).into()
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => choices.nodelay.into(),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => choices.corked.into(),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => match self.connection(fd) {
                Ok(connection) => {
                    let id = connection.id;
                    self.stack.mss(id) as c_int
                }
                Err(_) => mss.map_or(536, c_int::from),
            },
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let mut name = match self.settings.config.congestion {
                    CongestionControl::Cubic => b"cubic".to_vec(),
                    CongestionControl::NewReno => b"reno".to_vec(),
                    CongestionControl::Dctcp => b"dctcp".to_vec(),
                    CongestionControl::Bbr => b"bbr".to_vec(),
                };
                name.resize(16, 0);
                return Ok(name);
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                let id = self.connection(fd)?.id;
                let info = self.stack.info(id);
                return Ok(tcp_info::bytes(info.as_ref(), self.connection(fd)?));
            }
            _ => return fail(libc::ENOPROTOOPT),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    /// fcntl(2): the file status flags.
    pub(crate) fn file_control(
        &mut self,
        fd: c_int,
        command: c_int,
        flags: c_int,
    ) -> Result<c_int> {
        let socket = self.socket(fd)?;
        match command {
            libc::F_GETFL if socket.nonblocking => Ok(libc::O_RDWR | libc::O_NONBLOCK),
            libc::F_GETFL => Ok(libc::O_RDWR),
            libc::F_SETFL => {
                socket.nonblocking = flags & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            _ => fail(libc::EINVAL),
        }
    }

    /// ioctl(2): how many bytes wait.
    pub(crate) fn waiting(&mut self, fd: c_int, request: c_ulong) -> Result<c_int> {
        let connection = self.connection(fd)?;
        let id = connection.id;
        let bytes = match request {
            libc::FIONREAD => connection.available(),
            libc::TIOCOUTQ => {
                let unsent = connection.unsent();
                unsent + self.stack.queued_segments(id) * self.stack.mss(id)
            }
            _ => return fail(libc::ENOTTY),
        };
        Ok(c_int::try_from(bytes).unwrap_or(c_int::MAX))
    }

    /// Of the socket, and of its connection if it has one.
    fn choose(&mut self, fd: c_int, choose: impl Fn(&mut Choices)) -> Result<()> {
        choose(&mut self.socket(fd)?.choices);
        if let Ok(connection) = self.connection(fd) {
            choose(&mut connection.choices);
        }
        Ok(())
    }

    fn keep_alive(&mut self, fd: c_int, wanted: Option<KeepAlive>) -> Result<()> {
        let id = self.connection(fd)?.id;
        self.stack.set_keepalive(id, self.now, wanted);
        Ok(())
    }

    fn flush(&mut self, fd: c_int, now: bool) -> Result<()> {
        let Kind::Connected(id) = self.socket(fd)?.kind else {
            return Ok(());
        };
        if let Some(connection) = self.connections.get_mut(&id).filter(|_| now) {
            connection.flush(&mut self.stack, self.now, &mut self.heap);
        }
        Ok(())
    }
}

fn integer(value: &[u8]) -> Result<c_int> {
    match value.first_chunk() {
        Some(bytes) => Ok(c_int::from_ne_bytes(*bytes)),
        None => fail(libc::EINVAL),
    }
}
