//! Trains: segments of one flow that come one behind the other in a batch of frames and say nothing
//! but their octets. TCP takes them as one when they are the next in order, as it would from an adapter
//! with large receive offload, so that what a segment costs is paid once for all of them.
//!
//! A segment lies in one frame or in several; it makes no difference but for the cars that it takes.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use rnic_net::{KnownHeaders, Path, Recognised};
use rnic_xsk::{CHUNKS_MAX, Frame, Packet, Umem};
use userspace_tcp::{Ecn, Flags, Following, FourTuple, Likely, NewRange, SeqNum, TcpHeader};

/// A received segment.
#[derive(Debug)]
pub(super) struct RxSegment {
    /// One frame or several.
    pub packet: Packet,
    /// Where its payload begins in the first frame.
    pub start: usize,
    /// Octets of payload in all frames.
    pub len: usize,
    /// The payload was found to end with the CRC32C of what is before.
    pub sound: bool,
}

/// What the headers of a segment say.
#[derive(Debug)]
pub(super) enum Headers<'a> {
    /// They were parsed.
    Parsed(&'a mut Head),
    /// They were [recognised](Train::recognise): they are the known ones, but for this.
    Recognised(&'a Recognised),
}

/// So many segments of one flow in a row, each by itself, make its headers worth knowing: to learn them
/// takes as long as to parse two or three. The flow that is known is worth it at once.
const ROW_MIN: u32 = 8;

/// Cars of a train at most: as many segments, where each has one frame.
pub(super) const CARS_MAX: usize = 16;

/// Segments that wait for the next one.
#[derive(Debug, Default)]
pub(super) struct Train {
    head: Option<Head>,
    cars: VecDeque<Car>,
    octets: usize,
    segments: usize,
    /// A flow of which a train was, and its headers: the next segments of it are recognised by them.
    known: Option<(Head, KnownHeaders)>,
    /// The train is of that flow.
    is_known: bool,
    /// The flow of the last segment that was parsed, and how many of it were in a row.
    row: Option<(FourTuple, u32)>,
}

/// What all segments of a train have in common: all that the first one says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub tuple: FourTuple,
    /// Where TCP is likely to have the connection.
    pub likely: Likely,
    pub path: Path,
    pub port: usize,
    pub ecn: Ecn,
    pub header: TcpHeader,
}

impl Head {
    /// That of another segment, which says this.
    pub fn saying(&self, says: &Recognised) -> Self {
        let header = header_of(self, says);
        Self { header, ..*self }
    }

    /// Whether another segment of the flow has the same headers but for what goes on with each, and
    /// timestamps.
    fn is_as(&self, other: &Self) -> bool {
        let of = |head: &Self| (head.tuple, head.port, head.ecn, head.path);
        let flags = |head: &Self| head.header.flags | Flags::PSH;
        let has_timestamps = |head: &Self| head.header.options.timestamps.is_some();
        let plain = |head: &Self| head.header.options.sack.is_empty();
        of(self) == of(other)
            && flags(self) == flags(other)
            && has_timestamps(self) == has_timestamps(other)
            && plain(self)
            && plain(other)
    }
}

/// The frame of one segment, or of a part of one, and where its payload lies.
#[derive(Debug)]
pub(super) struct Car {
    pub frame: Frame,
    pub start: usize,
    pub len: usize,
    /// Its segment's payload was found to end with the CRC32C of what is before.
    pub sound: bool,
    /// Its segment goes on in the next car.
    pub goes_on: bool,
}

impl Train {
    pub fn new() -> Self {
        Self {
            cars: VecDeque::with_capacity(CARS_MAX),
            ..Self::default()
        }
    }

