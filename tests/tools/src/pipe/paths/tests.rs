use userspace_net::Endpoint;

use super::*;

fn tuple(port: u16) -> FourTuple {
    let end = |host, port| Endpoint::new([198, 18, 0, host].into(), port);
    FourTuple::new(end(1, 1), end(2, port))
}

fn way(mac: u8, port: usize) -> Way {
    let path = Path {
        src_mac: [2, 0, 0, 0, 0, 1],
        dst_mac: [2, 0, 0, 0, 0, mac],
        vlan: None,
        mtu: 1500,
        hop_limit: 64,
    };
    Way { path, port }
}

#[test]
fn the_connections_path_stays_and_its_port_follows_its_frames() {
    let mut paths = Paths::default();
    paths.set(tuple(7), way(9, 0));
    paths.came(tuple(7), way(66, 3));
    let found = paths.way(&tuple(7)).unwrap();
    assert_eq!((found.path.dst_mac[5], found.port), (9, 3));
}

#[test]
fn strangers_are_remembered_as_long_as_there_is_room() {
    let mut paths = Paths::default();
    for port in 1..=MOST as u16 + 1 {
        paths.came(tuple(port), way(port as u8, 0));
    }
    assert!(paths.way(&tuple(1)).is_none());
    assert_eq!(paths.way(&tuple(2)).unwrap().path.dst_mac[5], 2);
    paths.came(tuple(2), way(77, 0));
    assert_eq!(
        paths.way(&tuple(2)).unwrap().path.dst_mac[5],
        77,
        "the latest"
    );
}
