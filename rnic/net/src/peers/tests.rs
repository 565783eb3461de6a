use super::*;

fn list(networks: &[&str]) -> AllowList {
    let networks = networks.iter().map(|network| network.parse().unwrap());
    AllowList::new(networks.collect()).unwrap()
}

fn has(list: &AllowList, peer: &str) -> bool {
    list.contains(peer.parse().unwrap())
}

#[test]
fn a_peer_is_in_any_network_of_its_family() {
    let both = list(&["198.18.0.0/15", "2001:db8::/32", "198.51.100.7"]);
    for inside in [
        "198.18.0.1",
        "198.19.255.255",
        "2001:db8::1",
        "198.51.100.7",
    ] {
        assert!(has(&both, inside), "{inside}");
    }
    for outside in [
        "198.20.0.0",
        "198.51.100.8",
        "2001:db9::1",
        "::ffff:198.18.0.1",
    ] {
        assert!(!has(&both, outside), "{outside}");
    }
    let everybody = list(&["0.0.0.0/0"]);
    assert!(has(&everybody, "203.0.113.1") && !has(&everybody, "2001:db8::1"));
}

#[test]
fn an_empty_list_allows_nobody_and_no_list_everybody() {
    let peer = "198.18.0.1".parse().unwrap();
    let mut rules = PeerRules::default();
    assert_eq!(rules.refused_by(peer), None);
    rules.add(ListOwner::User, list(&[]));
    assert_eq!(rules.refused_by(peer), Some(ListOwner::User));
    assert_eq!(list(&[]).to_string(), "nobody");
}

#[test]
fn each_list_has_to_allow_a_peer() {
    let mut rules = PeerRules::default();
    rules.add(ListOwner::Interface, list(&["198.18.0.0/15"]));
    rules.add(ListOwner::Listener, list(&["198.18.7.0/24"]));
    let refused_by = |peer: &str| rules.refused_by(peer.parse().unwrap());
    assert_eq!(refused_by("198.18.7.1"), None);
    assert_eq!(refused_by("198.18.8.1"), Some(ListOwner::Listener));
    assert_eq!(refused_by("203.0.113.1"), Some(ListOwner::Interface));
}

#[test]
fn a_list_has_so_many_networks_and_no_more() {
    let network: Prefix = "198.18.0.0/15".parse().unwrap();
    assert!(AllowList::new(vec![network; AllowList::MAX]).is_some());
    assert!(AllowList::new(vec![network; AllowList::MAX + 1]).is_none());
}
