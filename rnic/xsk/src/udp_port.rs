//! A UDP socket as a [`Port`]: for processes without any privilege, wherever the kernel's routes lead
//! (`docs/architecture/udp.md`).
//!
//! What is sent leaves without its Ethernet, IP and UDP headers, which the kernel writes as they say: addresses, ports
//! and class. What comes gets such headers in front. So whoever uses the port sees frames, as of an interface, with
//! link addresses of no meaning. Errors that the kernel reports come as packets of ICMP.
//!
//! One call sends, or receives, as many datagrams of one peer as there are (`UDP_SEGMENT`, `UDP_GRO`), from and into
//! frames. A datagram is in a frame of its own.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use crate::error::XskError;
use crate::frame::Frame;
use crate::packet::Packet;
use crate::pool::FramePool;
use crate::port::{Port, PortStatistics};
use crate::send_queue::SendQueue;
use crate::umem::{CHUNK_HEADROOM, Umem};

mod batch;
mod headers;
#[allow(unsafe_code)]
mod sys;

use batch::{Batch, SEGMENTS_MAX};
use headers::{ERROR_MAX, Fault, HEADERS_MAX, HEADERS_MIN, Outgoing, QUOTED};
use sys::{QueuedError, Received, Route, Socket};

/// The link address of both ends in all frames: no interface has it (a locally administered one).
pub const LINK_ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// The most bytes of a call's datagrams.
const DATAGRAMS_MAX: usize = 1 << 16;
/// The length of datagrams before any came: that of an MTU of 1500.
const FIRST_LEN: usize = 1472;
/// Datagrams that wait for the caller, but for one that sends them by more than any kernel takes at a time.
const READY: usize = 256;
/// Errors that are read, and wait to be received, at a time.
const ERRORS_MAX: usize = 16;
/// Frames that go one by one after the kernel has refused several together.
const ALONE: usize = 4096;

/// A UDP socket of the calling thread's network namespace.
#[derive(Debug)]
pub struct UdpPort {
    socket: Socket,
    local: SocketAddr,
    queue: SendQueue,
    /// So many frames at the front of the queue are not to be sent together with others.
    alone: usize,
    /// Empty ones, to receive into.
    empty: Vec<Frame>,
    /// How long datagrams are taken to be: so much of each frame is received into.
    expected: usize,
    /// What does not fit the frames, behind those.
    beyond: Box<[u8]>,
    /// Datagrams in one piece that came otherwise than expected.
    whole: Box<[u8]>,
    /// Received, and not given to the caller yet.
    ready: VecDeque<Frame>,
    /// A call has failed: the error queue tells why.
    has_errors: bool,
    errors: VecDeque<([u8; ERROR_MAX], usize)>,
    statistics: PortStatistics,
}

impl UdpPort {
    /// Binds to a port of an address of the host, or of all its addresses. `depth` frames may wait to be sent.
    /// `shared`: the port may be bound by others of this user's as well, who ask for that too.
    ///
    /// # Errors
    ///
    /// The kernel's: the port is another's, or the host has not the address.
    pub fn bind(
        umem: &Umem,
        address: Option<IpAddr>,
        port: u16,
        depth: usize,
        shared: bool,
    ) -> io::Result<Self> {
        let socket = Socket::bind(address, port, shared)?;
        let local = socket.local_addr()?;
        Ok(Self {
            socket,
            local,
            queue: SendQueue::new(umem, depth),
            alone: 0,
            empty: Vec::with_capacity(SEGMENTS_MAX),
            expected: FIRST_LEN.min(longest(umem)),
            beyond: vec![0; DATAGRAMS_MAX].into(),
            whole: vec![0; DATAGRAMS_MAX].into(),
            ready: VecDeque::with_capacity(READY),
            has_errors: false,
            errors: VecDeque::with_capacity(ERRORS_MAX),
            statistics: PortStatistics::default(),
        })
    }

    /// How the kernel sends datagrams to `remote`, from `local` or an address of its choice: that address, and the
    /// largest packet that the path takes, as far as is known, in bytes.
    ///
    /// # Errors
    ///
    /// The kernel's: no route leads there, or the host has not the local address.
    pub fn path(remote: IpAddr, local: Option<IpAddr>) -> io::Result<(IpAddr, u32)> {
        sys::path(remote, local)
    }