    /// Whether a segment belongs to this train, which is not empty: it only continues the one before.
    #[inline(always)]
    pub fn is_continued_by(&self, headers: &Headers<'_>, segment: &RxSegment) -> bool {
        let Some(first) = &self.head else {
            return false;
        };
        let frames = match segment.packet.is_single() {
            true => 1,
            false => segment.packet.frames().count(),
        };
        self.has_place(segment.len, frames)
            && match headers {
                // All else is as it was known.
                Headers::Recognised(found) => {
                    self.is_known
                        && found.seq == self.behind(first)
                        && first
                            .header
                            .is_only_continued(found.ack, found.window, found.flags)
                }
                Headers::Parsed(next) => {
                    next.header
                        .only_continues(&first.header, self.behind(first))
                        && (next.tuple, next.ecn) == (first.tuple, first.ecn)
                        && (next.port, next.path) == (first.port, first.path)
                }
            }
    }

    /// Begins anew, with a segment that has these headers; the train is empty. False when they were
    /// recognised, and what is known was forgotten since.
    pub fn begin(&mut self, headers: &Headers<'_>) -> bool {
        let head = match headers {
            Headers::Recognised(found) => {
                let Some((known, _)) = &self.known else {
                    return false;
                };
                self.is_known = true;
                known.saying(found)
            }
            Headers::Parsed(head) => {
                self.is_known = false;
                let known = self.known.as_ref();
                self.row = match self.row {
                    // As it was known but for the time of its timestamps, which go on each millisecond.
                    _ if known.is_some_and(|(known, _)| known.is_as(head)) => {
                        Some((head.tuple, ROW_MIN))
                    }
                    Some((flow, count)) if flow == head.tuple => Some((flow, count + 1)),
                    _ => Some((head.tuple, 1)),
                };
                **head
            }
        };
        self.head = Some(head);
        true
    }

    /// Takes a segment that the train was [begun](Self::begin) with, or that
    /// [continues](Self::is_continued_by) it.
    #[inline]
    pub fn push(&mut self, segment: RxSegment) {
        let RxSegment {
            packet,
            mut start,
            len: mut left,
            sound,
        } = segment;
        self.octets += left;
        self.segments += 1;
        let mut frames = packet.into_frames().peekable();
        while let Some(frame) = frames.next() {
            let len = left.min(frame.len().saturating_sub(start));
            self.cars.push_back(Car {
                goes_on: frames.peek().is_some(),
                frame,
                start,
                len,
                sound,
            });
            (start, left) = (0, left - len);
        }
    }

    /// Whether a segment with so many octets in so many frames may belong to this train. One without
    /// any octets says something else, whichever of the two it is.
    fn has_place(&self, len: usize, frames: usize) -> bool {
        self.cars.len() + frames <= CARS_MAX && self.octets > 0 && len > 0
    }

    /// Where the next segment begins.
    fn behind(&self, first: &Head) -> SeqNum {
        first.header.seq.add(self.octets as u32)
    }

    /// What a packet says that came by `port`, if its flow is the known one. `sum` is as for
    /// [`KnownHeaders::recognise`].
    pub fn recognise(
        &self,
        packet: &Packet,
        umem: &Umem,
        port: usize,
        sum: impl FnMut(&[u8]) -> u16,
    ) -> Option<Recognised> {
        let (head, headers) = self.known.as_ref()?;
        let mut slices = [&[][..]; CHUNKS_MAX];
        let (first, rest) = packet.slices(umem, &mut slices).split_first()?;
        headers
            .recognise(first, rest, sum)
            .filter(|_| head.port == port)
    }

    /// What is known of a segment that was [recognised](Self::recognise), and its header, for one that
    /// goes by itself: the train is empty.
    pub fn head_of(&self, found: &Recognised) -> Option<(&Head, TcpHeader)> {
        let (known, _) = self.known.as_ref()?;
        Some((known, header_of(known, found)))
    }

    /// Where the segments of a train are put.
    pub fn cars(&mut self) -> &mut VecDeque<Car> {
        &mut self.cars
    }

    /// The flow whose segments by `port` are recognised, and its headers.
    pub fn known(&self, port: usize) -> Option<(&Head, &KnownHeaders)> {
        let (head, headers) = self.known.as_ref()?;
        (head.port == port).then_some((head, headers))
    }

