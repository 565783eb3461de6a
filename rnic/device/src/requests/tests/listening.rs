//! Addresses and ports.

use std::net::TcpListener;

use rnic_ipc::control::{ConnectSpec, Event, ListenSpec, MpaOptions};

use super::*;

#[test]
fn port_0_gets_a_port_that_no_host_program_can_have() {
    for bench in both() {
        let session = bench.client();
        let local = listen(&session, LOCALHOST).unwrap();
        assert_ne!(local.port(), 0);
        assert!(TcpListener::bind(local).is_err());
        assert_eq!(bench.level("device_ports"), 1);
    }
}

#[test]
fn a_host_programs_port_is_in_use() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    let host = TcpListener::bind(LOCALHOST).unwrap();
    let taken = host.local_addr().unwrap().to_string();
    assert_eq!(listen(&session, &taken), Err(RefusalCode::PortInUse));
}

#[test]
fn another_clients_port_is_in_use() {
    for bench in both() {
        let (us, them) = (bench.client(), bench.client());
        let local = listen(&them, LOCALHOST).unwrap();
        assert_eq!(listen(&us, &local.to_string()), Err(RefusalCode::PortInUse));
    }
}

#[test]
fn addresses_of_others_and_wildcards_are_not_local() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    for local in [
        "198.18.7.7:7471",
        "0.0.0.0:7471",
        "[::]:7471",
        "[2001:db8::7]:7471",
    ] {
        assert_eq!(
            listen(&session, local),
            Err(RefusalCode::AddressNotLocal),
            "{local}"
        );
    }
}

#[test]
fn a_closed_listeners_port_is_free_again() {
    for bench in both() {
        let session = bench.client();
        let reply = ask(
            &session,
            Request::Listen(ListenSpec {
                local: LOCALHOST.parse().unwrap(),
                backlog: 4,
                transport: rnic_ipc::control::Transport::Tcp,
            }),
        );
        let Ok(Response::Listening { listener, local }) = reply else {
            panic!("{reply:?}")
        };
        ask(&session, Request::Unlisten { listener }).unwrap();
        bench.until("the port is free", || TcpListener::bind(local).is_ok());
        let again = ask(&session, Request::Unlisten { listener });
        assert_eq!(refused(again), RefusalCode::UnknownObject);
        listen(&session, &local.to_string()).unwrap();
    }
}

pub(super) fn connect(
    session: &ClientSession,
    qp: QpNum,
    remote: &str,
    local: Option<&str>,
) -> Reply {
    connect_from(session, qp, remote, (local, 0))
}

fn connect_from(
    session: &ClientSession,
    qp: QpNum,
    remote: &str,
    (local, local_port): (Option<&str>, u16),
) -> Reply {
    ask(
        session,
        Request::Connect {
            qp,
            spec: ConnectSpec {
                remote: remote.parse().unwrap(),
                local: local.map(|local| local.parse().unwrap()),
                local_port,
                transport: rnic_ipc::control::Transport::Tcp,
                mpa: MpaOptions::default(),
                private_data: Vec::new(),
            },
        },
    )
}

#[test]
fn a_connection_nowhere_is_refused_with_its_reason() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    let pd = pd(&session);
    let cq = cq(&session);
    let qp = qp(&session, pd, cq);
    for (remote, local, code) in [
        ("127.0.0.1:0", None, RefusalCode::Malformed),
        ("224.0.0.1:7471", None, RefusalCode::Malformed),
        ("0.0.0.0:7471", None, RefusalCode::Malformed),
        ("198.18.7.7:7471", None, RefusalCode::Unreachable),
        (
            "127.0.0.1:7471",
            Some("198.18.7.7"),
            RefusalCode::AddressNotLocal,
        ),
    ] {
        assert_eq!(
            refused(connect(&session, qp, remote, local)),
            code,
            "{remote} {local:?}"
        );
    }
    let unknown = connect(&session, QpNum(99), "127.0.0.1:7471", None);
    assert_eq!(refused(unknown), RefusalCode::UnknownObject);
    assert_eq!(bench.level("device_ports"), 0);
}

#[test]
fn a_connection_comes_from_the_port_that_the_client_names_if_nothing_has_it() {
    for bench in both() {
        let from = |port| {
            let session = bench.client();
            let qp = qp(&session, pd(&session), cq(&session));
            connect_from(&session, qp, "127.0.0.1:7471", (None, port))
        };
        let Ok(Response::Connecting { local }) = from(0) else {
            panic!("no connection from any port");
        };
        assert_ne!(local.port(), 0);
        let host = TcpListener::bind(LOCALHOST).unwrap();
        let named = host.local_addr().unwrap();
        assert_eq!(refused(from(named.port())), RefusalCode::PortInUse);
        drop(host);
        let connecting = Response::Connecting { local: named };
        assert_eq!(from(named.port()), Ok(connecting));
    }
}

#[test]
fn private_data_and_revision_are_checked_before_anything_is_done() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    let pd = pd(&session);
    let cq = cq(&session);
    let qp = qp(&session, pd, cq);
    let connect = |revision, bytes| {
        let mpa = MpaOptions {
            revision,
            ..MpaOptions::default()
        };
        let remote = "198.18.7.7:7471".parse().unwrap();
        let private_data = vec![0; bytes];
        refused(ask(
            &session,
            Request::Connect {
                qp,
                spec: ConnectSpec {
                    remote,
                    local: None,
                    local_port: 0,
                    transport: rnic_ipc::control::Transport::Tcp,
                    mpa,
                    private_data,
                },
            },
        ))
    };
    assert_eq!(connect(1, 513), RefusalCode::Malformed);
    assert_eq!(connect(1, 512), RefusalCode::Unreachable);
    assert_eq!(connect(2, 509), RefusalCode::Malformed);
    assert_eq!(connect(2, 508), RefusalCode::Unreachable);
    assert_eq!(connect(0, 0), RefusalCode::Malformed);
    assert_eq!(connect(3, 0), RefusalCode::Malformed);
}

#[test]
fn a_listener_is_told_of_a_request_and_that_it_is_gone() {
    for bench in both() {
        let (listening, (events, _fds)) = bench.client_with_events();
        let (peer, _its_events) = bench.client_with_events();
        let remote = listen(&listening, LOCALHOST).unwrap();
        let qp = qp(&peer, pd(&peer), cq(&peer));
        connect(&peer, qp, &remote.to_string(), None).unwrap();
        let event = || {
            let mut found = None;
            bench.until("an event", || {
                found = events.try_recv::<Event>().ok().flatten();
                found.is_some()
            });
            found.unwrap().0
        };
        let Event::ConnectRequest { request, .. } = event() else {
            panic!("no request")
        };
        ask(&peer, Request::Disconnect { qp, abort: true }).unwrap();
        match event() {
            Event::RequestGone { request: gone, .. } => assert_eq!(gone, request),
            event => panic!("{event:?}"),
        }
    }
}
