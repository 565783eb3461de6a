use userspace_net::FourTuple;
use userspace_tcp::{Config, ConnectError, Event, Flags, ListenError, Options, Segment, TcpHeader};

use crate::script::*;

#[test]
fn a_listener_resets_an_ack_and_ignores_a_reset() {
    let mut script = Script::new(plain());
    script.stack.listen(local(), 1).unwrap();
    assert_eq!(
        script.stack.listen(local(), 1),
        Err(ListenError::InUse { local: local() })
    );
    script.give(Flags::RST, 0, 0, 0);
    assert_eq!(script.out(), []);
    script.give(Flags::SYN | ACK, 0, 9, 0);
    assert_eq!(
        (script.one().flags, script.stack.connections_at(local())),
        (Flags::RST, 0)
    );
}

#[test]
fn a_listener_for_every_address_takes_what_no_other_does() {
    let mut script = Script::new(plain());
    let any = userspace_net::Endpoint {
        addr: std::net::Ipv4Addr::UNSPECIFIED.into(),
        ..local()
    };
    script.stack.listen(any, 1).unwrap();
    script.give(Flags::SYN, 0, 0, 0);
    script.out();
    script.give(ACK, 1, 1, 0);
    let events = script.events();
    assert!(matches!(events[..], [Event::Incoming { listener, .. }] if listener == any));
}

#[test]
fn unlisten_resets_what_is_half_open_and_keeps_what_is_established() {
    let mut script = Script::passive(plain());
    let established = script.conn();
    let tuple = FourTuple::new(
        local(),
        userspace_net::Endpoint {
            port: 9,
            ..remote()
        },
    );
    let header = script.header(Flags::SYN, 0, 0, 1000, Options::default());
    let segment = Segment::new(header, &[]);
    script.stack.receive(script.now, tuple, &segment, OPTIONS);
    while script.stack.poll_transmit(script.now).is_some() {}
    assert!(script.stack.unlisten(local()) && !script.stack.unlisten(local()));
    let reset = script.stack.poll_transmit(script.now).unwrap();
    assert_eq!(reset.tuple, tuple);
    let of = reset.conn.expect("its way is the connection's");
    assert!(script.stack.info(of).is_none());
    assert!(reset.header.flags.rst());
    assert!(script.stack.info(established).is_some());
    assert_eq!(script.stack.connections_at(local()), 1);
}

#[test]
fn connect_names_what_is_wrong() {
    let mut script = Script::new(Config {
        connections: 1,
        ..plain()
    });
    script.connect();
    let (now, tuple) = (script.now, script.tuple);
    assert_eq!(
        script.stack.connect(now, tuple, OPTIONS),
        Err(ConnectError::InUse { tuple })
    );
    let other = FourTuple::new(
        local(),
        userspace_net::Endpoint {
            port: 1,
            ..remote()
        },
    );
    let full = script.stack.connect(now, other, OPTIONS);
    assert_eq!(full, Err(ConnectError::TooMany { limit: 1 }));
    let zero = FourTuple::new(
        local(),
        userspace_net::Endpoint {
            port: 0,
            ..remote()
        },
    );
    let unusable = script.stack.connect(now, zero, OPTIONS);
    assert_eq!(unusable, Err(ConnectError::DropReason { tuple: zero }));
}

#[test]
fn broadcast_and_multicast_are_not_answered() {
    let mut script = Script::new(plain());
    for addr in ["255.255.255.255", "224.0.0.1", "0.0.0.0", "ff02::1"] {
        let bad = userspace_net::Endpoint {
            addr: addr.parse().unwrap(),
            ..remote()
        };
        let header = TcpHeader {
            flags: Flags::SYN,
            ..TcpHeader::default()
        };
        let segment = Segment::new(header, &[]);
        script
            .stack
            .receive(script.now, FourTuple::new(local(), bad), &segment, OPTIONS);
        script
            .stack
            .receive(script.now, FourTuple::new(bad, remote()), &segment, OPTIONS);
    }
    assert!(script.stack.poll_transmit(script.now).is_none());
}
