//! The states of a queue pair as the RDMA verbs for iWARP have them, and which of them a client may ask for. However a
//! queue pair goes to Error, all work completes once and in order.

use super::*;

const SOURCE: u64 = BASE + 0x100;
const SINK: u64 = BASE + 0x2_0000;

const ALL: [QpState; 6] = [
    QpState::Idle,
    QpState::Connecting,
    QpState::Rts,
    QpState::Closing,
    QpState::Terminate,
    QpState::Error,
];

/// An end in this state, and its peer.
fn in_state(state: QpState) -> (End, End) {
    let (mut a, b) = match state {
        QpState::Idle | QpState::Connecting => (End::new(), End::new()),
        _ => joined(),
    };
    match state {
        QpState::Idle | QpState::Rts => {}
        QpState::Connecting => a.qp.begin_connecting().unwrap(),
        QpState::Closing => {
            a.qp.disconnect();
            assert_eq!(a.qp.wants_close(), Some(CloseKind::Graceful));
        }
        QpState::Terminate => a.qp.terminate(),
        QpState::Error => end(&mut a),
    }
    assert_eq!(a.qp.state(), state);
    (a, b)
}

fn end(end: &mut End) {
    let reason = DisconnectReason::Aborted;
    end.with_ctx(|qp, ctx| qp.connection_ended(ctx, reason));
}

#[test]
fn a_client_may_ask_for_the_transitions_of_the_verbs_and_no_others() {
    for found in ALL {
        for wanted in ALL {
            let allowed = match wanted {
                QpState::Idle => found == QpState::Error,
                QpState::Connecting | QpState::Rts => false,
                QpState::Closing | QpState::Terminate => found == QpState::Rts,
                QpState::Error => true,
            };
            let (a, _) = in_state(found);
            match a.qp.may_become(wanted) {
                Ok(()) => assert!(allowed, "{found:?} to {wanted:?}"),
                Err(refused) => {
                    assert!(!allowed, "{found:?} to {wanted:?}");
                    assert_eq!(refused.found, found);
                    let sentence = refused.to_string();
                    assert!(sentence.contains("must be"), "{sentence}");
                }
            }
        }
    }
}

#[test]
fn asked_for_in_a_wrong_state_nothing_happens() {
    for found in ALL {
        let (mut a, _) = in_state(found);
        if found != QpState::Rts {
            a.qp.terminate();
            assert_eq!(a.qp.state(), found);
        }
        if found != QpState::Error {
            a.with_ctx(|qp, ctx| qp.reset(ctx));
            assert_eq!(a.qp.state(), found);
        }
        if found != QpState::Connecting {
            a.qp.enter_rdma_mode(&negotiated(None), true);
            assert_eq!(a.qp.state(), found);
        }
        let connected = a.qp.begin_connecting().is_ok();
        assert_eq!(connected, found == QpState::Idle);
    }
}

/// RFC 5040 section 6.2.1.
#[test]
fn a_client_terminates_its_stream_and_the_peer_is_told() {
    let (mut a, mut b) = joined();
    b.post_recv(1, &[sge(SINK, 8)]);
    a.post_send(&write(1, &[sge(SOURCE, 5000)], SINK));
    b.receive(&a.produce(MULPDU).unwrap());
    a.qp.terminate();
    a.post_send(&send(2, &[]));
    assert_eq!(a.qp.state(), QpState::Terminate);
    pump(&mut a, &mut b);
    let control = control(rnic_proto::rdmap::RdmapError::LocalCatastrophic);
    assert_eq!(
        a.qp.wants_close(),
        Some(CloseKind::AfterTerminateSent { control })
    );
    assert_eq!(
        b.qp.wants_close(),
        Some(CloseKind::TerminateReceived { control })
    );
    assert!(a.sends().is_empty(), "flushed when the connection is gone");
    end(&mut a);
    let flushed = WcStatus::WorkRequestFlushed;
    assert_eq!(statuses(&a.sends()), [(1, flushed), (2, flushed)]);
}

/// RFC 5040 section 5.5, rules 14, 15 and 19.
#[test]
fn whatever_way_it_ends_all_work_completes_once_and_in_the_order_of_posting() {
    let ways: [fn(&mut End, &mut End); 5] = [
        |a, _| end(a),
        |a, _| {
            a.qp.terminate();
            while a.produce(MULPDU).is_some() {}
            end(a);
        },
        |a, b| {
            b.qp.terminate();
            while let Some(fpdu) = b.produce(MULPDU) {
                a.receive(&fpdu);
            }
            assert_eq!(a.qp.state(), QpState::Terminate);
            end(a);
        },
        |a, _| {
            a.qp.peer_closed(true);
            end(a);
        },
        |a, _| {
            a.with_ctx(|qp, ctx| qp.cq_failed(ctx));
            end(a);
        },
    ];
    for (way, go) in ways.iter().enumerate() {
        let (mut a, mut b) = joined();
        for wr_id in 10..13 {
            a.post_recv(wr_id, &[sge(SINK, 8)]);
            b.post_recv(wr_id, &[sge(SINK, 8)]);
        }
        b.post_send(&send(1, &[sge(SOURCE, 8)]));
        a.receive(&b.produce(MULPDU).unwrap());
        // Done, waiting for its response, sent behind it, half sent, not begun.
        a.post_send(&send(1, &[sge(SOURCE, 8)]));
        a.post_send(&read(2, sge(SINK, 8), SOURCE));
        a.post_send(&send(3, &[sge(SOURCE, 8)]));
        a.post_send(&write(4, &[sge(SOURCE, 5000)], SINK));
        a.post_send(&send(5, &[]));
        for _ in 0..4 {
            b.receive(&a.produce(MULPDU).unwrap());
        }
        go(&mut a, &mut b);
        assert_eq!(a.qp.state(), QpState::Error, "way {way}");
        let (ok, flushed) = (WcStatus::Success, WcStatus::WorkRequestFlushed);
        let sends = [
            (1, ok),
            (2, flushed),
            (3, flushed),
            (4, flushed),
            (5, flushed),
        ];
        assert_eq!(statuses(&a.sends()), sends, "way {way}");
        let recvs = [(10, ok), (11, flushed), (12, flushed)];
        assert_eq!(statuses(&a.recvs()), recvs, "way {way}");
        a.doorbell();
        end(&mut a);
        assert!(a.sends().is_empty() && a.recvs().is_empty(), "way {way}");
    }
}

