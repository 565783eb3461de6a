//! A client can't use, or learn of, what another has.

use rnic_ipc::id::ConnRequestId;

use super::*;

/// The refusal for `other`'s object must be, word for word, that for an object nobody has.
fn alike(theirs: Refusal, nobodys: Refusal, theirs_id: impl ToString, nobodys_id: impl ToString) {
    assert_eq!(theirs.code, RefusalCode::UnknownObject);
    assert_eq!(
        theirs.message.replace(&theirs_id.to_string(), "ID"),
        nobodys.message.replace(&nobodys_id.to_string(), "ID")
    );
}

#[test]
fn another_clients_objects_look_like_none() {
    let mut prm = prm();
    let them = household(&mut prm);
    let us = client(&mut prm);
    let access = Access::default();

    let theirs = prm.dealloc_pd(us, them.pd).unwrap_err();
    let nobodys = prm.dealloc_pd(us, PdId(999)).unwrap_err();
    alike(theirs, nobodys, them.pd, 999);
    let theirs = prm
        .register_region(us, &RegionSpec::new(them.pd, access, 0, 1))
        .unwrap_err();
    let nobodys = prm
        .register_region(us, &RegionSpec::new(PdId(999), access, 0, 1))
        .unwrap_err();
    alike(theirs, nobodys, them.pd, 999);
    let theirs = prm.deregister_region(us, them.stag.0).unwrap_err();
    let nobodys = prm.deregister_region(us, 0x99900).unwrap_err();
    alike(theirs, nobodys, them.stag, Stag(0x99900));
    let theirs = prm.destroy_cq(us, them.cq).unwrap_err();
    let nobodys = prm.destroy_cq(us, CqId(999)).unwrap_err();
    alike(theirs, nobodys, them.cq, 999);
    let theirs = prm.use_qp(us, them.qp).unwrap_err();
    let nobodys = prm.use_qp(us, QpNum(999)).unwrap_err();
    alike(theirs, nobodys, them.qp, 999);
    let theirs = prm.destroy_qp(us, them.qp).unwrap_err();
    let nobodys = prm.destroy_qp(us, QpNum(999)).unwrap_err();
    alike(theirs, nobodys, them.qp, 999);
    let theirs = prm.unlisten(us, them.listener).unwrap_err();
    let nobodys = prm.unlisten(us, ListenerId(999)).unwrap_err();
    alike(theirs, nobodys, them.listener, 999);
}

#[test]
fn a_queue_pair_is_made_of_ones_own_objects_only() {
    let mut prm = prm();
    let them = household(&mut prm);
    let us = household(&mut prm);
    for attributes in [
        attributes(them.pd, us.cq, us.cq),
        attributes(us.pd, them.cq, us.cq),
        attributes(us.pd, us.cq, them.cq),
    ] {
        assert_eq!(
            refused(prm.create_qp(us.client, attributes)),
            RefusalCode::UnknownObject
        );
    }
}

#[test]
fn another_clients_connection_request_is_not_answered() {
    let mut prm = prm();
    let them = household(&mut prm);
    let us = household(&mut prm);
    let request = ConnRequestId(5);
    prm.connection_requested(them.client, them.listener, request)
        .unwrap();

    assert_eq!(
        refused(prm.accept(us.client, request, us.qp)),
        RefusalCode::UnknownObject
    );
    assert_eq!(
        refused(prm.reject(us.client, request)),
        RefusalCode::UnknownObject
    );
    assert_eq!(
        refused(prm.accept(them.client, request, us.qp)),
        RefusalCode::UnknownObject
    );
    let _grant = prm.accept(them.client, request, them.qp).unwrap();
}

#[test]
fn a_stag_with_the_wrong_key_names_nothing() {
    let mut prm = prm();
    let us = household(&mut prm);
    let wrong = Stag::from_parts(us.stag.index(), us.stag.key().wrapping_add(1));
    assert_eq!(
        refused(prm.deregister_region(us.client, wrong.0)),
        RefusalCode::UnknownObject
    );
    let _revocation = prm.deregister_region(us.client, us.stag.0).unwrap();
}

