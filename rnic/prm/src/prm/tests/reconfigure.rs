//! Limits and administrators change while clients are there.

use super::*;
use crate::{Administrators, Quota, Resource, UserLimits, Users};

fn with(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

fn apply(prm: &mut Prm, limits: Limits) -> Result<(), Vec<String>> {
    prm.apply(limits, Administrators::default())
}

#[test]
fn who_holds_more_than_a_new_limit_keeps_it_and_gets_no_more() {
    let mut prm = Prm::new(Limits::default());
    let client = client(&mut prm);
    let pds = [prm.alloc_pd(client).unwrap(), prm.alloc_pd(client).unwrap()];
    let mut quota = Quota::PER_USER;
    quota.set(Resource::ProtectionDomains, 1);
    let others = UserLimits {
        quota,
        ..UserLimits::default()
    };
    let users = Users {
        others,
        ..Users::default()
    };
    apply(&mut prm, with(|limits| limits.users = users)).unwrap();
    let refusal = prm.alloc_pd(client).unwrap_err();
    assert!(refusal.message.contains("user 1000's"), "{refusal}");
    prm.dealloc_pd(client, pds[0]).unwrap();
    prm.alloc_pd(client).unwrap_err();
    prm.dealloc_pd(client, pds[1]).unwrap();
    prm.alloc_pd(client).unwrap();
}

#[test]
fn a_client_keeps_what_it_may_hold_for_its_life() {
    let mut prm = Prm::new(Limits::default());
    let before = client(&mut prm);
    let one = |limits: &mut Limits| limits.per_client.protection_domains = 1;
    apply(&mut prm, with(one)).unwrap();
    let after = client(&mut prm);
    for (client, may) in [(before, 64), (after, 1)] {
        assert_eq!(prm.quota(client).unwrap().protection_domains, may);
        for _ in 0..may {
            prm.alloc_pd(client).unwrap();
        }
        let refusal = prm.alloc_pd(client).unwrap_err();
        assert!(refusal.message.contains("this client's"), "{refusal}");
    }
}

#[test]
fn what_tables_are_not_made_for_is_told_and_nothing_changes() {
    let mut prm = Prm::new(Limits::default());
    let asked = with(|limits| {
        limits.clients = 257;
        limits.device.queue_pairs = 4097;
        limits.device.connection_requests = 65_536;
        limits.device.registered_bytes = u64::MAX;
        limits.per_client.queue_pairs = 1;
    });
    let faults = apply(&mut prm, asked).unwrap_err();
    let [clients, queue_pairs] = &faults[..] else {
        panic!("{faults:?}");
    };
    assert!(clients.contains("clients = 257"), "{clients}");
    assert!(clients.contains("at most 256"), "{clients}");
    assert!(queue_pairs.contains("queue_pairs = 4097"), "{queue_pairs}");
    assert_eq!(*prm.limits(), Limits::default());
}

#[test]
fn a_limit_that_was_lowered_can_be_what_it_was_at_the_start() {
    let mut prm = Prm::new(Limits::default());
    apply(&mut prm, with(|limits| limits.clients = 1)).unwrap();
    let _root = prm.add_client(Credentials {
        uid: 0,
        superuser: true,
        ..CREDENTIALS
    });
    prm.add_client(CREDENTIALS).unwrap_err();
    apply(&mut prm, Limits::default()).unwrap();
    let _client = prm.add_client(CREDENTIALS).unwrap();
}

#[test]
fn administrators_are_those_of_now() {
    let mut prm = Prm::new(Limits::default());
    let client = client(&mut prm);
    prm.may_administer(client).unwrap_err();
    let administrators = Administrators {
        uid: 0,
        gid: Some(CREDENTIALS.gid),
        private: false,
    };
    prm.apply(Limits::default(), administrators).unwrap();
    prm.may_administer(client).unwrap();
    assert!(prm.administers(&CREDENTIALS));
}
