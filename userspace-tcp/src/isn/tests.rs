use std::net::Ipv4Addr;
use std::time::Duration;

use userspace_net::Endpoint;

use super::*;

fn tuple(port: u16) -> FourTuple {
    let addr = Ipv4Addr::new(198, 18, 0, 1).into();
    FourTuple::new(Endpoint::new(addr, port), Endpoint::new(addr, 80))
}

#[test]
fn initial_sequence_numbers_of_one_flow_follow_the_clock() {
    let secret = Secret::new([7; 16]);
    let first = initial_sequence(&secret, &tuple(1), Instant::ZERO);
    let later = initial_sequence(&secret, &tuple(1), Instant::ZERO + Duration::from_secs(1));
    assert_eq!(later.distance(first), 250_000);
}

#[test]
fn initial_sequence_numbers_depend_on_the_flow_and_the_secret() {
    let now = Instant::ZERO;
    let number = initial_sequence(&Secret::new([7; 16]), &tuple(1), now);
    assert_ne!(
        number,
        initial_sequence(&Secret::new([7; 16]), &tuple(2), now)
    );
    assert_ne!(
        number,
        initial_sequence(&Secret::new([8; 16]), &tuple(1), now)
    );
}
