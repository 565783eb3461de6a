use std::net::Ipv4Addr;

use rnic_net::PathDefaults;
use rnic_xsk::{ChunkSize, FramePool, Umem};
use userspace_tcp::{Endpoint, Flags, SeqNum};

use super::*;

fn pool() -> FramePool {
    Umem::heap(64, ChunkSize::for_mtu(1500).unwrap()).1
}

fn head(seq: u32) -> Head {
    let end = |last| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), 7174);
    let defaults = PathDefaults::new(1500);
    Head {
        tuple: FourTuple::new(end(1), end(2)),
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
        train.couple(head, Car { frame, start, len }).is_ok()
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
    assert!(!couple(&next, 101), "longer than the first");
    for number in 1..CARS_MAX as u32 {
        assert!(couple(&head(number * 100 - 51), 100));
    }
    assert!(!couple(&head(CARS_MAX as u32 * 100 - 51), 100));
    let (taken, cars) = train.take().unwrap();
    assert_eq!(taken.header, first.header);
    let behind = following(cars.iter());
    assert_eq!((behind.segments, behind.octets), (15, 1500));
    cars.clear();
    assert!(train.take().is_none());
}

#[test]
fn new_octets_are_found_in_the_cars_that_they_lie_in() {
    let frame = pool().alloc().unwrap();
    let (start, len) = (66, 100);
    let car = Car { frame, start, len };
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
