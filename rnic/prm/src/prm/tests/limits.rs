//! Every limit holds, for a client and for all, and says its name.

use rnic_ipc::ring::RING_SLOTS_MAX;

use super::*;
use crate::{Administrators, Quota, Resource, UserLimits};

fn tight() -> Limits {
    let quota = Quota {
        protection_domains: 1,
        regions: 2,
        registered_bytes: 4096,
        remote_regions: 0,
        completion_queues: 2,
        shared_receive_queues: 1,
        queue_pairs: 1,
        ring_entries: 1000,
        outstanding_work: 48,
        listeners: 1,
        connection_requests: 1,
    };
    Limits {
        per_client: quota,
        ..Limits::default()
    }
}

fn names(result: Result<impl std::fmt::Debug, Refusal>, name: &str) {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Limit, "{refusal}");
    assert!(refusal.message.contains(name), "{refusal}");
}

#[test]
fn each_limit_of_a_client_holds_and_is_named() {
    let mut prm = Prm::new(tight());
    let us = household(&mut prm);
    let (pd, cq_) = (us.pd, us.cq);
    names(prm.alloc_pd(us.client), "protection_domains");
    names(region(&mut prm, us.client, pd, 4097), "registered_bytes");
    names(prm.listen(us.client, &listen_spec(7471, 1)), "listeners");
    names(
        prm.create_qp(us.client, attributes(pd, cq_, cq_)),
        "queue_pairs",
    );
    cq(&mut prm, us.client).unwrap();
    names(prm.create_cq(us.client, 1, 1), "completion_queues");
    names(prm.create_cq(us.client, 0x10_0000, 1), "cq_depth");
    srq(&mut prm, us.client, pd).unwrap();
    names(prm.create_srq(us.client, pd, 1, 1), "shared_receive_queues");
    // 16 and 16 of the queue pair, 16 of the shared receive queue.
    assert_eq!(prm.usage.held(Resource::OutstandingWork), 48);
}

#[test]
fn bytes_and_ring_entries_are_counted_together() {
    let mut prm = Prm::new(tight());
    let us = client(&mut prm);
    let pd = prm.alloc_pd(us).unwrap();
    region(&mut prm, us, pd, 4056).unwrap();
    names(region(&mut prm, us, pd, 41), "registered_bytes");
    let stag = region(&mut prm, us, pd, 40).unwrap();
    names(region(&mut prm, us, pd, 1), "regions");
    let revocation = prm.deregister_region(us, stag.0).unwrap();
    prm.region_revoked(revocation);
    region(&mut prm, us, pd, 1).unwrap();

    let _grant = prm.create_cq(us, 512, 1).unwrap();
    names(prm.create_cq(us, 500, 1), "ring_entries");
    let _grant = prm.create_cq(us, 256, 1).unwrap();
}

#[test]
fn both_rings_of_a_queue_that_grows_count_until_one_is_gone() {
    let mut prm = Prm::new(tight());
    let us = client(&mut prm);
    let other = client(&mut prm);
    let grant = prm.create_cq(us, 256, 1).unwrap();
    let cq = *grant.cq();
    prm.cq_created(grant);
    let held = |prm: &Prm| prm.usage.held(Resource::RingEntries);
    names(prm.resize_cq(us, cq, 1024), "ring_entries");
    names(prm.resize_cq(us, cq, 0x10_0000), "cq_depth");
    for (who, depth) in [(us, 0), (us, 128), (other, 512)] {
        assert!(prm.resize_cq(who, cq, depth).is_err(), "{depth}");
    }
    assert_eq!(held(&prm), 256);
    let failing = prm.resize_cq(us, cq, 500).unwrap();
    assert_eq!(held(&prm), 768);
    prm.cq_resized(failing, false);
    assert_eq!(held(&prm), 256);
    let resize = prm.resize_cq(us, cq, 500).unwrap();
    prm.cq_resized(resize, true);
    assert_eq!(held(&prm), 512);
    let removal = prm.destroy_cq(us, cq).unwrap();
    prm.cq_removed(removal);
    assert_eq!(held(&prm), 0);
}

#[test]
fn the_devices_limits_hold_over_all_clients() {
    let limits = Limits {
        per_client: Limits::default().per_client,
        device: tight().per_client,
        ..tight()
    };
    let mut prm = Prm::new(limits);
    let (us, them) = (client(&mut prm), client(&mut prm));
    let pd = prm.alloc_pd(us).unwrap();
    names(prm.alloc_pd(them), "protection_domains");
    prm.dealloc_pd(us, pd).unwrap();
    prm.alloc_pd(them).unwrap();
}

