//! Between TCP and the ports: segments become frames, frames that were sent come back.

use rnic_net::{Path, Payload, VariableFields};
use rnic_xsk::{Frame, Port, Umem};
use userspace_net::{Ecn, FourTuple};
use userspace_tcp::{ConnId, SegmentId, TcpHeader, Transmit};

use crate::capture::Tap;
use crate::shard::datapath::Datapath;
use crate::shard::tx::Tx;
use crate::shard::tx::header_cache::Burst;
use crate::shard::tx::link::OversizedPacket;
use crate::shard::tx::return_paths::ReturnPath;

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

impl Tx {
    /// Sends what TCP has to send next, up to so many segments where these are a burst, to ports that
    /// have room for as many; false when there is nothing. `hastens`: the ports send it before TCP does its
    /// bookkeeping.
    #[inline(never)]
    pub(in crate::shard) fn send_next<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        most: usize,
        hastens: bool,
    ) -> bool {
        let mut burst = Burst {
            conns: &dp.conns,
            ports: &mut dp.ports,
            loopback: &mut dp.loopback,
            tap: Tap {
                captures: &mut dp.captures,
                umem: &dp.frames.umem,
                now: dp.now,
            },
            link: &mut self.link,
            headers: &mut self.headers,
            counters: &mut dp.counters,
            hastens,
            conn: None,
            way: None,
            says: VariableFields::default(),
            set_for: None,
            other: None,
        };
        let sent = dp.stack.transmit(dp.now, most, &mut burst);
        if let Some(segment) = burst.other.take() {
            self.send_segment(dp, segment);
            if hastens {
                self.flush(dp);
            }
        }
        sent > 0
    }

    /// Takes back what the link has sent.
    pub(in crate::shard) fn take_completed<P: Port>(&mut self, dp: &mut Datapath<P>) -> bool {
        let mut worked = false;
        // Without any frame of ours the link can be done with none.
        let ports = match self.link.count() {
            0 => 0,
            _ => dp.ports.len(),
        };
        for index in 0..ports {
            while let Some((frame, _)) = dp.ports[index].completed() {
                worked = true;
                let owner = self.link.completed(&frame);
                dp.give_back(frame, owner);
            }
        }
        while let Some(frame) = dp.frames.pool.take_returned() {
            worked = true;
            let owner = self.link.returned(&frame);
            dp.give_back(frame, owner);
        }
        dp.take_released();
        worked
    }

    /// Sends what TCP and SCTP have to send, as far as the ports take it.
    pub(in crate::shard) fn transmit<P: Port>(&mut self, dp: &mut Datapath<P>) -> bool {
        dp.take_released();
        let mut worked = false;
        if let Some(packet) = self.link.waiting.take() {
            self.send_fragments(dp, packet);
        }
        while self.link.waiting.is_none()
            && dp.stack.wants_transmit()
            && dp.frames.pool.available() > 0
        {
            let room = self.room(dp);
            if room == 0 || !self.send_next(dp, room, false) {
                break;
            }
            worked = true;
        }
        worked |= self.transmit_packets(dp);
        self.flush(dp);
        worked
    }

    /// Sends what was just posted, to a link that has space for it: TCP's next segment, without looking for further
    /// ones, or SCTP's packets.
    pub(in crate::shard) fn transmit_next<P: Port>(&mut self, dp: &mut Datapath<P>) {
        // Fragments go before all else, and what has no payload needs a frame.
        if self.link.waiting.is_none() && dp.frames.pool.available() > 0 {
            self.send_next(dp, 1, true);
        }
        if self.transmit_packets(dp) {
            self.flush(dp);
        }
    }

    /// Segments that can be handed over now, whatever their port.
    #[inline]
    pub(in crate::shard) fn room<P: Port>(&self, dp: &mut Datapath<P>) -> usize {
        self.link.room(&mut dp.ports, &dp.loopback)
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
                back = self.link.return_paths.find(&tuple);
                match &back {
                    Some(ReturnPath::Open(path, port)) => Some((path, *port)),
                    Some(ReturnPath::Forbidden(by)) => {
                        *dp.counters.host_policy(*by).dropped += 1;
                        return dp.give_back(frame, owner);
                    }
                    None => None,
                }
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
                    OversizedPacket {
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
        let ports = (&mut dp.ports[..], &mut dp.loopback);
        let exit = self.link.exit(port);
        if let Err(frame) = self.link.hand_over(&mut tap, ports, exit, frame, owner) {
            // Room was asked for before; TCP's timers repair what is lost here.
            dp.counters.transmit_full += 1;
            dp.give_back(frame, owner);
        }
    }
}
