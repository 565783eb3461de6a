//! One association of ours over UDP (RFC 6951), and one DDP Stream Session on it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rnic_proto::sctp::{
    ADAPTATION_DDP, ControlChunk, DdpSsn, PPID_CONTROL, PPID_SEGMENT, Session, Told, UserData,
};
use userspace_sctp::{AssocId, Config, Ends, Event, Outgoing, Route, Stack};

/// Bytes of an untagged DDP header with RDMAP's (RFC 5041 section 4.3, RFC 5040 section 4.1).
const HEADER: usize = 18;
/// The segment is its message's last (RFC 5041 section 4.3).
const LAST: u8 = 0x40;
const DDP_VERSION: u8 = 1;
/// RDMAP's version and the opcode of a Send.
const SEND: u8 = 0x43;
/// How long the whole may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Our end of an association.
pub struct Driver {
    socket: UdpSocket,
    to: SocketAddr,
    stack: Stack<Vec<u8>>,
    begun: Instant,
    /// One packet in so many is lost, both ways.
    loss: Option<u64>,
    packets: u64,
    pub id: Option<AssocId>,
    pub events: Vec<Event>,
    /// Chunks that came and are not next in order, by their places: PPID and user data.
    held: BTreeMap<u64, (u32, Vec<u8>)>,
    next: u64,
    pub session: Session,
    /// What the peer said by control messages.
    pub told: Vec<String>,
    /// What of the peer's ended the session.
    pub violation: Option<String>,
    /// Sends that came, the last perhaps in parts.
    pub received: Vec<Vec<u8>>,
    whole: usize,
    sent: u32,
    /// Segments that wait for the windows.
    queue: Vec<Vec<u8>>,
}

impl Driver {
    /// With a UDP socket of the calling thread's namespace.
    pub fn new(local: SocketAddr, to: SocketAddr, loss: Option<u64>) -> Self {
        let socket = UdpSocket::bind(local).expect("a UDP socket");
        let look = Duration::from_millis(1);
        socket.set_read_timeout(Some(look)).expect("a timeout");
        let config = Config {
            adaptation: Some(ADAPTATION_DDP),
            udp_port: Some(local.port()),
            ..Config::default()
        };
        Self {
            socket,
            to,
            stack: Stack::new(config, [5; 16], userspace_net::Instant::ZERO),
            begun: Instant::now(),
            loss,
            packets: 0,
            id: None,
            events: Vec::new(),
            held: BTreeMap::new(),
            next: 0,
            session: Session::passive(),
            told: Vec::new(),
            violation: None,
            received: Vec::new(),
            whole: 0,
            sent: 0,
            queue: Vec::new(),
        }
    }

    fn now(&self) -> userspace_net::Instant {
        userspace_net::Instant::ZERO + self.begun.elapsed()
    }

    pub fn listen(&mut self, port: u16) {
        let local = SocketAddr::new(self.socket.local_addr().expect("bound").ip(), port);
        self.stack.listen(local).expect("nobody else listens");
    }

    pub fn connect(&mut self, port: u16) {
        let local = SocketAddr::new(self.socket.local_addr().expect("bound").ip(), 5000);
        let remote = SocketAddr::new(self.to.ip(), port);
        let route = Route {
            ends: Ends { local, remote },
            udp: Some(self.to.port()),
        };
        let id = self.stack.connect(self.now(), route);
        self.id = Some(id.expect("an association"));
        self.until("an association", |driver| {
            driver
                .events
                .iter()
                .any(|it| matches!(it, Event::Established(_)))
        });
    }