#[test]
fn there_are_only_so_many_clients() {
    let mut prm = Prm::new(Limits {
        clients: 1,
        ..Limits::default()
    });
    let us = client(&mut prm);
    names(prm.add_client(CREDENTIALS), "client");
    let teardown = prm.client_gone(us);
    names(prm.add_client(CREDENTIALS), "client");
    prm.client_removed(teardown);
    client(&mut prm);
}

#[test]
fn depths_are_checked() {
    let mut prm = prm();
    let us = household(&mut prm);
    let limits = prm.limits().clone();
    let good = attributes(us.pd, us.cq, us.cq);
    for (attributes, code) in [
        (
            QpAttributes {
                sq_depth: 0,
                ..good.clone()
            },
            RefusalCode::Malformed,
        ),
        (
            QpAttributes {
                rq_depth: 0,
                ..good.clone()
            },
            RefusalCode::Malformed,
        ),
        (
            QpAttributes {
                max_sge: 0,
                ..good.clone()
            },
            RefusalCode::Malformed,
        ),
        (
            QpAttributes {
                sq_depth: limits.queue_depth + 1,
                ..good.clone()
            },
            RefusalCode::Limit,
        ),
        (
            QpAttributes {
                rq_depth: u32::MAX,
                ..good.clone()
            },
            RefusalCode::Limit,
        ),
        (
            QpAttributes {
                max_sge: limits.sges + 1,
                ..good.clone()
            },
            RefusalCode::Limit,
        ),
        (
            QpAttributes {
                max_inline: limits.inline_bytes + 1,
                ..good.clone()
            },
            RefusalCode::Limit,
        ),
    ] {
        assert_eq!(refused(prm.create_qp(us.client, attributes)), code);
    }
    assert_eq!(
        refused(prm.create_cq(us.client, 0, 1)),
        RefusalCode::Malformed
    );
    assert_eq!(
        refused(prm.listen(us.client, &listen_spec(7471, 0))),
        RefusalCode::Malformed
    );
    assert_eq!(
        refused(prm.listen(us.client, &listen_spec(7471, limits.backlog + 1))),
        RefusalCode::Limit
    );
}

#[test]
fn a_region_has_a_byte_and_does_not_wrap() {
    let mut prm = prm();
    let us = household(&mut prm);
    let access = Access::default();
    for (base, length) in [(0, 0), (u64::MAX, 1), (u64::MAX - 7, 8), (1, u64::MAX)] {
        let result = prm.register_region(us.client, &RegionSpec::new(us.pd, access, base, length));
        assert_eq!(
            refused(result),
            RefusalCode::Malformed,
            "{base:#x} {length:#x}"
        );
    }
    let _grant = prm
        .register_region(us.client, &RegionSpec::new(us.pd, access, u64::MAX - 8, 8))
        .unwrap();
}

#[test]
fn a_completion_queues_depth_is_rounded_up() {
    let mut prm = prm();
    let us = client(&mut prm);
    assert_eq!(*prm.create_cq(us, 17, 1).unwrap().depth(), 32);
    assert_eq!(*prm.create_cq(us, 32, 1).unwrap().depth(), 32);
}

/// What the device makes is a power of two of slots, and that is what a client holds.
#[test]
fn a_ring_is_charged_as_it_is_made() {
    let mut prm = prm();
    let us = household(&mut prm);
    let held = |prm: &Prm| prm.usage.held(Resource::RingEntries);
    let before = held(&prm);
    // Three slots each: 48 become 64. And 33 of one slot become 64.
    let attributes = QpAttributes {
        sq_depth: 16,
        rq_depth: 33,
        max_sge: 2,
        max_inline: 100,
        ..attributes(us.pd, us.cq, us.cq)
    };
    let made = qp(&mut prm, us.client, attributes).unwrap();
    assert_eq!(held(&prm) - before, 64 + 64);
    let removal = prm.destroy_qp(us.client, made).unwrap();
    prm.qp_removed(removal);
    assert_eq!(held(&prm), before);
    // Two slots each: 34 become 64.
    let grant = prm.create_srq(us.client, us.pd, 17, 3).unwrap();
    assert_eq!(held(&prm) - before, 64);
    prm.srq_failed(grant);
    assert_eq!(held(&prm), before);
}

