//! What all clients of a user together may hold and do.

use std::time::{Duration, Instant};

use super::*;
use crate::{PortRanges, Quota, Resource, UserLimits, Users};

const THEM: Credentials = Credentials {
    uid: 1001,
    gid: 1001,
    pid: 5,
    superuser: false,
};

fn of_user(limits: UserLimits) -> Prm {
    Prm::new(Limits {
        users: Users {
            others: limits,
            ..Users::default()
        },
        ..Limits::default()
    })
}

#[track_caller]
fn names(result: Result<impl std::fmt::Debug, Refusal>, words: &[&str]) {
    names_as(RefusalCode::Limit, result, words);
}

/// A refusal with this code, of what the user may not have at all.
fn names_port(result: Result<impl std::fmt::Debug, Refusal>, words: &[&str]) {
    names_as(RefusalCode::NotPermitted, result, words);
}

fn names_as(code: RefusalCode, result: Result<impl std::fmt::Debug, Refusal>, words: &[&str]) {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.code, code, "{refusal}");
    for word in words {
        assert!(refusal.message.contains(word), "no {word} in: {refusal}");
    }
}

fn count(prm: &Prm, name: &str) -> u64 {
    let refusals = prm.refusals();
    let found = refusals.iter().find(|(counter, _)| counter == name);
    found.unwrap_or_else(|| panic!("no {name}")).1
}

fn end(prm: &mut Prm, client: ClientId) {
    let teardown = prm.client_gone(client);
    prm.client_removed(teardown);
}

#[test]
fn no_user_takes_all_places_for_clients() {
    let mut prm = of_user(UserLimits {
        clients: 2,
        ..UserLimits::default()
    });
    let us = [client(&mut prm), client(&mut prm)];
    names(prm.add_client(CREDENTIALS), &["clients", "user 1000", "2"]);
    assert_eq!(count(&prm, "refused_user_clients"), 1);
    let _them = prm.add_client(THEM).unwrap();
    end(&mut prm, us[0]);
    client(&mut prm);
    names(prm.add_client(CREDENTIALS), &["clients"]);
    assert_eq!(count(&prm, "refused_user_clients"), 2);
    assert_eq!(count(&prm, "refused_device_clients"), 0);
}

#[test]
fn a_users_clients_are_bounded_together_and_another_user_is_not_touched() {
    let mut quota = Quota::PER_USER;
    quota.set(Resource::ProtectionDomains, 3);
    quota.set(Resource::OutstandingWork, 64);
    let mut prm = of_user(UserLimits {
        quota,
        ..UserLimits::default()
    });
    let (one, two) = (household(&mut prm), household(&mut prm));
    let more = qp(&mut prm, two.client, attributes(two.pd, two.cq, two.cq));
    names(more, &["user 1000's limit outstanding_work", "64"]);
    prm.alloc_pd(one.client).unwrap();
    for household in [&one, &two] {
        let more = prm.alloc_pd(household.client);
        names(more, &["user 1000's limit protection_domains", "is 3"]);
    }
    assert_eq!(count(&prm, "refused_user_protection_domains"), 2);
    assert_eq!(count(&prm, "refused_client_protection_domains"), 0);

    let them = *prm.add_client(THEM).unwrap().client();
    for _ in 0..3 {
        prm.alloc_pd(them).unwrap();
    }
    end(&mut prm, two.client);
    prm.alloc_pd(one.client).unwrap();
}

#[test]
fn what_a_killed_client_held_is_its_users_again() {
    let mut prm = of_user(UserLimits::default());
    for _ in 0..3 {
        let household = household(&mut prm);
        end(&mut prm, household.client);
        assert!(prm.held().all(|(_, held)| held == 0), "{:?}", prm.usage);
        assert!(prm.users.is_empty(), "{:?}", prm.users);
    }
}

#[test]
fn limits_go_by_uid_then_by_gid_then_to_all_others() {
    let with = |clients| UserLimits {
        clients,
        ..UserLimits::default()
    };
    let users = Users {
        others: with(1),
        by_uid: [(7, with(2))].into(),
        by_gid: [(8, with(3))].into(),
    };
    for (uid, gid, clients) in [(7, 8, 2), (7, 9, 2), (6, 8, 3), (6, 7, 1)] {
        let found = users.of(Credentials {
            uid,
            gid,
            pid: 1,
            superuser: uid == 0,
        });
        assert_eq!(found.clients, clients, "{uid} {gid}");
    }
}

