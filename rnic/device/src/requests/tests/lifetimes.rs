//! What becomes of a client's objects when the client, or the device, ends.

use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use rnic_host::heap;
use rustix::io::Errno;

use super::*;

fn furnish(session: &ClientSession) -> SocketAddr {
    let pd = pd(session);
    region(session, pd);
    let cq = cq(session);
    qp(session, pd, cq);
    let create = Request::CreateSrq {
        pd,
        depth: 4,
        max_sge: 1,
    };
    ask(session, create).unwrap();
    listen(session, LOCALHOST).unwrap()
}

#[test]
fn everything_goes_with_the_session() {
    for bench in both() {
        let watcher = bench.client();
        let session = bench.client();
        let local = furnish(&session);
        assert_eq!(bench.level("queue_pairs"), 1);
        assert_eq!(bench.level("regions"), 1);
        drop(session);
        bench.until("the port is free", || TcpListener::bind(local).is_ok());
        assert_eq!(bench.level("queue_pairs"), 0);
        assert_eq!(bench.level("regions"), 0);
        assert_eq!(bench.level("device_clients"), 1);
        assert_eq!(bench.level("device_ports"), 0);
        ask(&watcher, Request::AllocPd).unwrap();
    }
}

#[test]
fn queues_go_in_their_order() {
    for bench in both() {
        let session = bench.client();
        let pd = pd(&session);
        let cq = cq(&session);
        let qp = qp(&session, pd, cq);
        assert_eq!(
            refused(ask(&session, Request::DestroyCq { cq })),
            RefusalCode::Busy
        );
        assert_eq!(
            ask(&session, Request::QueryQp { qp }),
            Ok(Response::QpState(rnic_ipc::control::QpState::Idle))
        );
        ask(&session, Request::DestroyQp { qp }).unwrap();
        ask(&session, Request::DestroyCq { cq }).unwrap();
        ask(&session, Request::DeallocPd { pd }).unwrap();
    }
}

#[test]
fn a_shared_receive_queue_goes_after_the_queue_pairs_that_take_from_it() {
    for bench in both() {
        let session = bench.client();
        let pd = pd(&session);
        let cq = cq(&session);
        let create = Request::CreateSrq {
            pd,
            depth: 5,
            max_sge: 3,
        };
        let srq = match session.request(create, Vec::new()) {
            (Ok(Response::Srq { srq, slots: 16 }), fds) if fds.len() == 1 => srq,
            reply => panic!("{reply:?}"),
        };
        let attributes = QpAttributes {
            srq: Some(srq),
            rq_depth: 0,
            ..attributes(pd, cq)
        };
        let qp = match ask(&session, Request::CreateQp(attributes)) {
            Ok(Response::Qp {
                qp, rq_slots: 2, ..
            }) => qp,
            reply => panic!("{reply:?}"),
        };
        let destroy = Request::DestroySrq { srq };
        assert_eq!(refused(ask(&session, destroy.clone())), RefusalCode::Busy);
        ask(&session, Request::ArmSrq { srq, limit: 0 }).unwrap();
        ask(&session, Request::DestroyQp { qp }).unwrap();
        ask(&session, destroy.clone()).unwrap();
        let gone = RefusalCode::UnknownObject;
        assert_eq!(refused(ask(&session, destroy)), gone);
        let arm = Request::ArmSrq { srq, limit: 2 };
        assert_eq!(refused(ask(&session, arm)), gone);
        ask(&session, Request::DeallocPd { pd }).unwrap();
    }
}

