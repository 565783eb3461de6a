//! Two users' clients on one device: what one has done keeps nothing from the other.

use rnic_prm::{Quota, Resource, UserLimits, Users};

use rnic_ipc::control::ConnectSpec;

use super::*;

const THEM: Credentials = Credentials {
    uid: 1001,
    gid: 1001,
    pid: 78,
    superuser: false,
};

/// A device on which nobody but uid 1001 is bounded this way.
fn bench(limits: UserLimits) -> Bench {
    let limits = Limits {
        users: Users {
            others: limits,
            by_uid: [(THEM.uid, UserLimits::default())].into(),
            ..Users::default()
        },
        ..Limits::default()
    };
    Bench::with_limits(Runtime::Caller, limits)
}

#[test]
fn a_user_with_all_its_clients_leaves_the_others_places() {
    let bench = bench(UserLimits {
        clients: 3,
        ..UserLimits::default()
    });
    let ours: Vec<_> = (0..3).map(|_| bench.client()).collect();
    let refusal = bench.device.connect_client(CREDENTIALS).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Limit);
    assert!(refusal.message.contains("user 1000's limit clients is 3"));
    assert_eq!(bench.level("refused_user_clients"), 1);
    let them = bench.client_of(THEM);
    pd(&them);
    drop(ours);
    bench.client();
}

#[test]
fn what_a_user_holds_with_many_clients_is_bounded_and_the_others_have_theirs() {
    let mut quota = Quota::PER_USER;
    quota.set(Resource::Regions, 2);
    let bench = bench(UserLimits {
        quota,
        ..UserLimits::default()
    });
    let (one, two) = (bench.client(), bench.client());
    let first = region(&one, pd(&one));
    region(&two, pd(&two));
    for session in [&one, &two] {
        let reply = session
            .request(register(pd(session), 8192), vec![memfd(8192)])
            .0;
        let refusal = reply.unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Limit);
        assert!(refusal.message.contains("user 1000's limit regions is 2"));
    }
    assert_eq!(bench.level("refused_user_regions"), 2);
    let them = bench.client_of(THEM);
    for _ in 0..3 {
        region(&them, pd(&them));
    }
    ask(&one, Request::DeregisterMemory { stag: first }).unwrap();
    region(&two, pd(&two));
}

#[test]
fn ports_and_connections_are_bounded_by_user() {
    let bench = bench(UserLimits {
        listen_ports: rnic_prm::PortRanges::new([7..=7]),
        connects_per_second: 0,
        ..UserLimits::default()
    });
    let (us, them) = (bench.client(), bench.client_of(THEM));
    // Port 0 is the kernel's choice, and that is not 7.
    for local in [LOCALHOST, "127.0.0.1:20000"] {
        assert_eq!(
            listen(&us, local),
            Err(RefusalCode::NotPermitted),
            "{local}"
        );
    }
    assert_eq!(bench.level("device_ports"), 0, "a refused port stays taken");
    listen(&them, LOCALHOST).unwrap();
    assert_eq!(listen(&them, "127.0.0.1:7"), Err(RefusalCode::NotPermitted));

    let connect = |session: &ClientSession| {
        let qp = qp(session, pd(session), cq(session));
        let request = Request::Connect {
            qp,
            spec: ConnectSpec {
                remote: "198.18.7.2:7471".parse().unwrap(),
                local: None,
                local_port: 0,
                transport: rnic_ipc::control::Transport::Tcp,
                mpa: rnic_ipc::control::MpaOptions::default(),
                private_data: Vec::new(),
            },
        };
        refused(ask(session, request))
    };
    assert_eq!(connect(&us), RefusalCode::Limit);
    assert_ne!(connect(&them), RefusalCode::Limit);
    assert_eq!(bench.level("refused_user_connects_per_second"), 1);
    assert_eq!(bench.level("refused_user_listen_ports"), 3);
}
