//! Packets in several frames: recognised as others are, and put into trains.

use rnic_net::{KnownHeaders, Recognised};
use rnic_proto::crc::RESIDUE;
use rnic_xsk::{Packet, Port};

use super::Shard;
use super::train::{Head, Parts, Train};

impl<P: Port> Shard<P> {
    /// What a packet says whose headers are known, and whether its payload ends with the CRC of what is
    /// before; taken with the checksum where segments have been FPDUs, frame by frame.
    pub(super) fn recognise_parts(
        &self,
        train: &Train,
        packet: &Packet,
        port: usize,
    ) -> Option<(Recognised, bool)> {
        let (takes_crc, mut crc) = (self.segments_are_fpdus, 0);
        let found = train.recognise_parts(packet, &self.umem, port, |part| {
            if !takes_crc {
                return rnic_crc::sum(part);
            }
            let checks = rnic_crc::check(crc, part);
            crc = checks.crc;
            checks.sum
        });
        found.map(|found| (found, takes_crc && crc == RESIDUE))
    }

    /// Puts a segment that was parsed behind those before it, as one in a single frame.
    pub(super) fn couple_parts(&mut self, train: &mut Train, mut head: Head, parts: Parts) {
        if train.is_empty() {
            head.likely = self.fetch_flow(&head.tuple, parts.len);
        }
        if let Err(parts) = train.couple_parts(&head, parts) {
            head.likely = self.fetch_flow(&head.tuple, parts.len);
            self.pass_on(train);
            // An empty one takes any.
            if let Err(parts) = train.couple_parts(&head, parts) {
                self.pool.free_packet(parts.packet);
            }
        }
        train.know(
            |frame, payload| KnownHeaders::of(self.umem.bytes(frame), payload),
            |head| self.stack.surely(&head.tuple, head.likely),
        );
    }

    /// The same of one that was recognised.
    pub(super) fn couple_recognised_parts(
        &mut self,
        train: &mut Train,
        packet: Packet,
        found: &Recognised,
        sound: bool,
    ) {
        let parts = Parts {
            packet,
            start: found.payload.start,
            len: found.payload.len(),
            sound,
        };
        if let Err(parts) = train.couple_recognised_parts(found, parts) {
            self.pass_on(train);
            // An empty one takes any.
            if let Err(parts) = train.couple_recognised_parts(found, parts) {
                self.pool.free_packet(parts.packet);
            }
        }
    }
}
