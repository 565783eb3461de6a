use rnic_net::{KnownHeaders, PathDefaults, parse};
use rnic_xsk::{ChunkSize, FramePool, MemoryPort, MemoryWire, Port};
use userspace_tcp::{Likely, Segment};

use super::super::CARS_MAX;
use super::super::tests::{frame_of, head};
use super::*;

const MTU: u32 = 9000;
/// Octets of a payload that takes three frames.
const LEN: usize = 8940;

/// A host's end of a link that frames of several chunks come by.
struct Receiver {
    umem: Umem,
    pool: FramePool,
    port: MemoryPort,
    wire: MemoryWire,
}

impl Receiver {
    fn new() -> Self {
        let (umem, pool) = Umem::heap(256, ChunkSize::for_mtu(MTU).unwrap());
        let (port, wire) = MemoryPort::intercepted(&umem, 4);
        Self {
            umem,
            pool,
            port,
            wire,
        }
    }

    fn receive(&mut self, octets: &[u8]) -> Packet {
        let mut packets = Vec::new();
        assert!(self.wire.push(octets));
        self.port.receive(&mut self.pool, &mut packets, 1);
        packets.pop().unwrap()
    }
}

/// What parsing makes of a frame.
fn parsed(octets: &[u8]) -> Head {
    let found = parse(octets, &PathDefaults::new(MTU)).unwrap();
    let segment = Segment::parse(&octets[found.tcp.clone()]).unwrap();
    Head {
        tuple: found.tuple,
        likely: Likely::default(),
        path: found.path,
        port: 0,
        ecn: found.ecn,
        header: segment.header,
    }
}

#[test]
fn a_train_of_segments_in_several_frames_has_no_more_cars_than_others() {
    let mut receiver = Receiver::new();
    let mut train = Train::new();
    let (mut recognised, mut taken) = (0, 0);
    for number in 0..40_u32 {
        let octets = frame_of(&head(number * LEN as u32), LEN);
        let packet = receiver.receive(&octets);
        assert_eq!(packet.frames().count(), 3);
        let mut seen = Vec::new();
        let found = train.recognise_parts(&packet, &receiver.umem, 0, |part| {
            seen.extend_from_slice(part);
            rnic_crc::sum(part)
        });
        let parts = Parts {
            packet,
            start: octets.len() - LEN,
            len: LEN,
            sound: found.is_some(),
        };
        let coupled = match &found {
            Some(found) => {
                assert!(seen == octets[octets.len() - LEN..], "in order, each once");
                train.couple_recognised_parts(found, parts)
            }
            None => train.couple_parts(&parsed(&octets), parts),
        };
        recognised += u32::from(found.is_some());
        if let Err(parts) = coupled {
            let (_, cars) = train.take().unwrap();
            assert_eq!(cars.len(), CARS_MAX / 3 * 3);
            for (at, car) in cars.drain(..).enumerate() {
                assert_eq!(car.goes_on, at % 3 < 2);
                taken += car.len;
                receiver.pool.free(car.frame);
            }
            taken += parts.len;
            receiver.pool.free_packet(parts.packet);
        }
        train.know(
            |frame, payload| KnownHeaders::of(receiver.umem.bytes(frame), payload),
            |head| head.likely,
        );
    }
    assert!(recognised > 30, "{recognised} were recognised");
    assert_eq!(taken % LEN, 0);
    assert!(taken > 30 * LEN);
}