#[test]
fn a_client_that_spoils_its_doorbell_ring_loses_all_and_nobody_else_anything() {
    for bench in both() {
        let session = bench.stranger();
        let (reply, fds) = session.request(HELLO, Vec::new());
        assert!(reply.is_ok());
        // Before the next request, which says that it is mapped.
        let size = rustix::fs::fstat(&fds[1]).unwrap().st_size as u64;
        let ring = SharedMemory::map(&fds[1], 0, size).unwrap();
        let neighbour = bench.client();
        let theirs = furnish(&neighbour);
        let ours = furnish(&session);
        let (sender, removed) = mpsc::channel();
        session.on_removal(Box::new(move |reason| drop(sender.send(reason.to_owned()))));

        ring.fill(0, ring.len(), 0xff).unwrap();
        // A sleeping shard is kicked.
        rustix::io::write(&fds[2], &1_u64.to_ne_bytes()).unwrap();

        let mut reason = String::new();
        bench.until("the client is removed", || {
            removed.try_recv().map(|found| reason = found).is_ok()
        });
        assert!(reason.contains("doorbell"), "{reason}");
        bench.until("the port is free", || TcpListener::bind(ours).is_ok());
        assert_eq!(
            refused(ask(&session, Request::AllocPd)),
            RefusalCode::Malformed
        );
        assert!(TcpListener::bind(theirs).is_err());
        assert_eq!(bench.level("queue_pairs"), 1);
        ask(&neighbour, Request::AllocPd).unwrap();
        drop(session);
        assert_eq!(bench.level("device_clients"), 1);
    }
}

/// A thread that delays new threads may wait for the shard, and the shard for its events to be handled.
#[test]
fn evicting_a_client_waits_for_no_thread() {
    for bench in both() {
        assert!(heap::keep_reserves());
        let session = bench.client();
        let core = bench.device.core().clone();
        let client = core.clients.get(session.client()).unwrap();
        let (sender, evicted) = mpsc::channel();
        let large = heap::take_large();
        let fault = std::thread::spawn(move || {
            core.clients
                .evict(&client, RefusalCode::Malformed, "its fault");
            sender.send(()).unwrap();
        });
        let waited = evicted.recv_timeout(Duration::from_secs(10));
        drop(large);
        assert!(waited.is_ok(), "it waits for a request that takes memory");
        fault.join().unwrap();
        bench.until("the client is removed", || {
            bench.level("device_clients") == 0
        });
    }
}

#[test]
fn a_shutdown_ends_all_and_refuses_the_rest() {
    for bench in both() {
        let session = bench.client();
        let local = furnish(&session);
        let (sender, removed) = mpsc::channel();
        session.on_removal(Box::new(move |reason| drop(sender.send(reason.to_owned()))));
        bench.device.shutdown();
        assert!(removed.recv().unwrap().contains("shutting down"));
        assert!(TcpListener::bind(local).is_ok());
        assert_eq!(
            refused(ask(&session, Request::AllocPd)),
            RefusalCode::ShuttingDown
        );
        let refusal = bench.device.connect_client(CREDENTIALS).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::ShuttingDown);
        assert_eq!(
            bench.device.counters().unwrap_err().code,
            RefusalCode::ShuttingDown
        );
        bench.device.shutdown();
    }
}

/// Whatever is sent along is closed by the thread that closes our end, and that may be the shard.
#[test]
fn a_client_can_send_nothing_to_the_descriptors_that_only_tell_it_something() {
    let bench = Bench::new(Runtime::Thread);
    let session = bench.stranger();
    let (reply, hello_fds) = session.request(HELLO, Vec::new());
    reply.unwrap();
    let (reply, cq_fds) = session.request(Request::CreateCq { depth: 4 }, Vec::new());
    reply.unwrap();
    for (fd, errno) in [
        (&hello_fds[0], Errno::PIPE),
        (&hello_fds[2], Errno::NOTSOCK),
        (&cq_fds[1], Errno::PIPE),
    ] {
        let sent = rustix::net::send(fd, &[1], rustix::net::SendFlags::NOSIGNAL);
        assert_eq!(sent, Err(errno));
    }
}

#[test]
fn a_removal_that_has_happened_is_told_at_once() {
    let bench = Bench::new(Runtime::Caller);
    let session = bench.client();
    bench.device.shutdown();
    let (sender, removed) = mpsc::channel();
    session.on_removal(Box::new(move |reason| drop(sender.send(reason.to_owned()))));
    assert!(removed.try_recv().is_ok());
}
