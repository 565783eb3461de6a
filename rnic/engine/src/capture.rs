//! A tap on every frame that a shard receives or sends. Frames that XDP takes never reach the kernel's packet
//! sockets, so this is the only place where they can be seen.
//!
//! There are two taps. One sees each batch of frames that a port received, before any decision about a frame.
//! The other sees each frame that is handed to a port (`Tap`). Nothing else asks whether a capture is on, so
//! the same code handles each segment with and without one.
//!
//! Without a capture the data path pays one comparison for each received batch and one for each sent frame. A
//! capture must not hold up the data path: a sink that is full drops frames and counts them.

use rnic_ipc::capture::{Direction, Filter};
use rnic_net::Flow;
use rnic_xsk::{CHUNKS_MAX, Frame, Packet, Umem};
use userspace_net::Instant;

/// Takes copies of frames. Called on the shard's core: it must not block.
pub trait Capture: Send + std::fmt::Debug {
    /// An Ethernet frame, without FCS, as received or as handed to the link.
    fn frame(&mut self, frame: &SeenFrame<'_>);
}

/// A frame as a capture sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenFrame<'a> {
    /// Nanoseconds since 1970-01-01 UTC.
    pub unix_ns: u64,
    /// Whether it was received or sent.
    pub direction: Direction,
    /// Its bytes from the first, as many as are wanted.
    pub bytes: &'a [u8],
    /// Bytes that it has.
    pub original: usize,
}

#[derive(Debug)]
pub(crate) struct Captures {
    running: Vec<Running>,
    /// Nanoseconds since 1970-01-01 UTC at the shard's time zero.
    unix_time_at_zero: u64,
    /// Where the bytes of a packet in several frames come together.
    whole: Vec<u8>,
}

/// One capture, and what it wants.
#[derive(Debug)]
struct Running {
    number: u32,
    filter: Filter,
    sink: Box<dyn Capture>,
}

impl Captures {
    /// Whether nobody looks.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Captures of frames of at most so many bytes.
    pub(crate) fn new(frame_capacity: usize, unix_time_at_zero: u64) -> Self {
        Self {
            running: Vec::new(),
            unix_time_at_zero,
            whole: Vec::with_capacity(frame_capacity),
        }
    }

    /// Begins to show frames; a capture of the same number gives way.
    pub(crate) fn add(&mut self, number: u32, filter: Filter, sink: Box<dyn Capture>) {
        drop(self.remove(number));
        self.running.push(Running {
            number,
            filter,
            sink,
        });
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Box<dyn Capture>> {
        let place = self.running.iter().position(|one| one.number == number)?;
        Some(self.running.swap_remove(place).sink)
    }

    /// Shows received packets, as they came from a port at this time.
    #[cold]
    pub(crate) fn received(&mut self, now: Instant, umem: &Umem, packets: &[Packet]) {
        for packet in packets {
            let mut slices = [&[][..]; CHUNKS_MAX];
            for (slot, bytes) in slices.iter_mut().zip(packet.slices(umem)) {
                *slot = bytes;
            }
            let slices = slices.get(..packet.frame_count()).unwrap_or(&slices);
            self.show(now, Direction::In, slices);
        }
    }

    /// Shows a frame, whose bytes lie in one slice or several, to those who want it.
    #[cold]
    fn show(&mut self, now: Instant, direction: Direction, bytes: &[&[u8]]) {
        let unix_ns = self.unix_time_at_zero.saturating_add(now.as_nanos());
        let Self { running, whole, .. } = self;
        let frame = match bytes {
            [bytes] => bytes,
            _ => {
                whole.clear();
                bytes.iter().for_each(|part| whole.extend_from_slice(part));
                whole.as_slice()
            }
        };
        for Running { filter, sink, .. } in running {
            if takes(filter, direction, frame) {
                let kept = filter.snap.map_or(frame.len(), |snap| snap as usize);
                sink.frame(&SeenFrame {
                    unix_ns,
                    direction,
                    bytes: frame.get(..kept).unwrap_or(frame),
                    original: frame.len(),
                });
            }
        }
    }
}

/// Where frames are seen that are handed to a port.
pub(crate) struct Tap<'a> {
    pub(crate) captures: &'a mut Captures,
    pub(crate) umem: &'a Umem,
    pub(crate) now: Instant,
}

impl Tap<'_> {
    /// A frame is about to be handed to a port.
    #[inline(always)]
    pub(crate) fn sent(&mut self, frame: &Frame) {
        if !self.captures.is_empty() {
            let bytes = self.umem.bytes(frame);
            self.captures.show(self.now, Direction::Out, &[bytes]);
        }
    }
}

/// Whether a filter lets a frame through. A fragment that has no ports goes by its addresses.
fn takes(filter: &Filter, direction: Direction, frame: &[u8]) -> bool {
    if filter.direction.is_some_and(|wanted| wanted != direction) {
        return false;
    }
    if filter.peer.is_none() && filter.port.is_none() && filter.ends.is_none() {
        return true;
    }
    let Some(flow) = rnic_net::flow(frame, frame.len()) else {
        return false;
    };
    let flow = ours_first(flow, direction);
    let port_fits = |wanted: u16| {
        let ports = flow.ports;
        ports.is_none_or(|(ours, theirs)| ours == wanted || theirs == wanted)
    };
    let ends_fit = |(ours, theirs): (std::net::SocketAddr, std::net::SocketAddr)| {
        (flow.source, flow.destination) == (ours.ip(), theirs.ip())
            && flow
                .ports
                .is_none_or(|ports| ports == (ours.port(), theirs.port()))
    };
    filter.peer.is_none_or(|peer| peer == flow.destination)
        && filter.port.is_none_or(port_fits)
        && filter.ends.is_none_or(ends_fit)
}

/// A frame's flow as if we had sent it.
fn ours_first(flow: Flow, direction: Direction) -> Flow {
    match direction {
        Direction::Out => flow,
        Direction::In => Flow {
            source: flow.destination,
            destination: flow.source,
            ports: flow
                .ports
                .map(|(source, destination)| (destination, source)),
            ..flow
        },
    }
}

#[cfg(test)]
mod tests;
