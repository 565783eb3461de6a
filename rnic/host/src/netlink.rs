//! Requests to the kernel over a netlink socket, of rtnetlink(7) or another protocol, one at a time, each with
//! a deadline.
//!
//! The socket belongs to the network namespace of the thread that opened it, whoever asks later.

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroI32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_MULTIPART, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

/// The kernel answers while it takes the request; longer than this is no answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most messages of one answer, so that a kernel gone astray can't hold us.
const MESSAGES_MAX: usize = 100_000;

/// A socket to ask the kernel on, by messages of one protocol.
#[derive(Debug)]
pub struct Netlink<M = RouteNetlinkMessage> {
    state: Mutex<State>,
    messages: PhantomData<fn(M) -> M>,
}

#[derive(Debug)]
struct State {
    socket: Socket,
    sequence: u32,
}

/// The kernel did not do or tell what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{asked}: {found}")]
pub struct NetlinkError {
    pub asked: String,
    /// What came instead.
    pub found: Found,
}

/// What came instead of an answer.
#[derive(Debug, thiserror::Error)]
pub enum Found {
    #[error("{}", io::Error::from(*.0))]
    Refused(Errno),
    /// Something that could not be read, or nothing.
    #[error("{0}")]
    Other(String),
}

impl NetlinkError {
    /// The kernel's error number, when it refused.
    pub fn errno(&self) -> Option<Errno> {
        match self.found {
            Found::Refused(errno) => Some(errno),
            Found::Other(_) => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    One,
    Dump,
    Ack,
}

impl Netlink {
    /// A socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn open() -> io::Result<Self> {
        Self::of(NETLINK_ROUTE)
    }

    /// The same; dumps have what the request selects, where the kernel can do that (NETLINK_GET_STRICT_CHK).
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub(super) fn open_strict() -> io::Result<Self> {
        let opened = Self::open()?;
        // Before Linux 4.20 there is all.
        let _ = opened.lock().socket.set_netlink_get_strict_chk(true);
        Ok(opened)
    }
}

impl<M> Netlink<M>
where
    M: NetlinkSerializable + NetlinkDeserializable,
{
    pub(super) fn of(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self {
            state: Mutex::new(State {
                socket,
                sequence: 0,
            }),
            messages: PhantomData,
        })
    }

    /// Asks for one object; `asked` says for which, for people.
    pub fn get(&self, asked: &str, message: M) -> Result<M, NetlinkError> {
        let mut answers = self.ask(asked, message, 0, Answer::One)?;
        answers
            .pop_front()
            .ok_or_else(|| other(asked, "an empty answer"))
    }

    /// Asks for all objects of a kind.
    pub fn dump(&self, asked: &str, message: M) -> Result<VecDeque<M>, NetlinkError> {
        self.ask(asked, message, NLM_F_DUMP, Answer::Dump)
    }

    pub fn change(&self, asked: &str, message: M, flags: u16) -> Result<(), NetlinkError> {
        self.ask(asked, message, flags | NLM_F_ACK, Answer::Ack)
            .map(|_| ())
    }

    fn ask(
        &self,
        asked: &str,
        message: M,
        flags: u16,
        answer: Answer,
    ) -> Result<VecDeque<M>, NetlinkError> {
        let mut state = self.lock();
        state.sequence = state.sequence.wrapping_add(1);
        let sequence = state.sequence;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        state
            .socket
            .send(&bytes, 0)
            .map_err(|error| io_error(asked, &error))?;
        receive(&state.socket, asked, sequence, answer)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while asking leaves at most a stale answer, which the sequence number shows.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects the answer to request `sequence`; answers to earlier ones are dropped.
fn receive<M: NetlinkDeserializable>(
    socket: &Socket,
    asked: &str,
    sequence: u32,
    answer: Answer,
) -> Result<VecDeque<M>, NetlinkError> {
    let deadline = Instant::now() + TIMEOUT;
    let mut found = VecDeque::new();
    loop {
        wait(socket, asked, deadline)?;
        let (bytes, _) = socket
            .recv_from_full()
            .map_err(|error| io_error(asked, &error))?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<M>::deserialize(rest)
                .map_err(|error| other(asked, &format!("an answer that can't be read: {error}")))?;
            // Messages are padded to 4 bytes, the last one perhaps not.
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or(&[]);
            if message.header.sequence_number != sequence {
                continue;
            }
            let multipart = message.header.flags & NLM_F_MULTIPART != 0;
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => {
                    found.push_back(inner);
                    if answer == Answer::One && !multipart {
                        return Ok(found);
                    }
                    if found.len() > MESSAGES_MAX {
                        return Err(other(asked, "an answer without an end"));
                    }
                }
                NetlinkPayload::Error(error) => match error.code {
                    None => return Ok(found),
                    Some(code) => return Err(refused(asked, code)),
                },
                NetlinkPayload::Done(_) => return Ok(found),
                NetlinkPayload::Overrun(_) => return Err(other(asked, "an overrun")),
                _ => {}
            }
        }
    }
}

fn wait(socket: &Socket, asked: &str, deadline: Instant) -> Result<(), NetlinkError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(other(asked, "no answer in time"));
        }
        let timeout = left.try_into().ok();
        match rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(io_error(asked, &errno.into())),
        }
    }
}

fn refused(asked: &str, code: NonZeroI32) -> NetlinkError {
    let errno = Errno::from_raw_os_error(code.get().saturating_abs());
    NetlinkError {
        asked: asked.to_owned(),
        found: Found::Refused(errno),
    }
}

fn io_error(asked: &str, error: &io::Error) -> NetlinkError {
    match Errno::from_io_error(error) {
        Some(errno) => NetlinkError {
            asked: asked.to_owned(),
            found: Found::Refused(errno),
        },
        None => other(asked, &error.to_string()),
    }
}

pub(crate) fn other(asked: &str, found: &str) -> NetlinkError {
    NetlinkError {
        asked: asked.to_owned(),
        found: Found::Other(found.to_owned()),
    }
}
