//! Between TCP and the ports: segments become frames, frames that were sent come back.

use std::collections::VecDeque;

use rnic_net::{Path, Payload};
use rnic_xsk::{Frame, Port, Umem, XskError};
use userspace_tcp::{ConnId, Ecn, FourTuple, SegmentId, TcpHeader, Transmit};

use crate::capture::Tap;
use crate::counters::ShardCounters;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;
use crate::shard::tx::fragments::Whole;

/// Ways back that are remembered for segments of no connection. More than one batch of frames can
/// cause.
const WAYS_BACK: usize = 256;

/// What the link has of ours.
#[derive(Debug)]
pub(in crate::shard) struct Link {
    /// By frame: whose payload it is, and that is all when it is nobody's.
    in_flight: Box<[Option<(ConnId, SegmentId)>]>,
    count: usize,
    /// What goes in fragments, and before all else, when there is room for them.
    pub waiting: Option<Whole>,
    ways_back: VecDeque<WayBack>,
    /// By port: whether its last flush failed.
    failing: Box<[bool]>,
}

/// How to reach the sender of a segment that has no connection.
#[derive(Clone, Copy, Debug)]
struct WayBack {
    tuple: FourTuple,
    path: Path,
    port: usize,
}

/// What goes in front of a payload. Looked at where it is: it is long, and just made.
#[derive(Debug)]
struct Head<'a> {
    path: &'a Path,
    tuple: &'a FourTuple,
    ecn: Ecn,
    header: &'a TcpHeader,
    payload: Payload,
}

impl Head<'_> {
    /// The frame with its headers in front of the payload; as it was when they don't fit, or the
    /// payload does not lie where they end.
    #[inline]
    fn write(&self, umem: &Umem, mut frame: Frame) -> Result<Frame, Frame> {
        let Self {
            path,
            tuple,
            ecn,
            header,
            payload,
        } = *self;
        let headers = path.headers_len(tuple.remote.addr) + header.header_len();
        let total = headers + payload.len;
        if total > frame.capacity() || (payload.len > 0 && total != frame.len()) {
            return Err(frame);
        }
        let bytes = umem.bytes_mut(&mut frame);
        if rnic_net::write_segment(path, tuple, ecn, header, payload, bytes).is_none() {
            return Err(frame);
        }
        frame.set_len(total);
        Ok(frame)
    }
}

impl Link {
    pub fn new(frames: usize, ports: usize) -> Self {
        Self {
            in_flight: vec![None; frames].into_boxed_slice(),
            count: 0,
            waiting: None,
            ways_back: VecDeque::with_capacity(WAYS_BACK),
            failing: vec![false; ports].into_boxed_slice(),
        }
    }

    /// Has the ports send what they took.
    #[inline]
    pub fn flush<P: Port>(&mut self, ports: &mut [P], counters: &mut ShardCounters) {
        for (index, port) in ports.iter_mut().enumerate() {
            let flushed = port.flush();
            counters.flush_failed += u64::from(flushed.is_err());
            self.flushed(index, flushed);
        }
    }

    /// How a port's flush went: a change is told in the log, once.
    fn flushed(&mut self, port: usize, result: Result<(), XskError>) {
        let Some(failing) = self.failing.get_mut(port) else {
            return;
        };
        match result {
            Err(error) if !*failing => log::error!("nothing can be sent: {error}"),
            Ok(()) if *failing => log::info!("port {port} sends again"),
            _ => return,
        }
        *failing = !*failing;
    }

    /// Gives a frame to a port, as captures see it. It comes back when there is no such port, or the
    /// port has no room.
    #[inline]
    pub fn hand_over<P: Port>(
        &mut self,
        tap: &mut Tap<'_>,
        ports: &mut [P],
        port: usize,
        frame: Frame,
        owner: Option<(ConnId, SegmentId)>,
    ) -> Result<(), Frame> {
        let index = frame.index();
        let Some(port) = ports.get_mut(port) else {
            return Err(frame);
        };
        tap.sent(&frame);
        port.transmit(frame, index as u64)?;
        self.in_flight[index] = owner;
        self.count += 1;
        Ok(())
    }

    /// Frames that the link has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Remembers how to reach a peer with which there is no connection (any more).
    pub fn remember(&mut self, tuple: FourTuple, path: Path, port: usize) {
        if self.ways_back.len() == WAYS_BACK {
            self.ways_back.pop_back();
        }
        self.ways_back.push_front(WayBack { tuple, path, port });
    }

    fn way_back(&self, tuple: &FourTuple) -> Option<(Path, usize)> {
        let way = self.ways_back.iter().find(|way| way.tuple == *tuple)?;
        Some((way.path, way.port))
    }
}

