use super::*;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_peer_without_a_port_has_the_default_port() {
    for (text, address) in [
        ("198.18.0.2", "198.18.0.2:18515"),
        ("198.18.0.2:7471", "198.18.0.2:7471"),
        ("2001:db8::2", "[2001:db8::2]:18515"),
        ("[2001:db8::2]", "[2001:db8::2]:18515"),
        ("[2001:db8::2]:7471", "[2001:db8::2]:7471"),
        ("::1", "[::1]:18515"),
    ] {
        assert_eq!(peer_addresses(text), Ok(vec![at(address)]), "{text}");
    }
}

#[test]
fn a_listener_without_a_host_is_on_all_addresses() {
    for (text, address) in [
        ("", "[::]:18515"),
        (":7471", "[::]:7471"),
        (":0", "[::]:0"),
        ("0.0.0.0", "0.0.0.0:18515"),
        ("[::]:7471", "[::]:7471"),
        ("198.18.0.2:0", "198.18.0.2:0"),
    ] {
        assert_eq!(local_addresses(text), Ok(vec![at(address)]), "{text}");
    }
}

#[test]
fn a_peer_has_a_host_and_a_port() {
    for text in [
        "",
        ":7471",
        "[",
        "[2001:db8::2",
        "198.18.0.2:",
        "198.18.0.2:x",
    ] {
        let error = peer_addresses(text).unwrap_err();
        assert!(
            matches!(error, AddressError::Malformed { .. }),
            "{text}: {error}"
        );
    }
    for text in [
        "198.18.0.2:0",
        "198.18.0.2:65536",
        "2001:db8::2::3",
        "[host]:7471",
        "[2001:db8::2]7471",
        "198.18.0.2%lo",
        "host:1:2",
    ] {
        let error = peer_addresses(text).unwrap_err();
        assert!(
            matches!(error, AddressError::Malformed { .. }),
            "{text}: {error}"
        );
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_name_has_all_its_addresses_once() {
    let found = peer_addresses("localhost:7471").unwrap();
    assert!(found.iter().any(|address| address.ip().is_loopback()));
    assert!(found.iter().all(|address| address.port() == 7471));
    let mut once = found.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), found.len());
}

#[test]
fn a_name_that_does_not_resolve_is_named() {
    // Of RFC 6761: it never resolves.
    let error = peer_addresses("rnic.invalid").unwrap_err();
    assert!(matches!(error, AddressError::Unknown { .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("rnic.invalid does not resolve"), "{told}");
}

#[test]
fn a_scope_is_the_interface_whose_device_is_used() {
    let lo = interface_index("lo").unwrap();
    for text in ["[fe80::1%lo]:7471", &format!("[fe80::1%{lo}]:7471")] {
        let [SocketAddr::V6(found)] = peer_addresses(text).unwrap()[..] else {
            panic!("{text} is one IPv6 address");
        };
        assert_eq!((found.scope_id(), found.port()), (lo, 7471), "{text}");
        let device = DeviceName::Interface("lo".into());
        assert_eq!(device_toward(found.into()), device);
        assert_eq!(device_of(found.into()), Some(device));
    }
    assert_eq!(
        peer_addresses("fe80::1%lo").unwrap(),
        peer_addresses("[fe80::1%lo]:18515").unwrap()
    );
    let error = peer_addresses("[fe80::1%nonesuch]:7471").unwrap_err();
    assert!(
        error.to_string().contains("%nonesuch is no interface"),
        "{error}"
    );
}

#[test]
fn without_a_scope_the_device_is_that_of_the_address_or_of_the_route() {
    let address = at("198.18.0.2:7471");
    assert_eq!(device_toward(address), DeviceName::Toward(address.ip()));
    assert_eq!(device_of(address), Some(DeviceName::Address(address.ip())));
    assert_eq!(device_of(at("[::]:7471")), None);
}
