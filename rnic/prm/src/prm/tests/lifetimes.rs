//! Nothing goes while something depends on it, and no name is free before the shard is done.

use super::*;
use crate::Step;

#[test]
fn a_domain_with_a_region_or_a_queue_pair_is_busy() {
    let mut prm = prm();
    let us = household(&mut prm);
    assert_eq!(refused(prm.dealloc_pd(us.client, us.pd)), RefusalCode::Busy);
    let revocation = prm.deregister_region(us.client, us.stag.0).unwrap();
    prm.region_revoked(revocation);
    assert_eq!(refused(prm.dealloc_pd(us.client, us.pd)), RefusalCode::Busy);
    let removal = prm.destroy_qp(us.client, us.qp).unwrap();
    prm.qp_removed(removal);
    prm.dealloc_pd(us.client, us.pd).unwrap();
}

#[test]
fn a_domain_is_busy_until_its_region_is_revoked() {
    let mut prm = prm();
    let us = client(&mut prm);
    let pd = prm.alloc_pd(us).unwrap();
    let stag = region(&mut prm, us, pd, 1).unwrap();
    let revocation = prm.deregister_region(us, stag.0).unwrap();
    assert_eq!(refused(prm.dealloc_pd(us, pd)), RefusalCode::Busy);
    prm.region_revoked(revocation);
    prm.dealloc_pd(us, pd).unwrap();
}

#[test]
fn a_completion_queue_is_busy_while_a_queue_pair_uses_it() {
    let mut prm = prm();
    let us = household(&mut prm);
    assert_eq!(refused(prm.destroy_cq(us.client, us.cq)), RefusalCode::Busy);
    let removal = prm.destroy_qp(us.client, us.qp).unwrap();
    assert_eq!(refused(prm.destroy_cq(us.client, us.cq)), RefusalCode::Busy);
    prm.qp_removed(removal);
    let removal = prm.destroy_cq(us.client, us.cq).unwrap();
    prm.cq_removed(removal);
}

#[test]
fn what_the_shard_has_not_made_yet_has_no_name() {
    let mut prm = prm();
    let us = household(&mut prm);
    let grant = prm
        .create_qp(us.client, attributes(us.pd, us.cq, us.cq))
        .unwrap();
    let qp = *grant.qp();
    assert_eq!(
        refused(prm.destroy_qp(us.client, qp)),
        RefusalCode::UnknownObject
    );
    prm.qp_created(grant);
    let _removal = prm.destroy_qp(us.client, qp).unwrap();
}

#[test]
fn what_is_being_removed_is_not_removed_twice() {
    let mut prm = prm();
    let us = household(&mut prm);
    let _removal = prm.destroy_qp(us.client, us.qp).unwrap();
    let _revocation = prm.deregister_region(us.client, us.stag.0).unwrap();
    let _listener = prm.unlisten(us.client, us.listener).unwrap();
    assert_eq!(
        refused(prm.destroy_qp(us.client, us.qp)),
        RefusalCode::UnknownObject
    );
    assert_eq!(
        refused(prm.deregister_region(us.client, us.stag.0)),
        RefusalCode::UnknownObject
    );
    assert_eq!(
        refused(prm.unlisten(us.client, us.listener)),
        RefusalCode::UnknownObject
    );
}

#[test]
fn what_failed_leaves_nothing_behind() {
    let mut prm = prm();
    let us = client(&mut prm);
    let pd = prm.alloc_pd(us).unwrap();
    let cq = cq(&mut prm, us).unwrap();
    let grant = prm
        .register_region(us, &RegionSpec::new(pd, Access::default(), 0, 77))
        .unwrap();
    prm.region_failed(grant);
    let grant = prm.create_qp(us, attributes(pd, cq, cq)).unwrap();
    prm.qp_failed(grant);
    let grant = prm.create_cq(us, 5, 1).unwrap();
    prm.cq_failed(grant);
    let grant = prm.listen(us, &listen_spec(7471, 5)).unwrap();
    prm.listen_failed(grant);
    prm.dealloc_pd(us, pd).unwrap();
    let removal = prm.destroy_cq(us, cq).unwrap();
    prm.cq_removed(removal);
    assert!(prm.usage.is_empty(), "{:?}", prm.usage);
}

#[test]
fn a_client_is_taken_away_users_before_used() {
    let mut prm = prm();
    let us = household(&mut prm);
    let srq = srq(&mut prm, us.client, us.pd).unwrap();
    let other = household(&mut prm);
    let teardown = prm.client_gone(us.client);
    let kinds: Vec<_> = teardown
        .steps()
        .iter()
        .map(|step| match step {
            Step::Listener(removal) => ("listener", removal.listener().0),
            Step::Qp(removal) => ("qp", removal.qp().0),
            Step::Region(revocation) => ("region", revocation.stag().0),
            Step::Srq(removal) => ("srq", removal.srq().0),
            Step::Cq(removal) => ("cq", removal.cq().0),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ("listener", us.listener.0),
            ("qp", us.qp.0),
            ("region", us.stag.0),
            ("srq", srq.0),
            ("cq", us.cq.0)
        ]
    );
    assert!(prm.client_gone(us.client).steps().is_empty());
    prm.client_removed(teardown);

    let teardown = prm.client_gone(other.client);
    assert_eq!(teardown.steps().len(), 4);
    prm.client_removed(teardown);
    assert!(prm.usage.is_empty(), "{:?}", prm.usage);
    assert_eq!(prm.clients(), 0);
    assert!(prm.requests.is_empty());
}

/// A window, or a region that work is to register, is of a domain and counts as any other region.
#[test]
fn an_stag_without_memory_counts_as_a_region_of_its_domain() {
    let mut prm = prm();
    let us = client(&mut prm);
    let other = client(&mut prm);
    let pd = prm.alloc_pd(us).unwrap();
    let unknown = refused(prm.alloc_stag(other, pd));
    assert_eq!(unknown, RefusalCode::UnknownObject);
    let grant = prm.alloc_stag(us, pd).unwrap();
    let stag = *grant.stag();
    assert_eq!(
        (grant.spec().access, grant.spec().length),
        Default::default()
    );
    prm.region_registered(grant);
    assert_eq!(refused(prm.dealloc_pd(us, pd)), RefusalCode::Busy);
    let unknown = refused(prm.deregister_region(other, stag.0));
    assert_eq!(unknown, RefusalCode::UnknownObject);
    let revocation = prm.deregister_region(us, stag.0).unwrap();
    prm.region_revoked(revocation);
    prm.dealloc_pd(us, pd).unwrap();
}
