use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{
    set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size,
};

use super::*;

/// How long a close of the socket takes.
const LINGER: Duration = Duration::from_secs(20);
/// How long the test takes at the most.
const SOON: Duration = Duration::from_secs(5);

/// A TCP connection with bytes that nobody takes: the end that closes it last waits for them.
fn lingering() -> (TcpStream, TcpListener, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    set_socket_send_buffer_size(&stream, 4096).unwrap();
    let peer = listener.accept().unwrap().0;
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    set_socket_linger(&stream, Some(LINGER)).unwrap();
    (stream, listener, peer)
}

#[test]
fn channels_with_lingering_sockets_are_closed_and_nobody_waits() {
    let mut closer = ChannelCloser::start().unwrap();
    let start = Instant::now();
    let mut others = Vec::new();
    let mut peers = Vec::new();
    for _ in 0..3 * BATCH {
        let (ours, theirs) = Channel::pair().unwrap();
        let (stream, listener, peer) = lingering();
        theirs.send(&1_u8, &[stream.as_fd()]).unwrap();
        // The channel holds the last one.
        drop(stream);
        closer.close(ours);
        others.push(theirs);
        peers.push((listener, peer));
    }
    for channel in others {
        let end = channel.recv::<u8>();
        assert!(matches!(end, Ok(None)), "{end:?}");
    }
    let took = start.elapsed();
    assert!(took < SOON, "{took:?}");
}