#[test]
fn a_user_listens_at_its_ports_only() {
    let ports = PortRanges::new([18515..=18516, 20000..=20000]);
    assert_eq!(ports.to_string(), "18515-18516, 20000");
    let mut prm = of_user(UserLimits {
        listen_ports: ports,
        ..UserLimits::default()
    });
    let us = client(&mut prm);
    for port in [18515, 18516, 20000] {
        let grant = prm.listen(us, &listen_spec(port, 1)).unwrap();
        prm.listen_failed(grant);
    }
    for port in [1, 18514, 18517, 65535] {
        let more = prm.listen(us, &listen_spec(port, 1));
        names_port(more, &["listen_ports", "18515-18516, 20000", "user 1000"]);
    }
    // The port that the kernel chose.
    let grant = prm.listen(us, &listen_spec(0, 1)).unwrap();
    names_port(prm.may_listen_at(&grant, 40000), &["listen_ports", "40000"]);
    prm.may_listen_at(&grant, 18515).unwrap();
    prm.listen_failed(grant);
    assert_eq!(count(&prm, "refused_user_listen_ports"), 5);
}

#[test]
fn a_user_connects_from_its_ports_only_when_it_names_one() {
    let mut prm = of_user(UserLimits {
        listen_ports: PortRanges::new([7471..=7471, 18515..=18516]),
        ..UserLimits::default()
    });
    let us = household(&mut prm);
    let now = Instant::now();
    for port in [0, 18515] {
        let _use = prm.connect(us.client, us.qp, port, now).unwrap();
    }
    let more = prm.connect(us.client, us.qp, 18517, now);
    names_port(more, &["listen_ports", "7471, 18515-18516", "18517"]);
}

#[test]
fn the_superusers_ports_are_the_superusers() {
    let mut prm = prm();
    let us = client(&mut prm);
    names_port(
        prm.listen(us, &listen_spec(1023, 1)),
        &["listen_ports", "below 1024"],
    );
    let _grant = prm.listen(us, &listen_spec(1024, 1)).unwrap();
    let root = Credentials {
        uid: 0,
        gid: 0,
        pid: 1,
        superuser: true,
    };
    let root = *prm.add_client(root).unwrap().client();
    let _grant = prm.listen(root, &listen_spec(22, 1)).unwrap();
}

#[test]
fn a_user_connects_so_often_with_all_its_clients() {
    let mut prm = of_user(UserLimits {
        connects_per_second: 2,
        ..UserLimits::default()
    });
    let start = Instant::now();
    let (one, two) = (household(&mut prm), household(&mut prm));
    let _use = prm.connect(one.client, one.qp, 0, start).unwrap();
    let _use = prm.connect(two.client, two.qp, 0, start).unwrap();
    for household in [&one, &two] {
        let more = prm.connect(household.client, household.qp, 0, start);
        names(more, &["connects_per_second", "is 2"]);
    }
    assert_eq!(count(&prm, "refused_user_connects_per_second"), 2);

    // A new client of the same user pays for the old ones.
    end(&mut prm, one.client);
    end(&mut prm, two.client);
    let three = household(&mut prm);
    names(
        prm.connect(three.client, three.qp, 0, start),
        &["connects_per_second"],
    );
    let later = start + Duration::from_millis(500);
    let _use = prm.connect(three.client, three.qp, 0, later).unwrap();
    end(&mut prm, three.client);

    // Whom nobody has to remember is forgotten.
    let them = *prm.add_client(THEM).unwrap().client();
    let pd = prm.alloc_pd(them).unwrap();
    let cq = cq(&mut prm, them).unwrap();
    let theirs = qp(&mut prm, them, attributes(pd, cq, cq)).unwrap();
    assert_eq!(prm.users.len(), 2);
    let much_later = later + Duration::from_secs(2);
    let _use = prm.connect(them, theirs, 0, much_later).unwrap();
    assert_eq!(prm.users.len(), 1);
}

