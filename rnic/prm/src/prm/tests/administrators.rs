//! Whatever others hold, an administrator finds a place: as a client, and of each kind of object.

use rnic_ipc::id::ConnRequestId;

use super::*;
use crate::{Administrators, Quota, Resource, UserLimits, Users, kept_for_administrators};

const GROUP: u32 = 500;
const ROOT: Credentials = Credentials {
    uid: 0,
    gid: 0,
    pid: 1,
    superuser: true,
};
const OF_THE_GROUP: Credentials = Credentials {
    uid: 1001,
    gid: GROUP,
    pid: 2,
    superuser: false,
};

/// Everything may be held by anybody, but that the device has so many of one thing.
fn with(limits: Limits) -> Prm {
    let mut everything = Quota::DEVICE;
    everything.set(Resource::RemoteRegions, 1000);
    let others = UserLimits {
        clients: 1000,
        quota: everything.clone(),
        ..UserLimits::default()
    };
    let administrators = Administrators {
        uid: 0,
        gid: Some(GROUP),
        private: false,
    };
    Prm::new(Limits {
        per_client: everything,
        users: Users {
            others,
            by_uid: [].into(),
            by_gid: [].into(),
        },
        ..limits
    })
    .with_administrators(administrators)
}

/// Takes some of one thing; how much, [`taken`] says.
fn take(prm: &mut Prm, client: ClientId, what: Resource, number: u32) -> Result<(), Refusal> {
    let access = Access::default();
    match what {
        Resource::ProtectionDomains => prm.alloc_pd(client).map(drop),
        Resource::Regions | Resource::RegisteredBytes => {
            let pd = pd_of(prm, client);
            region(prm, client, pd, 4096).map(drop)
        }
        Resource::RemoteRegions => {
            let pd = pd_of(prm, client);
            let grant = prm.register_region(
                client,
                &RegionSpec {
                    memory: MemoryKind::Remote,
                    ..RegionSpec::new(pd, access, 4096, 4096)
                },
            )?;
            prm.region_registered(grant);
            Ok(())
        }
        Resource::CompletionQueues | Resource::RingEntries => cq(prm, client).map(drop),
        Resource::SharedReceiveQueues => {
            let pd = pd_of(prm, client);
            srq(prm, client, pd).map(drop)
        }
        Resource::QueuePairs | Resource::OutstandingWork => {
            let (pd, cq_) = (pd_of(prm, client), cq(prm, client)?);
            qp(prm, client, attributes(pd, cq_, cq_)).map(drop)
        }
        Resource::Listeners => listener(prm, client).map(drop),
        Resource::ConnectionRequests => {
            let listener = listener(prm, client)?;
            let request = ConnRequestId(number);
            let came = prm.connection_requested(client, listener, request);
            came.map_err(|refused| refused.refusal)
        }
    }
}

fn pd_of(prm: &mut Prm, client: ClientId) -> PdId {
    prm.alloc_pd(client).unwrap()
}

/// What [`take`] takes of it.
fn taken(what: Resource) -> u64 {
    match what {
        Resource::RegisteredBytes => 4096,
        Resource::RingEntries => 16,
        Resource::OutstandingWork => 32,
        _ => 1,
    }
}

#[test]
fn each_kind_of_object_has_places_that_only_administrators_get() {
    for what in Resource::ALL {
        let most = 128;
        let mut limits = Limits::default();
        limits.device.set(what, most * taken(what));
        let mut prm = with(limits);
        let us = client(&mut prm);
        let mut numbers = 1..;
        let mut next = || numbers.next().unwrap();
        for _ in 0..most - 2 {
            take(&mut prm, us, what, next()).unwrap();
        }
        let refusal = take(&mut prm, us, what, next()).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Limit, "{refusal}");
        let kept = format!("{} of them kept for administrators", 2 * taken(what));
        for word in [what.name(), "the device's", &kept] {
            assert!(refusal.message.contains(word), "no {word} in: {refusal}");
        }
        for administrator in [ROOT, OF_THE_GROUP] {
            let administrator = *prm.add_client(administrator).unwrap().client();
            take(&mut prm, administrator, what, next()).unwrap();
        }
        // Now all are taken.
        let administrator = *prm.add_client(ROOT).unwrap().client();
        let refusal = take(&mut prm, administrator, what, next()).unwrap_err();
        assert!(refusal.message.contains(what.name()), "{refusal}");
        let counts = prm.refusals();
        let counter = format!("refused_device_{}", what.name());
        assert!(counts.contains(&(counter, 2)), "{counts:?}");
    }
}

#[test]
fn a_device_full_of_clients_has_places_that_only_administrators_get() {
    let mut prm = with(Limits {
        clients: 128,
        ..Limits::default()
    });
    for _ in 0..126 {
        client(&mut prm);
    }
    let refusal = prm.add_client(CREDENTIALS).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Limit, "{refusal}");
    for words in ["limit clients is 128", "2 of them kept for administrators"] {
        assert!(refusal.message.contains(words), "{refusal}");
    }
    for administrator in [ROOT, OF_THE_GROUP] {
        let _grant = prm.add_client(administrator).unwrap();
    }
    let refusal = prm.add_client(ROOT).unwrap_err();
    assert!(refusal.message.contains("clients is 128"), "{refusal}");
}

#[test]
fn one_in_64_is_kept_and_never_all() {
    let kept = [0, 1, 2, 64, 65, 256, 4096].map(kept_for_administrators);
    assert_eq!(kept, [0, 0, 1, 1, 2, 4, 64]);
}

/// As root of a container has it: the number, and no right to it.
#[test]
fn uid_0_alone_makes_no_administrator_but_of_a_programs_own_daemon() {
    let contained = Credentials {
        superuser: false,
        ..ROOT
    };
    let group = Credentials {
        gid: GROUP,
        ..contained
    };
    let own = Credentials {
        uid: 1000,
        ..contained
    };
    for (uid, private, who, is_one) in [
        (0, false, ROOT, true),
        (0, false, contained, false),
        (0, false, group, true),
        (0, true, contained, true),
        (1000, false, contained, false),
        (1000, false, own, true),
        (1000, true, contained, false),
    ] {
        let gid = Some(GROUP);
        let administrators = Administrators { uid, gid, private };
        assert_eq!(
            administrators.include(&who),
            is_one,
            "{administrators:?} {who:?}"
        );
    }
    let told = with(Limits::default()).check_administrator(&contained);
    let told = told.unwrap_err().message;
    assert!(told.contains("without CAP_SYS_ADMIN"), "{told}");
}
