//! What a packet is: predicted by the headers of its connection's last segments, or parsed. Either says
//! the same.

use std::ops::Range;

use rnic_net::{KnownHeaders, Like, Unusable};
use rnic_proto::crc::RESIDUE;
use rnic_xsk::{CHUNKS_MAX, Packet, Port};
use userspace_tcp::{ConnId, Endpoint, FlowHint, FourTuple, Segment};

use super::super::Shard;
use super::gro::{Frag, Head, RxSegment};
use crate::conn::{Parsed, Prediction};
use crate::qp::is_write;

/// How a packet is to be received.
#[derive(Clone, Copy, Debug)]
pub(super) enum Class {
    /// It has the headers of this connection's segments, and its payload looks like the FPDU of a Write.
    Write(ConnId),
    /// It has the headers of this connection's segments.
    Predicted(ConnId),
    /// It is to be parsed.
    Unknown,
}

impl<P: Port> Shard<P> {
    /// Whose headers a packet has. Nothing of it is to be believed before its checksum is found right.
    #[inline]
    pub(super) fn classify(&mut self, packet: &Packet, port: usize) -> Class {
        let frame = self.umem.bytes(packet.first());
        let last = self.rx.last.and_then(|id| Some((id, self.prediction(id)?)));
        let found = last.and_then(|(id, prediction)| {
            let like = prediction.learnt()?.compare(frame, port)?;
            Some((id, prediction.segments_are_fpdus, like))
        });
        let Some((id, segments_are_fpdus, like)) = found.or_else(|| self.look_up(frame, port))
        else {
            return Class::Unknown;
        };
        self.rx.last = Some(id);
        let write = segments_are_fpdus && packet.is_single();
        match frame.get(like.says.payload).filter(|_| write) {
            Some(payload) if is_write(payload) => Class::Write(id),
            _ => Class::Predicted(id),
        }
    }

    fn prediction(&self, id: ConnId) -> Option<&Prediction> {
        self.conns.get(id)?.prediction.as_deref()
    }

    /// The same by a look at the flow's own connection.
    #[inline(never)]
    fn look_up(&self, frame: &[u8], port: usize) -> Option<(ConnId, bool, Like)> {
        let flow = rnic_net::flow(frame)?;
        let (source, destination) = flow.ports?;
        let tuple = FourTuple {
            local: Endpoint::new(flow.destination, destination),
            remote: Endpoint::new(flow.source, source),
        };
        let id = self
            .stack
            .connection_at(&tuple, self.stack.flow_hint(&tuple))?;
        let prediction = self.prediction(id)?;
        let like = prediction.learnt()?.compare(frame, port)?;
        Some((id, prediction.segments_are_fpdus, like))
    }

    /// What a packet says that has the headers of a connection's segments, if its checksum is right: its
    /// headers, where its payload is, and whether that ends with the CRC of what is before. Where segments
    /// have been FPDUs, that is taken with the checksum.
    #[inline]
    pub(super) fn verify(
        &self,
        id: ConnId,
        packet: &Packet,
        port: usize,
    ) -> Option<(Head, Range<usize>, bool)> {
        let conn = self.conns.get(id)?;
        let prediction = conn.prediction.as_deref()?;
        let learnt = prediction.learnt()?;
        let mut slices = [&[][..]; CHUNKS_MAX];
        let (first, rest) = packet.first_and_rest(&self.umem, &mut slices);
        let (takes_crc, mut crc) = (prediction.segments_are_fpdus, 0);
        let says = learnt.recognise(first, rest, port, |part| {
            if !takes_crc {
                return rnic_crc::sum(part);
            }
            let checks = rnic_crc::check(crc, part);
            crc = checks.crc;
            checks.sum
        })?;
        let head = Head {
            tuple: conn.tuple,
            hint: FlowHint::of(id),
            path: learnt.path,
            port,
            ecn: learnt.ecn,
            header: learnt.header(&says),
        };
        Some((head, says.payload, takes_crc && crc == RESIDUE))
    }

    /// Parses a packet; one that is of no use is counted and freed. Of fragments, the packet that they
    /// complete.
    pub(super) fn parse(&mut self, packet: Packet, port: usize) -> Option<(Head, RxSegment)> {
        let mut packet = packet;
        loop {
            let reason = match self.parse_headers(&packet, port) {
                Ok((head, payload)) => {
                    return Some((head, RxSegment::new(packet, &payload, false)));
                }
                // What is put together is no fragment any more.
                Err(Some(Unusable::Fragment)) => {
                    packet = self.fragment(packet)?.into();
                    continue;
                }
                Err(reason) => reason,
            };
            if let Some(reason) = reason {
                self.counters.count_unusable(reason);
            }
            self.pool.free_packet(packet);
            return None;
        }
    }

    /// What the headers of a packet's segment say, and where its payload is, counted from the packet's
    /// beginning: it begins in the first frame. What is of no use is counted here, if it has no reason
    /// that says more.
    fn parse_headers(
        &mut self,
        packet: &Packet,
        port: usize,
    ) -> Result<(Head, Range<usize>), Option<Unusable>> {
        let mut slices = [&[][..]; CHUNKS_MAX];
        let (octets, rest) = packet.first_and_rest(&self.umem, &mut slices);
        let mut parsed = rnic_net::parse_parts(octets, rest, &self.config.path_defaults)?;
        let local = parsed.tuple.local.addr;
        let Some(tag) = self.config.vlans.way_back(local, parsed.path.vlan) else {
            self.counters.wrong_vlan += 1;
            return Err(None);
        };
        parsed.path.vlan = tag;
        // `parse_parts` checked that the range lies within the packet.
        let first = parsed.tcp.start..parsed.tcp.end.min(octets.len());
        let beyond = parsed.tcp.end - first.end;
        let tcp = octets.get(first).unwrap_or(&[]);
        let Ok(segment) = Segment::parse(tcp) else {
            self.counters.tcp_malformed += 1;
            return Err(None);
        };
        let head = Head {
            tuple: parsed.tuple,
            hint: FlowHint::default(),
            path: parsed.path,
            port,
            ecn: parsed.ecn,
            header: segment.header,
        };
        let len = segment.payload.len() + beyond;
        Ok((head, parsed.tcp.end - len..parsed.tcp.end))
    }

    /// A segment of this connection was parsed, and maybe `several`, of which it is the first.
    pub(super) fn learn(&mut self, id: ConnId, head: &Head, first: &Frag, several: bool) {
        let conn = self.conns.get_mut(id);
        if let Some(prediction) = conn.and_then(|conn| conn.prediction.as_deref_mut()) {
            let parsed = Parsed {
                path: &head.path,
                port: head.port,
                ecn: head.ecn,
                header: &head.header,
                several,
            };
            let octets = self.umem.bytes(&first.frame);
            prediction.parsed(&parsed, || KnownHeaders::of(octets, first.start));
        }
    }
}
