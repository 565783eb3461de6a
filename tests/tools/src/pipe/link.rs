//! Between TCP and the interface: segments become frames, frames that were sent come back, received
//! ones are parsed and, if they were fragments, put together.

use rnic_host::{Interface, Sockets};
use rnic_net::{DropReason, Fragments, Identification, Path, PathDefaults, Payload, Reassembly};
use rnic_steering::Steering;
use rnic_xsk::{Frame, Packet, Port, PortStatistics, XskPort};
use userspace_net::Instant;
use userspace_tcp::stream::Memory;
use userspace_tcp::{ConnId, SegmentId, Stack, Transmit};

use super::frames::Frames;
use super::paths::{Paths, Way};
use super::stats::LinkStats;

/// Frames taken from a port at a time.
const BATCH: usize = 256;
/// Packets that are put together from fragments at a time.
const REASSEMBLIES: usize = 16;

/// The interface's queues, and what is under way on them.
#[derive(Debug)]
pub(super) struct Link {
    ports: Vec<XskPort>,
    /// By frame: whose payload the kernel has.
    in_flight: Box<[Option<(ConnId, SegmentId)>]>,
    batch: Vec<Packet>,
    defaults: PathDefaults,
    pub(super) paths: Paths,
    identification: Identification,
    reassembly: Reassembly,
    failing: bool,
    stats: LinkStats,
    /// Frames come as long as it lives.
    _steering: Steering,
}

impl Link {
    /// Everything open, nothing under way.
    pub(super) fn new(
        interface: &Interface,
        sockets: Sockets,
        steering: Steering,
        secret: [u8; 16],
    ) -> (Self, Frames) {
        let Sockets { umem, pool, ports } = sockets;
        let link = Self {
            ports,
            in_flight: vec![None; umem.frames()].into_boxed_slice(),
            batch: Vec::with_capacity(BATCH),
            defaults: interface.defaults,
            paths: Paths::default(),
            identification: Identification::new(secret),
            reassembly: Reassembly::new(REASSEMBLIES, umem.frame_capacity(), secret),
            failing: false,
            stats: LinkStats::default(),
            _steering: steering,
        };
        let frames = Frames {
            umem,
            pool,
            header_room: 0,
        };
        (link, frames)
    }

    pub(super) fn ports(&self) -> &[XskPort] {
        &self.ports
    }

    /// Gives the kernel frames to receive into.
    pub(super) fn refill(&mut self, frames: &mut Frames) {
        for port in &mut self.ports {
            port.refill(&mut frames.pool);
        }
    }

    /// Nobody looks for frames until some come.
    pub(super) fn prepare_sleep(&mut self, frames: &mut Frames) {
        for port in &mut self.ports {
            port.prepare_sleep(&mut frames.pool);
        }
    }

    pub(super) fn stats(&self) -> LinkStats {
        let mut stats = self.stats;
        for port in &self.ports {
            let port: PortStatistics = port.statistics();
            stats.frames_in += port.received;
            stats.frames_out += port.transmitted;
            stats.send_calls += port.send_calls;
            stats.receive_ring_full += port.kernel_rx_ring_full + port.kernel_fill_ring_empty;
            stats.send_dropped += port.send_dropped;
        }
        stats
    }

    /// Takes back what the kernel has sent. False when there was nothing.
    pub(super) fn take_completed(&mut self, stack: &mut Stack<Frame>, frames: &mut Frames) -> bool {
        let mut worked = false;
        for port in &mut self.ports {
            while let Some((frame, _)) = port.completed() {
                worked = true;
                let owner = self.in_flight.get_mut(frame.index()).and_then(Option::take);
                give_back(stack, frames, (frame, owner));
            }
        }
        while let Some(frame) = stack.poll_released() {
            frames.free(frame);
        }
        worked
    }

