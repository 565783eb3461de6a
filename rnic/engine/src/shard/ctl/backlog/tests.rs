//! Who has a place, and who gives way.

use std::net::IpAddr;

use super::{Admission, Backlog, Network};
use crate::shard::conn_ids::conn_ids;

fn network(address: &str) -> Network {
    Network::of(address.parse::<IpAddr>().expect("an address"))
}

#[test]
fn a_network_is_a_24_or_a_56() {
    assert_eq!(network("198.18.3.1"), network("198.18.3.254"));
    assert_ne!(network("198.18.3.1"), network("198.18.4.1"));
    assert_eq!(network("2001:db8:0:100::1"), network("2001:db8:0:1ff::2"));
    assert_ne!(network("2001:db8:0:100::1"), network("2001:db8:0:200::1"));
    assert_ne!(network("::c6:1203:0:0:0:1"), network("198.18.3.1"));
}

#[test]
fn the_oldest_that_has_not_asked_gives_way() {
    let names = conn_ids(4);
    let mut backlog = Backlog::new(3);
    for (id, from) in names.iter().zip(["198.18.1.1", "198.18.2.1", "198.18.3.1"]) {
        assert_eq!(backlog.admit(network(from)), Admission::Free);
        backlog.enter(*id, network(from));
    }
    let newcomer = network("198.18.4.1");
    assert_eq!(backlog.admit(newcomer), Admission::InPlaceOf(names[0]));
    backlog.asked(names[0]);
    assert_eq!(backlog.admit(newcomer), Admission::InPlaceOf(names[1]));
    backlog.asked(names[1]);
    backlog.asked(names[2]);
    assert_eq!(backlog.admit(newcomer), Admission::Full, "one each");
    backlog.leave(names[0]);
    assert_eq!(backlog.admit(newcomer), Admission::Free);
}

#[test]
fn a_network_with_half_of_the_places_gets_no_more_of_others() {
    let names = conn_ids(5);
    let mut backlog = Backlog::new(4);
    let (honest, flood) = (network("198.18.1.1"), network("198.18.2.1"));
    backlog.enter(names[0], honest);
    backlog.enter(names[1], honest);
    backlog.enter(names[2], flood);
    backlog.enter(names[3], flood);
    assert_eq!(backlog.admit(flood), Admission::InPlaceOf(names[2]));
    let third = network("198.18.3.1");
    assert_eq!(backlog.admit(third), Admission::InPlaceOf(names[0]));
}

#[test]
fn the_network_with_the_most_requests_gives_way_to_those_with_fewer() {
    let names = conn_ids(8);
    let mut backlog = Backlog::new(5);
    let (few, many) = (network("198.18.1.1"), network("198.18.2.1"));
    for (id, from) in names.iter().zip([many, few, many, many, few]) {
        backlog.enter(*id, from);
        backlog.asked(*id);
    }
    assert_eq!(backlog.admit(many), Admission::Full, "its own");
    assert_eq!(backlog.admit(few), Admission::Full, "it would have as many");
    let newcomer = network("198.18.3.1");
    assert_eq!(backlog.admit(newcomer), Admission::InPlaceOf(names[3]));
    backlog.leave(names[3]);
    backlog.enter(names[5], newcomer);
    backlog.enter(names[7], many);
    assert_eq!(
        backlog.admit(many),
        Admission::InPlaceOf(names[7]),
        "its own"
    );
    backlog.leave(names[7]);
    // Who says nothing gives way before any Request.
    assert_eq!(backlog.admit(few), Admission::InPlaceOf(names[5]));
    backlog.asked(names[5]);
    let another = network("198.18.4.1");
    assert_eq!(backlog.admit(another), Admission::InPlaceOf(names[4]));
    backlog.leave(names[4]);
    backlog.enter(names[6], another);
    backlog.asked(names[6]);
    assert_eq!(backlog.admit(newcomer), Admission::Full);
    backlog.leave(names[0]);
    assert_eq!(backlog.admit(newcomer), Admission::Free);
}
