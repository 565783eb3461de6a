//! Two devices over AF_XDP: from the first request to the last release.

// Clippy knows tests by their attribute, and not the helpers beside them.
#![allow(clippy::unwrap_used)]

mod support;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rnic_device::{DeviceConfig, Devices, Runtime};
use rnic_ipc::control::{DisconnectReason, Event, RefusalCode, Request};
use rnic_ipc::work::{WcStatus, WrOpcode};
use support::{Client, Host, REGION, counter, drive, hosts, until};

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u64).wrapping_mul(0x9e37_79b9) as u8 ^ 0x5a)
        .collect()
}

fn transfer(hosts: &[Host; 2], address: fn(&Host) -> IpAddr, runtime: Runtime) {
    let [near, far] = hosts;
    let near_device = near.device(|config| config.runtime = runtime);
    let far_device = far.device(|_| ());
    if runtime == Runtime::Caller {
        drive(&near_device);
    }
    let (mut us, mut them) = (
        Client::new(near, &near_device),
        Client::new(far, &far_device),
    );
    let local = them.listen(address(far));
    let receive = them.sge(REGION as u64 / 2, 64);
    them.post(WrOpcode::Recv, 1, receive, (0, 0));
    us.connect(local).unwrap();
    them.accept();
    them.established();
    us.established();

    let half = REGION / 2;
    let data = pattern(half);
    us.memory.write(0, &data).unwrap();
    let (whole, word) = (us.sge(0, half as u32), us.sge(0, 16));
    us.post(WrOpcode::Write, 2, whole, (them.stag, 0));
    us.post(WrOpcode::Send, 3, word, (0, 0));
    let received = them.completion();
    assert_eq!((received.wr_id, received.byte_len), (1, 16));
    assert_eq!(received.status, WcStatus::Success as u8);
    assert!(them.bytes(0, half) == data, "what was written differs");
    assert_eq!(them.bytes(half, 16), data[..16]);
    for wr_id in [2, 3] {
        let done = us.completion();
        assert_eq!((done.wr_id, done.status), (wr_id, WcStatus::Success as u8));
    }

    let other_half = us.sge(half as u64, half as u32);
    us.post(WrOpcode::Read, 4, other_half, (them.stag, 0));
    let read = us.completion();
    assert_eq!((read.wr_id, read.status), (4, WcStatus::Success as u8));
    assert!(us.bytes(half, half) == data, "what was read differs");

    us.ask(Request::Disconnect {
        qp: us.qp,
        abort: false,
    })
    .unwrap();
    for side in [&us, &them] {
        match side.event() {
            Event::Disconnected {
                reason: DisconnectReason::Graceful,
                ..
            } => {}
            event => panic!("{event:?}"),
        }
    }
    assert!(counter(&near_device, "steering_redirected") > 0);
    drop(them);
    drop(us);
    assert_eq!(counter(&far_device, "queue_pairs"), 0);
    far_device.shutdown();
    near_device.shutdown();
}

#[test]
fn write_send_and_read_over_ipv4() {
    let hosts = hosts("dev4");
    transfer(&hosts, Host::v4, Runtime::Thread);
}

#[test]
fn write_send_and_read_over_ipv6() {
    let hosts = hosts("dev6");
    transfer(&hosts, Host::v6, Runtime::Thread);
}

#[test]
fn write_send_and_read_driven_inline() {
    let hosts = hosts("devin");
    transfer(&hosts, Host::v4, Runtime::Caller);
}

#[test]
fn a_session_that_is_dropped_resets_its_connection() {
    let hosts = hosts("devdrop");
    let [near, far] = &hosts;
    let (near_device, far_device) = (near.device(|_| ()), far.device(|_| ()));
    let (us, them) = (
        Client::new(near, &near_device),
        Client::new(far, &far_device),
    );
    let local = them.listen(far.v4());
    us.connect(local).unwrap();
    them.accept();
    us.established();
    drop(them);
    match us.event() {
        Event::Disconnected {
            reason: DisconnectReason::Reset,
            ..
        } => {}
        event => panic!("{event:?}"),
    }
    far.enter();
    until("the port is free", || {
        std::net::TcpListener::bind(local).is_ok()
    });
}

#[test]
fn a_shutdown_tells_the_client_and_resets_the_peer() {
    let hosts = hosts("devdown");
    let [near, far] = &hosts;
    let (near_device, far_device) = (near.device(|_| ()), far.device(|_| ()));
    let (us, them) = (
        Client::new(near, &near_device),
        Client::new(far, &far_device),
    );
    us.connect(them.listen(far.v4())).unwrap();
    them.accept();
    them.established();
    us.established();
    far_device.shutdown();
    for (side, expected) in [
        (&them, DisconnectReason::ShuttingDown),
        (&us, DisconnectReason::Reset),
    ] {
        match side.event() {
            Event::Disconnected { reason, .. } => assert_eq!(reason, expected),
            event => panic!("{event:?}"),
        }
    }
}

#[test]
fn what_the_host_has_in_use_on_an_interface_is_named() {
    let hosts = hosts("devpol");
    hosts[0].enter();
    std::fs::write("/proc/sys/net/ipv4/conf/veth0/rp_filter", "1").unwrap();
    let configs = [DeviceConfig::loopback(), DeviceConfig::new("veth0")];
    let lines = Devices::host_policy(&configs);
    let told = "interface veth0: rp_filter is 1";
    assert!(lines.iter().any(|line| line.starts_with(told)), "{lines:?}");
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let hosts = hosts("devref");
    let [near, far] = &hosts;
    let device = near.device(|_| ());
    let us = Client::new(near, &device);
    us.connect(SocketAddr::new(far.v4(), 9)).unwrap();
    match us.event() {
        Event::ConnectFailed {
            reason: DisconnectReason::Refused,
            ..
        } => {}
        event => panic!("{event:?}"),
    }
    until("the port is given back", || {
        counter(&device, "device_ports") == 0
    });
}

#[test]
fn a_client_that_waits_for_a_neighbour_keeps_nobody_waiting() {
    let hosts = hosts("devwait");
    let near = &hosts[0];
    let patience = Duration::from_secs(5);
    let device = near.device(|config| config.resolve_timeout = patience);
    // The kernel asks for longer than we wait; by itself it would give up after three seconds.
    std::fs::write("/proc/sys/net/ipv4/neigh/veth0/mcast_solicit", "10").unwrap();
    let us = Client::new(near, &device);
    let them = Client::new(near, &device);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let begin = Instant::now();
            let silent = "198.18.0.77:7471".parse().unwrap();
            let refusal = us.connect(silent).unwrap_err();
            assert_eq!(refusal.code, RefusalCode::Unreachable);
            assert!(refusal.message.contains("198.18.0.77"), "{refusal}");
            begin.elapsed()
        });
        std::thread::sleep(Duration::from_millis(300));
        them.ask(Request::AllocPd).unwrap();
        them.listen(near.v4());
        assert!(!waiting.is_finished(), "the later request waited too");
        assert!(waiting.join().unwrap() >= patience);
    });
}
