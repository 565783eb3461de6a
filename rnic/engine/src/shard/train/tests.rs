use std::net::Ipv4Addr;

use rnic_net::{PathDefaults, Payload, parse, write_segment};
use rnic_xsk::{ChunkSize, FramePool, MemoryPort, MemoryWire, Port, Umem};
use userspace_tcp::{Endpoint, Flags, Likely, Segment, SeqNum, Timestamps, checksum};

use super::*;

/// An MTU of which a packet takes up to three frames, and the octets of a payload that does.
const JUMBO: u32 = 9000;
const LONG: usize = 8940;

/// A host's end of a link.
struct Receiver {
    umem: Umem,
    pool: FramePool,
    port: MemoryPort,
    wire: MemoryWire,
    mtu: u32,
}

impl Receiver {
    fn new(mtu: u32) -> Self {
        let (umem, pool) = Umem::heap(256, ChunkSize::for_mtu(mtu).unwrap());
        let (port, wire) = MemoryPort::intercepted(&umem, 4);
        Self {
            umem,
            pool,
            port,
            wire,
            mtu,
        }
    }

    fn receive(&mut self, octets: &[u8]) -> Packet {
        let mut packets = Vec::new();
        assert!(self.wire.push(octets));
        self.port.receive(&mut self.pool, &mut packets, 1);
        packets.pop().unwrap()
    }

    /// A segment with so many octets of payload behind the headers that they say.
    fn segment(&mut self, head: &Head, len: usize) -> RxSegment {
        let octets = frame_of(head, len);
        let payload = octets.len() - len..octets.len();
        RxSegment::new(self.receive(&octets), &payload, false)
    }

    /// What parsing makes of a packet.
    fn parsed(&self, packet: &Packet, port: usize) -> Head {
        let mut slices = [&[][..]; CHUNKS_MAX];
        let octets = packet.slices(&self.umem, &mut slices).concat();
        let found = parse(&octets, &PathDefaults::new(self.mtu)).unwrap();
        let segment = Segment::parse(&octets[found.tcp.clone()]).unwrap();
        Head {
            tuple: found.tuple,
            likely: Likely::default(),
            path: found.path,
            port,
            ecn: found.ecn,
            header: segment.header,
        }
    }

    /// Learns a flow's headers from the train, as the shard does.
    fn know(&self, train: &mut Train) {
        train.know(
            |frame, payload| KnownHeaders::of(self.umem.bytes(frame), payload),
            |head| head.likely,
        );
    }

    fn free(&mut self, cars: &mut VecDeque<Car>) {
        cars.drain(..).for_each(|car| self.pool.free(car.frame));
    }
}

/// Takes a segment; back comes one that does not belong to this train.
fn couple(train: &mut Train, headers: &Headers<'_>, segment: RxSegment) -> Result<(), RxSegment> {
    if !train.is_continued_by(headers, &segment) {
        if train.head.is_some() {
            return Err(segment);
        }
        assert!(train.begin(headers));
    }
    train.push(segment);
    Ok(())
}

fn head(seq: u32) -> Head {
    let end = |last| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), 7174);
    let defaults = PathDefaults::new(1500);
    Head {
        tuple: FourTuple::new(end(1), end(2)),
        likely: Likely::default(),
        path: Path {
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
            vlan: None,
            mtu: defaults.mtu,
            hop_limit: 64,
        },
        port: 0,
        ecn: Ecn::NotEct,
        header: TcpHeader {
            seq: SeqNum(seq),
            flags: Flags::ACK,
            ..TcpHeader::default()
        },
    }
}

#[test]
fn a_train_is_of_one_flow_without_a_gap_and_no_longer_than_its_bound() {
    let mut receiver = Receiver::new(1500);
    let mut train = Train::new();
    let mut couple = |head: &Head, len| {
        let segment = receiver.segment(head, len);
        let coupled = couple(&mut train, &Headers::Parsed(&mut head.clone()), segment);
        let coupled = coupled.map_err(|segment| receiver.pool.free_packet(segment.packet));
        coupled.is_ok()
    };
    // Numbers wrap.
    let first = head(u32::MAX - 50);
    assert!(couple(&first, 100));
    let next = head(49);
    let others = [
        head(50),
        Head { port: 1, ..next },
        Head {
            ecn: Ecn::Ce,
            ..next
        },
        Head {
            tuple: FourTuple::new(next.tuple.remote, next.tuple.local),
            ..next
        },
        Head {
            path: Path {
                vlan: Some(7),
                ..next.path
            },
            ..next
        },
    ];
    for other in others {
        assert!(!couple(&other, 100), "{other:?}");
    }
    assert!(!couple(&next, 0), "a pure ACK says something else");
    assert!(couple(&next, 101), "longer than the first");
    for number in 2..CARS_MAX as u32 {
        assert!(couple(&head(number * 100 - 50), 100));
    }
    assert!(!couple(&head(CARS_MAX as u32 * 100 - 50), 100));
    let (taken, cars) = train.take().unwrap();
    assert_eq!(taken.header, first.header);
    let behind = following(cars.iter());
    assert_eq!(
        (behind.segments, behind.octets, behind.longest),
        (15, 1501, 101)
    );
    cars.clear();
    assert!(train.take().is_none());
}

