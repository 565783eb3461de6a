//! Looks and orders: what a client sees of itself and of others, and what it may do about it.

use rnic_ipc::id::ClientId;
use rnic_ipc::inspect::{Kind, LogLevel, Object, Order};

use super::*;

const OTHER: Credentials = Credentials {
    uid: 1001,
    gid: 1001,
    pid: 78,
    superuser: false,
};

fn connect(bench: &Bench, credentials: Credentials) -> ClientSession {
    let session = bench.device.connect_client(credentials).unwrap();
    ask(&session, HELLO).unwrap();
    session
}

fn root() -> Credentials {
    Credentials {
        uid: 0,
        superuser: true,
        ..CREDENTIALS
    }
}

#[track_caller]
fn look(session: &ClientSession, what: Kind) -> Vec<Object> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        match ask(session, Request::Inspect { what, after }) {
            Ok(Response::Inspected(page)) => {
                all.extend(page.objects);
                match page.next {
                    Some(next) => after = next,
                    None => return all,
                }
            }
            reply => panic!("{reply:?}"),
        }
    }
}

const ALL: [Kind; 6] = [
    Kind::Clients,
    Kind::Connections,
    Kind::QueuePairs,
    Kind::CompletionQueues,
    Kind::Regions,
    Kind::Listeners,
];

#[test]
fn a_client_sees_what_it_made_with_what_the_shard_knows_of_it() {
    for bench in both() {
        let session = bench.client();
        let pd = pd(&session);
        let cq = cq(&session);
        let qp = qp(&session, pd, cq);
        let stag = region(&session, pd);
        let kind = StagKind::WindowType1;
        let window = match ask(&session, Request::AllocStag { pd, kind }) {
            Ok(Response::Region { stag }) => stag,
            reply => panic!("{reply:?}"),
        };
        let local = listen(&session, LOCALHOST).unwrap();

        let [Object::QueuePair(found)] = &look(&session, Kind::QueuePairs)[..] else {
            panic!("one queue pair");
        };
        assert_eq!((found.qp, found.pd, found.send_cq), (qp, pd, cq));
        assert_eq!(found.client, session.client());
        let [Object::Region(first), Object::Region(second)] = &look(&session, Kind::Regions)[..]
        else {
            panic!("two regions");
        };
        assert_eq!((first.index, first.bytes), (stag >> 8, 8192));
        assert!(first.valid && !first.window && first.access.contains(Access::REMOTE_WRITE));
        assert_eq!((second.index, second.bytes), (window >> 8, 0));
        assert!(second.window && !second.valid);
        let [Object::Listener(listener)] = &look(&session, Kind::Listeners)[..] else {
            panic!("one listener");
        };
        assert_eq!(listener.local, local);
        let [Object::CompletionQueue(found)] = &look(&session, Kind::CompletionQueues)[..] else {
            panic!("one completion queue");
        };
        assert_eq!((found.cq, found.depth, found.users), (cq, 16, 2));
        let [Object::Client(client)] = &look(&session, Kind::Clients)[..] else {
            panic!("one client");
        };
        assert_eq!((client.uid, client.pid), (CREDENTIALS.uid, CREDENTIALS.pid));
        let held = |name: &str| client.holds.iter().find(|one| one.name == name).unwrap();
        assert_eq!(held("regions").held, 2);
        assert_eq!(held("registered_bytes").held, 8192);
    }
}

/// RFC 5042 section 6.1.
#[test]
fn another_user_sees_nothing_of_it_and_an_administrator_all() {
    for bench in both() {
        let session = bench.client();
        let pd = pd(&session);
        let cq = cq(&session);
        qp(&session, pd, cq);
        region(&session, pd);
        listen(&session, LOCALHOST).unwrap();
        let other = connect(&bench, OTHER);
        for kind in ALL {
            let found = look(&other, kind);
            assert!(
                found.len() == usize::from(kind == Kind::Clients),
                "{found:?}"
            );
        }
        let root = connect(&bench, root());
        assert_eq!(look(&root, Kind::Clients).len(), 3);
        assert_eq!(look(&root, Kind::QueuePairs).len(), 1);
        assert_eq!(look(&root, Kind::Regions).len(), 1);
    }
}

#[test]
fn a_client_is_dropped_by_who_may_see_it_and_by_nobody_else() {
    for bench in both() {
        let session = bench.client();
        let other = connect(&bench, OTHER);
        let drop = |client| Request::Order(Order::DropClient { client });
        let missing = ask(&other, drop(ClientId(99))).unwrap_err();
        let theirs = ask(&other, drop(session.client())).unwrap_err();
        assert_eq!(missing.code, RefusalCode::UnknownObject);
        let at = |id: ClientId| theirs.message.replace(&id.to_string(), "N");
        assert_eq!(at(session.client()), missing.message.replace("99", "N"));
        assert_eq!(
            refused(ask(&session, drop(session.client()))),
            RefusalCode::WrongState
        );
        let root = connect(&bench, root());
        ask(&root, drop(session.client())).unwrap();
        bench.until("the client's end", || look(&root, Kind::Clients).len() == 2);
        assert_eq!(
            refused(ask(&session, Request::AllocPd)),
            RefusalCode::ShuttingDown
        );
    }
}

#[test]
fn the_log_s_level_and_connections_that_are_not_there_are_refused() {
    for bench in both() {
        let other = connect(&bench, OTHER);
        let level = Request::Order(Order::SetLogLevel(LogLevel::Warn));
        assert_eq!(refused(ask(&other, level)), RefusalCode::NotPermitted);
        let ends = (
            "127.0.0.1:1".parse().unwrap(),
            "127.0.0.1:2".parse().unwrap(),
        );
        for connection in [0, 1, u32::MAX] {
            let drop = Request::Order(Order::DropConnection { connection, ends });
            let root = connect(&bench, root());
            for session in [&other, &root] {
                let refusal = refused(ask(session, drop.clone()));
                assert_eq!(refusal, RefusalCode::UnknownObject);
            }
        }
    }
}

#[test]
fn a_cursor_from_anywhere_ends() {
    for bench in both() {
        let session = connect(&bench, root());
        for what in ALL.into_iter().chain([Kind::Limits]) {
            for after in [7, 1 << 20, u32::MAX] {
                match ask(&session, Request::Inspect { what, after }) {
                    Ok(Response::Inspected(page)) => assert_eq!(page.next, None),
                    reply => panic!("{reply:?}"),
                }
            }
        }
        let Object::Limit(last) = look(&session, Kind::Limits).pop().unwrap() else {
            panic!("limits");
        };
        assert_eq!(last.name, "backlog");
    }
}