    /// Gives a batch of received packets to `take`, with how they parse. False when none came.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        frames: &mut Frames,
        mut take: impl FnMut(&mut Frames, &mut Paths, Frame, &rnic_net::Received),
    ) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        let mut worked = false;
        for port in 0..self.ports.len() {
            self.ports[port].receive(&mut frames.pool, &mut batch, BATCH);
            for packet in batch.drain(..) {
                worked = true;
                let Some(frame) = packet.into_frame(&frames.umem, &mut frames.pool) else {
                    self.stats.receive_ring_full += 1;
                    continue;
                };
                if let Some((frame, parsed)) = self.packet(now, frames, frame) {
                    let way = Way {
                        path: parsed.path,
                        port,
                    };
                    self.paths.came(parsed.tuple, way);
                    take(frames, &mut self.paths, frame, &parsed);
                }
            }
        }
        self.refill(frames);
        self.batch = batch;
        worked
    }

    /// A frame as a packet, when it is one that can be used or completes one.
    fn packet(
        &mut self,
        now: Instant,
        frames: &mut Frames,
        mut frame: Frame,
    ) -> Option<(Frame, rnic_net::Received)> {
        let mut parsed = rnic_net::parse(frames.umem.bytes(&frame), &self.defaults);
        if let Err(DropReason::Fragment) = parsed {
            frame = Packet::from(frame).into_widest(&frames.umem, &mut frames.pool)?;
            let len = frame.len();
            let buffer = frames.umem.bytes_mut(&mut frame);
            parsed = match self.reassembly.add(now, buffer, len) {
                Ok(Some(len)) => {
                    frame.set_len(len);
                    rnic_net::parse(frames.umem.bytes(&frame), &self.defaults)
                }
                Ok(None) => {
                    frames.free(frame);
                    return None;
                }
                Err(reason) => Err(reason),
            };
        }
        match parsed {
            Ok(parsed) => Some((frame, parsed)),
            Err(reason) => {
                match reason {
                    DropReason::TcpChecksum | DropReason::UdpChecksum | DropReason::IpChecksum => {
                        self.stats.bad_checksums += 1
                    }
                    _ => self.stats.unusable += 1,
                }
                frames.free(frame);
                None
            }
        }
    }

    /// Sends what TCP has to send, as far as the ports take it. False when there was nothing.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        stack: &mut Stack<Frame>,
        frames: &mut Frames,
    ) -> bool {
        let mut worked = false;
        while frames.pool.available() > 0 && self.ports.iter_mut().all(|p| p.transmit_room() > 0) {
            let Some(segment) = stack.poll_transmit(now) else {
                break;
            };
            self.send(stack, frames, segment);
            worked = true;
        }
        for port in &mut self.ports {
            match port.flush() {
                Err(error) if !self.failing => {
                    self.failing = true;
                    log::error!("nothing can be sent: {error}");
                }
                Err(_) => {}
                Ok(()) => self.failing = false,
            }
        }
        worked
    }

    /// Frames that wait for a flush although the ports took them.
    pub(super) fn unsent(&mut self) -> bool {
        self.ports.iter_mut().any(|port| port.unsent() > 0)
    }

    fn send(&mut self, stack: &mut Stack<Frame>, frames: &mut Frames, segment: Transmit<Frame>) {
        let (tuple, header, ecn) = (&segment.tuple, &segment.header, segment.ecn);
        let (mut frame, owner, payload) = match segment.payload {
            Some(payload) => {
                let owner = segment.conn.map(|conn| (conn, payload.id));
                let place = Payload {
                    len: payload.len as usize,
                    sum: payload.sum,
                };
                (payload.buf, owner, place)
            }
            None => match frames.pool.alloc() {
                Some(frame) => (frame, None, Payload::default()),
                // It was looked at before.
                None => return,
            },
        };
        let way = self.paths.way(tuple);
        let sendable = way.filter(|way| {
            let headers = way.path.headers_len(tuple.remote.addr) + header.header_len();
            let in_place = payload.len == 0 || headers == frames.header_room;
            in_place && headers + payload.len <= frame.capacity()
        });
        let Some(Way { path, port }) = sendable else {
            self.stats.unsendable += 1;
            return give_back(stack, frames, (frame, owner));
        };
        let out = frames.umem.bytes_mut(&mut frame);
        let headers = rnic_net::write_segment(&path, tuple, ecn, header, payload, out);
        let Some(headers) = headers else {
            self.stats.unsendable += 1;
            return give_back(stack, frames, (frame, owner));
        };
        frame.set_len(headers + payload.len);
        match segment.fragment_to {
            Some(mtu) => {
                let id = self
                    .identification
                    .next(tuple.local.addr, tuple.remote.addr);
                self.send_fragments(stack, frames, (frame, owner), (path, port), (mtu, id));
            }
            None => self.hand_over(stack, frames, (frame, owner), port),
        }
    }

    /// Sends copies of a packet in fragments of at most `mtu` bytes; in one piece when it is not
    /// larger. The frame itself goes back to TCP's send queue.
    fn send_fragments(
        &mut self,
        stack: &mut Stack<Frame>,
        frames: &mut Frames,
        (frame, owner): Owned,
        (path, port): (Path, usize),
        (mtu, id): (u32, u32),
    ) {
        let umem = frames.umem.clone();
        let Some(mut parts) = Fragments::new(umem.bytes(&frame), path.link_len(), mtu, id) else {
            return self.hand_over(stack, frames, (frame, owner), port);
        };
        let room = self.ports.get_mut(port).map_or(0, Port::transmit_room);
        let largest = path.link_len() + mtu as usize;
        // A part of a packet is no use; TCP's timers repair what is lost here.
        if parts.left() <= room.min(frames.pool.available_for(largest)) {
            self.stats.fragmented += 1;
            while let Some(mut part) = frames.pool.alloc_for(largest) {
                let Some(len) = parts.write_next(umem.bytes_mut(&mut part)) else {
                    frames.free(part);
                    break;
                };
                part.set_len(len);
                self.hand_over(stack, frames, (part, None), port);
            }
        }
        give_back(stack, frames, (frame, owner));
    }

    fn hand_over(
        &mut self,
        stack: &mut Stack<Frame>,
        frames: &mut Frames,
        (frame, owner): Owned,
        port: usize,
    ) {
        let index = frame.index();
        let refused = match self.ports.get_mut(port) {
            Some(port) => port.transmit(frame, index as u64).err(),
            None => Some(frame),
        };
        match refused {
            None => self.in_flight[index] = owner,
            // Room was asked for before; TCP's timers repair what is lost here.
            Some(frame) => give_back(stack, frames, (frame, owner)),
        }
    }
}

type Owned = (Frame, Option<(ConnId, SegmentId)>);

/// The link is done with a frame, or has not taken it.
fn give_back(stack: &mut Stack<Frame>, frames: &mut Frames, (frame, owner): Owned) {
    let unneeded = match owner {
        Some((conn, segment)) => stack.transmitted(conn, segment, frame),
        None => Some(frame),
    };
    if let Some(frame) = unneeded {
        frames.free(frame);
    }
}
