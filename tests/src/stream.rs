//! Ordinary host traffic: a byte stream between two kernel TCP sockets, both ways at once, with
//! every byte compared.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use crate::lab::{Family, Host};
use crate::pattern::Pattern;

/// Longest silence on the stream before the test fails.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes of a write, odd so that segments don't line up with anything.
const CHUNK: usize = 7919;

/// Moves `length` bytes each way between kernel sockets of two hosts and compares them.
pub fn exchange(a: &Host, b: &Host, family: Family, length: usize) {
    let at = b.address(family, 0);
    let listener = b
        .namespace
        .in_thread(|| TcpListener::bind(at).expect("a free port"));
    let at = listener
        .local_addr()
        .expect("a bound socket has an address");
    let (to_b, to_a) = (Pattern::bytes(1, length), Pattern::bytes(2, length));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (stream, _) = listener.accept().expect("the client connects");
            both_ways(stream, &to_a, &to_b);
        });
        let stream = a
            .namespace
            .in_thread(|| TcpStream::connect_timeout(&at, SILENCE))
            .unwrap_or_else(|error| panic!("kernel TCP can't connect to {at}: {error}"));
        both_ways(stream, &to_b, &to_a);
        server
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Sends and receives at the same time, each to its end, and compares what came.
pub fn both_ways(stream: TcpStream, send: &[u8], expect: &[u8]) {
    stream
        .set_read_timeout(Some(SILENCE))
        .expect("a time-out above 0");
    stream
        .set_write_timeout(Some(SILENCE))
        .expect("a time-out above 0");
    std::thread::scope(|scope| {
        let mut writer = &stream;
        scope.spawn(move || {
            for chunk in send.chunks(CHUNK) {
                writer
                    .write_all(chunk)
                    .expect("the kernel's stream takes bytes");
            }
            writer.shutdown(Shutdown::Write).expect("the stream ends");
        });
        let mut got = Vec::with_capacity(expect.len());
        (&stream)
            .read_to_end(&mut got)
            .expect("the kernel's stream gives bytes");
        assert!(got == expect, "the kernel's byte stream changed on its way");
    });
}
