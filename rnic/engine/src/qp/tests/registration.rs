//! Fast registration, windows of type 1 and regions of one stream, as work of a send queue and as a
//! peer meets them.

use rnic_ipc::work::WR_ONE_STREAM;
use rnic_proto::ddp::DdpError;
use rnic_proto::rdmap::RdmapError;

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;
const FAST: Stag = Stag(0x0000_5500);
const WINDOW: Stag = Stag(0x0000_7700);

fn keyed(stag: Stag, key: u8) -> Stag {
    Stag::from_parts(stag.index(), key)
}

/// Work that makes `stag` stand for `len` bytes of `region` from [`SINK`] on.
fn bind(opcode: WrOpcode, wr_id: u64, stag: Stag, region: Stag, len: u64) -> WorkRequest {
    let mut work = remote(opcode, wr_id, &[], stag, SINK);
    let operand = u64::from(ALL.bits()) << 32 | u64::from(region.0);
    assert!(work.set_operands(&[len, operand, 0, 0]));
    work
}

fn register(wr_id: u64, stag: Stag, region: Stag) -> WorkRequest {
    bind(WrOpcode::FastRegister, wr_id, stag, region, 64)
}

fn local_invalidate(wr_id: u64, stag: Stag) -> WorkRequest {
    remote(WrOpcode::LocalInvalidate, wr_id, &[], stag, 0)
}

fn send_with_invalidate(wr_id: u64, stag: Stag) -> WorkRequest {
    let mut work = request(WrOpcode::SendInvalidate, wr_id, &[]);
    work.slot.rkey = stag.0;
    work
}

/// Two ends; the second has STags without memory, of a protection domain with two streams.
fn with_stags() -> (End, End) {
    let (a, mut b) = joined();
    let kinds = [
        (FAST, StagKind::FastRegion),
        (WINDOW, StagKind::WindowType1),
    ];
    for (stag, kind) in kinds {
        b.stags.add_unbound(stag, PD, kind).unwrap();
    }
    b.stags.stream_added(NEIGHBOUR);
    a.fill(SOURCE, b"12345678");
    (a, b)
}

fn write_to(stag: Stag) -> WorkRequest {
    remote(WrOpcode::Write, 1, &[sge(SOURCE, 8)], stag, SINK)
}

#[test]
fn a_fast_region_is_registered_written_invalidated_by_the_peer_and_registered_again() {
    let (mut a, mut b) = with_stags();
    let mut ids = 1..;
    for key in [1, 2] {
        b.post_recv(1, &[]);
        let stag = keyed(FAST, key);
        let mut work = register(5, stag, STAG);
        work.slot.flags |= WR_ONE_STREAM;
        b.post_send(&work);
        assert!(b.produce(MULPDU).is_none(), "nothing goes to the peer");
        assert_eq!(statuses(&b.sends()), [(5, WcStatus::Success)]);
        a.fill(SOURCE, &[key; 8]);
        a.post_send(&write_to(stag));
        a.post_send(&send_with_invalidate(ids.next().unwrap(), stag));
        pump(&mut a, &mut b);
        assert_eq!(b.read(SINK, 8), [key; 8]);
        assert_eq!(b.recvs()[0].invalidated, stag.0);
    }
    a.post_send(&write_to(keyed(FAST, 2)));
    pump(&mut a, &mut b);
    let control = control(DdpError::InvalidStag);
    let sent = Some(CloseKind::AfterTerminateSent { control });
    assert_eq!(b.qp.wants_close(), sent);
}

#[test]
fn a_region_is_invalidated_and_registered_again_in_the_order_of_posting() {
    let (mut a, mut b) = with_stags();
    let anew = keyed(STAG, 0x77);
    b.post_send(&local_invalidate(1, STAG));
    b.post_send(&register(2, anew, anew));
    pump(&mut a, &mut b);
    let ok = WcStatus::Success;
    assert_eq!(statuses(&b.sends()), [(1, ok), (2, ok)]);
    a.post_send(&write_to(anew));
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK, 8), b"12345678");
    a.post_send(&write_to(STAG));
    pump(&mut a, &mut b);
    assert_eq!(b.counters.refused_invalid_stag, 1, "the old key");
}

/// RFC 5040 section 8.1.1, 7: all streams of the domain use a window of type 1.
#[test]
fn a_peer_that_invalidates_a_window_of_type_1_gets_a_terminate() {
    let (mut a, mut b) = with_stags();
    b.stags.stream_removed(NEIGHBOUR);
    b.post_recv(1, &[]);
    let stag = keyed(WINDOW, 1);
    b.post_send(&bind(WrOpcode::BindWindow, 5, stag, STAG, 64));
    assert!(b.produce(MULPDU).is_none());
    a.post_send(&write_to(stag));
    a.post_send(&send_with_invalidate(2, stag));
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK, 8), b"12345678");
    let control = control(RdmapError::CannotInvalidate);
    let sent = Some(CloseKind::AfterTerminateSent { control });
    assert_eq!(b.qp.wants_close(), sent);
    assert_eq!(b.counters.refused_invalidate, 1);
}

