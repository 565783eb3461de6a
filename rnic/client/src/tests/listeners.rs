//! Listeners on one address and on all of them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rnic_ipc::control::{Event, ListenSpec, MpaOptions, RefusalCode, Request};
use rnic_ipc::id::{ConnRequestId, ListenerId};

use super::fake::{CHOSEN_PORT, Fake, addresses, refusal};
use crate::{Context, Error, ListenOptions, Listener, block_on};

const SOON: Duration = Duration::from_secs(5);

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The listeners that the RNIC was asked for: number and address.
fn listens(fake: &Fake) -> Vec<(ListenerId, SocketAddr)> {
    let asked = fake.asked().into_iter().zip(1..);
    let listens = asked.filter_map(|(request, number)| match request {
        Request::Listen(ListenSpec { local, .. }) => Some((ListenerId(number), local)),
        _ => None,
    });
    listens.collect()
}

fn asks(fake: &Fake, listener: ListenerId, number: u32) {
    fake.tell(&Event::ConnectRequest {
        listener,
        request: ConnRequestId(number),
        local: at("198.18.0.1:1"),
        remote: at("198.18.0.9:9"),
        mpa: MpaOptions::default(),
        private_data: vec![number as u8],
    });
}

fn on_all(context: &Context, wildcard: &str) -> (Listener, Vec<IpAddr>) {
    let listener = context
        .listen(at(wildcard), ListenOptions::default().backlog(4))
        .unwrap();
    let found = listener.addresses().map(|address| address.ip()).collect();
    (listener, found)
}

#[test]
fn a_wildcard_is_all_addresses_of_its_family_and_that_of_ipv6_all_there_are() {
    let (_fake, context) = Fake::start();
    let all = addresses();
    let v4: Vec<_> = all.iter().copied().filter(IpAddr::is_ipv4).collect();
    assert_eq!(on_all(&context, "0.0.0.0:7471").1, v4);
    let (listener, found) = on_all(&context, "[::]:7471");
    assert_eq!(found, all);
    assert_eq!(listener.local_addr(), at("[::]:7471"));
}

#[test]
fn the_port_that_is_chosen_for_the_first_address_is_that_of_all() {
    let (fake, context) = Fake::start();
    let (listener, _) = on_all(&context, "[::]:0");
    let ports: Vec<_> = listener.addresses().map(|address| address.port()).collect();
    assert_eq!(ports, [CHOSEN_PORT; 3]);
    assert_eq!(listener.local_addr().port(), CHOSEN_PORT);
    let asked: Vec<_> = listens(&fake).iter().map(|(_, at)| at.port()).collect();
    assert_eq!(asked, [0, CHOSEN_PORT, CHOSEN_PORT]);
}

#[test]
fn another_port_is_chosen_when_one_address_has_it_taken() {
    let (fake, context) = Fake::start();
    fake.refuse(|request| {
        let taken = at(&format!("[2001:db8::1]:{CHOSEN_PORT}"));
        let asked = matches!(request, Request::Listen(ListenSpec { local, .. }) if *local == taken);
        asked.then(|| refusal(RefusalCode::PortInUse))
    });
    // The fake always chooses the same one: it ends with the refusal.
    let error = context
        .listen(at("[::]:0"), ListenOptions::default().backlog(4))
        .unwrap_err();
    assert!(matches!(&error, Error::Refused(found) if found.code == RefusalCode::PortInUse));
    assert_eq!(listens(&fake).len(), 8 * 3);
    let given_back = fake.asked();
    let given_back = given_back
        .iter()
        .filter(|request| matches!(request, Request::Unlisten { .. }));
    assert_eq!(given_back.count(), 8 * 2);
}

#[test]
fn a_port_that_was_named_and_is_in_use_on_one_address_is_refused_and_nothing_stays() {
    let (fake, context) = Fake::start();
    fake.refuse(|request| {
        let asked = matches!(request, Request::Listen(ListenSpec { local, .. }) if local.is_ipv6());
        asked.then(|| refusal(RefusalCode::PortInUse))
    });
    let error = context
        .listen(at("[::]:7471"), ListenOptions::default().backlog(4))
        .unwrap_err();
    assert!(matches!(&error, Error::Refused(found) if found.code == RefusalCode::PortInUse));
    let asked = fake.asked();
    let unlistens = asked
        .iter()
        .filter(|request| matches!(request, Request::Unlisten { .. }));
    assert_eq!(unlistens.count(), 2);
}

