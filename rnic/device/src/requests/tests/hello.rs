//! The first words, and what the device tells of itself.

use rnic_ipc::control::{ADDRESSES_MAX, ClientLimits, DeviceInfo};
use rnic_ipc::transport::Channel;

use super::*;

#[test]
fn nothing_is_granted_before_hello() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.stranger();
    assert_eq!(
        refused(ask(&session, Request::AllocPd)),
        RefusalCode::WrongState
    );
    assert_eq!(
        refused(ask(&session, Request::QueryDevice)),
        RefusalCode::WrongState
    );
}

#[test]
fn what_the_host_has_too_much_of_still_fits_a_control_message() {
    let (ours, theirs) = Channel::pair().unwrap();
    let info = DeviceInfo {
        interface: "i".repeat(15),
        xdp_mode: "generic".to_owned(),
        addresses: vec![std::net::Ipv6Addr::from(u128::MAX).into(); ADDRESSES_MAX],
        mtu: u32::MAX,
        queues: u32::MAX,
        max_sge: u32::MAX,
        max_inline: u32::MAX,
        max_queue_depth: u32::MAX,
        mac: [u8::MAX; 6],
        link_up: true,
        link_mbits: u32::MAX,
        limits: ClientLimits {
            protection_domains: u32::MAX,
            regions: u32::MAX,
            registered_bytes: u64::MAX,
            completion_queues: u32::MAX,
            cq_depth: u32::MAX,
            shared_receive_queues: u32::MAX,
            queue_pairs: u32::MAX,
            backlog: u32::MAX,
        },
    };
    let message = "an address, ".repeat(1000) + "\u{e9}";
    let refusal = crate::refuse::refusal(RefusalCode::AddressNotLocal, &message);
    let replies: [Reply; 2] = [
        Ok(Response::Device(info)),
        Err(crate::refuse::bounded(refusal)),
    ];
    for reply in replies {
        ours.send(&reply, &[]).unwrap();
        assert_eq!(theirs.recv::<Reply>().unwrap().unwrap().0, reply);
    }
}

#[test]
fn another_version_is_refused() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.stranger();
    let reply = ask(
        &session,
        Request::Hello {
            version: PROTOCOL_VERSION + 1,
        },
    );
    assert_eq!(refused(reply), RefusalCode::Version);
}

#[test]
fn hello_gives_three_descriptors_and_is_said_once() {
    for bench in both() {
        let session = bench.stranger();
        let (reply, fds) = session.request(HELLO, Vec::new());
        match reply.unwrap() {
            Response::Welcome {
                client,
                doorbells,
                shards: 1,
            } => {
                assert_eq!(client, session.client());
                assert!(doorbells >= Limits::default().per_client.queue_pairs);
                assert!(doorbells.is_power_of_two());
            }
            response => panic!("{response:?}"),
        }
        assert_eq!(fds.len(), 3);
        assert_eq!(refused(ask(&session, HELLO)), RefusalCode::WrongState);
    }
}

#[test]
fn clients_beyond_the_limit_are_turned_away_until_one_goes() {
    let bench = Bench::with_limits(
        Runtime::Caller,
        Limits {
            clients: 1,
            ..Limits::default()
        },
    );
    let first = bench.client();
    let refusal = bench.device.connect_client(CREDENTIALS).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Limit);
    drop(first);
    bench.client();
}

#[test]
fn the_device_describes_itself() {
    for bench in both() {
        let session = bench.client();
        let Ok(Response::Device(info)) = ask(&session, Request::QueryDevice) else {
            panic!("no description");
        };
        assert_eq!(info.interface, "lo");
        assert_eq!(info.mtu, 1500);
        assert!(info.addresses.contains(&"127.0.0.1".parse().unwrap()));
    }
}

#[test]
fn counters_come_in_pages_until_an_empty_one() {
    for bench in both() {
        let session = bench.client();
        let mut found: Vec<(String, u64)> = Vec::new();
        loop {
            let first = found.len() as u32;
            match ask(&session, Request::QueryCounters { first }) {
                Ok(Response::Counters(page)) if page.is_empty() => break,
                Ok(Response::Counters(page)) => found.extend(page),
                reply => panic!("{reply:?}"),
            }
        }
        assert!(
            found.contains(&("device_clients".to_owned(), 1)),
            "{found:?}"
        );
        let mut names: Vec<_> = found.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), found.len(), "a name twice in {found:?}");
    }
}

#[test]
fn descriptors_that_do_not_belong_are_refused() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    let (reply, _) = session.request(Request::AllocPd, vec![memfd(4096)]);
    assert_eq!(refused(reply), RefusalCode::Malformed);
    let pd = pd(&session);
    assert_eq!(
        refused(ask(&session, register(pd, 4096))),
        RefusalCode::Malformed
    );
}
