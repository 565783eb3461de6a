//! What a packet is: predicted from the headers of its connection's last segments, or parsed. Both give the
//! same result.

use std::ops::Range;

use rnic_net::{
    Checksum, DropReason, HeaderPrediction, IcmpReport, Match, PredictedFields, Protocol,
    Reassembly, ReassemblyCounters, Received,
};
use rnic_proto::crc::RESIDUE;
use rnic_xsk::{Frame, Packet, Port};
use userspace_net::{Endpoint, FourTuple};
use userspace_tcp::{ConnId, FlowHint, Segment, SeqNum, TcpHeader};

use super::super::loopback::LOOPBACK;
use super::gro::{Frag, Head, RxSegment};
use crate::conn::Parsed;
use crate::shard::datapath::Datapath;

/// A packet with the headers of a connection's segments. Nothing that it says is to be believed before its
/// checksum is found right.
#[derive(Debug)]
pub(super) struct Predicted {
    pub id: ConnId,
    pub like: Match,
    /// The connection's segments were FPDUs with a CRC.
    pub segments_are_fpdus: bool,
}

/// What a parsed packet carries.
#[derive(Debug)]
pub(super) enum Arrived {
    Segment(Head, RxSegment),
    Packet(Received, Packet),
    /// Of a port that gives what came through the kernel: what this was told about a packet that was sent.
    Error(IcmpReport),
}

/// What a packet's headers say, and the offset of a segment's payload.
enum Headers {
    Tcp(Head, Range<usize>),
    Sctp(Received),
}

/// Whether a predicted segment only continues one of its connection: it begins at `seq`, follows a segment
/// with the header `first`, and says nothing new except its bytes. Predicted headers differ in nothing else.
#[inline]
pub(super) fn only_continues(says: &PredictedFields, first: &TcpHeader, seq: SeqNum) -> bool {
    says.seq == seq && first.is_only_continued(says.ack, says.window, says.flags)
}

/// What tells what packets are.
#[derive(Debug)]
pub(super) struct Classifier {
    /// The connection whose headers were predicted last: most segments follow others of the same connection.
    last: Option<ConnId>,
    /// Packets whose fragments are awaited.
    reassembly: Reassembly,
}

impl Classifier {
    pub fn new<P>(dp: &Datapath<P>) -> Self {
        let (config, umem) = (&dp.config, &dp.frames.umem);
        Self {
            last: None,
            reassembly: Reassembly::new(config.reassembly, umem.frame_capacity(), config.secret),
        }
    }

    pub fn fragments(&self) -> &ReassemblyCounters {
        self.reassembly.counters()
    }

    /// Whose headers a packet has.
    #[inline]
    pub(super) fn classify<P: Port>(
        &mut self,
        dp: &Datapath<P>,
        packet: &Packet,
        port: usize,
    ) -> Option<Predicted> {
        let frame = dp.frames.umem.bytes(packet.first());
        let last = self.last.and_then(|id| dp.predicted(id, frame, port));
        let predicted = last.or_else(|| dp.look_up(frame, packet.len(&dp.frames.umem), port))?;
        self.last = Some(predicted.id);
        Some(predicted)
    }

    /// Parses a packet; an unusable one is counted and freed. For a fragment, gives the packet that it
    /// completes.
    pub(super) fn parse<P: Port>(
        &mut self,
        dp: &mut Datapath<P>,
        packet: Packet,
        port: usize,
    ) -> Option<Arrived> {
        let mut packet = packet;
        loop {
            packet = dp.hand_over(packet, port)?;
            let reason = match dp.parse_headers(&packet, port) {
                Ok(Headers::Tcp(head, payload)) => {
                    let segment = RxSegment::new(packet, &payload, false);
                    return Some(Arrived::Segment(head, segment));
                }
                Ok(Headers::Sctp(received)) => return Some(Arrived::Packet(received, packet)),
                // What is put together is no fragment any more.
                Err(Some(DropReason::Fragment)) => {
                    packet = self.fragment(dp, packet)?.into();
                    continue;
                }
                Err(reason) => reason,
            };
            let error = match reason {
                Some(DropReason::OtherProtocol) if dp.is_of_kernel(port) => {
                    rnic_net::parse_icmp_frame(dp.frames.umem.bytes(packet.first()))
                }
                _ => None,
            };
            if let (None, Some(reason)) = (&error, reason) {
                dp.counters.count_unusable(reason);
            }
            dp.frames.pool.free_packet(packet);
            return error.map(Arrived::Error);
        }
    }

    /// A packet that is a fragment: kept, or the packet that it completes.
    fn fragment<P: Port>(&mut self, dp: &mut Datapath<P>, packet: Packet) -> Option<Frame> {
        let Some(mut frame) = packet.into_widest(&dp.frames.umem, &mut dp.frames.pool) else {
            dp.counters.no_frame += 1;
            return None;
        };
        let len = frame.len();
        let buffer = dp.frames.umem.bytes_mut(&mut frame);
        match self.reassembly.add(dp.now, buffer, len) {
            Ok(Some(len)) => {
                frame.set_len(len);
                return Some(frame);
            }
            Ok(None) => {}
            Err(reason) => dp.counters.count_unusable(reason),
        }
        dp.frames.pool.free(frame);
        None
    }
}

impl<P: Port> Datapath<P> {
    #[inline(always)]
    fn predicted(&self, id: ConnId, frame: &[u8], port: usize) -> Option<Predicted> {
        let prediction = self.conns.get(id)?.prediction.as_deref()?;
        Some(Predicted {
            id,
            like: prediction.learnt()?.compare(frame, port)?,
            segments_are_fpdus: prediction.segments_are_fpdus,
        })
    }

