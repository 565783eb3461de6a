//! Work of many elements, up to as many as a work request can name.

use rnic_ipc::work::MAX_SGE as MOST;

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;

/// Two ends whose work may have as many elements as there can be.
fn wide(ord: u16) -> (End, End) {
    let end = || {
        let attributes = QpAttributes {
            max_sge: MOST as u32,
            ..attributes(true)
        };
        End::with(attributes, CQ_DEPTH)
    };
    let (mut a, mut b) = (end(), end());
    let agreed = Negotiated {
        ord,
        ird: ord,
        ..negotiated(Some(Rtr::Write))
    };
    open(&mut a, &mut b, &agreed);
    pump(&mut a, &mut b);
    a.counters = QpCounters::default();
    (a, b)
}

/// As many elements as there can be, of growing lengths, with gaps between them; from the last to
/// the first when `backwards`.
fn most(at: u64, backwards: bool) -> Vec<Sge> {
    let mut sges: Vec<Sge> = (0..MOST as u64)
        .map(|n| sge(at + n * 200, 1 + 3 * n as u32))
        .collect();
    if backwards {
        sges.reverse();
    }
    sges
}

fn total(sges: &[Sge]) -> usize {
    sges.iter().map(|sge| sge.length as usize).sum()
}

fn fill(end: &End, sges: &[Sge], bytes: &[u8]) {
    let mut rest = bytes;
    for sge in sges {
        let (part, later) = rest.split_at(sge.length as usize);
        end.fill(sge.addr, part);
        rest = later;
    }
}

fn content(end: &End, sges: &[Sge]) -> Vec<u8> {
    let parts = sges
        .iter()
        .map(|sge| end.read(sge.addr, sge.length as usize));
    parts.flatten().collect()
}

#[test]
fn a_send_gathers_and_a_receive_scatters_as_many_elements_as_there_can_be() {
    let (mut a, mut b) = wide(4);
    let (from, to) = (most(SOURCE, true), most(SINK, false));
    let bytes = bytes(&mut Random::new(7), total(&from));
    fill(&a, &from, &bytes);
    b.post_recv(1, &to);
    a.post_send(&send(2, &from));
    pump(&mut a, &mut b);
    assert_eq!(content(&b, &to), bytes);
    assert_eq!(b.recvs()[0].byte_len as usize, bytes.len());
    assert_eq!(statuses(&a.sends()), [(2, WcStatus::Success)]);
    assert_eq!(
        b.read(SINK + 1, 199),
        [0; 199],
        "nothing beside the elements"
    );
}

#[test]
fn a_write_gathers_as_many_elements_as_there_can_be() {
    let (mut a, mut b) = wide(4);
    let from = most(SOURCE, true);
    let bytes = bytes(&mut Random::new(8), total(&from));
    fill(&a, &from, &bytes);
    a.post_send(&write(2, &from, SINK));
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK, bytes.len()), bytes);
}

/// A Read Request names one sink (RFC 5040 section 4.4), so there is one for each element.
#[test]
fn a_read_of_many_elements_is_as_many_read_requests_and_one_completion() {
    for ord in [1, 3, 64] {
        let (mut a, mut b) = wide(ord);
        let to = most(SINK, true);
        let bytes = bytes(&mut Random::new(9), total(&to));
        b.fill(SOURCE, &bytes);
        a.post_send(&remote(WrOpcode::Read, 1, &to, STAG, SOURCE));
        a.post_send(&write(2, &[sge(SOURCE, 8)], SINK + 0x8000));
        while let Some(fpdu) = a.produce(MULPDU) {
            b.receive(&fpdu);
        }
        let sent = u64::from(ord).min(MOST as u64);
        assert_eq!(a.counters.read_requests_sent, sent, "no more than the ORD");
        assert!(a.sends().is_empty());
        pump(&mut a, &mut b);
        assert_eq!(a.counters.read_requests_sent, MOST as u64);
        assert_eq!(content(&a, &to), bytes);
        let done = a.sends();
        let ok = WcStatus::Success;
        assert_eq!(statuses(&done), [(1, ok), (2, ok)]);
        assert_eq!(done[0].byte_len as usize, bytes.len());
    }
}

