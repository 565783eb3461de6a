//! Clients that keep to no rule cost the daemon nothing that lasts, and other clients nothing.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rnic_ipc::control::{
    Access, MemoryKind, PROTOCOL_VERSION, RegionSpec, Reply, Request, Response,
};
use rnic_ipc::id::PdId;
use rnic_ipc::transport::Channel;
use rnic_tests::daemon::Daemon;
use rnic_tests::lab::{Family, Signal};
use rnic_tests::pair::Pair;
use rnic_tests::{tool, wait};
use rustix::net::SendFlags;
use rustix::net::sockopt::set_socket_linger;

const PORT: u16 = 18515;
/// How soon the daemon must have cleared away what a client left.
const SOON: Duration = Duration::from_secs(30);
/// How long until the first of many silent clients were cut off, on a busy machine: a small part of
/// what it would take to wait for one after the other.
const HELLO_LIMIT: Duration = Duration::from_secs(30);

const HELLO: Request = Request::Hello {
    version: PROTOCOL_VERSION,
};

fn ask(channel: &Channel, request: &Request, fds: &[BorrowedFd<'_>]) -> (Reply, Vec<OwnedFd>) {
    channel.send(request, fds).expect("the daemon listens");
    let reply = channel.recv().expect("the daemon speaks our language");
    reply.expect("the daemon answers")
}

fn greeted(daemon: &Daemon) -> (Channel, Vec<OwnedFd>) {
    let channel = Channel::connect(daemon.socket()).expect("the daemon is there");
    let (reply, fds) = ask(&channel, &HELLO, &[]);
    reply.expect("the daemon has room for us");
    (channel, fds)
}

fn register(pd: PdId) -> Request {
    Request::RegisterMemory(RegionSpec {
        pd,
        stream: None,
        access: Access::ALL,
        base: 0,
        offset: 0,
        length: 4096,
        memory: MemoryKind::Memfd,
    })
}

#[track_caller]
fn a_ping_works(pair: &Pair) {
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-ping", at, &[]);
    let _ = tool::client(&pair.daemon_a, "rnic-ping", at, &["--count", "3"])
        .run()
        .success();
}

#[test]
fn garbage_and_strange_descriptors_leave_nothing_behind() {
    let mut pair = Pair::new("garbage");
    a_ping_works(&pair);
    let before = pair.daemon_a.open_files();
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let (pipe, _other) = std::io::pipe().unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let strange = [zero.as_fd(), pipe.as_fd(), file.as_fd(), zero.as_fd()];
    for round in 0..100_u32 {
        // Not even a Hello.
        let channel = Channel::connect(pair.daemon_a.socket()).unwrap();
        let bytes: Vec<u8> = (0..round * 50).map(|n| (n * 37 + round) as u8).collect();
        let sent = rustix::net::send(&channel, &bytes, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(bytes.len()));

        let (channel, _fds) = greeted(&pair.daemon_a);
        channel.send(&Request::AllocPd, &strange).unwrap();
        channel.recv_reply().unwrap().unwrap().0.unwrap_err();
        let (Ok(Response::Pd(pd)), _) = ask(&channel, &Request::AllocPd, &[]) else {
            panic!("no protection domain");
        };
        for fd in &strange {
            ask(&channel, &register(pd), &[*fd]).0.unwrap_err();
        }
        // Gone with a request under way.
        channel
            .send(&Request::CreateCq { depth: 1024 }, &[])
            .unwrap();
    }
    pair.daemon_a.assert_alive();
    wait::until("all descriptors are closed", SOON, || {
        (pair.daemon_a.open_files() <= before).then_some(())
    });
    a_ping_works(&pair);
}

#[test]
fn clients_that_say_nothing_keep_others_out_for_seconds_only() {
    let pair = Pair::new("silent");
    let silent: Vec<Channel> = (0..300)
        .map(|_| Channel::connect(pair.daemon_a.socket()).unwrap())
        .collect();
    wait::until("a client is served again", HELLO_LIMIT, || {
        rnic::Daemon::at(pair.daemon_a.socket())
            .and_then(|it| it.open(None))
            .ok()
            .map(drop)
    });
    a_ping_works(&pair);
    drop(silent);
}

#[test]
fn an_ending_daemon_waits_for_no_client() {
    let mut pair = Pair::new("stubborn");
    // One reads no replies.
    let (deaf, _fds) = greeted(&pair.daemon_a);
    while deaf.try_send(&Request::QueryDevice, &[]).is_ok() {}

    // One has its thread close a descriptor that takes a minute for it.
    let (slow, _fds) = greeted(&pair.daemon_a);
    let (Ok(Response::Pd(pd)), _) = ask(&slow, &Request::AllocPd, &[]) else {
        panic!("no protection domain");
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _peer = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    set_socket_linger(&stream, Some(Duration::from_secs(60))).unwrap();
    // The last to close it is the daemon: all its threads stand still while we close ours.
    pair.daemon_a.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(100));
    slow.send(&register(pd), &[stream.as_fd()]).unwrap();
    drop(stream);
    pair.daemon_a.signal(Signal::CONT);

    // The others are served meanwhile.
    a_ping_works(&pair);
    let _ = pair.daemon_a.stop();
}
