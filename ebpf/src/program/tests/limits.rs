//! What is refused, and by which error.

use super::*;

#[test]
fn what_no_frame_could_match_is_not_claimed() {
    let mut bench = Bench::new(Variant::Frags);
    for (address, port) in [
        ("0.0.0.0", 1),
        ("::", 1),
        ("224.0.0.1", 1),
        ("ff02::1", 1),
        ("198.18.0.2", 0),
    ] {
        let error = bench
            .program
            .claim(Protocol::Tcp, address.parse().unwrap(), port)
            .unwrap_err();
        assert!(matches!(error, SteeringError::NotUnicast { .. }), "{error}");
    }
}

#[test]
fn a_full_table_of_claims_is_a_named_error() {
    let mut bench = Bench::new(Variant::Frags);
    // Two are claimed already.
    for n in 0..MAX_CLAIMS - 2 {
        let [_, _, c, d] = n.to_be_bytes();
        bench
            .program
            .claim(Protocol::Tcp, IpAddr::from([198, 19, c, d]), PORT)
            .unwrap_or_else(|error| panic!("claim {n}: {error}"));
    }
    let error = bench
        .program
        .claim(Protocol::Tcp, OURS_V4.into(), PORT + 1)
        .unwrap_err();
    assert!(
        matches!(
            error,
            SteeringError::TooManyClaims {
                most: MAX_CLAIMS,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_queue_beyond_the_map_is_a_named_error() {
    let mut bench = Bench::new(Variant::Frags);
    let socket = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
    let error = bench
        .program
        .set_queue(0, MAX_QUEUES, socket.as_fd())
        .unwrap_err();
    assert!(
        matches!(
            error,
            SteeringError::NoSuchQueue {
                queue: MAX_QUEUES,
                ..
            }
        ),
        "{error}"
    );
}
