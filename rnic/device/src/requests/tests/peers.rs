//! Which peers clients may connect to.

use rnic_net::AllowList;
use rnic_prm::{UserLimits, Users};

use super::listening::connect;
use super::*;

fn only(network: &str) -> AllowList {
    AllowList::new(vec![network.parse().unwrap()]).unwrap()
}

#[test]
fn a_peer_outside_the_lists_is_refused_before_its_way_is_looked_for_and_the_host_itself_is_not() {
    let limits = Limits {
        interface_peers: [("lo".to_owned(), only("198.18.0.0/15"))].into(),
        users: Users {
            others: UserLimits {
                allowed_peers: Some(only("198.18.7.0/24")),
                ..UserLimits::default()
            },
            ..Users::default()
        },
        ..Limits::default()
    };
    let bench = Bench::with_limits(Runtime::Caller, limits);
    let session = bench.client();
    let qp = qp(&session, pd(&session), cq(&session));
    for (remote, code, words) in [
        ("198.18.7.7:7471", RefusalCode::Unreachable, ""),
        (
            "198.18.8.7:7471",
            RefusalCode::NotPermitted,
            "user 1000's allowed_peers",
        ),
        (
            "203.0.113.7:7471",
            RefusalCode::NotPermitted,
            "interface lo's allowed_peers",
        ),
    ] {
        let refusal = connect(&session, qp, remote, None).unwrap_err();
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.message.contains(words), "{refusal}");
    }
    assert_eq!(bench.level("refused_user_allowed_peers"), 1);
    assert_eq!(bench.level("refused_interface_allowed_peers"), 1);
    assert_eq!(bench.level("device_ports"), 0);
    connect(&session, qp, "127.0.0.1:7471", None).unwrap();
}