impl Tx {
    /// Takes back what the link has sent.
    pub(in crate::shard) fn take_completed<P: Port>(&mut self, dp: &mut Datapath<P>) -> bool {
        let mut worked = false;
        // Without any frame of ours the link can be done with none.
        let ports = if self.link.count > 0 {
            &mut dp.ports[..]
        } else {
            &mut []
        };
        for port in ports {
            while let Some((frame, _)) = port.completed() {
                worked = true;
                self.link.count -= 1;
                let owner = self
                    .link
                    .in_flight
                    .get_mut(frame.index())
                    .and_then(Option::take);
                let unneeded = match owner {
                    Some((conn, segment)) => dp.stack.transmitted(conn, segment, frame),
                    None => Some(frame),
                };
                if let Some(frame) = unneeded {
                    dp.frames.pool.free(frame);
                }
            }
        }
        dp.take_released();
        worked
    }

    /// Sends what TCP has to send, as far as the ports take it.
    pub(in crate::shard) fn transmit<P: Port>(&mut self, dp: &mut Datapath<P>) -> bool {
        dp.take_released();
        let mut worked = false;
        if let Some(whole) = self.link.waiting.take() {
            self.send_fragments(dp, whole);
        }
        while self.link.waiting.is_none()
            && dp.stack.wants_transmit()
            && dp.frames.pool.available() > 0
        {
            let room = dp.room();
            if room == 0 || !self.send_next(dp, room, false) {
                break;
            }
            worked = true;
        }
        self.flush(dp);
        worked
    }

    /// Sends the next segment of TCP's, which has one, to a link that has room for it; what may be
    /// behind it is not looked for.
    pub(in crate::shard) fn transmit_next<P: Port>(&mut self, dp: &mut Datapath<P>) {
        // Fragments go before all else, and what has no payload needs a frame.
        if self.link.waiting.is_none() && dp.frames.pool.available() > 0 {
            self.send_next(dp, 1, true);
        }
    }

    /// Has the ports send what they took.
    #[inline]
    pub(in crate::shard) fn flush<P: Port>(&mut self, dp: &mut Datapath<P>) {
        self.link.flush(&mut dp.ports, &mut dp.counters);
    }

    /// Puts a segment's headers in front of it, and gives it to the link.
    #[inline]
    pub(in crate::shard) fn send_segment<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        segment: Transmit<Frame>,
    ) {
        let Transmit {
            conn,
            tuple,
            header,
            payload,
            ecn,
            fragment_to,
        } = segment;
        let (frame, owner, payload) = match payload {
            Some(payload) => {
                if let (Some(id), Some(sent)) = (conn, payload.lost) {
                    let smaller = self.macroflows.lost(id, sent, dp.now);
                    dp.counters.macroflow_reductions += u64::from(smaller);
                }
                let owner = conn.map(|conn| (conn, payload.id));
                let (len, sum) = (payload.len as usize, payload.sum);
                (payload.buf, owner, Payload { len, sum })
            }
            None => match dp.frames.pool.alloc() {
                Some(frame) => (frame, None, Payload::default()),
                None => {
                    dp.counters.no_frame += 1;
                    return;
                }
            },
        };
        let back;
        let way = match conn.and_then(|id| dp.conns.get(id)) {
            Some(conn) => Some((&conn.path, conn.port())),
            None => {
                back = self.link.way_back(&tuple);
                back.as_ref().map(|(path, port)| (path, *port))
            }
        };
        let Some((path, port)) = way else {
            dp.counters.unsendable += 1;
            return dp.give_back(frame, owner);
        };
        let head = Head {
            path,
            tuple: &tuple,
            ecn,
            header: &header,
            payload,
        };
        match (head.write(&dp.frames.umem, frame), fragment_to) {
            (Ok(frame), Some(mtu)) => {
                let path = *path;
                let id = self
                    .identification
                    .next(tuple.local.addr, tuple.remote.addr);
                self.send_fragments(
                    dp,
                    Whole {
                        frame,
                        owner,
                        path,
                        port,
                        mtu,
                        id,
                    },
                );
            }
            (Ok(frame), None) => self.hand_over(dp, frame, owner, port),
            (Err(frame), _) => {
                dp.counters.unsendable += 1;
                dp.give_back(frame, owner);
            }
        }
    }

    pub(in crate::shard) fn hand_over<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        frame: Frame,
        owner: Option<(ConnId, SegmentId)>,
        port: usize,
    ) {
        let mut tap = Tap {
            captures: &mut dp.captures,
            umem: &dp.frames.umem,
            now: dp.now,
        };
        let (link, ports) = (&mut self.link, &mut dp.ports);
        if let Err(frame) = link.hand_over(&mut tap, ports, port, frame, owner) {
            // Room was asked for before; TCP's timers repair what is lost here.
            dp.counters.transmit_full += 1;
            dp.give_back(frame, owner);
        }
    }
}
