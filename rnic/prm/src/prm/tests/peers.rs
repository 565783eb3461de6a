//! Which peers clients may have.

use std::net::IpAddr;

use rnic_net::{AllowList, ListOwner, PeerRules};

use super::*;
use crate::{Administrators, ListenerPeers, UserLimits, Users};

const ROOT: Credentials = Credentials {
    uid: 0,
    gid: 0,
    pid: 1,
    superuser: true,
};

fn list(network: &str) -> AllowList {
    AllowList::new(vec![network.parse().unwrap()]).unwrap()
}

/// User 1000 has one network, those of group 500 another, and everybody else all.
fn limits() -> Limits {
    let only = |network| UserLimits {
        allowed_peers: Some(list(network)),
        ..UserLimits::default()
    };
    Limits {
        users: Users {
            by_uid: [(CREDENTIALS.uid, only("198.18.0.0/24"))].into(),
            by_gid: [(500, only("198.18.1.0/24"))].into(),
            ..Users::default()
        },
        interface_peers: [("eth0".to_owned(), list("198.18.0.0/15"))].into(),
        listener_peers: vec![
            ListenerPeers {
                at: ":7471".parse().unwrap(),
                allowed: list("198.18.0.0/16"),
            },
            ListenerPeers {
                at: "198.18.0.1:7471".parse().unwrap(),
                allowed: list("198.18.0.0/25"),
            },
        ],
        ..Limits::default()
    }
}

fn refused_by(rules: &PeerRules, peer: &str) -> Option<ListOwner> {
    rules.refused_by(peer.parse().unwrap())
}

#[test]
fn peers_of_a_listener_need_leave_of_its_interface_its_user_and_its_address() {
    let mut prm = Prm::new(limits());
    let client = client(&mut prm);
    let rules = |local: &str| prm.listener_rules(client, local.parse().unwrap(), "eth0");
    let here = rules("198.18.0.1:7471");
    for (peer, refused) in [
        ("198.18.0.9", None),
        ("198.18.0.200", Some(ListOwner::Listener)),
        ("198.18.1.9", Some(ListOwner::User)),
        ("203.0.113.1", Some(ListOwner::Interface)),
    ] {
        assert_eq!(refused_by(&here, peer), refused, "{peer}");
    }
    assert_eq!(refused_by(&rules("198.18.0.2:7471"), "198.18.0.200"), None);
    assert_eq!(refused_by(&rules("198.18.0.1:7472"), "198.18.0.200"), None);
}

#[test]
fn a_group_has_its_list_and_others_have_none() {
    let mut prm = Prm::new(limits());
    let of_group = Credentials {
        uid: 1001,
        gid: 500,
        pid: 1,
        superuser: false,
    };
    let local = "198.18.0.1:1".parse().unwrap();
    for (who, refused) in [(of_group, Some(ListOwner::User)), (ROOT, None)] {
        let client = *prm.add_client(who).unwrap().client();
        let rules = prm.listener_rules(client, local, "eth1");
        assert_eq!(refused_by(&rules, "198.18.0.9"), refused, "{who}");
        assert_eq!(refused_by(&rules, "198.18.1.9"), None, "{who}");
    }
}

#[test]
fn a_connection_to_a_peer_outside_is_refused_by_the_name_of_the_list() {
    let mut prm = Prm::new(limits());
    let client = client(&mut prm);
    let mut ask = |peer: &str| {
        let peer: IpAddr = peer.parse().unwrap();
        prm.may_connect_to(client, peer, "eth0")
    };
    // The listener's list has 198.18.0.0/25, which is nothing to connections from here.
    ask("198.18.0.200").unwrap();
    let of_user = ask("198.18.1.9").unwrap_err();
    let of_interface = ask("2001:db8::1").unwrap_err();
    for (refusal, whose) in [
        (of_user, "user 1000's allowed_peers"),
        (of_interface, "interface eth0's allowed_peers"),
    ] {
        assert_eq!(refusal.code, RefusalCode::NotPermitted);
        assert!(refusal.message.contains(whose), "{refusal}");
    }
    let counts = prm.refusals();
    for name in [
        "refused_user_allowed_peers",
        "refused_interface_allowed_peers",
    ] {
        assert!(counts.contains(&(name.to_owned(), 1)), "{counts:?}");
    }
}

#[test]
fn other_limits_have_other_lists_for_listeners_that_are_there() {
    let mut prm = Prm::new(Limits::default());
    let us = household(&mut prm);
    let coming = prm.listen(us.client, &listen_spec(7472, 8)).unwrap();
    let live: Vec<_> = prm.live_listeners().collect();
    let [one] = live[..] else {
        panic!("{live:?}");
    };
    assert_eq!((one.client, one.listener), (us.client, us.listener));
    let rules = |prm: &Prm| prm.listener_rules(one.client, one.local, "eth0");
    assert_eq!(rules(&prm), PeerRules::default());
    prm.apply(limits(), Administrators::default()).unwrap();
    assert_eq!(
        refused_by(&rules(&prm), "198.18.9.9"),
        Some(ListOwner::User)
    );
    prm.listening(coming, "198.18.0.1:7472".parse().unwrap());
    assert_eq!(prm.live_listeners().count(), 2);
    let _removal = prm.unlisten(us.client, us.listener).unwrap();
    assert_eq!(prm.live_listeners().count(), 1);
}
