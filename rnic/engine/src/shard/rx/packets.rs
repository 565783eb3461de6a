//! SCTP's packets: what they bring goes to the queue pairs of their sessions at once, in order or not.

use rnic_ipc::control::Transport;
use rnic_net::Received;
use rnic_proto::Gather;
use rnic_xsk::{Frame, Packet, Port};

use super::RxContext;
use crate::conn::Phase;
use crate::shard::datapath::Datapath;
use crate::shard::sctp::{Arrival, Held, Sctp, ends};
use crate::shard::tx::return_paths::ReturnPath;

impl<P: Port> RxContext<'_, P> {
    #[inline(never)]
    pub(super) fn receive_packet(&mut self, packet: Packet, received: &Received) {
        let Self {
            dp, tx, ctl, port, ..
        } = self;
        let port = *port;
        if let Some(clock) = self.clock {
            dp.advance(clock());
        }
        let Some(frame) = packet.into_widest(&dp.frames.umem, &mut dp.frames.pool) else {
            dp.counters.no_frame += 1;
            return;
        };
        let tuple = received.tuple;
        let assoc = dp.sctp.stack.find(&ends(&tuple));
        let id = assoc.map(|assoc| dp.sctp.sessions.carrier(assoc));
        let (takes, is_way_known) = match id.and_then(|id| dp.conns.get(id)) {
            Some(conn) => (
                dp.are_of_one_medium(conn.port(), port),
                conn.path_to(tuple.remote.addr).is_some(),
            ),
            None => (dp.comes_from_a_host(port, &tuple), false),
        };
        if !takes {
            dp.counters.rx_martians += 1;
            return dp.frames.pool.free(frame);
        }
        if let Some(conn) = id.and_then(|id| dp.conns.get_mut(id)) {
            conn.came_from(port);
        }
        if id.is_none() {
            let bytes = dp.frames.umem.bytes(&frame).get(received.data.clone());
            let bytes = bytes.unwrap_or(&[]);
            let is_flood = dp.ports.get(port).is_some_and(Port::is_of_kernel)
                && ctl.unknown_flows.drop(dp.now, bytes, &mut dp.counters);
            if is_flood || ctl.refuses_peer(dp, (Transport::Sctp, &tuple), port) {
                return dp.frames.pool.free(frame);
            }
        }
        // Also of an association that only claims the sender's address.
        if !is_way_known {
            tx.link
                .return_paths
                .remember(tuple, ReturnPath::Open(received.path, port));
        }
        // What is due is done before the packet is looked at.
        dp.sctp.stack.advance(dp.now);
        if dp.sctp.stack.has_events() {
            // What has ended by that is known to have, before another has its place.
            ctl.handle_association_events(dp, tx, None);
        }
        dp.receive_chunks(&frame, received);
        dp.frames.pool.free(frame);
        ctl.handle_association_events(dp, tx, Some((&received.path, port)));
    }
}

impl<P: Port> Datapath<P> {
    /// Has SCTP take a packet, and sessions what it brings.
    fn receive_chunks(&mut self, frame: &Frame, received: &Received) {
        let bytes = self.frames.umem.bytes(frame);
        let bytes = bytes.get(received.data.clone()).unwrap_or(&[]);
        let (local, remote) = (received.tuple.local.addr, received.tuple.remote.addr);
        let Sctp { stack, sessions } = &mut self.sctp;
        let (conns, qps, tables, now) =
            (&mut self.conns, &mut self.qps, &mut self.tables, self.now);
        let counters = &mut self.counters;
        let udp = received.udp.map(|ports| ports.source);
        stack.receive(now, local, remote, udp, bytes, |assoc, message| {
            let Some(session) = sessions.of(assoc, &message) else {
                return sessions.unplaced(assoc, &message);
            };
            let id = session.id;
            let conn = conns.get_mut(id);
            let qp = match conn.as_ref().map(|conn| &conn.phase) {
                Some(Phase::Rdma { qp }) => qps.get_mut(qp.0),
                _ => None,
            };
            let arrival = session.arrived(&message, qp.is_some());
            match (arrival, qp) {
                (Arrival::Next(segment), Some(slot)) => {
                    let context = &mut tables.context(slot.tally, now);
                    slot.qp.receive_segment(context, &Gather::new(&[segment]));
                }
                (Arrival::Early { place, segment }, Some(slot)) => {
                    let context = &mut tables.context(slot.tally, now);
                    let len = segment.len();
                    let pieces = [segment];
                    let placed = slot.qp.place_segment_early(context, &Gather::new(&pieces));
                    counters.bytes_out_of_order += len as u64;
                    if let Some(conn) = conn {
                        conn.bytes_out_of_order += len as u64;
                    }
                    match placed {
                        Some(header) => {
                            counters.bytes_placed_early += len as u64;
                            // A packet has no more.
                            let len = len as u16;
                            let held = Held::Placed { header, len };
                            session.note_placed(place, held, message.payload.len());
                        }
                        None => session.keep(place, &message),
                    }
                }
                _ => {}
            }
            sessions.hear(id);
        });
    }
}
