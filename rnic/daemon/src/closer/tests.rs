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

/// A closer for which there is no thread, and where its channels would come.
fn without_threads() -> (ChannelCloser, Channel) {
    let (channels, leaving) = Channel::pair().unwrap();
    let closer = ChannelCloser {
        channels,
        waiting: VecDeque::new(),
        untold: false,
    };
    (closer, leaving)
}

#[test]
fn without_a_thread_nobody_waits_and_a_bound_of_channels_is_held() {
    let (mut closer, leaving) = without_threads();
    let mut clients = Vec::new();
    while !closer.is_full() {
        let (ours, theirs) = Channel::pair().unwrap();
        closer.close(ours);
        // The client is notified at once all the same.
        assert!(matches!(theirs.try_recv::<u8>(), Ok(None)));
        clients.push(theirs);
        assert!(clients.len() < 10_000, "there is no bound");
    }
    assert!(clients.len() > WAITING && closer.is_behind());
    let mut messages = Vec::new();
    let mut channels = 0;
    while messages.len() < 2 * clients.len() {
        let message = leaving.try_recv::<u8>().unwrap().unwrap();
        messages.push(message.0);
        channels += message.1.len();
        closer.go_on();
    }
    let pairs = messages
        .chunks(2)
        .all(|pair| pair == [COMES, IS_ONLY_YOURS]);
    assert!(pairs, "{messages:?}");
    assert_eq!(channels, clients.len());
    assert!(!closer.is_behind() && !closer.is_full());
}
