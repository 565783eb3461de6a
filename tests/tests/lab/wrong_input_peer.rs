//! Peers that are not MPA, or not there, get nowhere: a named error, and everybody else goes on.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rnic_tests::lab::{Family, Host, INTERFACE};
use rnic_tests::pair::Pair;
use rnic_tests::pattern::Pattern;
use rnic_tests::tool;

const PORT: u16 = 18515;
/// Longest wait for a peer's answer; the RNIC gives up on a silent one before that.
const SILENCE: Duration = Duration::from_secs(30);

/// Sends bytes from a kernel socket to an RNIC and gives what came back until the connection
/// ended, one way or the other. Panics when it does not end.
pub(super) fn tell(from: &Host, to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let connect = || TcpStream::connect_timeout(&to, SILENCE);
    let mut stream = from.namespace.in_thread(connect).expect("the RNIC listens");
    stream
        .set_read_timeout(Some(SILENCE))
        .expect("a time-out above 0");
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the RNIC keeps a connection that is not MPA: {error}"),
    }
    answer
}

/// An MPA request frame (RFC 5044 section 7.1.1) with these flags, revision and private data.
pub(super) fn request(flags: u8, revision: u8, length: u16, private_data: &[u8]) -> Vec<u8> {
    let mut frame = b"MPA ID Req Frame".to_vec();
    frame.extend([flags, revision]);
    frame.extend(length.to_be_bytes());
    frame.extend(private_data);
    frame
}

#[test]
fn a_client_that_does_not_speak_mpa_is_cut_off_and_the_listener_goes_on() {
    const CRC: u8 = 0x40;
    let mut pair = Pair::new("not-mpa-client");
    for (family, port) in [(Family::V4, PORT), (Family::V6, PORT + 1)] {
        let at = pair.b.address(family, port);
        let _server = tool::server(&pair.daemon_b, "rnic-ping", at, &[]);
        let garbage = [
            b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n".to_vec(),
            Pattern::bytes(7, 100_000),
            b"MPA ID Rep Frame\x40\x01\0\0".to_vec(),
            request(CRC, 9, 0, &[]),
            request(CRC, 1, 513, &[0; 513]),
            request(CRC, 1, u16::MAX, &[0; 600]),
            [request(CRC, 1, 0, &[]), vec![0xff; 64]].concat(),
        ];
        for bytes in &garbage {
            let answer = tell(&pair.a, at, bytes);
            assert!(!answer.starts_with(b"MPA ID Req"), "{answer:?}");
            pair.daemon_b.assert_alive();
        }
        let ping = tool::client(&pair.daemon_a, "rnic-ping", at, &["--count", "3"]);
        let _ = ping.run().success();
    }
}

#[test]
fn a_silent_client_is_cut_off() {
    let pair = Pair::new("silent-client");
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-ping", at, &[]);
    let answer = tell(&pair.a, at, b"MPA ID Re");
    assert_eq!(answer, b"", "an answer to half a request");
    let ping = tool::client(&pair.daemon_a, "rnic-ping", at, &["--count", "3"]);
    let _ = ping.run().success();
}

/// The subnet of the client's host is wider than the server's: so it may have that address (RFC 9293, MUST-63).
#[test]
fn a_client_at_the_broadcast_address_of_the_servers_subnet_gets_no_answer() {
    let pair = Pair::new("broadcast");
    let at = pair.b.address(Family::V4, PORT);
    let _server = tool::server(&pair.daemon_b, "rnic-ping", at, &[]);
    let answered = |last: u8| {
        let IpAddr::V4(server) = at.ip() else {
            panic!("{at} is of IPv4")
        };
        let [a, b, c, _] = server.octets();
        let source = Ipv4Addr::new(a, b, c, last).to_string();
        let host = &pair.a.namespace;
        host.ip(&["-4", "addr", "flush", "dev", INTERFACE]);
        host.ip(&["addr", "add", &format!("{source}/16"), "dev", INTERFACE]);
        let route = format!("{server}/32");
        host.ip(&["route", "replace", &route, "dev", INTERFACE, "src", &source]);
        let connect = || TcpStream::connect_timeout(&at, Duration::from_secs(3));
        host.in_thread(connect).is_ok()
    };
    assert!(answered(254), "a host's address");
    let before = pair.daemon_b.counter("rx_martians");
    assert!(
        !answered(255),
        "the broadcast address of the server's subnet"
    );
    assert!(pair.daemon_b.counter("rx_martians") > before);
}

#[test]
fn a_server_that_does_not_speak_mpa_is_named() {
    let pair = Pair::new("not-mpa-server");
    for family in Family::ALL {
        let at = pair.b.address(family, PORT);
        let listener = pair
            .b
            .namespace
            .in_thread(|| TcpListener::bind(at).unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(SILENCE)).unwrap();
            stream
                .write_all(b"SSH-2.0-OpenSSH_9.2 and some more bytes\r\n")
                .unwrap();
            let mut request = Vec::new();
            let _ = stream.read_to_end(&mut request);
            request
        });
        let client = tool::client(&pair.daemon_a, "rnic-ping", at, &["--count", "1"]);
        let error = client.run().failure();
        assert!(
            error.contains("MPA"),
            "the error does not name MPA:\n{error}"
        );
        let request = server.join().unwrap();
        assert!(request.starts_with(b"MPA ID Req Frame"), "{request:?}");
    }
}

#[test]
fn a_port_where_nobody_listens_and_a_host_that_is_not_there_are_named() {
    let pair = Pair::new("nobody-there");
    let refused = pair.b.address(Family::V4, PORT);
    let nobody: SocketAddr = "198.18.1.99:18515".parse().unwrap();
    let elsewhere: SocketAddr = "198.19.77.1:18515".parse().unwrap();
    for (at, reasons) in [
        (refused, ["refused", "nobody listens"]),
        (nobody, ["neighbour", "timed out"]),
        (elsewhere, ["route", "unreachable"]),
    ] {
        let client = tool::client(&pair.daemon_a, "rnic-ping", at, &["--count", "1"]);
        let error = client.run().failure().to_lowercase();
        assert!(
            reasons.iter().any(|reason| error.contains(reason)),
            "{at}:\n{error}"
        );
        assert!(
            error.contains(&at.ip().to_string()),
            "{at} is not named:\n{error}"
        );
    }
}