#[test]
fn new_octets_are_found_in_the_cars_that_they_lie_in() {
    let mut segment = Receiver::new(1500).segment(&head(0), 100);
    segment.start = 66;
    let car = segment.into_car().unwrap();
    let new = |skip, len| NewRange {
        offset: 0,
        skip,
        len,
    };
    // The car has octets 200 to 300 of its train.
    let cases = [
        (new(0, 1000), (66, 100)),
        (new(250, 1000), (116, 50)),
        (new(250, 10), (116, 10)),
        (new(0, 210), (66, 10)),
        (new(0, 200), (66, 0)),
        (new(300, 10), (166, 0)),
    ];
    for (new, part) in cases {
        assert_eq!(car.part(200, &new), part, "{new:?}");
    }
}

/// A frame of a flow, as the head says.
fn frame_of(head: &Head, len: usize) -> Vec<u8> {
    let payload = vec![7; len];
    let sum = checksum::sum(&payload);
    let (path, tuple) = (&head.path, &head.tuple);
    let header = TcpHeader {
        source_port: tuple.local.port,
        destination_port: tuple.remote.port,
        ..head.header
    };
    let mut out = vec![0; path.headers_len(tuple.remote.addr) + header.header_len()];
    write_segment(
        path,
        tuple,
        head.ecn,
        &header,
        Payload { len, sum },
        &mut out,
    )
    .unwrap();
    out.extend(payload);
    out
}

/// Some segments that go on, and some that do not for each reason there is, in one frame or several.
#[test]
fn a_train_is_the_same_of_segments_that_are_recognised_and_that_are_parsed() {
    for (mtu, len, steps) in [(1500, 100, 20_000), (JUMBO, LONG, 4000)] {
        assert_the_same(Receiver::new(mtu), len, steps);
    }
}

fn assert_the_same(mut receiver: Receiver, full: usize, steps: usize) {
    let (mut parsed, mut recognising) = (Train::new(), Train::new());
    let (mut state, mut recognised, mut seq) = (1_u64, 0, 0_u32);
    for step in 0..steps {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let kind = state >> 59;
        let len = if kind == 0 {
            0
        } else {
            full - (state >> 50 & 1) as usize
        };
        let mut head = head(seq);
        head.port = usize::from(kind == 1);
        head.header.ack.0 += u32::from(kind == 2);
        head.header.window += u16::from(kind == 3);
        head.header.seq.0 += u32::from(kind == 4);
        match kind {
            5 => head.header.flags = Flags::ACK | Flags::PSH,
            6 => head.header.flags = Flags::ACK | Flags::FIN,
            7 => head.tuple.remote.port = 9,
            8 => head.ecn = Ecn::Ce,
            9 => head.path.vlan = Some(5),
            10 if step % 64 == 0 => recognising.forget(),
            _ => {}
        }
        seq = seq.wrapping_add(len as u32);
        let [one, other] = [(); 2].map(|()| receiver.segment(&head, len));
        let port = head.port;
        let mut head = receiver.parsed(&one.packet, port);
        let by_parsing = couple(&mut parsed, &Headers::Parsed(&mut head.clone()), one);
        let mut seen = Vec::new();
        let known = recognising.recognise(&other.packet, &receiver.umem, port, |part| {
            seen.extend_from_slice(part);
            rnic_crc::sum(part)
        });
        let headers = match &known {
            Some(found) => {
                assert!(seen == vec![7; len], "each octet of the payload once");
                Headers::Recognised(found)
            }
            None => Headers::Parsed(&mut head),
        };
        recognised += usize::from(known.is_some());
        let by_recognising = couple(&mut recognising, &headers, other);
        assert_eq!(
            by_parsing.is_err(),
            by_recognising.is_err(),
            "step {step}, kind {kind}"
        );
        if let (Err(one), Err(other)) = (by_parsing, by_recognising) {
            let of_both = (parsed.take(), recognising.take());
            let (Some((head, cars)), Some((same, others))) = of_both else {
                panic!("both have cars");
            };
            assert_eq!(format!("{head:?}"), format!("{same:?}"), "step {step}");
            let shape = |cars: &VecDeque<Car>| -> Vec<_> {
                let shape = |car: &Car| (car.start, car.len, car.goes_on);
                cars.iter().map(shape).collect()
            };
            assert_eq!(shape(cars), shape(others));
            receiver.free(cars);
            receiver.free(others);
            let mut head = receiver.parsed(&one.packet, port);
            couple(&mut parsed, &Headers::Parsed(&mut head), one).unwrap();
            couple(&mut recognising, &headers, other).unwrap();
        }
        receiver.know(&mut recognising);
    }
    assert!(recognised > steps / 4, "only {recognised} were");
}