#[test]
fn a_queue_that_no_ring_holds_is_refused_in_the_clients_own_numbers() {
    let depth = RING_SLOTS_MAX;
    let mut prm = Prm::new(Limits {
        queue_depth: depth,
        ..Limits::default()
    });
    let us = household(&mut prm);
    let good = attributes(us.pd, us.cq, us.cq);
    let mut refuse = |attributes: QpAttributes, words: [&str; 3]| {
        let refusal = prm.create_qp(us.client, attributes).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Limit, "{refusal}");
        for word in words {
            assert!(refusal.message.contains(word), "{word}: {refusal}");
        }
    };
    // 32 elements and 2 places of operands: 9 slots.
    let sends = QpAttributes {
        sq_depth: depth,
        max_sge: 32,
        ..good.clone()
    };
    refuse(sends, ["a send queue", "max_sge 32", "at most 29127"]);
    // 512 bytes take 32 places.
    let inline = QpAttributes {
        sq_depth: depth,
        max_inline: 512,
        ..good.clone()
    };
    refuse(inline, ["262144", "max_inline 512", "at most 29127"]);
    let receives = QpAttributes {
        rq_depth: depth,
        max_sge: 32,
        ..good.clone()
    };
    refuse(receives, ["a receive queue", "max_sge 32", "at most 29127"]);
    let shared = prm.create_srq(us.client, us.pd, depth, 32).unwrap_err();
    assert_eq!(shared.code, RefusalCode::Limit);
    assert!(shared.message.contains("at most 29127"), "{shared}");
    // And what it says is so.
    let fits = QpAttributes {
        sq_depth: 29127,
        max_sge: 32,
        ..good
    };
    prm.create_qp(us.client, fits).map(|_| ()).unwrap();
}

#[test]
fn rings_of_further_shards_are_known_and_count_against_no_limit() {
    let mut prm = Prm::new(Limits::default());
    let client = *prm.add_client(CREDENTIALS).unwrap().client();
    let first = prm.create_cq(client, 16, 4).unwrap();
    let cq = *first.cq();
    prm.cq_created(first);
    let failed = prm.create_cq(client, 8, 4).unwrap();
    prm.cq_failed(failed);
    assert_eq!(prm.held_of(Resource::RingEntries), 16);
    assert_eq!(prm.ring_entries(), 64);
    for (done, entries) in [(false, 64), (true, 128)] {
        let resize = prm.resize_cq(client, cq, 32).unwrap();
        assert_eq!(prm.ring_entries(), 64 + 128);
        prm.cq_resized(resize, done);
        assert_eq!(prm.ring_entries(), entries);
    }
    let removal = prm.destroy_cq(client, cq).unwrap();
    prm.cq_removed(removal);
    assert_eq!(
        (prm.held_of(Resource::RingEntries), prm.ring_entries()),
        (0, 0)
    );
}

/// The shard waits for page faults of such memory, so only who could stop the daemon anyway has some unasked.
#[test]
fn memory_in_no_memfd_is_for_the_daemon_s_own_user_and_for_whom_it_is_allowed() {
    let client_of = |prm: &mut Prm, uid, gid| {
        let client = *prm
            .add_client(Credentials {
                uid,
                gid,
                pid: 1,
                superuser: false,
            })
            .unwrap()
            .client();
        let pd = prm.alloc_pd(client).unwrap();
        (client, pd)
    };
    let register = |prm: &mut Prm, (client, pd)| {
        let access = Access::default();
        let grant = prm.register_region(
            client,
            &RegionSpec {
                memory: MemoryKind::Remote,
                ..RegionSpec::new(pd, access, 4096, 4096)
            },
        )?;
        prm.region_registered(grant);
        Ok::<(), Refusal>(())
    };
    const OWN: u32 = 990;
    let mut limits = Limits::default();
    let some = |count| {
        let mut limits = UserLimits::default();
        limits.quota.remote_regions = count;
        limits
    };
    limits.users.by_uid.insert(1001, some(1));
    limits.users.by_gid.insert(44, some(2));
    let administrators = Administrators {
        uid: OWN,
        gid: Some(55),
        private: false,
    };
    let mut prm = Prm::new(limits).with_administrators(administrators);
    for (uid, gid, most) in [
        (OWN, OWN, 32),
        (0, 0, 0),
        (1000, 55, 0),
        (1001, 1, 1),
        (1002, 44, 2),
    ] {
        let client = client_of(&mut prm, uid, gid);
        for number in 0..most {
            let made = register(&mut prm, client);
            made.unwrap_or_else(|refusal| panic!("{uid} {number}: {refusal}"));
        }
        let refused = register(&mut prm, client);
        names(refused.clone(), "remote_regions");
        names(refused, "register memory of the heap");
    }
    // Two clients of the daemon's own user have as many as the user may have.
    let second = client_of(&mut prm, OWN, OWN);
    (0..32).for_each(|_| register(&mut prm, second).unwrap());
    let third = client_of(&mut prm, OWN, OWN);
    names(
        register(&mut prm, third),
        "user 990's limit remote_regions is 64",
    );
}