#[test]
fn every_refusal_for_a_limit_is_counted_once() {
    let mut prm = prm();
    let us = household(&mut prm);
    let limits = prm.limits().clone();
    let good = attributes(us.pd, us.cq, us.cq);
    let deep = QpAttributes {
        sq_depth: limits.queue_depth + 1,
        ..good.clone()
    };
    let wide = QpAttributes {
        max_sge: limits.sges + 1,
        ..good.clone()
    };
    let inline = QpAttributes {
        max_inline: limits.inline_bytes + 1,
        ..good
    };
    for attributes in [deep, wide, inline] {
        refused(prm.create_qp(us.client, attributes));
    }
    refused(prm.create_cq(us.client, limits.cq_depth + 1, 1));
    refused(prm.listen(us.client, &listen_spec(7472, limits.backlog + 1)));
    // These are faults, and no limit's.
    refused(prm.create_cq(us.client, 0, 1));
    refused(prm.alloc_pd(ClientId(999)));
    let counted: Vec<_> = prm
        .refusals()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect();
    let expected = ["queue_depth", "cq_depth", "sges", "inline_bytes", "backlog"];
    let expected = expected.map(|name| (format!("refused_device_{name}"), 1));
    assert_eq!(counted, expected);
}

#[test]
fn a_users_requests_wait_for_their_turn_and_another_users_do_not() {
    let mut prm = of_user(UserLimits {
        requests_per_second: 4,
        ..UserLimits::default()
    });
    let start = Instant::now();
    for _ in 0..4 {
        assert_eq!(prm.request_waits(CREDENTIALS, start), Duration::ZERO);
    }
    let quarter = Duration::from_millis(250);
    for turn in 1..=2 {
        assert_eq!(prm.request_waits(CREDENTIALS, start), quarter * turn);
    }
    assert_eq!(prm.request_waits(THEM, start), Duration::ZERO);
    assert_eq!(prm.requests_delayed(), 2);
    // Whom nobody has to remember is forgotten, with clients or without.
    assert_eq!(prm.users.len(), 2);
    let later = start + Duration::from_secs(3);
    let root = Credentials {
        uid: 0,
        superuser: true,
        ..THEM
    };
    assert_eq!(prm.request_waits(root, later), Duration::ZERO);
    assert_eq!(prm.users.len(), 1);
}

#[test]
fn a_new_client_counts_for_ten_requests() {
    let mut prm = of_user(UserLimits {
        requests_per_second: 20,
        ..UserLimits::default()
    });
    let start = Instant::now();
    assert_eq!(prm.client_waits(CREDENTIALS, start), Duration::ZERO);
    assert_eq!(prm.client_waits(CREDENTIALS, start), Duration::ZERO);
    let half = Duration::from_millis(500);
    assert_eq!(prm.client_waits(CREDENTIALS, start), half);
    assert_eq!(prm.client_waits(THEM, start), Duration::ZERO);
}

#[test]
fn who_was_given_no_ports_has_those_that_the_host_keeps_for_nobody() {
    let mut prm = of_user(UserLimits::default());
    let us = client(&mut prm);
    let listen = |prm: &mut Prm, port| prm.listen(us, &listen_spec(port, 1));
    let words = ["port 1023", "below 1024", "ip_unprivileged_port_start"];
    names_port(listen(&mut prm, 1023), &words);
    let _ = listen(&mut prm, 1024).unwrap();
    prm.set_unprivileged_port_start(2000);
    names_port(listen(&mut prm, 1999), &["below 2000"]);
    let _ = listen(&mut prm, 2000).unwrap();
    prm.set_unprivileged_port_start(0);
    let _ = listen(&mut prm, 80).unwrap();
    // What an operator gives takes the place of the privilege.
    let mut prm = of_user(UserLimits {
        listen_ports: PortRanges::new([80..=80]),
        ..UserLimits::default()
    });
    let us = client(&mut prm);
    prm.set_unprivileged_port_start(2000);
    let _ = prm.listen(us, &listen_spec(80, 1)).unwrap();
}
