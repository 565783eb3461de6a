use std::net::Ipv4Addr;
use std::time::Duration;

use super::*;

fn host(last: u8) -> IpAddr {
    Ipv4Addr::new(198, 18, 0, last).into()
}

#[test]
fn a_packet_of_that_size_to_that_host_since_then() {
    let mut passed = MtuEvidence::default();
    let at = Instant::ZERO + Duration::from_secs(1);
    let later = at + Duration::from_nanos(1);
    assert!(!passed.since(host(2), 0, Instant::ZERO));
    passed.note(host(2), 1500, at);
    assert!(passed.since(host(2), 1500, at));
    assert!(!passed.since(host(2), 1501, at));
    assert!(!passed.since(host(2), 1500, later));
    assert!(!passed.since(host(3), 1500, at));
}
