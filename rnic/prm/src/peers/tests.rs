use super::*;

fn at(text: &str) -> ListenerAddress {
    text.parse().unwrap()
}

#[test]
fn an_address_is_of_its_listener_and_a_port_alone_of_all_there() {
    for text in ["198.18.0.1:7471", "[2001:db8::1]:7471"] {
        let local = text.parse().unwrap();
        assert_eq!(at(text).to_string(), text);
        assert!(at(text).contains(local) && at(":7471").contains(local));
        assert!(!at(text).contains(SocketAddr::new(local.ip(), 7472)));
        assert!(!at(":7472").contains(local));
    }
    assert!(!at("198.18.0.1:7471").contains("198.18.0.2:7471".parse().unwrap()));
    assert_eq!(at(":7471").to_string(), ":7471");
}

#[test]
fn what_no_listener_can_have_is_no_address() {
    for text in [
        "",
        "7471",
        ":0",
        ":65536",
        ":",
        "198.18.0.1",
        "198.18.0.1:0",
        "0.0.0.0:7471",
        "[::]:7471",
        "2001:db8::1:7471",
        "host:7471",
    ] {
        assert_eq!(
            text.parse::<ListenerAddress>(),
            Err(ParseListenerAddressError),
            "{text}"
        );
    }
}