    /// What it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Receives by one call; false when there is nothing.
    fn read(&mut self, pool: &mut FramePool) -> bool {
        let umem = self.queue.umem();
        let wanted = DATAGRAMS_MAX.div_ceil(self.expected).min(SEGMENTS_MAX);
        while self.empty.len() < wanted
            && let Some(frame) = pool.alloc()
        {
            self.empty.push(frame);
        }
        if self.empty.is_empty() {
            self.statistics.receive_no_frame += 1;
            return false;
        }
        let place = HEADERS_MAX..HEADERS_MAX + self.expected;
        let mut parts: [IoSliceMut<'_>; SEGMENTS_MAX + 1] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let used = self.empty.len().min(wanted);
        // The last one is used first: its memory is the likeliest to be in a cache.
        for (part, frame) in parts.iter_mut().zip(self.empty.iter_mut().rev()).take(used) {
            *part = IoSliceMut::new(&mut umem.bytes_mut(frame)[place.clone()]);
        }
        parts[used] = IoSliceMut::new(&mut self.beyond);
        match self.socket.receive(&mut parts[..=used]) {
            Ok(Some(received)) => self.take(&received, used, pool),
            Ok(None) => self.statistics.bad_receive_chains += 1,
            Err(Errno::AGAIN) => return false,
            Err(Errno::INTR) => {}
            Err(_) => {
                self.has_errors = true;
                return false;
            }
        }
        true
    }

    /// Makes frames of what was received into so many, and what is beyond them.
    fn take(&mut self, received: &Received, used: usize, pool: &mut FramePool) {
        let len = received.len;
        let segment = received.segment.unwrap_or(len).max(1);
        let is_expected = match received.segment {
            Some(segment) if segment < len => segment == self.expected,
            _ => len <= self.expected,
        };
        let count = len.div_ceil(segment);
        if is_expected && count <= used {
            for index in 0..count {
                let Some(frame) = self.empty.pop() else { break };
                self.finish(
                    frame,
                    &received.route,
                    segment.min(len - index * segment),
                    pool,
                );
            }
            return;
        }
        self.gather(len, used);
        if segment > longest(self.queue.umem()) {
            self.statistics.bad_receive_chains += 1;
            return;
        }
        if len > segment || len > self.expected {
            self.expected = segment;
        }
        for from in (0..len).step_by(segment) {
            let to = len.min(from + segment);
            let Some(mut frame) = self.empty.pop().or_else(|| pool.alloc()) else {
                self.statistics.receive_no_frame += 1;
                return;
            };
            let bytes = self.queue.umem().bytes_mut(&mut frame);
            bytes[HEADERS_MAX..HEADERS_MAX + to - from].copy_from_slice(&self.whole[from..to]);
            self.finish(frame, &received.route, to - from, pool);
        }
    }

    /// Copies what was received into so many frames, and beyond them, into one piece.
    fn gather(&mut self, len: usize, used: usize) {
        let (umem, mut at) = (self.queue.umem(), 0);
        for frame in self.empty.iter_mut().rev().take(used) {
            let part = self.expected.min(len - at);
            let bytes = umem.bytes_mut(frame);
            self.whole[at..at + part].copy_from_slice(&bytes[HEADERS_MAX..HEADERS_MAX + part]);
            at += part;
        }
        let beyond = len - at;
        self.whole[at..len].copy_from_slice(&self.beyond[..beyond]);
    }

    /// Puts the headers in front of a datagram that lies behind where the longest ones end.
    fn finish(&mut self, mut frame: Frame, route: &Route, len: usize, pool: &mut FramePool) {
        let bytes = self.queue.umem().bytes_mut(&mut frame);
        let written = headers::write(route, self.local.port(), len, &mut bytes[..HEADERS_MAX]);
        let headers = headers::headers_len(route.local);
        if written.is_none() {
            self.statistics.bad_receive_chains += 1;
            return pool.free(frame);
        }
        let start = usize::from(CHUNK_HEADROOM) + HEADERS_MAX - headers;
        frame.set_data(start as u16, (headers + len) as u16);
        self.received(frame);
    }

    fn received(&mut self, frame: Frame) {
        self.statistics.received += 1;
        self.statistics.received_bytes += frame.len() as u64;
        self.ready.push_back(frame);
    }

    /// The frame at the front of the queue, and so many behind it, are sent or lost.
    fn done(&mut self, count: usize) {
        self.queue.done(count);
        self.alone = self.alone.saturating_sub(count);
    }

    /// Reads the error queue. `too_large`: the frame at the front of the queue was refused for that.
    fn read_errors(&mut self, too_large: bool) {
        let mut quoted = [0; QUOTED];
        for _ in 0..ERRORS_MAX {
            match self.socket.take_error(&mut quoted) {
                Ok(Some(error)) => self.note_error(&error, &quoted, too_large),
                Ok(None) | Err(Errno::INTR) => {}
                Err(_) => {
                    self.has_errors = false;
                    return;
                }
            }
        }
    }

    /// Makes a packet of an error, if it is one that a router or the peer's host would tell.
    fn note_error(&mut self, error: &QueuedError, quoted: &[u8], too_large: bool) {
        let mut route = error.route;
        let is_size = error.errno == libc::EMSGSIZE as u32;
        let (fault, front);
        let quoted = match error.origin {
            libc::SO_EE_ORIGIN_LOCAL if is_size && too_large => {
                fault = Fault::TooLarge(error.info);
                front = self.queue.queued().next().and_then(|frame| {
                    let outgoing = Outgoing::of(frame)?;
                    Some((outgoing.route(frame), frame.get(outgoing.payload())?))
                });
                let Some((own, payload)) = front else { return };
                route = own;
                payload
            }
            libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6 => {
                fault = match is_size {
                    true => Fault::TooLarge(error.info),
                    false => Fault::Told(error.kind, error.code),
                };
                &quoted[..error.len.min(QUOTED)]
            }
            _ => return,
        };
        let mut packet = [0; ERROR_MAX];
        if self.errors.len() < ERRORS_MAX
            && let Some(len) =
                headers::write_error(&route, self.local.port(), fault, quoted, &mut packet)
        {
            self.errors.push_back((packet, len));
        }
    }

    /// Has the errors received like packets.
    fn give_errors(&mut self, pool: &mut FramePool) {
        while !self.errors.is_empty()
            && let Some(mut frame) = pool.alloc()
            && let Some((packet, len)) = self.errors.pop_front()
        {
            self.queue.umem().bytes_mut(&mut frame)[..len].copy_from_slice(&packet[..len]);
            frame.set_len(len);
            self.received(frame);
        }
    }

    /// Sends by one call; false when the rest has to wait. `again`: the same was refused before.
    fn send(&mut self, again: bool) -> Sent {
        let Some(mut batch) = Batch::of(self.queue.queued(), self.alone) else {
            return Sent::Lost(1);
        };
        let first = batch.messages()[0];
        let fragmented = batch.is_fragmented;
        if fragmented && self.socket.set_fragments(true).is_err() {
            return Sent::Lost(first.parts);
        }
        let (messages, parts) = batch.messages_and_parts();
        let result = self.socket.send(messages, parts);
        let taken = |sent: usize| messages[..sent.min(messages.len())].iter();
        let sent = match result {
            Ok(sent) => {
                for message in taken(sent).filter(|message| message.segment.is_some()) {
                    self.statistics.super_packets_sent += 1;
                    self.statistics.super_packet_segments_sent += message.parts as u64;
                }
                Sent::Taken(taken(sent).map(|message| message.parts).sum())
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::NOMEM) => Sent::Waits,
            Err(Errno::NOBUFS) => Sent::Lost(first.parts),
            // What is refused may be the error of an earlier datagram, which is told once.
            Err(_) if !again => Sent::Refused,
            Err(errno) if first.segment.is_some() => {
                self.alone = match errno {
                    Errno::MSGSIZE => first.parts,
                    _ => ALONE,
                };
                Sent::Refused
            }
            Err(Errno::MSGSIZE) => {
                self.read_errors(true);
                Sent::Lost(first.parts)
            }
            Err(_) => Sent::Lost(first.parts),
        };
        self.statistics.send_calls += 1;
        if fragmented {
            let _ = self.socket.set_fragments(false);
        }
        sent
    }
}

/// What happened to the frames at the front of the queue.
enum Sent {
    Taken(usize),
    Lost(usize),
    /// The socket takes no more now.
    Waits,
    /// They are to be tried once more.
    Refused,
}

/// The longest datagram that a frame takes.
fn longest(umem: &Umem) -> usize {
    umem.chunk().chunk_capacity() - HEADERS_MAX
}

impl Port for UdpPort {
    fn umem(&self) -> &Umem {
        self.queue.umem()
    }

