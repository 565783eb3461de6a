//! A program that listens and does not read its requests. Peers that connect, ask and go away again can't have it
//! taken for faulty, and keep out no peer that remains.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rnic::ListenOptions;
use rnic::admin::{Kind, Object};
use rnic_tests::lab::Family;
use rnic_tests::pair::Pair;
use rnic_tests::wait;

const PORT: u16 = 18515;
const LIMIT: Duration = Duration::from_secs(30);
/// More than the event socket and what waits behind it can hold.
const PEERS: u32 = 4000;
const REQUEST: &[u8] = b"MPA ID Req Frame\x40\x01\0\0";

/// A peer of the kernel's TCP that sends a whole Request.
fn ask(to: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect_timeout(&to, LIMIT).expect("a listener");
    stream.write_all(REQUEST).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    stream
}

#[test]
fn requests_of_peers_that_go_away_take_nothing_from_a_program_that_looks_later() {
    let mut pair = Pair::new("unread");
    let to = pair.b.address(Family::V4, PORT);
    let context = pair.daemon_b.open();
    let listener = context
        .listen(to, ListenOptions::default().backlog(16))
        .expect("nobody listens there");
    let mut honest = pair.a.namespace.in_thread(|| {
        for _ in 0..PEERS {
            let stream = ask(to);
            // A reset when it is closed.
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))
                .expect("a socket");
        }
        ask(to)
    });
    let from = honest.local_addr().expect("an address");
    // A reset may come later than the request behind it. Only when the RNIC has nobody else does the program look.
    wait::until("only the honest peer is there", LIMIT, || {
        let connections = context.inspect(Kind::Connections);
        let connections = connections.expect("the daemon tells its connections");
        let remote = |one: &Object| match one {
            Object::Connection(one) => Some(one.remote),
            _ => None,
        };
        let remotes: Vec<_> = connections.iter().filter_map(remote).collect();
        (remotes == [from]).then_some(())
    });
    let request = listener.accept().wait(LIMIT);
    let request = request.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(request.remote(), from, "of whom is still there");
    request.reject(b"heard").expect("it is still there");
    let mut answer = [0; 20];
    honest.read_exact(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"MPA ID Rep Frame"), "{answer:?}");
    pair.daemon_b.assert_alive();
}