    /// Learns the headers of a train that has grown to two segments, or comes behind others of its flow,
    /// so that there will be more; of the first one's frame, by the place of its payload.
    /// `flow_of` says where its connection is.
    pub fn know(
        &mut self,
        headers_of: impl FnOnce(&Frame, usize) -> Option<KnownHeaders>,
        flow_of: impl FnOnce(&Head) -> Likely,
    ) {
        let in_a_row = self.row.is_some_and(|(_, count)| count >= ROW_MIN);
        if self.is_known || self.segments != 2 && !in_a_row {
            return;
        }
        self.row = None;
        if let (Some(head), Some(car)) = (self.head, self.cars.front())
            && let Some(headers) = headers_of(&car.frame, car.start)
        {
            let likely = flow_of(&head);
            self.known = Some((Head { likely, ..head }, headers));
            self.is_known = true;
        }
    }

    /// What is known says no more what parsing would.
    pub fn forget(&mut self) {
        self.known = None;
        self.is_known = false;
    }

    /// The train is over: what its segments have in common, and the segments, which are to be taken
    /// out.
    pub fn take(&mut self) -> Option<(Head, &mut VecDeque<Car>)> {
        self.octets = 0;
        self.segments = 0;
        Some((self.head.take()?, &mut self.cars))
    }
}

/// The TCP header of a segment that was recognised.
fn header_of(known: &Head, found: &Recognised) -> TcpHeader {
    TcpHeader {
        seq: found.seq,
        ack: found.ack,
        window: found.window,
        flags: found.flags,
        ..known.header
    }
}

impl RxSegment {
    /// A segment whose payload is there, counted from the packet's beginning.
    #[inline]
    pub fn new(packet: Packet, payload: &Range<usize>, sound: bool) -> Self {
        Self {
            packet,
            start: payload.start,
            len: payload.len(),
            sound,
        }
    }

    /// Its car, if it lies in one frame.
    ///
    /// # Errors
    ///
    /// Its packet, if it lies in several.
    pub fn into_car(self) -> Result<Car, Packet> {
        Ok(Car {
            frame: self.packet.into_single()?,
            start: self.start,
            len: self.len,
            sound: self.sound,
            goes_on: false,
        })
    }
}

impl Car {
    /// The octets of its segment.
    pub fn payload<'a>(&'a self, umem: &'a Umem) -> &'a [u8] {
        let octets = umem.bytes(&self.frame);
        octets.get(self.start..self.start + self.len).unwrap_or(&[])
    }

    /// What of new octets, of all cars taken together, lies in this car, which begins `before` octets
    /// behind the first: where in its frame, and how many octets.
    pub fn part(&self, before: usize, new: &NewRange) -> (usize, usize) {
        let (skip, len) = (new.skip as usize, new.len as usize);
        let from = skip.clamp(before, before + self.len);
        let to = (skip + len).clamp(from, before + self.len);
        (self.start + (from - before), to - from)
    }
}

/// What follows the first car of some segments.
pub(super) fn following<'a>(mut cars: impl Iterator<Item = &'a Car>) -> Following {
    let Some(first) = cars.next() else {
        return Following::default();
    };
    let mut behind = Following {
        longest: first.len as u32,
        ..Following::default()
    };
    let (mut len, mut goes_on) = (first.len as u32, first.goes_on);
    for car in cars {
        if !goes_on {
            behind.segments += 1;
            len = 0;
        }
        len += car.len as u32;
        behind.octets += car.len as u32;
        behind.longest = behind.longest.max(len);
        goes_on = car.goes_on;
    }
    behind
}

/// Of some segments' cars, how many are the first one's.
pub(super) fn cars_of_first(cars: &VecDeque<Car>) -> usize {
    let more = cars.iter().take_while(|car| car.goes_on);
    (more.count() + 1).min(cars.len())
}
