use super::*;

#[test]
fn a_link_that_leads_nowhere_any_more_is_used_again_and_there_are_no_more_than_seven() {
    let free = |leads: &[bool]| free_link(leads.iter().copied());
    assert_eq!(free(&[]), Some(0));
    assert_eq!(free(&[true, true]), Some(2));
    assert_eq!(free(&[true, false, false]), Some(1));
    assert_eq!(free(&[true; LINKS_MAX]), None);
    let mut links = [true; LINKS_MAX];
    links[LINKS_MAX - 1] = false;
    assert_eq!(free(&links), Some(LINKS_MAX - 1));
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