    fn receive(&mut self, pool: &mut FramePool, out: &mut Vec<Packet>, max: usize) -> usize {
        if self.has_errors {
            self.read_errors(false);
        }
        if !self.errors.is_empty() {
            self.give_errors(pool);
        }
        while self.ready.len() < max && self.read(pool) {}
        let count = self.ready.len().min(max);
        out.extend(self.ready.drain(..count).map(Packet::from));
        count
    }

    fn transmit_room(&mut self) -> usize {
        self.queue.room()
    }

    fn transmit(&mut self, frame: Frame, cookie: u64) -> Result<(), Frame> {
        self.queue.push(frame, cookie, &mut self.statistics)
    }

    fn flush(&mut self) -> Result<(), XskError> {
        let mut again = false;
        while self.queue.unsent() > 0 {
            match self.send(again) {
                Sent::Taken(count) => self.done(count),
                Sent::Lost(count) => {
                    self.statistics.send_dropped += count as u64;
                    self.done(count);
                }
                Sent::Waits => {
                    self.statistics.send_busy += 1;
                    break;
                }
                Sent::Refused => {
                    self.has_errors = true;
                    again = true;
                    continue;
                }
            }
            again = false;
        }
        Ok(())
    }

    fn unsent(&mut self) -> usize {
        self.queue.unsent()
    }

    fn copy_transmitted(&self, index: usize, pool: &mut FramePool) -> Option<Frame> {
        self.queue.copy(index, pool)
    }

    fn completed(&mut self) -> Option<(Frame, u64)> {
        self.queue.completed(&mut self.statistics)
    }

    fn refill(&mut self, _: &mut FramePool) {}

    fn prepare_sleep(&mut self, _: &mut FramePool) {}

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn frame_capacity(&self) -> usize {
        // What is received is behind as much room as the longest headers take.
        longest(self.umem()) + HEADERS_MIN
    }

    fn statistics(&self) -> PortStatistics {
        self.statistics
    }

    fn is_of_kernel(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
