//! RFC 5042 section 6.1: an ordinary user sees nothing of others, an administrator all.

use rnic_ipc::control::{Access, RefusalCode, RegionSpec};
use rnic_ipc::id::ClientId;
use rnic_ipc::inspect::Scope;

use crate::{Administrators, Credentials, Limits, Prm};

const ADMIN_GROUP: u32 = 44;

fn prm() -> Prm {
    Prm::new(Limits::default()).with_administrators(Administrators {
        uid: 900,
        gid: Some(ADMIN_GROUP),
        private: false,
    })
}

fn client(prm: &mut Prm, uid: u32, gid: u32) -> ClientId {
    let credentials = Credentials {
        uid,
        gid,
        pid: 1,
        superuser: uid == 0,
    };
    *prm.add_client(credentials).unwrap().client()
}

fn furnish(prm: &mut Prm, client: ClientId) {
    let pd = prm.alloc_pd(client).unwrap();
    let cq = prm.create_cq(client, 16, 1).unwrap();
    prm.cq_created(cq);
    let region = prm
        .register_region(client, &RegionSpec::new(pd, Access::LOCAL_WRITE, 0, 4096))
        .unwrap();
    prm.region_registered(region);
}

#[test]
fn a_user_sees_what_his_own_clients_hold_and_nothing_of_others() {
    let mut prm = prm();
    let (mine, mine_too) = (client(&mut prm, 1000, 1000), client(&mut prm, 1000, 5));
    let other = client(&mut prm, 1001, 1000);
    for client in [mine, other, mine_too] {
        furnish(&mut prm, client);
    }
    let clients = prm.list_clients(mine, 0).unwrap();
    let clients: Vec<_> = clients.found.iter().map(|(_, one)| one.client).collect();
    assert_eq!(clients, [mine, mine_too]);
    let cqs = prm.list_cqs(mine, 0).unwrap();
    assert!(cqs.found.iter().all(|(_, cq)| cq.client != other));
    assert_eq!(cqs.found.len(), 2);
    let regions = prm.list_regions(other, 0).unwrap();
    assert_eq!(regions.found.len(), 1);
    assert_eq!(regions.found[0].1.client, other);
    assert!(prm.may_see(mine, Some(mine_too)).is_ok());
    let limits = prm.list_limits(mine).unwrap();
    let mut device = limits.iter().filter(|one| one.scope == Scope::Device);
    assert!(device.all(|limit| limit.held.is_none()));
    let held = |name: &str| {
        let mut user = limits.iter().filter(|one| one.scope == Scope::User);
        user.find(|one| one.name == name).unwrap().held
    };
    assert_eq!((held("clients"), held("regions")), (Some(2), Some(2)));
}

#[test]
fn a_client_of_another_user_is_refused_in_the_words_of_one_that_is_not_there() {
    let mut prm = prm();
    let (mine, other) = (client(&mut prm, 1000, 1000), client(&mut prm, 1001, 1001));
    let refused = prm.may_see(mine, Some(other)).unwrap_err();
    let teardown = prm.client_gone(other);
    prm.client_removed(teardown);
    assert_eq!(prm.may_see(mine, Some(other)).unwrap_err(), refused);
    assert_eq!(refused.code, RefusalCode::UnknownObject);
    assert!(prm.may_see(mine, None).is_err());
}

#[test]
fn root_the_daemons_user_and_the_group_administer_and_nobody_else() {
    let mut prm = prm();
    for (uid, gid, may) in [
        (0, 7, true),
        (900, 7, true),
        (1000, ADMIN_GROUP, true),
        (1000, 7, false),
    ] {
        let one = client(&mut prm, uid, gid);
        assert_eq!(prm.may_administer(one).is_ok(), may, "uid {uid} gid {gid}");
    }
    let root = ClientId(1);
    assert_eq!(prm.list_clients(root, 0).unwrap().found.len(), 4);
    assert!(prm.may_see(root, None).is_ok());
    let ordinary = prm.may_administer(ClientId(4)).unwrap_err();
    assert_eq!(ordinary.code, RefusalCode::NotPermitted);
}

#[test]
fn looks_together_find_every_object_once_in_the_order_of_numbers() {
    let mut prm = prm();
    let (one, other) = (client(&mut prm, 1000, 1), client(&mut prm, 1001, 1));
    for _ in 0..700 {
        for client in [one, other] {
            let cq = prm.create_cq(client, 1, 1).unwrap();
            prm.cq_created(cq);
        }
    }
    let (mut found, mut after) = (Vec::new(), 0);
    loop {
        let listing = prm.list_cqs(one, after).unwrap();
        found.extend(listing.found.into_iter().map(|(number, _)| number));
        match listing.next {
            Some(next) => {
                assert!(next > after);
                after = next;
            }
            None => break,
        }
    }
    assert!(prm.list_cqs(one, u32::MAX).unwrap().found.is_empty());
    let expected: Vec<u32> = (0..700).map(|index| 2 * index + 1).collect();
    assert_eq!(found, expected);
}
