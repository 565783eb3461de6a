//! Work that carries its bytes itself.

use rnic_ipc::work::{MAX_INLINE, WR_INLINE};

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;

/// Two ends; the first takes so many bytes inline.
fn carrying(max_inline: usize) -> (End, End) {
    let attributes = QpAttributes {
        max_inline: max_inline as u32,
        max_sge: 1,
        ..attributes(true)
    };
    let (mut a, mut b) = (End::with(attributes, CQ_DEPTH), End::new());
    open(&mut a, &mut b, &negotiated(None));
    (a, b)
}

fn post_inline(end: &mut End, request: &WorkRequest, bytes: &[u8]) {
    let operands = request.operands().unwrap();
    end.sq.push_inline(&request.slot, bytes, &operands).unwrap();
    end.doorbell();
}

#[test]
fn inline_bytes_are_sent_and_written_whatever_the_segments() {
    let bytes = bytes(&mut Random::new(4), MAX_INLINE);
    for len in [0, 1, 15, 16, 17, 33, 100, 200, MAX_INLINE] {
        // The smallest MULPDU makes several segments of it.
        for mulpdu in [128, MULPDU] {
            let (mut a, mut b) = carrying(MAX_INLINE);
            b.post_recv(1, &[sge(SINK, 600)]);
            post_inline(&mut a, &send(2, &[]), &bytes[..len]);
            post_inline(&mut a, &write(3, &[], SINK + 0x1000), &bytes[..len]);
            while let Some(fpdu) = a.produce(mulpdu) {
                b.receive(&fpdu);
            }
            assert_eq!(b.read(SINK, len), bytes[..len]);
            assert_eq!(b.read(SINK + 0x1000, len), bytes[..len]);
            assert_eq!(b.recvs()[0].byte_len as usize, len);
            let ok = WcStatus::Success;
            assert_eq!(statuses(&a.sends()), [(2, ok), (3, ok)]);
        }
    }
}

#[test]
fn inline_work_names_no_stag() {
    let (mut a, mut b) = carrying(64);
    for stag in [STAG, LOCAL_STAG, BARE_STAG] {
        assert!(a.stags.remove(stag));
    }
    b.post_recv(1, &[sge(SINK, 64)]);
    post_inline(&mut a, &send(2, &[]), &[0x5a; 64]);
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK, 64), [0x5a; 64]);
}

fn assert_impossible(mut a: End, request: &WorkRequest) {
    let mut b = End::new();
    b.qp.begin_connecting().unwrap();
    b.qp.enter_rdma_mode(&negotiated(None), false);
    a.post_send(request);
    pump(&mut a, &mut b);
    assert_eq!(
        statuses(&a.sends()),
        [(request.slot.wr_id, WcStatus::LocalQpOperation)],
        "{request:?}"
    );
    assert_eq!(b.counters.bytes_placed, 0);
}

/// What the client library refuses a client can still write.
#[test]
fn inline_work_that_cannot_be_is_an_operation_error() {
    let hostile = |request: WorkRequest, len: u32| {
        let mut request = request;
        request.slot.flags |= WR_INLINE;
        request.slot.inline_len = len;
        request
    };
    let places = |count| vec![Sge::default(); count];
    for request in [
        // More than the queue pair was made for, or than there are places.
        hostile(send(2, &places(5)), 65),
        hostile(send(2, &places(4)), 65),
        hostile(send(2, &places(4)), u32::MAX),
        hostile(send(2, &places(0)), 16),
        // More places than bytes.
        hostile(send(2, &places(4)), 48),
        // What brings bytes can't carry them.
        hostile(read(2, Sge::default(), SOURCE), 16),
        hostile(request(WrOpcode::Recv, 2, &places(1)), 16),
        // A Write that wraps.
        hostile(write(2, &places(1), u64::MAX - 3), 16),
    ] {
        assert_impossible(carrying(64).0, &request);
    }
    let none = End::with(attributes(true), CQ_DEPTH);
    let mut none = none;
    none.qp.begin_connecting().unwrap();
    none.qp.enter_rdma_mode(&negotiated(None), true);
    assert_impossible(none, &hostile(send(2, &places(1)), 1));
}

#[test]
fn a_receive_that_says_it_is_inline_is_an_operation_error() {
    let (mut a, mut b) = joined();
    let mut receive = request(WrOpcode::Recv, 4, &[sge(SINK, 8)]);
    receive.slot.flags |= WR_INLINE;
    receive.slot.inline_len = u32::MAX;
    b.rq.push(&receive).unwrap();
    a.post_send(&send(1, &[sge(SOURCE, 8)]));
    pump(&mut a, &mut b);
    assert_eq!(statuses(&b.recvs()), [(4, WcStatus::LocalQpOperation)]);
    assert_eq!(b.read(SINK, 8), [0; 8]);
}