    /// The same by a look at the flow's own connection. `frame` is the beginning of a frame of `len` bytes.
    #[inline(never)]
    fn look_up(&self, frame: &[u8], len: usize, port: usize) -> Option<Predicted> {
        let flow = rnic_net::flow(frame, len).filter(|flow| flow.protocol == Protocol::Tcp)?;
        let (source, destination) = flow.ports?;
        let tuple = FourTuple {
            local: Endpoint::new(flow.destination, destination),
            remote: Endpoint::new(flow.source, source),
        };
        let hint = self.stack.flow_hint(&tuple);
        self.predicted(self.stack.connection_at(&tuple, hint)?, frame, port)
    }

    /// What a predicted packet says if its checksum is right, or partial, and whether its payload ends with the
    /// CRC of what is before. Where segments have been FPDUs, that is taken with the checksum. Of a packet in
    /// several frames, which mostly has not been on a wire, a partial checksum is looked for first.
    #[inline]
    pub(super) fn verify(
        &mut self,
        predicted: Predicted,
        packet: &Packet,
        port: usize,
    ) -> Option<(PredictedFields, bool)> {
        if port == LOOPBACK {
            return Some((predicted.like.says, false));
        }
        if !packet.is_single() && self.is_partial(&predicted, packet, port) {
            return Some((predicted.like.says, false));
        }
        let (first, rest) = packet.first_and_rest(&self.frames.umem);
        let (takes_crc, mut crc) = (predicted.segments_are_fpdus, 0);
        let says = predicted.like.verified(first, rest, |part| {
            if !takes_crc {
                return rnic_crc::sum(part);
            }
            let checks = rnic_crc::check(crc, part);
            crc = checks.crc;
            checks.sum
        })?;
        Some((says, takes_crc && crc == RESIDUE))
    }

    /// Whether a predicted packet's checksum is partial, which is counted.
    #[cold]
    fn is_partial(&mut self, predicted: &Predicted, packet: &Packet, port: usize) -> bool {
        let bytes = self.frames.umem.bytes(packet.first());
        let conn = self.conns.get(predicted.id);
        let learnt = conn.and_then(|conn| conn.prediction.as_deref()?.learnt());
        let partial = self.is_of_interface(port)
            && learnt
                .is_some_and(|learnt| learnt.has_partial_checksum(bytes, &predicted.like.says));
        self.counters.rx_partial_checksums += u64::from(partial);
        partial
    }

    /// All that a predicted segment's headers say.
    pub(super) fn predicted_head(&self, id: ConnId, says: &PredictedFields) -> Option<Head> {
        let conn = self.conns.get(id)?;
        let learnt = conn.prediction.as_deref()?.learnt()?;
        Some(Head {
            tuple: conn.tuple,
            hint: FlowHint::of(id),
            path: learnt.path,
            port: learnt.port,
            ecn: learnt.ecn,
            header: learnt.header(says),
        })
    }

    /// What the headers of a packet's segment say, and the offset of its payload in the packet: it begins in
    /// the first frame. An unusable packet is counted here, unless another counter is more specific.
    fn parse_headers(
        &mut self,
        packet: &Packet,
        port: usize,
    ) -> Result<Headers, Option<DropReason>> {
        let (bytes, rest) = packet.first_and_rest(&self.frames.umem);
        let defaults = self.path_defaults(port);
        let checksum = match port {
            LOOPBACK => Checksum::Unnecessary,
            _ if self.is_of_kernel(port) => Checksum::Unnecessary,
            _ if self.is_of_interface(port) => Checksum::VerifyOrPartial,
            _ => Checksum::Verify,
        };
        let mut parsed = rnic_net::parse_parts(bytes, rest, &defaults, checksum)?;
        self.counters.rx_partial_checksums += u64::from(parsed.partial);
        if port != LOOPBACK {
            let (local, remote) = (parsed.tuple.local.addr, parsed.tuple.remote.addr);
            if local.is_loopback() || remote.is_loopback() {
                self.counters.rx_martians += 1;
                return Err(None);
            }
        }
        if self.is_of_interface(port) {
            let (local, tagged) = (parsed.tuple.local.addr, parsed.path.vlan);
            let Some(tag) = self.config.vlans.return_tag(local, tagged) else {
                self.counters.rx_wrong_vlan += 1;
                return Err(None);
            };
            parsed.path.vlan = tag;
        }
        if parsed.protocol == Protocol::Sctp {
            let port = self.config.sctp_udp.map(|udp| udp.port);
            if parsed.udp.is_some_and(|udp| Some(udp.destination) != port) {
                return Err(Some(DropReason::OtherProtocol));
            }
            return Ok(Headers::Sctp(parsed));
        }
        // `parse_parts` checked that the range lies within the packet.
        let first = parsed.data.start..parsed.data.end.min(bytes.len());
        let beyond = parsed.data.end - first.end;
        let tcp = bytes.get(first).unwrap_or(&[]);
        let Ok(segment) = Segment::parse(tcp) else {
            self.counters.rx_tcp_malformed += 1;
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
        Ok(Headers::Tcp(head, parsed.data.end - len..parsed.data.end))
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
            let bytes = self.frames.umem.bytes(&first.frame);
            prediction.parsed(&parsed, || HeaderPrediction::of(bytes, first.start));
        }
    }
}
