use std::net::Ipv4Addr;

use super::*;

fn local(port: u16) -> Endpoint {
    Endpoint::new(Ipv4Addr::new(198, 18, 0, 1).into(), port)
}

#[test]
fn each_local_end_has_its_own_count() {
    let secret = Secret::new([7; 16]);
    let mut locals = Locals::new(30);
    for round in 0..60 {
        for port in 0..5 {
            for _ in 0..=port {
                locals.add(&secret, local(1000 * round + port));
            }
        }
        for port in 0..5 {
            for left in (0..=port).rev() {
                locals.remove(&secret, local(1000 * round + port));
                let count = locals.count(&secret, local(1000 * round + port));
                assert_eq!(count, usize::from(left));
            }
            locals.remove(&secret, local(1000 * round + port));
        }
    }
    assert_eq!((locals.ends.len(), locals.vacant.len()), (5, 5));
}
