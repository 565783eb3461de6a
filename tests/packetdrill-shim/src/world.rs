//! The stack, its sockets and its packets at one moment of virtual time.
//!
//! Nothing here blocks: a call that would have to wait says `EAGAIN`, and `shim` decides.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::time::Duration;

use libc::c_int;
use rnic_net::{Identification, PathDefaults, Quoted};
use userspace_net::{Endpoint, FourTuple, Instant};
use userspace_tcp::{ConnId, ConnOptions, Event, Segment, Stack, Transmit};

use crate::connection::{Buffer, Choices, Connection, Heap};
use crate::errno::{Result, fail};
use crate::packets;
use crate::settings::Settings;

/// When it begins: some time after the epoch, so that nothing is before it.
const BEGIN: Instant = Instant::from_nanos(1_000_000_000_000);
/// Sockets at a time, and packets that nobody has asked for yet; the latest are dropped.
pub(crate) const SOCKETS_MAX: usize = 1024;
const PACKETS_MAX: usize = 65_536;
/// Initial sequence numbers and the like are the same in every run.
const SECRET: [u8; 16] = *b"same every time!";

/// What a descriptor means.
#[derive(Debug)]
pub(crate) enum Kind {
    /// socket(2), and perhaps bind(2).
    Fresh,
    Listening {
        local: Endpoint,
        /// Established, and not accepted yet.
        queue: VecDeque<ConnId>,
    },
    Connected(ConnId),
}

#[derive(Debug)]
pub(crate) struct Socket {
    /// What the process has under the socket's number: packetdrill closes what a script left open
    /// by close(2) itself.
    pub(crate) placeholder: File,
    pub(crate) kind: Kind,
    /// AF_INET or AF_INET6.
    pub(crate) domain: c_int,
    pub(crate) bound: Option<Endpoint>,
    pub(crate) nonblocking: bool,
    pub(crate) mss: Option<u16>,
    pub(crate) choices: Choices,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) now: Instant,
    pub(crate) stack: Stack<Buffer>,
    pub(crate) heap: Heap,
    pub(crate) sockets: BTreeMap<c_int, Socket>,
    pub(crate) connections: BTreeMap<ConnId, Connection>,
    identification: Identification,
    /// What was sent, and when.
    outbox: VecDeque<(Instant, Vec<u8>)>,
}

impl Socket {
    pub(crate) fn new(kind: Kind, domain: c_int) -> Result<Self> {
        Ok(Self {
            placeholder: File::open("/dev/null").or(fail(libc::EMFILE))?,
            kind,
            domain,
            bound: None,
            nonblocking: false,
            mss: None,
            choices: Choices::default(),
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What is open by now packetdrill has closed, or leaves to the end of the process.
        for (_, socket) in std::mem::take(&mut self.sockets) {
            let _ = socket.placeholder.into_raw_fd();
        }
    }
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let config = settings.config.clone();
        Self {
            now: BEGIN,
            heap: Heap {
                size: config.mss.into(),
            },
            stack: Stack::new(config, SECRET, BEGIN),
            settings,
            sockets: BTreeMap::new(),
            connections: BTreeMap::new(),
            identification: Identification::new(SECRET),
            outbox: VecDeque::new(),
        }
    }

    pub(crate) fn add(&mut self, socket: Socket) -> Result<c_int> {
        if self.sockets.len() >= SOCKETS_MAX {
            return fail(libc::EMFILE);
        }
        let fd = socket.placeholder.as_raw_fd();
        self.sockets.insert(fd, socket);
        Ok(fd)
    }

    pub(crate) fn socket(&mut self, fd: c_int) -> Result<&mut Socket> {
        match self.sockets.get_mut(&fd) {
            Some(socket) => Ok(socket),
            None => fail(libc::EBADF),
        }
    }

    /// When time has to be told to pass at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        // It may be in the past by what a step of the timer wheel is.
        let soon = self.now + Duration::from_micros(1);
        self.stack.next_deadline().map(|at| at.max(soon))
    }

    /// Lets time pass up to `at`, which is not beyond the next deadline.
    pub(crate) fn advance(&mut self, at: Instant) {
        self.now = self.now.max(at);
        self.stack.advance(self.now);
        self.settle();
    }

    /// The next packet that was sent, and when.
    pub(crate) fn take_packet(&mut self) -> Option<(Instant, Vec<u8>)> {
        self.outbox.pop_front()
    }