#[test]
fn elements_without_bytes_cost_a_read_no_request() {
    let (mut a, mut b) = wide(4);
    b.fill(SOURCE, b"abcdef");
    let empty = Sge::default();
    let to = [empty, sge(SINK, 2), empty, empty, sge(SINK + 8, 4), empty];
    a.post_send(&remote(WrOpcode::Read, 1, &to, STAG, SOURCE));
    a.post_send(&remote(WrOpcode::Read, 2, &[empty; 3], STAG, SOURCE));
    pump(&mut a, &mut b);
    assert_eq!(a.counters.read_requests_sent, 3, "two, and one of no bytes");
    assert_eq!(a.read(SINK, 12), b"ab\0\0\0\0\0\0cdef");
    let ok = WcStatus::Success;
    assert_eq!(statuses(&a.sends()), [(1, ok), (2, ok)]);
}

#[test]
fn a_terminate_that_names_any_of_its_requests_ends_the_read() {
    let (mut a, mut b) = wide(1);
    let to = [sge(SINK, 8), sge(SINK + 8, 8), sge(SINK + 16, 8)];
    a.post_send(&remote(WrOpcode::Read, 1, &to, STAG, SOURCE));
    b.receive(&a.produce(MULPDU).unwrap());
    a.receive(&b.produce(MULPDU).unwrap());
    assert!(b.stags.remove(STAG));
    pump(&mut a, &mut b);
    assert_eq!(a.counters.read_requests_sent, 2);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::RemoteAccess)]);
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
    assert!(a.sends().is_empty(), "it completes once");
}

#[test]
fn a_read_that_is_half_done_is_flushed_once() {
    let (mut a, mut b) = wide(1);
    let to = [sge(SINK, 8), sge(SINK + 8, 8), sge(SINK + 16, 8)];
    a.post_send(&remote(WrOpcode::Read, 1, &to, STAG, SOURCE));
    a.post_send(&send(2, &[]));
    b.receive(&a.produce(MULPDU).unwrap());
    a.receive(&b.produce(MULPDU).unwrap());
    b.receive(&a.produce(MULPDU).unwrap());
    a.with_ctx(|qp, ctx| qp.connection_ended(ctx, DisconnectReason::Reset));
    let flushed = WcStatus::WorkRequestFlushed;
    assert_eq!(statuses(&a.sends()), [(1, flushed), (2, flushed)]);
}

#[test]
fn one_bad_sink_among_many_fails_the_read_before_anything_is_asked() {
    let (mut a, mut b) = wide(4);
    let mut to = most(SINK, false);
    to[MOST - 1].lkey = OTHER_STAG.0;
    a.post_send(&remote(WrOpcode::Read, 1, &to, STAG, SOURCE));
    pump(&mut a, &mut b);
    assert_eq!(a.counters.read_requests_sent, 0);
    assert_eq!(statuses(&a.sends()), [(1, WcStatus::LocalProtection)]);
    a.assert_guarded_untouched();
}

/// A ring can carry more elements than a queue pair was made for: a client may write them.
#[test]
fn more_elements_than_the_queue_pair_was_made_for_are_an_operation_error() {
    for count in [MAX_SGE as usize + 1, MOST] {
        let (mut a, mut b) = joined();
        a.post_send(&send(1, &vec![sge(SOURCE, 1); count]));
        pump(&mut a, &mut b);
        assert_eq!(statuses(&a.sends()), [(1, WcStatus::LocalQpOperation)]);
        let (mut a, mut b) = joined();
        b.post_recv(1, &vec![sge(SINK, 1); count]);
        a.post_send(&send(1, &[sge(SOURCE, 1)]));
        pump(&mut a, &mut b);
        assert_eq!(statuses(&b.recvs()), [(1, WcStatus::LocalQpOperation)]);
    }
}
