use std::net::Ipv4Addr;

use rnic_net::{PathDefaults, Payload, parse, write_segment};
use rnic_xsk::{ChunkSize, FramePool, Umem};
use userspace_tcp::{Endpoint, Flags, Likely, Segment, SeqNum, Timestamps, checksum};

use super::*;

fn pool() -> FramePool {
    Umem::heap(64, ChunkSize::for_mtu(1500).unwrap()).1
}

pub(super) fn head(seq: u32) -> Head {
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
    let mut pool = pool();
    let mut train = Train::new();
    let mut couple = |head: &Head, len| {
        let frame = pool.alloc().unwrap();
        let start = 66;
        train
            .couple(
                head,
                Car {
                    frame,
                    start,
                    len,
                    sound: false,
                    goes_on: false,
                },
            )
            .is_ok()
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
    let frame = pool().alloc().unwrap();
    let (start, len) = (66, 100);
    let car = Car {
        frame,
        start,
        len,
        sound: false,
        goes_on: false,
    };
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
pub(super) fn frame_of(head: &Head, len: usize) -> Vec<u8> {
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

/// Some frames that go on, and some that do not for each reason there is.
#[test]
fn a_train_is_the_same_of_segments_that_are_recognised_and_that_are_parsed() {
    let mut pool = pool();
    let (mut parsed, mut recognising) = (Train::new(), Train::new());
    let (mut state, mut recognised, mut seq) = (1_u64, 0, 0_u32);
    for step in 0..20_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let kind = state >> 59;
        let len = if kind == 0 {
            0
        } else {
            100 - (state >> 50 & 1) as usize
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
        let octets = frame_of(&head, len);
        let found = parse(&octets, &PathDefaults::new(1500)).unwrap();
        let segment = Segment::parse(&octets[found.tcp.clone()]).unwrap();
        let (start, port) = (octets.len() - len, head.port);
        let head = Head {
            tuple: found.tuple,
            likely: Likely::default(),
            path: found.path,
            port,
            ecn: found.ecn,
            header: segment.header,
        };
        let mut car = || Car {
            frame: pool.alloc().unwrap(),
            start,
            len,
            sound: false,
            goes_on: false,
        };
        let by_parsing = parsed
            .couple(&head, car())
            .map_err(|car| pool.free(car.frame));
        let mut car = || Car {
            frame: pool.alloc().unwrap(),
            start,
            len,
            sound: false,
            goes_on: false,
        };
        let known = recognising.recognise(&octets, port, rnic_crc::sum);
        let couple = |train: &mut Train, car: Car| match &known {
            Some(found) => train.couple_recognised(found, car),
            None => train.couple(&head, car),
        };
        recognised += u32::from(known.is_some());
        let by_recognising = couple(&mut recognising, car());
        let by_recognising = by_recognising.map_err(|car| pool.free(car.frame));
        assert_eq!(by_parsing, by_recognising, "step {step}, kind {kind}");
        if by_parsing.is_err() {
            let (of_parsed, of_recognising) = (parsed.take(), recognising.take());
            let (Some((one, cars)), Some((other, others))) = (of_parsed, of_recognising) else {
                panic!("both have cars");
            };
            assert_eq!(format!("{one:?}"), format!("{other:?}"), "step {step}");
            assert_eq!(cars.len(), others.len());
            for car in cars.drain(..).chain(others.drain(..)) {
                pool.free(car.frame);
            }
            let mut car = || Car {
                frame: pool.alloc().unwrap(),
                start,
                len,
                sound: false,
                goes_on: false,
            };
            parsed.couple(&head, car()).unwrap();
            couple(&mut recognising, car()).unwrap();
        }
        recognising.know(
            |_, payload| {
                assert_eq!(payload, start);
                KnownHeaders::of(&octets, payload)
            },
            |head| head.likely,
        );
    }
    assert!(recognised > 5_000, "only {recognised} were");
}

/// Takes in a segment that comes by itself; says whether it was recognised.
fn take_in(pool: &mut FramePool, train: &mut Train, head: &Head) -> bool {
    let octets = frame_of(head, 64);
    let known = train.recognise(&octets, 0, rnic_crc::sum);
    let start = octets.len() - 64;
    let frame = pool.alloc().unwrap();
    let car = Car {
        frame,
        start,
        len: 64,
        sound: false,
        goes_on: false,
    };
    match &known {
        Some(found) => train.couple_recognised(found, car).unwrap(),
        None => train.couple(head, car).unwrap(),
    }
    train.know(
        |_, payload| KnownHeaders::of(&octets, payload),
        |head| head.likely,
    );
    let (_, cars) = train.take().unwrap();
    pool.free(cars.pop_front().unwrap().frame);
    known.is_some()
}

/// Segments that come by themselves are recognised too, when enough of one flow came in a row.
#[test]
fn a_flow_of_single_segments_is_known_after_some_in_a_row() {
    let mut pool = pool();
    let mut train = Train::new();
    let mut take_in = |train: &mut Train, port: u16, seq: u32| {
        let mut head = head(seq);
        head.tuple.remote.port = port;
        take_in(&mut pool, train, &head)
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
    let (mut pool, mut train) = (pool(), Train::new());
    let at = |seq, value| {
        let mut head = head(seq);
        let echo = value / 2;
        head.header.options.timestamps = Some(Timestamps { value, echo });
        head
    };
    for number in 0..ROW_MIN {
        assert!(!take_in(&mut pool, &mut train, &at(number, 7)));
    }
    for value in 8..100 {
        assert!(!take_in(&mut pool, &mut train, &at(value, value)));
        assert!(take_in(&mut pool, &mut train, &at(value + 1, value)));
    }
    // What says something else is not what will come next.
    let mut other = at(200, 99);
    other.header.flags |= Flags::ECE;
    assert!(!take_in(&mut pool, &mut train, &other));
    assert!(take_in(&mut pool, &mut train, &at(201, 99)));
}

#[test]
fn what_follows_is_counted_by_segments_and_not_by_cars() {
    let mut pool = pool();
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
