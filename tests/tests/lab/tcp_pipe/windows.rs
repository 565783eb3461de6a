//! Peers that read slowly, hardly, or in tiny windows; and a reader of ours that does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rnic_tests::lab::{Family, Host};
use rnic_tests::pattern::Pattern;
use rnic_tests::wait;

use super::pipe::{LIMIT, Pipe, Role, connect, hosts, joined, kernel_listener};

/// A connection whose kernel end has a receive buffer of so many bytes.
fn with_buffer(us: &Host, them: &Host, bytes: usize) -> (Pipe, TcpStream) {
    let listener = kernel_listener(them, Family::V4);
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, bytes).unwrap();
    let pipe = connect(us, listener.local_addr().unwrap(), &[]);
    (pipe, listener.accept().unwrap().0)
}

#[test]
fn a_tiny_window_slows_down_and_breaks_nothing() {
    let (_lab, us, them) = hosts("pipe-tiny");
    // The kernel makes the least that it allows of 1.
    for buffer in [1, 4000, 20_000] {
        let (mut pipe, mut stream) = with_buffer(&us, &them, buffer);
        let bytes = Pattern::bytes(6, 200_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pipe.write(&bytes);
                pipe.end();
            });
            let mut found = Vec::new();
            stream.read_to_end(&mut found).unwrap();
            assert!(found == bytes, "buffer of {buffer}");
        });
        drop(stream);
        let _ = pipe.finish().success();
    }
}

#[test]
fn a_peer_that_reads_slowly_gets_everything() {
    let (_lab, us, them) = hosts("pipe-slow");
    for buffer in [1, 60_000] {
        let (mut pipe, mut stream) = with_buffer(&us, &them, buffer);
        let bytes = Pattern::bytes(7, 60_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pipe.write(&bytes);
                pipe.end();
            });
            std::thread::sleep(Duration::from_millis(1500));
            let mut found = Vec::new();
            let mut piece = [0; 1000];
            loop {
                let length = stream.read(&mut piece).unwrap();
                found.extend_from_slice(&piece[..length]);
                if length == 0 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            assert!(found == bytes, "buffer of {buffer}");
        });
        drop(stream);
        let _ = pipe.finish().success();
    }
}

#[test]
fn a_slow_reader_of_standard_output_holds_the_peer_back() {
    let (_lab, us, them) = hosts("pipe-backpressure");
    let more = ["--window", "100k"];
    let (mut pipe, mut stream) = joined(&us, &them, Family::V4, Role::Connects, &more);
    let bytes = Pattern::bytes(8, 40_000_000);
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    for _ in 0..100 {
        match stream.write(&bytes[sent..]) {
            Ok(length) => sent += length,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent < bytes.len(), "{sent} bytes went nowhere");
    stream.set_nonblocking(false).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stream.write_all(&bytes[sent..]).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        assert!(pipe.read_to_end() == bytes);
    });
    pipe.end();
    let _ = pipe.finish().success();
}

#[test]
fn a_slow_reader_holds_small_writes_of_the_peer_back_too() {
    let (_lab, us, them) = hosts("pipe-crumbs");
    let more = ["--window", "200k"];
    let (mut pipe, mut stream) = joined(&us, &them, Family::V4, Role::Listens, &more);
    stream.set_nodelay(true).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, 50_000).unwrap();
    let bytes = Pattern::bytes(9, 2_000_000);
    let written = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for crumb in bytes.chunks(40) {
                stream.write_all(crumb).unwrap();
                written.fetch_add(crumb.len(), Relaxed);
            }
            stream.shutdown(Shutdown::Write).unwrap();
        });
        // Until a pipe, the window and the peer's buffer are full, nothing is read. How many bytes
        // that takes depends on how the crumbs fall into the pages of the pipe.
        let (mut before, mut still) = (0, 0);
        wait::until("the peer is held back", LIMIT, || {
            std::thread::sleep(Duration::from_millis(500));
            let now = written.load(Relaxed);
            still = if now == std::mem::replace(&mut before, now) {
                still + 1
            } else {
                0
            };
            (now > 0 && still >= 4).then_some(())
        });
        assert!(before < bytes.len(), "{before} bytes went nowhere");
        assert!(pipe.read_to_end() == bytes);
    });
    pipe.end();
    let _ = pipe.finish().success();
}