#[test]
fn an_address_that_can_not_be_used_yet_is_left_out_unless_it_is_the_only_one() {
    let (fake, context) = Fake::start();
    fake.refuse(|request| {
        let asked = matches!(request, Request::Listen(ListenSpec { local, .. }) if local.is_ipv6());
        asked.then(|| refusal(RefusalCode::AddressNotLocal))
    });
    assert_eq!(on_all(&context, "[::]:7471").1.len(), 2);
    fake.refuse(|request| {
        matches!(request, Request::Listen(_)).then(|| refusal(RefusalCode::AddressNotLocal))
    });
    let error = context
        .listen(at("[::]:7471"), ListenOptions::default().backlog(4))
        .unwrap_err();
    assert!(error.to_string().contains("fake0"), "{error}");
}

#[test]
fn requests_on_all_addresses_are_taken_in_the_order_in_which_they_came() {
    let (fake, context) = Fake::start();
    let (listener, _) = on_all(&context, "[::]:7471");
    let ids: Vec<_> = listens(&fake).iter().map(|(id, _)| *id).collect();
    for (number, place) in [(1, 2), (2, 0), (3, 0), (4, 1)] {
        asks(&fake, ids[place], number);
    }
    let mut taken = Vec::new();
    for _ in 0..2 {
        let request = listener.accept().wait(SOON).unwrap();
        taken.push(request.private_data()[0]);
    }
    for _ in 0..2 {
        let request = block_on(listener.accept()).unwrap();
        taken.push(request.private_data()[0]);
    }
    assert_eq!(taken, [1, 2, 3, 4]);
    let none = listener.accept().wait(Duration::ZERO);
    assert!(matches!(none, Err(Error::Timeout { .. })), "{none:?}");
    drop(listener);
    let asked = fake.asked();
    let unlistens = asked.iter().filter_map(|request| match request {
        Request::Unlisten { listener } => Some(*listener),
        _ => None,
    });
    assert_eq!(unlistens.collect::<Vec<_>>(), ids);
}

#[test]
fn a_listener_that_goes_rejects_who_nobody_has_taken_and_no_other() {
    let (fake, context) = Fake::start();
    let (listener, _) = on_all(&context, "0.0.0.0:7471");
    let (id, _) = listens(&fake)[0];
    asks(&fake, id, 1);
    asks(&fake, id, 2);
    let kept = listener.accept().wait(SOON).unwrap();
    drop(listener);
    // It was on its way.
    asks(&fake, id, 3);
    let (other, _) = on_all(&context, "0.0.0.0:7471");
    let none = other.accept().wait(Duration::from_millis(100));
    assert!(matches!(none, Err(Error::Timeout { .. })), "{none:?}");
    let asked = fake.asked();
    let rejected = asked.iter().filter_map(|request| match request {
        Request::Reject { request, .. } => Some(request.0),
        _ => None,
    });
    assert_eq!(rejected.collect::<Vec<_>>(), [2, 3]);
    drop(kept);
}

#[test]
fn of_several_addresses_the_first_that_is_not_refused_is_taken() {
    let (fake, context) = Fake::start();
    let absent = IpAddr::from([198, 18, 0, 99]);
    fake.refuse(move |request| {
        let of = match request {
            Request::Listen(ListenSpec { local, .. }) => local,
            _ => return None,
        };
        (of.ip() == absent).then(|| refusal(RefusalCode::AddressNotLocal))
    });
    let all = [at("198.18.0.99:1"), at("198.18.0.1:2"), at("198.18.7.1:3")];
    let listener = context
        .listen(&all[..], ListenOptions::default().backlog(1))
        .unwrap();
    assert_eq!(listener.local_addr(), all[1]);

    let refused = context.listen(&all[..1], ListenOptions::default().backlog(1));
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    let none = context
        .listen(&all[..0], ListenOptions::default().backlog(1))
        .unwrap_err();
    assert!(matches!(none, Error::Address(_)), "{none}");
}

#[test]
fn names_and_text_are_taken_for_addresses() {
    let (_fake, context) = Fake::start();
    let listener = context
        .listen("localhost:1", ListenOptions::default().backlog(1))
        .unwrap();
    assert!(listener.local_addr().ip().is_loopback());
    let pair = context.listen(("198.18.0.1", 9000), ListenOptions::default());
    assert_eq!(pair.unwrap().local_addr(), at("198.18.0.1:9000"));
    let portless = context.listen("198.18.0.1", ListenOptions::default());
    let text = portless.unwrap_err().to_string();
    assert!(text.starts_with("the address can't be used: "), "{text}");
}