#[test]
fn a_queue_pair_that_was_reset_is_as_it_was_made() {
    let (mut a, mut b) = joined();
    a.post_send(&write(1, &[sge(SOURCE, 5000)], SINK));
    a.post_send(&read(2, sge(SINK, 8), SOURCE));
    b.post_recv(3, &[sge(SINK, 5000)]);
    b.receive(&a.produce(MULPDU).unwrap());
    for side in [&mut a, &mut b] {
        end(side);
        side.post_send(&send(4, &[]));
        side.with_ctx(|qp, ctx| qp.reset(ctx));
        assert_eq!(side.qp.state(), QpState::Idle);
        side.sends();
        side.recvs();
        side.stream.clear();
    }
    // What is posted to an Idle queue pair waits.
    a.post_send(&send(5, &[sge(SOURCE, 8)]));
    a.post_send(&read(6, sge(SINK, 8), SOURCE));
    b.post_recv(7, &[sge(SINK, 8)]);
    assert!(a.sends().is_empty() && b.recvs().is_empty());
    open(&mut a, &mut b, &negotiated(Some(Rtr::Read)));
    pump(&mut a, &mut b);
    let ok = WcStatus::Success;
    assert_eq!(statuses(&a.sends()), [(5, ok), (6, ok)]);
    assert_eq!(statuses(&b.recvs()), [(7, ok)]);
    assert_eq!((a.qp.wants_close(), b.qp.wants_close()), (None, None));
}

#[test]
fn what_is_posted_in_error_is_flushed_before_the_queue_pair_is_idle() {
    let (mut a, _) = in_state(QpState::Error);
    a.sq.push(&send(1, &[])).unwrap();
    a.rq.push(&request(WrOpcode::Recv, 2, &[])).unwrap();
    a.with_ctx(|qp, ctx| qp.reset(ctx));
    let flushed = WcStatus::WorkRequestFlushed;
    assert_eq!(statuses(&a.sends()), [(1, flushed)]);
    assert_eq!(statuses(&a.recvs()), [(2, flushed)]);
}

#[test]
fn a_queue_pair_with_broken_rings_stays_in_error() {
    let (mut a, _) = joined();
    // The producer index is the first word of the ring's second line.
    let producer = a.queues.atomic_u32(64).unwrap();
    producer.store(0x8000_0000, std::sync::atomic::Ordering::Release);
    a.doorbell();
    a.produce(MULPDU);
    end(&mut a);
    a.with_ctx(|qp, ctx| qp.reset(ctx));
    assert_eq!(a.qp.state(), QpState::Error);
    assert!(a.qp.may_become(QpState::Idle).is_err());
}

/// Beside what TCP keeps of its connection, and the elements that its work may have.
#[test]
fn a_queue_pair_at_rest_holds_little() {
    assert!(size_of::<Qp>() <= 1024, "{} bytes", size_of::<Qp>());
    let (mut a, mut b) = joined();
    for end in [&mut a, &mut b] {
        end.post_recv(1, &[sge(SINK, 5000)]);
        end.post_send(&send(2, &[sge(SOURCE, 5000)]));
        end.post_send(&read(3, sge(SINK, 5000), SOURCE));
    }
    pump(&mut a, &mut b);
    for end in [&a, &b] {
        assert_eq!(end.qp.send.pending.memory(), 0);
        assert_eq!(end.qp.send.responses.capacity(), 0);
    }
}

/// Whatever is under way when it goes.
#[test]
fn a_queue_pair_that_is_taken_away_gives_back_what_it_was_lent() {
    let (mut a, mut b) = (End::new(), End::new());
    open(&mut a, &mut b, &negotiated(None));
    a.post_send(&read(1, sge(SINK, 8), SOURCE));
    while let Some(fpdu) = a.produce(MULPDU) {
        b.receive(&fpdu);
    }
    for end in [&mut a, &mut b] {
        assert_eq!(end.queue_pool.count(), 1, "a Read, or its response");
        end.with_ctx(|qp, ctx| qp.give_back(ctx.queue_pool));
        assert_eq!(end.queue_pool.count(), 0);
    }
}
