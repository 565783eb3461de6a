use std::net::Ipv4Addr;

use rnic_net::{PathDefaults, Payload, write_segment};
use rnic_xsk::{ChunkSize, FramePool, MemoryPort, MemoryWire, Port, Umem};
use userspace_net::{Endpoint, Instant, checksum};
use userspace_tcp::{Config, ConnOptions, Flags, FlowHint, SeqNum, Stack};

use super::*;

/// An MTU of which a packet takes up to three frames, and the bytes of a payload that does.
const JUMBO: u32 = 9000;
const LONG: usize = 8940;

/// A host's end of a link.
struct Receiver {
    pool: FramePool,
    port: MemoryPort,
    wire: MemoryWire,
}

impl Receiver {
    fn new(mtu: u32) -> Self {
        let (umem, pool) = Umem::heap(256, ChunkSize::for_mtu(mtu).unwrap());
        let (port, wire) = MemoryPort::intercepted(&umem, 4);
        Self { pool, port, wire }
    }

    fn receive(&mut self, bytes: &[u8]) -> Packet {
        let mut packets = Vec::new();
        assert!(self.wire.push(bytes));
        self.port.receive(&mut self.pool, &mut packets, 1);
        packets.pop().unwrap()
    }

    /// A segment with so many bytes of payload behind the headers that they say.
    fn segment(&mut self, head: &Head, len: usize) -> RxSegment {
        let bytes = frame_of(head, len);
        let payload = bytes.len() - len..bytes.len();
        RxSegment::new(self.receive(&bytes), &payload, false)
    }
}

/// Takes a segment; back comes one that does not belong to this batch.
fn couple(
    batch: &mut GroBatch,
    headers: &Headers<'_>,
    segment: RxSegment,
    umem: &Umem,
) -> Result<(), RxSegment> {
    if !batch.is_continued_by(headers, &segment) {
        if batch.head.is_some() {
            return Err(segment);
        }
        match headers {
            Headers::Parsed(head) => batch.begin(**head, None),
            Headers::Predicted(..) => unreachable!("not in these tests"),
        }
    }
    batch.push(segment, umem);
    Ok(())
}

