//! Peers that connect and say nothing, a hundred a second, keep nobody out who says something.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rnic::ListenOptions;
use rnic_tests::daemon::DaemonOptions;
use rnic_tests::lab::{Family, INTERFACE, LinkOptions};
use rnic_tests::pair::Pair;
use rustix::net::{AddressFamily, SocketType};

const PORT: u16 = 18515;
/// Places of the listener.
const BACKLOG: u32 = 8;
/// Silent connections a second.
const RATE: u32 = 100;
/// How long one silent connection may hold its place at most, in milliseconds; and longer than that.
const HELD: &str = "1000";
const LASTS: Duration = Duration::from_secs(5);
/// How soon one that asks is answered.
const SOON: Duration = Duration::from_secs(1);
/// The address of the one that asks, beside the host's own.
const HONEST: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 77);

/// A connection of the kernel's from this address; the time that it has to come about and for each
/// answer is [`SOON`].
fn connect_from(source: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((source, 0)))?;
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Send,
        Some(SOON),
    )?;
    rustix::net::connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(SOON))?;
    Ok(stream)
}

/// An MPA Request; what is answered.
fn ask(to: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut stream = connect_from(HONEST, to)?;
    stream.write_all(b"MPA ID Req Frame\x40\x01\0\0")?;
    let mut answer = vec![0; 20];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_hundred_silent_connections_a_second_keep_nobody_out() {
    let soon = DaemonOptions {
        arguments: vec!["--first-byte-timeout".to_owned(), HELD.to_owned()],
        ..DaemonOptions::default()
    };
    let mut pair = Pair::with("silent-peers", &LinkOptions::default(), &soon);
    let to = pair.b.address(Family::V4, PORT);
    // On another network than the silent ones'.
    let host = format!("{HONEST}/32");
    pair.a
        .namespace
        .ip(&["addr", "add", &host, "dev", INTERFACE]);
    let back = HONEST.to_string();
    pair.b
        .namespace
        .ip(&["route", "add", &back, "dev", INTERFACE]);

    let context = pair.daemon_b.open();
    let listener = context
        .listen(to, ListenOptions::default().backlog(BACKLOG))
        .expect("nobody listens there");
    let over = AtomicBool::new(false);
    let (slowest, asked, silent) = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Ok(request) = listener.accept().wait(Duration::from_millis(200)) {
                    let _ = request.reject(b"heard");
                }
            }
        });
        let flood = scope.spawn(|| {
            pair.a.namespace.in_thread(|| {
                let (mut held, begin) = (VecDeque::new(), Instant::now());
                for number in 0.. {
                    if over.load(Ordering::Relaxed) {
                        return number;
                    }
                    held.extend(TcpStream::connect_timeout(&to, SOON));
                    if held.len() > 300 {
                        held.pop_front();
                    }
                    let next = begin + number * Duration::from_secs(1) / RATE;
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                unreachable!("a second has an end")
            })
        });
        let honest = pair.a.namespace.in_thread(|| {
            let (begin, mut slowest, mut asked) = (Instant::now(), Duration::ZERO, 0);
            while begin.elapsed() < LASTS {
                thread::sleep(Duration::from_millis(200));
                let started = Instant::now();
                match ask(to) {
                    Ok(answer) if answer.starts_with(b"MPA ID Rep Frame") => {}
                    Ok(answer) => return Err(format!("request {asked}: {answer:?}")),
                    Err(error) => return Err(format!("request {asked}: {error}")),
                }
                slowest = slowest.max(started.elapsed());
                asked += 1;
            }
            Ok((slowest, asked))
        });
        over.store(true, Ordering::Relaxed);
        let silent: u32 = flood.join().expect("the flood ends");
        let (slowest, asked) = honest.unwrap_or_else(|error| panic!("{error}"));
        (slowest, asked, silent)
    });
    pair.daemon_b.assert_alive();
    println!("{asked} requests beside {silent} silent connections, the slowest in {slowest:?}");
    assert!(asked > 5 && silent > 200, "{asked} and {silent}");
    assert!(slowest < SOON, "{slowest:?}");
    assert!(pair.daemon_b.counter("backlog_evicted") > 100);
    assert_eq!(pair.daemon_b.counter("backlog_full"), 0);
}
