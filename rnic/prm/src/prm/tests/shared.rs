//! Shared receive queues: whose they are, who may use them, and when they may go.

use super::*;

fn sharing(us: &Household, srq: SrqId) -> QpAttributes {
    QpAttributes {
        srq: Some(srq),
        rq_depth: 0,
        ..attributes(us.pd, us.cq, us.cq)
    }
}

#[test]
fn a_shared_receive_queue_stays_while_a_queue_pair_takes_from_it() {
    let mut prm = prm();
    let us = household(&mut prm);
    let srq = srq(&mut prm, us.client, us.pd).unwrap();
    let qp = qp(&mut prm, us.client, sharing(&us, srq)).unwrap();
    let refusal = prm.destroy_srq(us.client, srq).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.contains("queue pairs"), "{refusal}");
    let removal = prm.destroy_qp(us.client, qp).unwrap();
    assert_eq!(refused(prm.destroy_srq(us.client, srq)), RefusalCode::Busy);
    prm.qp_removed(removal);
    let removal = prm.destroy_srq(us.client, srq).unwrap();
    let gone = prm.use_srq(us.client, srq);
    assert_eq!(refused(gone), RefusalCode::UnknownObject);
    prm.srq_removed(removal);
}

#[test]
fn a_protection_domain_stays_while_it_has_a_shared_receive_queue() {
    let mut prm = prm();
    let us = client(&mut prm);
    let pd = prm.alloc_pd(us).unwrap();
    let srq = srq(&mut prm, us, pd).unwrap();
    assert_eq!(refused(prm.dealloc_pd(us, pd)), RefusalCode::Busy);
    let removal = prm.destroy_srq(us, srq).unwrap();
    assert_eq!(refused(prm.dealloc_pd(us, pd)), RefusalCode::Busy);
    prm.srq_removed(removal);
    prm.dealloc_pd(us, pd).unwrap();
}

#[test]
fn queue_pairs_of_another_domain_or_client_do_not_share_it() {
    let mut prm = prm();
    let us = household(&mut prm);
    let them = household(&mut prm);
    let theirs = srq(&mut prm, them.client, them.pd).unwrap();
    let unknown = RefusalCode::UnknownObject;
    for theirs in [theirs, SrqId(0), SrqId(99), SrqId(u32::MAX)] {
        let made = prm.create_qp(us.client, sharing(&us, theirs));
        assert_eq!(refused(made), unknown, "{theirs}");
        assert_eq!(refused(prm.use_srq(us.client, theirs)), unknown);
        assert_eq!(refused(prm.destroy_srq(us.client, theirs)), unknown);
    }
    assert_eq!(
        refused(prm.create_srq(us.client, them.pd, 16, 2)),
        unknown,
        "their domain"
    );
    let other = prm.alloc_pd(us.client).unwrap();
    let ours = srq(&mut prm, us.client, other).unwrap();
    let made = prm.create_qp(us.client, sharing(&us, ours));
    assert_eq!(refused(made), RefusalCode::WrongPd);
}

#[test]
fn its_depth_and_elements_are_bounded() {
    let mut prm = prm();
    let us = household(&mut prm);
    let limits = prm.limits().clone();
    for (depth, max_sge, code) in [
        (0, 1, RefusalCode::Malformed),
        (1, 0, RefusalCode::Malformed),
        (limits.queue_depth + 1, 1, RefusalCode::Limit),
        (u32::MAX, u32::MAX, RefusalCode::Limit),
        (1, limits.sges + 1, RefusalCode::Limit),
    ] {
        let made = prm.create_srq(us.client, us.pd, depth, max_sge);
        assert_eq!(refused(made), code, "{depth} {max_sge}");
    }
}

#[test]
fn one_that_did_not_come_about_is_not_counted() {
    let mut prm = prm();
    let us = client(&mut prm);
    let pd = prm.alloc_pd(us).unwrap();
    for _ in 0..prm.limits().per_client.shared_receive_queues * 2 {
        let grant = prm.create_srq(us, pd, 16, 2).unwrap();
        prm.srq_failed(grant);
    }
    prm.dealloc_pd(us, pd).unwrap();
}
