use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

fn flows() -> Vec<FourTuple> {
    let v4 = |last, port| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), port);
    let v6 = |last, port| Endpoint::new(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, last).into(), port);
    vec![
        FourTuple::new(v4(1, 1), v4(2, 2)),
        FourTuple::new(v4(2, 2), v4(1, 1)),
        FourTuple::new(v4(1, 2), v4(2, 1)),
        FourTuple::new(v4(2, 1), v4(1, 2)),
        FourTuple::new(v6(1, 1), v6(2, 2)),
        FourTuple::new(v6(2, 1), v6(1, 2)),
    ]
}

fn all_differ(mut numbers: Vec<u64>) -> bool {
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len() == count
}

#[test]
fn each_flow_secret_and_purpose_has_numbers_of_its_own() {
    let secrets = [Secret::new([7; 16]), Secret::new([8; 16])];
    let places = secrets
        .iter()
        .flat_map(|secret| flows().into_iter().map(|flow| secret.flow(&flow).0));
    assert!(all_differ(places.collect()));
    let numbers = secrets.iter().flat_map(|secret| {
        flows()
            .into_iter()
            .flat_map(|flow| [b"one", b"two"].map(|purpose| secret.hasher(purpose, &flow).finish()))
    });
    assert!(all_differ(numbers.collect()));
}

#[test]
fn each_end_has_a_place_of_its_own() {
    let secret = Secret::new([7; 16]);
    let ends = flows().into_iter().map(|flow| secret.end(flow.local).0);
    assert!(all_differ(ends.collect()));
}