/// Takes in a segment that comes by itself; says whether it was recognised.
fn take_in(receiver: &mut Receiver, train: &mut Train, head: &Head) -> bool {
    let segment = receiver.segment(head, 64);
    let known = train.recognise(&segment.packet, &receiver.umem, 0, rnic_crc::sum);
    let headers = match &known {
        Some(found) => Headers::Recognised(found),
        None => Headers::Parsed(&mut head.clone()),
    };
    couple(train, &headers, segment).unwrap();
    receiver.know(train);
    let (_, cars) = train.take().unwrap();
    receiver.free(cars);
    known.is_some()
}

/// Segments that come by themselves are recognised too, when enough of one flow came in a row.
#[test]
fn a_flow_of_single_segments_is_known_after_some_in_a_row() {
    let mut receiver = Receiver::new(1500);
    let mut train = Train::new();
    let mut take_in = |train: &mut Train, port: u16, seq: u32| {
        let mut head = head(seq);
        head.tuple.remote.port = port;
        take_in(&mut receiver, train, &head)
    };
    for number in 0..100 {
        assert!(!take_in(&mut train, 1 + number % 2, 1), "two take turns");
    }
    for number in 0..ROW_MIN {
        assert!(!take_in(&mut train, 7, number), "{number}");
    }
    assert!(take_in(&mut train, 7, 100));
    for number in 0..ROW_MIN - 1 {
        assert!(!take_in(&mut train, 8, number));
        assert!(take_in(&mut train, 7, number), "it stays so among others");
    }
}

/// Of a flow that is known one segment is parsed when the time of its timestamps goes on.
#[test]
fn a_known_flow_is_known_again_by_its_next_segment() {
    let (mut receiver, mut train) = (Receiver::new(1500), Train::new());
    let at = |seq, value| {
        let mut head = head(seq);
        let echo = value / 2;
        head.header.options.timestamps = Some(Timestamps { value, echo });
        head
    };
    for number in 0..ROW_MIN {
        assert!(!take_in(&mut receiver, &mut train, &at(number, 7)));
    }
    for value in 8..100 {
        assert!(!take_in(&mut receiver, &mut train, &at(value, value)));
        assert!(take_in(&mut receiver, &mut train, &at(value + 1, value)));
    }
    // What says something else is not what will come next.
    let mut other = at(200, 99);
    other.header.flags |= Flags::ECE;
    assert!(!take_in(&mut receiver, &mut train, &other));
    assert!(take_in(&mut receiver, &mut train, &at(201, 99)));
}

#[test]
fn what_follows_is_counted_by_segments_and_not_by_cars() {
    let (_, mut pool) = Umem::heap(64, ChunkSize::for_mtu(1500).unwrap());
    let lens = [
        (100, true),
        (50, false),
        (140, false),
        (10, true),
        (20, true),
        (5, false),
    ];
    let cars: VecDeque<Car> = lens
        .into_iter()
        .map(|(len, goes_on)| Car {
            frame: pool.alloc().unwrap(),
            start: 0,
            len,
            sound: false,
            goes_on,
        })
        .collect();
    let behind = |count| {
        let behind = following(cars.iter().take(count));
        (behind.segments, behind.octets, behind.longest)
    };
    assert_eq!(behind(6), (2, 225, 150));
    assert_eq!(behind(3), (1, 190, 150));
    assert_eq!(behind(2), (0, 50, 150));
    assert_eq!(behind(1), (0, 0, 100));
    assert_eq!(cars_of_first(&cars), 2);
    assert_eq!(cars_of_first(&cars.into_iter().skip(2).collect()), 1);
}

#[test]
fn a_train_of_segments_in_several_frames_has_no_more_cars_than_others() {
    let mut receiver = Receiver::new(JUMBO);
    let mut train = Train::new();
    let headers = |number: u32| head(number * LONG as u32);
    for number in 0..CARS_MAX as u32 / 3 {
        let mut head = headers(number);
        let segment = receiver.segment(&head, LONG);
        assert_eq!(segment.packet.frames().count(), 3);
        couple(&mut train, &Headers::Parsed(&mut head), segment).unwrap();
    }
    let mut head = headers(CARS_MAX as u32 / 3);
    let segment = receiver.segment(&head, LONG);
    assert!(couple(&mut train, &Headers::Parsed(&mut head), segment).is_err());
    let (_, cars) = train.take().unwrap();
    assert_eq!(cars.len(), CARS_MAX / 3 * 3);
    for (at, car) in cars.iter().enumerate() {
        assert_eq!(car.goes_on, at % 3 < 2);
    }
    let octets: usize = cars.iter().map(|car| car.len).sum();
    assert_eq!(octets, CARS_MAX / 3 * LONG);
}
