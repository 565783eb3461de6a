//! What the link has of ours: frames that are sent, packets that wait, ways back to peers without a
//! connection.

use rnic_net::Path;
use rnic_xsk::{Frame, Port, XskError};
use userspace_tcp::{ConnId, SegmentId};

use crate::capture::Tap;
use crate::counters::ShardCounters;
use crate::shard::loopback::{LOOPBACK, Loopback};
use crate::shard::tx::return_paths::ReturnPaths;

#[derive(Debug)]
pub(in crate::shard) struct Link {
    /// By frame: whose payload it is, and that is all when it is nobody's.
    in_flight: Box<[Option<(ConnId, SegmentId)>]>,
    count: usize,
    /// What goes in fragments, and before all else, when there is room for them.
    pub waiting: Option<OversizedPacket>,
    pub return_paths: ReturnPaths,
    /// By port.
    exits: Vec<Exit>,
    /// Some have another exit: a flush, of which there are many, looks at this alone.
    has_silent: bool,
}

/// Where the frames of a port leave.
#[derive(Clone, Copy, Debug)]
struct Exit {
    /// By this port: the same, unless it carries nothing at present.
    by: usize,
    /// Its last flush failed.
    failing: bool,
}

impl Exit {
    fn of(port: usize) -> Self {
        Self {
            by: port,
            failing: false,
        }
    }
}

/// A packet that is to go in fragments.
#[derive(Debug)]
pub(in crate::shard) struct OversizedPacket {
    pub frame: Frame,
    pub owner: Option<(ConnId, SegmentId)>,
    pub path: Path,
    pub port: usize,
    /// Bytes of a fragment at most.
    pub mtu: u32,
    /// The identification of the packet.
    pub id: u32,
}

impl Link {
    /// For so many frames, ports and connections.
    pub fn new(frames: usize, ports: usize, connections: usize) -> Self {
        Self {
            in_flight: vec![None; frames].into_boxed_slice(),
            count: 0,
            waiting: None,
            return_paths: ReturnPaths::new(connections),
            exits: (0..ports).map(Exit::of).collect(),
            has_silent: false,
        }
    }

    pub fn port_added(&mut self) {
        self.exits.push(Exit::of(self.exits.len()));
    }

    /// Has the frames of these first ports leave by those of them that `carry`, in turn. Where none does, each has its
    /// own.
    pub fn leave_by(&mut self, carry: &[bool]) {
        let carrying = (0..carry.len()).filter(|port| carry[*port]);
        let mut in_turn = carrying.cycle();
        for ((port, exit), carries) in self.exits.iter_mut().enumerate().zip(carry) {
            exit.by = match carries {
                true => port,
                false => in_turn.next().unwrap_or(port),
            };
        }
        let mut exits = self.exits.iter().enumerate();
        self.has_silent = exits.any(|(port, exit)| exit.by != port);
    }

    /// Whose payload a frame is that is sent.
    pub fn owner(&self, frame: usize) -> Option<(ConnId, SegmentId)> {
        self.in_flight.get(frame).copied().flatten()
    }

    /// A frame that is sent is nobody's any more.
    pub fn disown(&mut self, frame: usize) {
        if let Some(owner) = self.in_flight.get_mut(frame) {
            *owner = None;
        }
    }

    /// Segments that every port and the loopback can take now. A port whose interface is down, or which carries nothing,
    /// does not limit the others: once its ring is full, its segments are lost.
    #[inline]
    pub fn room<P: Port>(&self, ports: &mut [P], loopback: &Loopback) -> usize {
        let all = ports.iter_mut().zip(&self.exits).enumerate();
        let useful = all.filter(|(index, (_, exit))| !exit.failing && exit.by == *index);
        let room = useful.map(|(_, (port, _))| port.transmit_room()).min();
        room.unwrap_or(usize::MAX).min(loopback.room())
    }