fn head(seq: u32) -> Head {
    let end = |last| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), 7174);
    let defaults = PathDefaults::new(1500);
    Head {
        tuple: FourTuple::new(end(1), end(2)),
        hint: FlowHint::default(),
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
fn a_batch_is_of_one_flow_without_a_gap_and_no_longer_than_its_bound() {
    let mut receiver = Receiver::new(1500);
    let mut batch = GroBatch::new();
    let mut couple = |head: &Head, len| {
        let segment = receiver.segment(head, len);
        let headers = Headers::Parsed(&mut head.clone());
        let coupled = couple(&mut batch, &headers, segment, receiver.port.umem());
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
    for number in 2..FRAGS_MAX as u32 {
        assert!(couple(&head(number * 100 - 50), 100));
    }
    assert!(!couple(&head(FRAGS_MAX as u32 * 100 - 50), 100));
    let (taken, _, frags) = batch.take().unwrap();
    assert_eq!(taken.header, first.header);
    let behind = following(frags.iter());
    assert_eq!(
        (behind.segments, behind.bytes, behind.longest),
        (17, 1701, 101)
    );
    frags.clear();
    assert!(batch.take().is_none());
}

#[test]
fn new_bytes_are_found_in_the_fragments_that_they_lie_in() {
    let mut receiver = Receiver::new(1500);
    let mut segment = receiver.segment(&head(0), 100);
    (segment.start, segment.len) = (54, 100);
    let mut batch = GroBatch::new();
    batch.push(segment, receiver.port.umem());
    let frag = &batch.frags[0];
    let new = |skip, len| NewRange {
        offset: 0,
        skip,
        len,
    };
    // The frag has bytes 200 to 300 of its batch.
    let cases = [
        (new(0, 1000), (54, 100)),
        (new(250, 1000), (104, 50)),
        (new(250, 10), (104, 10)),
        (new(0, 210), (54, 10)),
        (new(0, 200), (54, 0)),
        (new(300, 10), (154, 0)),
    ];
    for (new, part) in cases {
        assert_eq!(frag.part(200, &new), part, "{new:?}");
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

#[test]
fn what_follows_is_counted_by_segments_and_not_by_fragments() {
    let (_, mut pool) = Umem::heap(64, ChunkSize::for_mtu(1500).unwrap());
    let lens = [
        (100, true),
        (50, false),
        (140, false),
        (10, true),
        (20, true),
        (5, false),
    ];
    let frags: VecDeque<Frag> = lens
        .into_iter()
        .map(|(len, goes_on)| Frag {
            frame: pool.alloc().unwrap(),
            start: 0,
            len,
            crc_verified: false,
            goes_on,
        })
        .collect();
    let behind = |count| {
        let behind = following(frags.iter().take(count));
        (behind.segments, behind.bytes, behind.longest)
    };
    assert_eq!(behind(6), (2, 225, 150));
    assert_eq!(behind(3), (1, 190, 150));
    assert_eq!(behind(2), (0, 50, 150));
    assert_eq!(behind(1), (0, 0, 100));
    assert_eq!(frags_of_first(&frags), 2);
    assert_eq!(frags_of_first(&frags.into_iter().skip(2).collect()), 1);
}

#[test]
fn a_batch_of_segments_in_several_frames_has_no_more_fragments_than_others() {
    let mut receiver = Receiver::new(JUMBO);
    let mut batch = GroBatch::new();
    let headers = |number: u32| head(number * LONG as u32);
    for number in 0..FRAGS_MAX as u32 / 3 {
        let mut head = headers(number);
        let segment = receiver.segment(&head, LONG);
        assert_eq!(segment.packet.frame_count(), 3);
        couple(
            &mut batch,
            &Headers::Parsed(&mut head),
            segment,
            receiver.port.umem(),
        )
        .unwrap();
    }
    let mut head = headers(FRAGS_MAX as u32 / 3);
    let segment = receiver.segment(&head, LONG);
    let umem = receiver.port.umem();
    assert!(couple(&mut batch, &Headers::Parsed(&mut head), segment, umem).is_err());
    let (_, _, frags) = batch.take().unwrap();
    assert_eq!(frags.len(), FRAGS_MAX / 3 * 3);
    for (at, frag) in frags.iter().enumerate() {
        assert_eq!(frag.goes_on, at % 3 < 2);
    }
    let bytes: usize = frags.iter().map(|frag| frag.len).sum();
    assert_eq!(bytes, FRAGS_MAX / 3 * LONG);
}

/// What a predicted segment says that has such a head.
fn says(head: &Head, len: usize) -> PredictedFields {
    PredictedFields {
        seq: head.header.seq,
        ack: head.header.ack,
        window: head.header.window,
        flags: head.header.flags,
        payload: 54..54 + len,
    }
}

/// A segment whose headers were predicted has the path, port and ECN field of its connection's others, but
/// one that was parsed may have none of them.
#[test]
fn a_predicted_segment_continues_predicted_ones_of_its_connection_and_a_parsed_one_others() {
    let mut receiver = Receiver::new(1500);
    let [one, other] = conns();
    for begun in [None, Some(one)] {
        for next in [None, Some(one), Some(other)] {
            let mut batch = GroBatch::new();
            batch.begin(head(0), begun);
            batch.push(receiver.segment(&head(0), 100), receiver.port.umem());
            let mut head = head(100);
            let says = says(&head, 100);
            let headers = match next {
                Some(id) => Headers::Predicted(id, &says),
                None => Headers::Parsed(&mut head),
            };
            let segment = receiver.segment(&self::head(100), 100);
            assert_eq!(batch.is_continued_by(&headers, &segment), begun == next);
        }
    }
}

#[test]
fn a_predicted_segment_continues_one_that_says_the_same() {
    let mut receiver = Receiver::new(1500);
    let [id, _] = conns();
    let mut batch = GroBatch::new();
    batch.begin(head(0), Some(id));
    batch.push(receiver.segment(&head(0), 100), receiver.port.umem());
    let next = says(&head(100), 100);
    let others = [
        PredictedFields {
            seq: SeqNum(101),
            ..next.clone()
        },
        PredictedFields {
            ack: SeqNum(1),
            ..next.clone()
        },
        PredictedFields {
            window: 1,
            ..next.clone()
        },
        PredictedFields {
            flags: Flags::ACK | Flags::FIN,
            ..next.clone()
        },
    ];
    let segment = receiver.segment(&head(100), 100);
    for other in others {
        let headers = Headers::Predicted(id, &other);
        assert!(!batch.is_continued_by(&headers, &segment), "{other:?}");
    }
    assert!(batch.is_continued_by(&Headers::Predicted(id, &next), &segment));
}

/// The names of two connections.
fn conns() -> [ConnId; 2] {
    let mut stack: Stack<u32> = Stack::new(Config::default(), [7; 16], Instant::ZERO);
    [1, 2].map(|port| {
        let mut tuple = head(0).tuple;
        tuple.remote.port = port;
        let options = ConnOptions { mss: 1460 };
        stack.connect(Instant::ZERO, tuple, options).unwrap()
    })
}