#[test]
fn a_window_of_type_1_is_bound_anew_and_ends_by_a_binding_to_nothing() {
    let (mut a, mut b) = with_stags();
    let [first, second] = [1, 2].map(|key| keyed(WINDOW, key));
    b.post_send(&bind(WrOpcode::BindWindow, 1, first, STAG, 64));
    b.post_send(&bind(WrOpcode::BindWindow, 2, second, STAG, 64));
    assert!(b.produce(MULPDU).is_none());
    a.post_send(&write_to(second));
    pump(&mut a, &mut b);
    assert_eq!(b.read(SINK, 8), b"12345678");
    b.post_send(&bind(WrOpcode::BindWindow, 3, second, Stag(0), 0));
    pump(&mut a, &mut b);
    let ok = WcStatus::Success;
    assert_eq!(statuses(&b.sends()), [(1, ok), (2, ok), (3, ok)]);
    a.post_send(&write_to(second));
    pump(&mut a, &mut b);
    assert_eq!(b.counters.refused_invalid_stag, 1);
}

#[test]
fn a_region_of_another_stream_is_not_associated() {
    let limited = Stag(0x0000_6600);
    for own in [true, false] {
        let (mut a, mut b) = with_stags();
        let of = if own { b.qp.user() } else { NEIGHBOUR };
        let memory = RegionMemory::Shared {
            memory: b.memory.clone(),
            offset: 0,
            len: LEN,
        };
        let base = TaggedOffset(BASE);
        b.stags
            .add_for_stream(limited, of, ALL, base, memory)
            .unwrap();
        b.post_recv(1, &[]);
        a.post_send(&write_to(limited));
        a.post_send(&send_with_invalidate(2, limited));
        pump(&mut a, &mut b);
        if own {
            assert_eq!(b.read(SINK, 8), b"12345678");
            assert_eq!(b.recvs()[0].invalidated, limited.0);
            continue;
        }
        assert_eq!(b.read(SINK, 8), [0; 8]);
        let control = control(DdpError::StagNotAssociated);
        let sent = Some(CloseKind::AfterTerminateSent { control });
        assert_eq!(b.qp.wants_close(), sent);
    }
}

/// RFC 5040 section 8.1.1, 2: the next connection of a queue pair is another stream.
#[test]
fn what_is_of_one_stream_is_not_of_the_next_of_its_queue_pair() {
    let (mut a, mut b) = with_stags();
    let mut work = register(1, keyed(FAST, 1), STAG);
    work.slot.flags |= WR_ONE_STREAM;
    b.post_send(&work);
    pump(&mut a, &mut b);
    let (stag, at, user) = (keyed(FAST, 1), TaggedOffset(SINK), b.qp.user());
    assert!(b.stags.remote_read(stag, at, 8, user).is_ok());
    b.with_ctx(|qp, ctx| {
        qp.connection_ended(ctx, DisconnectReason::Aborted);
        qp.reset(ctx);
    });
    assert_eq!(b.qp.state(), QpState::Idle);
    assert!(b.stags.remote_read(stag, at, 8, user).is_err());
}

#[test]
fn registration_that_is_refused_is_a_protection_error() {
    let valid = register(1, keyed(STAG, 0x77), keyed(STAG, 0x77));
    let unknown = register(1, Stag(0x1234_5678), STAG);
    let foreign = register(1, keyed(OTHER_STAG, 9), keyed(OTHER_STAG, 9));
    let of_foreign = register(1, FAST, OTHER_STAG);
    let of_invalid = register(1, FAST, keyed(STAG, 0x77));
    let too_long = bind(WrOpcode::FastRegister, 1, FAST, STAG, u64::MAX);
    let window = register(1, WINDOW, STAG);
    let window_of_type_1 = local_invalidate(1, WINDOW);
    let all = [
        valid,
        unknown,
        foreign,
        of_foreign,
        of_invalid,
        too_long,
        window,
        window_of_type_1,
    ];
    for work in all {
        let (mut a, mut b) = with_stags();
        b.post_send(&work);
        pump(&mut a, &mut b);
        let refused = (1, WcStatus::LocalProtection);
        assert_eq!(statuses(&b.sends()), [refused], "{work:?}");
        assert_eq!(b.qp.state(), QpState::Terminate);
    }
}
