//! Ids of connections, for tests of what is kept by them.

use std::net::{IpAddr, Ipv4Addr};

use userspace_net::{Endpoint, FourTuple, Instant};
use userspace_tcp::{Config, ConnId, ConnOptions, Stack};

/// A TCP with room for so many connections: it gives their ids.
pub fn stack(connections: u16) -> Stack<()> {
    let config = Config {
        connections: usize::from(connections),
        ..Config::default()
    };
    Stack::new(config, [7; 16], Instant::ZERO)
}

pub fn conn_id(stack: &mut Stack<()>, number: u16) -> ConnId {
    let end = |last, port| Endpoint {
        addr: IpAddr::V4(Ipv4Addr::new(198, 18, 0, last)),
        port,
    };
    let tuple = FourTuple {
        local: end(1, 1000 + number),
        remote: end(2, 7174),
    };
    let options = ConnOptions { mss: 1460 };
    stack
        .connect(Instant::ZERO, tuple, options)
        .expect("there is room")
}

/// So many ids, as their TCP gives them.
pub fn conn_ids(count: u16) -> Vec<ConnId> {
    let mut stack = stack(count);
    (0..count)
        .map(|number| conn_id(&mut stack, number))
        .collect()
}
