use super::*;

use LoopbackUse::{Beside, Off, Only};

#[test]
fn devices_that_serve_this_hosts_addresses_are_joined_and_no_more_than_the_first_eight() {
    let uses = [Beside, Off, Beside, Only, Beside];
    assert_eq!(joined(uses.into_iter()), (vec![0, 2, 4], vec![]));
    assert_eq!(joined([Off, Beside].into_iter()), (vec![1], vec![]));
    let many = std::iter::once(Off).chain([Beside; 10]);
    assert_eq!(joined(many), ((1..9).collect(), vec![9, 10]));
}

#[test]
fn addresses_that_another_host_on_a_link_may_have_are_not_taken_for_this_hosts() {
    for address in ["127.0.0.1", "::1", "169.254.0.1", "fe80::1"] {
        assert!(is_of_one_link(address.parse().unwrap()), "{address}");
    }
    for address in ["198.18.0.1", "2001:db8::1", "fd00::1"] {
        assert!(!is_of_one_link(address.parse().unwrap()), "{address}");
    }
}