    /// Takes a packet from the peer. What can't be used is dropped, as a host would.
    pub(crate) fn receive(&mut self, datagram: &[u8]) {
        let path = self.settings.path;
        let frame = packets::frame(&path, datagram);
        if let Ok(parsed) = rnic_net::parse(&frame, &PathDefaults::new(path.mtu))
            && let Some(tcp) = parsed.tcp()
        {
            if let Ok(segment) = Segment::parse(&frame[tcp]) {
                self.receive_segment(parsed.tuple, &segment.with_ecn(parsed.ecn));
            }
        } else if let Some(report) = packets::icmp(datagram)
            && let Quoted::Segment { seq } = report.quoted
        {
            self.stack.icmp(self.now, report.tuple, seq, report.error);
        }
        self.settle();
    }

    fn receive_segment(&mut self, tuple: FourTuple, segment: &Segment<'_>) {
        let options = self.options_at(tuple);
        let received = self.stack.receive(self.now, tuple, segment, options);
        // They introduce the connection that the bytes are of.
        self.take_events();
        let Some(id) = received.conn.filter(|_| !received.new.is_empty()) else {
            return;
        };
        match self.connections.get_mut(&id) {
            // Bytes that nobody will ever read (RFC 2525 section 2.17).
            Some(connection) if connection.orphan => {
                self.stack.abort(id);
                self.connections.remove(&id);
            }
            Some(connection) => connection.arrived(&mut self.heap, segment.payload, &received),
            None => {}
        }
    }

    /// Of a connection that a SYN may open.
    fn options_at(&self, tuple: FourTuple) -> ConnOptions {
        let listener = self.sockets.values().find(|socket| match socket.kind {
            Kind::Listening { local, .. } => {
                local.port == tuple.local.port
                    && (local.addr.is_unspecified() || local.addr == tuple.local.addr)
            }
            _ => false,
        });
        self.options(listener.and_then(|socket| socket.mss), tuple)
    }

    pub(crate) fn options(&self, mss: Option<u16>, tuple: FourTuple) -> ConnOptions {
        let most = self.settings.path.mss(tuple.remote.addr);
        ConnOptions {
            mss: mss.map_or(most, |mss| mss.min(most)),
        }
    }

    /// After anything that may have changed a connection: everything that follows from it now.
    pub(crate) fn settle(&mut self) {
        loop {
            self.take_events();
            for connection in self.connections.values_mut() {
                connection.feed(&mut self.stack, self.now, &mut self.heap);
            }
            let mut sent = false;
            while let Some(segment) = self.stack.poll_transmit(self.now) {
                sent = true;
                self.transmit(segment);
            }
            while self.stack.poll_released().is_some() {}
            if !sent {
                break;
            }
        }
    }

    fn transmit(&mut self, segment: Transmit<Buffer>) {
        let path = &self.settings.path;
        let packets = packets::datagrams(path, &mut self.identification, &segment);
        for packet in packets {
            if self.outbox.len() < PACKETS_MAX {
                self.outbox.push_back((self.now, packet));
            }
        }
        if let (Some(id), Some(payload)) = (segment.conn, segment.payload) {
            drop(self.stack.transmitted(id, payload.id, payload.buf));
        }
    }

    fn take_events(&mut self) {
        while let Some((id, event)) = self.stack.poll_event() {
            if let Event::Incoming { listener, tuple } = event {
                self.introduce(id, listener, tuple);
            }
            let over = match self.connections.get_mut(&id) {
                Some(connection) => {
                    connection.on_event(event, &mut self.heap);
                    connection.orphan && self.stack.info(id).is_none()
                }
                None => false,
            };
            if over {
                self.connections.remove(&id);
            }
        }
    }

    /// A connection to a listener.
    fn introduce(&mut self, id: ConnId, listener: Endpoint, tuple: FourTuple) {
        let window = self.settings.config.receive_window;
        let found = self.sockets.values_mut().find_map(|socket| {
            let choices = socket.choices;
            match &mut socket.kind {
                Kind::Listening { local, queue } if *local == listener => Some((queue, choices)),
                _ => None,
            }
        });
        match found {
            Some((queue, choices)) => {
                queue.push_back(id);
                let connection = Connection::new(id, tuple, window, choices);
                self.connections.insert(id, connection);
            }
            None => {
                self.stack.abort(id);
            }
        }
    }
}
