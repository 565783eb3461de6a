use super::*;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn vlans(entries: &[(&str, u16)]) -> Vlans {
    let mut vlans = Vlans::default();
    for (addresses, id) in entries {
        assert!(vlans.add(prefix(addresses), VlanId::new(*id).unwrap()));
    }
    vlans
}

#[test]
fn a_prefix_has_the_addresses_that_begin_so() {
    for (of, inside, outside) in [
        ("198.18.7.0/24", "198.18.7.255", "198.18.8.0"),
        ("198.18.7.9", "198.18.7.9", "198.18.7.8"),
        ("2001:db8:7::/48", "2001:db8:7:ffff::1", "2001:db8:8::"),
        ("0.0.0.0/0", "255.255.255.255", "::"),
        ("::/0", "ffff::", "0.0.0.0"),
        ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
    ] {
        assert!(prefix(of).contains(ip(inside)), "{of}");
        assert!(!prefix(of).contains(ip(outside)), "{of}");
    }
    assert_eq!(prefix("198.18.7.0/24").to_string(), "198.18.7.0/24");
    for wrong in ["", "1.2.3.4/33", "::/129", "1.2.3.4/", "eth0", "1.2.3.4/-1"] {
        assert_eq!(wrong.parse::<Prefix>(), Err(ParsePrefixError), "{wrong}");
    }
}

#[test]
fn a_vlan_has_a_number_that_frames_can_carry() {
    for wrong in [0, 4095, u16::MAX] {
        assert_eq!(VlanId::new(wrong), None);
    }
    let id = VlanId::new(4094).unwrap();
    assert!(id.is_of(4094) && id.is_of(0xfffe) && !id.is_of(4093));
}

#[test]
fn a_frame_to_an_address_of_a_vlan_comes_by_that_vlan_or_not_at_all() {
    let vlans = vlans(&[
        ("198.18.7.0/24", 7),
        ("198.18.0.0/16", 5),
        ("2001:db8::/64", 7),
    ]);
    let (of_7, of_none) = (ip("198.18.7.1"), ip("203.0.113.1"));
    assert_eq!(vlans.return_tag(of_7, Some(7)), Some(Some(7)));
    // The answer has no priority, whatever the question had.
    assert_eq!(vlans.return_tag(of_7, Some(0xe007)), Some(Some(7)));
    for wrong in [None, Some(0), Some(5), Some(8)] {
        assert_eq!(vlans.return_tag(of_7, wrong), None, "{wrong:?}");
    }
    assert_eq!(vlans.of(ip("198.18.8.1")), VlanId::new(5));
    assert_eq!(vlans.of(ip("2001:db8::9")), VlanId::new(7));
    for tag in [None, Some(9), Some(0xe009)] {
        assert_eq!(vlans.return_tag(of_none, tag), Some(tag));
    }
}

#[test]
fn there_are_as_many_entries_as_there_may_be() {
    let mut vlans = Vlans::default();
    let add = |vlans: &mut Vlans| vlans.add(prefix("192.0.2.1"), VlanId::new(1).unwrap());
    for _ in 0..Vlans::MAX {
        assert!(add(&mut vlans));
    }
    assert!(!add(&mut vlans));
    assert_eq!(vlans.iter().count(), Vlans::MAX);
}