    /// Has the ports send what they took.
    #[inline]
    pub fn flush<P: Port>(&mut self, ports: &mut [P], counters: &mut ShardCounters) {
        for (index, port) in ports.iter_mut().enumerate() {
            // What waits at a member that carries nothing would fail each time, or lead a switch astray.
            if self.has_silent && self.exit(index) != index {
                continue;
            }
            let flushed = port.flush();
            counters.flush_failed += u64::from(flushed.is_err());
            self.flushed(index, flushed);
        }
    }

    /// How a port's flush went: a change is told in the log, once.
    fn flushed(&mut self, port: usize, result: Result<(), XskError>) {
        let Some(exit) = self.exits.get_mut(port) else {
            return;
        };
        match result {
            Err(error) if !exit.failing => log::error!("nothing can be sent: {error}"),
            Ok(()) if exit.failing => log::info!("port {port} sends frames again"),
            _ => return,
        }
        exit.failing = !exit.failing;
    }

    /// The port by which the frames of a port leave.
    #[inline]
    pub fn exit(&self, port: usize) -> usize {
        self.exits.get(port).map_or(port, |exit| exit.by)
    }

    /// Gives a frame to the port by which it leaves, as captures see it. It comes back when there is no such port, or the
    /// port has no room.
    #[inline]
    pub fn hand_over<P: Port>(
        &mut self,
        tap: &mut Tap<'_>,
        (ports, loopback): (&mut [P], &mut Loopback),
        port: usize,
        frame: Frame,
        owner: Option<(ConnId, SegmentId)>,
    ) -> Result<(), Frame> {
        let index = frame.index();
        let Some(port) = ports.get_mut(port) else {
            return self.hand_to_loopback(tap, loopback, port, frame, owner);
        };
        tap.sent(&frame);
        port.transmit(frame, index as u64)?;
        self.in_flight[index] = owner;
        self.count += 1;
        Ok(())
    }

    #[inline(never)]
    fn hand_to_loopback(
        &mut self,
        tap: &mut Tap<'_>,
        loopback: &mut Loopback,
        port: usize,
        frame: Frame,
        owner: Option<(ConnId, SegmentId)>,
    ) -> Result<(), Frame> {
        if port != LOOPBACK {
            return Err(frame);
        }
        tap.sent(&frame);
        self.in_flight[frame.index()] = owner;
        loopback.transmit(frame);
        Ok(())
    }

    /// A port is done with a frame; whose payload it is.
    #[inline]
    pub fn completed(&mut self, frame: &Frame) -> Option<(ConnId, SegmentId)> {
        self.count -= 1;
        self.returned(frame)
    }

    /// A frame of the loopback was received and freed; whose payload it is.
    #[inline]
    pub fn returned(&mut self, frame: &Frame) -> Option<(ConnId, SegmentId)> {
        self.in_flight.get_mut(frame.index()).and_then(Option::take)
    }

    /// Frames that the ports have.
    pub fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use rnic_xsk::{ChunkSize, MemoryPort, Request, Umem};

    use super::*;

    /// An interface that is down keeps what its ring took, and takes no more.
    #[test]
    fn a_port_of_no_use_leaves_room_for_the_others() {
        let (umem, mut pool) = Umem::heap(8, ChunkSize::Bytes2048);
        let (port, _wire) = MemoryPort::intercepted(&umem, 1);
        let (mut ports, loopback) = ([port], Loopback::new(&umem));
        let mut link = Link::new(umem.frames(), ports.len(), 1);
        assert_eq!(link.room(&mut ports, &loopback), 1);
        ports[0].transmit(pool.alloc().unwrap(), 0).unwrap();
        assert_eq!(link.room(&mut ports, &loopback), 0);
        let request = Request {
            place: None,
            asked: "send".to_owned(),
        };
        let down = XskError::Down { request };
        link.flushed(0, Err(down));
        assert_eq!(link.room(&mut ports, &loopback), loopback.room());
        link.flushed(0, Ok(()));
        assert_eq!(link.room(&mut ports, &loopback), 0);
    }
}
