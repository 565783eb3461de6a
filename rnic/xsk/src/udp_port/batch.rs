//! What is sent by one call: frames at the front of the queue, as messages. Consecutive datagrams of one way that are
//! equally long, of which the last may be shorter, are one message (`UDP_SEGMENT`); so are the fragments of a packet.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::headers::Outgoing;
use super::sys::{MESSAGES_MAX, Message, PARTS_MAX, Route};

/// The most datagrams of a message: what any kernel with `UDP_SEGMENT` takes.
pub(super) const SEGMENTS_MAX: usize = 64;
/// The most bytes of a message.
const BYTES_MAX: usize = 65_000;

/// The messages of a call.
pub(super) struct Batch<'a> {
    messages: [Message; MESSAGES_MAX],
    count: usize,
    parts: [IoSlice<'a>; PARTS_MAX],
    used: usize,
    /// The first message is a packet that the kernel may fragment; there is no other.
    pub(super) is_fragmented: bool,
}

impl<'a> Batch<'a> {
    /// Of frames at the front of the queue; none when the first is not to be sent: it is no datagram, or a fragment whose
    /// others are not there. `alone`: so many frames are not to be together with others.
    pub(super) fn of(frames: impl Iterator<Item = &'a [u8]>, alone: usize) -> Option<Self> {
        let none = Message {
            route: Route {
                local: Ipv4Addr::UNSPECIFIED.into(),
                remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
                class: 0,
            },
            parts: 0,
            segment: None,
        };
        let mut batch = Self {
            messages: [none; MESSAGES_MAX],
            count: 0,
            parts: [IoSlice::new(&[]); PARTS_MAX],
            used: 0,
            is_fragmented: false,
        };
        let mut run = Run::default();
        for (index, frame) in frames.enumerate() {
            let Some(outgoing) = Outgoing::of(frame) else {
                break;
            };
            let payload = outgoing.payload();
            if let Some((offset, more)) = outgoing.part {
                let follows = batch.is_fragmented || (index == 0 && offset == 0);
                if !follows || batch.used == PARTS_MAX {
                    break;
                }
                if index == 0 {
                    batch.begin(outgoing.route(frame));
                    batch.is_fragmented = true;
                }
                batch.add(&frame[payload]);
                if !more {
                    return Some(batch);
                }
                continue;
            }
            let route = outgoing.route(frame);
            let joins = index > alone && run.takes(route, payload.len());
            let full = batch.used == PARTS_MAX || (!joins && batch.count == MESSAGES_MAX);
            if batch.is_fragmented || full {
                break;
            }
            if joins {
                batch.join(run.segment);
            } else {
                batch.begin(route);
                run = Run::of(route, payload.len());
            }
            batch.add(&frame[payload]);
        }
        // The last fragment would have been returned with.
        (batch.count > 0 && !batch.is_fragmented).then_some(batch)
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages[..self.count]
    }

    pub(super) fn messages_and_parts(&mut self) -> (&[Message], &mut [IoSlice<'a>]) {
        (&self.messages[..self.count], &mut self.parts[..self.used])
    }

    fn begin(&mut self, route: Route) {
        self.messages[self.count] = Message {
            route,
            parts: 0,
            segment: None,
        };
        self.count += 1;
    }

    fn join(&mut self, segment: usize) {
        self.messages[self.count - 1].segment = Some(segment as u16);
    }

    fn add(&mut self, bytes: &'a [u8]) {
        self.parts[self.used] = IoSlice::new(bytes);
        self.used += 1;
        self.messages[self.count - 1].parts += 1;
    }
}

/// Datagrams that may be one message.
#[derive(Default)]
struct Run {
    route: Option<Route>,
    segment: usize,
    count: usize,
    bytes: usize,
}

impl Run {
    fn of(route: Route, len: usize) -> Self {
        Self {
            route: Some(route),
            segment: len,
            count: 1,
            bytes: len,
        }
    }

    /// Whether one more belongs to it, which it then does.
    fn takes(&mut self, route: Route, len: usize) -> bool {
        let takes = self.route == Some(route)
            && len > 0
            && len <= self.segment
            && self.count < SEGMENTS_MAX
            && self.bytes + len <= BYTES_MAX;
        if takes {
            self.count += 1;
            self.bytes += len;
        }
        if len < self.segment {
            // A shorter one is the last.
            self.route = None;
        }
        takes
    }
}