    /// Runs until this holds.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        while !holds(self) {
            let state = (&self.events, &self.told, self.received.len(), &self.session);
            assert!(self.begun.elapsed() < LIMIT, "{what}: {state:?}");
            self.turn();
        }
    }

    /// Runs for so long.
    pub fn linger(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn();
        }
    }

    fn is_lost(&mut self) -> bool {
        self.packets += 1;
        self.loss
            .is_some_and(|one_in| self.packets.is_multiple_of(one_in))
    }

    fn turn(&mut self) {
        let mut packet = [0; 2048];
        if let Ok((len, from)) = self.socket.recv_from(&mut packet)
            && !self.is_lost()
        {
            assert_eq!(from, self.to);
            let (now, local) = (self.now(), self.socket.local_addr().expect("bound").ip());
            let mut came = Vec::new();
            self.stack.receive(
                now,
                local,
                from.ip(),
                Some(from.port()),
                &packet[..len],
                |id, message| {
                    assert_eq!(message.stream, 0);
                    came.push((id, message.protocol, message.payload.to_vec()));
                },
            );
            for (id, protocol, bytes) in came {
                self.stack.consumed(now, id, bytes.len());
                self.take(protocol, bytes);
            }
        }
        let now = self.now();
        self.stack.advance(now);
        while let Some((id, event)) = self.stack.poll_event() {
            if let Event::Incoming(_) = event {
                self.id = Some(id);
            }
            self.events.push(event);
        }
        while self.stack.poll_released().is_some() {
            self.session.acknowledged(1);
        }
        self.send_segments();
        while let Some(sent) = self.stack.poll_transmit(now, &mut packet) {
            if !self.is_lost() {
                let bytes = &packet[..sent.len];
                let port = sent.udp.expect("all of it is in UDP").destination;
                self.socket
                    .send_to(bytes, SocketAddr::new(sent.ends.remote.ip(), port))
                    .expect("a packet is sent");
            }
        }
    }

    /// Chunks are taken in the order of their DDP-SSNs. One that is of no legal sequence ends the session.
    fn take(&mut self, protocol: u32, bytes: Vec<u8>) {
        if self.violation.is_some() {
            return;
        }
        let taken = self.hold(protocol, bytes).and_then(|()| self.take_next());
        if let Err(violation) = taken {
            self.violation = Some(violation);
            if let Some(chunk) = self.session.terminate() {
                self.post(PPID_CONTROL, chunk.bytes().to_vec());
            }
        }
    }

    fn hold(&mut self, protocol: u32, bytes: Vec<u8>) -> Result<(), String> {
        let (ssn, _) = UserData::parse(protocol, &bytes).map_err(|error| error.to_string())?;
        let place = ssn.place(self.next).ok_or("a number of no place")?;
        match self.held.insert(place, (protocol, bytes)) {
            None => Ok(()),
            Some(_) => Err("a number that was used".to_owned()),
        }
    }

    fn take_next(&mut self) -> Result<(), String> {
        while let Some((protocol, bytes)) = self.held.remove(&self.next) {
            let data = UserData::parse(protocol, &bytes).map(|(_, data)| data);
            match data.expect("it was parsed before") {
                UserData::Segment(_) if !self.session.takes_segments() => {
                    self.held.insert(self.next, (protocol, bytes));
                    return Ok(());
                }
                UserData::Segment(segment) => {
                    self.session
                        .on_segment()
                        .map_err(|error| error.to_string())?;
                    self.place(segment);
                }
                UserData::Control(control) => {
                    let told = self.session.on_control(&control);
                    let told = told.map_err(|error| error.to_string())?;
                    if told == Told::Terminated {
                        assert_eq!(self.whole, self.received.len(), "a message is cut");
                    }
                    self.told.push(format!("{told:?}"));
                }
            }
            self.next += 1;
        }
        Ok(())
    }

    fn place(&mut self, segment: &[u8]) {
        let (header, payload) = segment.split_at(HEADER);
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four"));
        assert_eq!((header[0] & 0x83, header[1]), (DDP_VERSION, SEND), "a Send");
        let (qn, msn, offset) = (word(6), word(10) as usize, word(14) as usize);
        assert_eq!(qn, 0);
        self.received
            .resize(self.received.len().max(msn), Vec::new());
        let message = &mut self.received[msn - 1];
        assert_eq!(message.len(), offset, "in order");
        message.extend_from_slice(payload);
        self.whole += usize::from(header[0] & LAST != 0);
    }

    /// How many Sends are here whole.
    pub fn whole(&self) -> usize {
        self.whole
    }

    pub fn control(&mut self, chunk: &ControlChunk) {
        self.post(PPID_CONTROL, chunk.bytes().to_vec());
        // What waited for an answer of ours goes on.
        self.take_next().expect("a legal sequence");
    }

    /// Sends the session's last chunk, when that may be.
    pub fn terminate(&mut self) {
        self.until("all is sent", |driver| driver.queue.is_empty());
        let chunk = self.session.terminate().expect("an open session");
        self.control(&chunk);
    }

    /// A message in segments, as many as the windows take.
    pub fn send(&mut self, message: &[u8]) {
        self.sent += 1;
        let id = self.id.expect("an association");
        let most = self.stack.message_max(id) - size_of::<DdpSsn>() - HEADER;
        for offset in (0..message.len().max(1)).step_by(most) {
            let part = &message[offset..message.len().min(offset + most)];
            let last = if offset + most >= message.len() {
                LAST
            } else {
                0
            };
            let mut segment = vec![last | DDP_VERSION, SEND, 0, 0, 0, 0];
            for word in [0, self.sent, offset as u32] {
                segment.extend_from_slice(&word.to_be_bytes());
            }
            segment.extend_from_slice(part);
            self.queue.push(segment);
        }
        self.send_segments();
    }

    fn send_segments(&mut self) {
        let Some(id) = self.id else { return };
        let room = self.stack.room(id).min(self.queue.len());
        let mut rest = std::mem::take(&mut self.queue);
        for segment in rest.drain(..room) {
            let ssn = self.session.number_segment().expect("few are under way");
            self.post(PPID_SEGMENT, [&ssn.0.to_be_bytes()[..], &segment].concat());
        }
        self.queue = rest;
    }

    fn post(&mut self, protocol: u32, buffer: Vec<u8>) {
        let (now, id) = (self.now(), self.id.expect("an association"));
        let outgoing = Outgoing {
            stream: 0,
            protocol,
            buffer,
        };
        self.stack.post(now, id, outgoing).expect("there is room");
    }

    pub fn inits_refused(&self) -> u64 {
        self.stack.counters().inits_refused
    }

    pub fn close(&mut self) {
        let (now, id) = (self.now(), self.id.expect("an association"));
        assert!(self.stack.close(now, id));
    }

    pub fn abort(&mut self) {
        let (now, id) = (self.now(), self.id.expect("an association"));
        assert!(self.stack.abort(now, id, b"on purpose"));
        self.linger(Duration::from_millis(20));
    }
}
