//! A peer's connection request is answered once, by the listener's owner, or not at all.

use rnic_ipc::id::ConnRequestId;

use super::*;
use crate::Quota;

const REQUEST: ConnRequestId = ConnRequestId(9);

#[test]
fn a_request_is_answered_once() {
    let mut prm = prm();
    let us = household(&mut prm);
    prm.connection_requested(us.client, us.listener, REQUEST)
        .unwrap();
    let grant = prm.accept(us.client, REQUEST, us.qp).unwrap();
    prm.accepted(grant);
    assert_eq!(
        refused(prm.accept(us.client, REQUEST, us.qp)),
        RefusalCode::UnknownObject
    );
    assert_eq!(
        refused(prm.reject(us.client, REQUEST)),
        RefusalCode::UnknownObject
    );

    prm.connection_requested(us.client, us.listener, REQUEST)
        .unwrap();
    let grant = prm.reject(us.client, REQUEST).unwrap();
    prm.rejected(grant);
    assert_eq!(
        refused(prm.reject(us.client, REQUEST)),
        RefusalCode::UnknownObject
    );
}

#[test]
fn a_request_may_be_rejected_again_when_the_shard_could_not() {
    let mut prm = prm();
    let us = household(&mut prm);
    prm.connection_requested(us.client, us.listener, REQUEST)
        .unwrap();
    let _could_not = prm.reject(us.client, REQUEST).unwrap();
    let grant = prm.reject(us.client, REQUEST).unwrap();
    prm.rejected(grant);
    assert!(prm.requests.is_empty());
}

#[test]
fn a_request_may_be_accepted_again_when_the_shard_could_not() {
    let mut prm = prm();
    let us = household(&mut prm);
    prm.connection_requested(us.client, us.listener, REQUEST)
        .unwrap();
    drop(prm.accept(us.client, REQUEST, us.qp).unwrap());
    let _grant = prm.accept(us.client, REQUEST, us.qp).unwrap();
}

#[test]
fn a_request_that_went_away_is_unknown() {
    let mut prm = prm();
    let us = household(&mut prm);
    prm.connection_requested(us.client, us.listener, REQUEST)
        .unwrap();
    let of = Some((us.client, us.listener));
    assert_eq!(prm.request_gone(REQUEST), of);
    assert_eq!(prm.request_gone(REQUEST), None);
    assert_eq!(
        refused(prm.accept(us.client, REQUEST, us.qp)),
        RefusalCode::UnknownObject
    );
}

#[test]
fn requests_outlive_their_listener_and_go_with_their_client() {
    let mut prm = prm();
    let us = household(&mut prm);
    prm.connection_requested(us.client, us.listener, REQUEST)
        .unwrap();
    let removal = prm.unlisten(us.client, us.listener).unwrap();
    let late = ConnRequestId(10);
    let refused = prm
        .connection_requested(us.client, us.listener, late)
        .unwrap_err();
    assert_eq!(*refused.grant.request(), late);
    prm.unlistened(removal);
    let _grant = prm.accept(us.client, REQUEST, us.qp).unwrap();
    let teardown = prm.client_gone(us.client);
    prm.client_removed(teardown);
    assert!(prm.requests.is_empty());
}

#[test]
fn a_request_may_come_before_the_listener_is_announced() {
    let mut prm = prm();
    let us = client(&mut prm);
    let grant = prm.listen(us, &listen_spec(7471, 1)).unwrap();
    prm.connection_requested(us, *grant.listener(), REQUEST)
        .unwrap();
    prm.listening(grant, "[2001:db8::1]:7471".parse().unwrap());
    let _grant = prm.reject(us, REQUEST).unwrap();
}

#[test]
fn requests_beyond_the_limit_are_to_be_rejected() {
    let mut limits = Limits::default();
    limits.per_client = Quota {
        connection_requests: 1,
        ..limits.per_client
    };
    let mut prm = Prm::new(limits);
    let us = household(&mut prm);
    prm.connection_requested(us.client, us.listener, REQUEST)
        .unwrap();
    let one_more = ConnRequestId(10);
    let refused = prm
        .connection_requested(us.client, us.listener, one_more)
        .unwrap_err();
    assert_eq!(refused.refusal.code, RefusalCode::Limit);
    assert_eq!(*refused.grant.request(), one_more);
    prm.request_gone(REQUEST);
    prm.connection_requested(us.client, us.listener, one_more)
        .unwrap();
}