/// RFC 5040 section 8.1.1. Whoever has seen many STags knows nothing of the next one's index or key.
#[test]
fn no_stag_is_zero_and_every_bit_of_one_is_drawn_anew() {
    const DRAWS: u32 = 2000;
    let mut prm = prm();
    let us = client(&mut prm);
    let pd = prm.alloc_pd(us).unwrap();
    let mut ones = [0; 32];
    let mut indexes = std::collections::HashSet::new();
    let mut steps = std::collections::HashSet::new();
    let mut before = 0;
    for _ in 0..DRAWS {
        let stag = region(&mut prm, us, pd, 1).unwrap();
        assert_ne!(stag.index(), 0);
        for (bit, ones) in ones.iter_mut().enumerate() {
            *ones += stag.0 >> bit & 1;
        }
        indexes.insert(stag.index());
        steps.insert(stag.index().wrapping_sub(before));
        before = stag.index();
        // Also where it takes the place of one that is gone.
        let revocation = prm.deregister_region(us, stag.0).unwrap();
        prm.region_revoked(revocation);
    }
    // Ten standard deviations to each side.
    for (bit, ones) in ones.iter().enumerate() {
        assert!(
            ones.abs_diff(DRAWS / 2) < 224,
            "bit {bit} was set {ones} times"
        );
    }
    // Two of 2000 indexes of 2^24 are alike 0.12 times on average.
    assert!(indexes.len() > DRAWS as usize - 8, "{}", indexes.len());
    assert!(steps.len() > DRAWS as usize - 8, "{}", steps.len());
}

#[test]
fn a_client_that_is_gone_gets_nothing() {
    let mut prm = prm();
    let us = household(&mut prm);
    let teardown = prm.client_gone(us.client);
    assert_eq!(refused(prm.alloc_pd(us.client)), RefusalCode::UnknownObject);
    assert_eq!(
        refused(prm.create_cq(us.client, 1, 1)),
        RefusalCode::UnknownObject
    );
    assert_eq!(
        refused(prm.listen(us.client, &listen_spec(7471, 1))),
        RefusalCode::UnknownObject
    );
    assert_eq!(
        refused(prm.use_qp(us.client, us.qp)),
        RefusalCode::UnknownObject
    );
    prm.client_removed(teardown);
    assert_eq!(refused(prm.alloc_pd(us.client)), RefusalCode::UnknownObject);
    assert_eq!(prm.credentials(us.client), None);
}

/// An STag of one stream is of a queue pair that the client has, in the region's own domain.
#[test]
fn memory_is_limited_to_a_stream_of_ones_own_only() {
    let mut prm = prm();
    let them = household(&mut prm);
    let us = household(&mut prm);
    let mut asked = |pd, qp| {
        let access = Access::default();
        prm.register_region(
            us.client,
            &RegionSpec {
                stream: Some(qp),
                ..RegionSpec::new(pd, access, 0, 4096)
            },
        )
    };
    let theirs = asked(us.pd, them.qp).unwrap_err();
    let nobodys = asked(us.pd, QpNum(999)).unwrap_err();
    alike(theirs, nobodys, them.qp, 999);
    let grant = asked(us.pd, us.qp).unwrap();
    assert_eq!(grant.spec().stream, Some(us.qp));
    prm.region_registered(grant);
    let pd = prm.alloc_pd(us.client).unwrap();
    let access = Access::default();
    let elsewhere = prm.register_region(
        us.client,
        &RegionSpec {
            stream: Some(us.qp),
            ..RegionSpec::new(pd, access, 0, 4096)
        },
    );
    assert_eq!(refused(elsewhere), RefusalCode::WrongPd);
    let removal = prm.destroy_qp(us.client, us.qp).unwrap();
    let leaving = prm.register_region(
        us.client,
        &RegionSpec {
            stream: Some(us.qp),
            ..RegionSpec::new(us.pd, access, 0, 4096)
        },
    );
    assert_eq!(refused(leaving), RefusalCode::UnknownObject);
    prm.qp_removed(removal);
}
