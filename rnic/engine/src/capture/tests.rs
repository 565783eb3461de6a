use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use rnic_net::{Fragments, Path, Payload, TCP_HEADER, write_segment};
use userspace_net::{Ecn, Endpoint, FourTuple, checksum};
use userspace_tcp::TcpHeader;

use super::*;

const OURS: &str = "198.18.0.1:1000";
const THEIRS: &str = "198.18.0.2:2000";
const OTHER: &str = "198.18.0.3:3000";

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn path() -> Path {
    Path {
        src_mac: [2, 0, 0, 0, 0, 1],
        dst_mac: [2, 0, 0, 0, 0, 2],
        vlan: None,
        mtu: 1500,
        hop_limit: 64,
    }
}

/// A frame from one end to the other.
fn frame(from: &str, to: &str, payload: usize) -> Vec<u8> {
    let (from, to) = (at(from), at(to));
    let tuple = FourTuple {
        local: Endpoint::new(from.ip(), from.port()),
        remote: Endpoint::new(to.ip(), to.port()),
    };
    let header = TcpHeader {
        source_port: from.port(),
        destination_port: to.port(),
        ..TcpHeader::default()
    };
    let bytes = vec![0; payload];
    let (len, sum) = (payload, checksum::sum(&bytes));
    let mut out = vec![0; path().headers_len(to.ip()) + TCP_HEADER];
    let payload = Payload { len, sum };
    write_segment(&path(), &tuple, Ecn::NotEct, &header, payload, &mut out).unwrap();
    out.extend(bytes);
    out
}

fn sent(to: &str) -> (Direction, Vec<u8>) {
    (Direction::Out, frame(OURS, to, 10))
}

fn received(from: &str) -> (Direction, Vec<u8>) {
    (Direction::In, frame(from, OURS, 10))
}

/// Which of these a filter takes: what goes to the peer and comes from it, the same of another peer,
/// and a frame that is not IP.
fn taken(filter: Filter) -> Vec<bool> {
    let other = (Direction::In, vec![0; 60]);
    let frames = [
        sent(THEIRS),
        received(THEIRS),
        sent(OTHER),
        received(OTHER),
        other,
    ];
    let takes = |(direction, frame): &(_, Vec<u8>)| super::takes(&filter, *direction, frame);
    frames.iter().map(takes).collect()
}

#[test]
fn a_filter_that_says_nothing_takes_everything() {
    assert_eq!(taken(Filter::default()), [true; 5]);
}

#[test]
fn each_condition_keeps_what_it_names_and_all_of_them_hold_together() {
    let peer = Some(at(THEIRS).ip());
    let all = Filter::default();
    let only_theirs = [true, true, false, false, false];
    assert_eq!(taken(Filter { peer, ..all }), only_theirs);
    assert_eq!(
        taken(Filter {
            port: Some(2000),
            ..all
        }),
        only_theirs
    );
    let both = [true, true, true, true, false];
    assert_eq!(
        taken(Filter {
            port: Some(1000),
            ..all
        }),
        both
    );
    let ends = Some((at(OURS), at(THEIRS)));
    assert_eq!(taken(Filter { ends, ..all }), only_theirs);
    let turned = Some((at(THEIRS), at(OURS)));
    assert_eq!(
        taken(Filter {
            ends: turned,
            ..all
        }),
        [false; 5]
    );
    let direction = Some(Direction::In);
    let inbound = [false, true, false, true, true];
    assert_eq!(taken(Filter { direction, ..all }), inbound);
    let port = Some(3000);
    assert_eq!(taken(Filter { peer, port, ..all }), [false; 5]);
    // Ours is no peer.
    let peer = Some(at(OURS).ip());
    assert_eq!(taken(Filter { peer, ..all }), [false; 5]);
}

#[test]
fn later_fragments_go_by_their_addresses_alone() {
    let whole = frame(THEIRS, OURS, 1400);
    let mut fragments = Fragments::new(&whole, path().link_len(), 600, 1).unwrap();
    let mut found = Vec::new();
    let (all, wrong) = (Filter::default(), Some(1));
    loop {
        let mut out = vec![0; 2000];
        let Some(len) = fragments.write_next(&mut out) else {
            break;
        };
        let takes = |filter| takes(&filter, Direction::In, &out[..len]);
        let ends = Some((at(OURS), at(THEIRS)));
        assert!(takes(Filter { ends, ..all }));
        let stranger: IpAddr = at(OTHER).ip();
        assert!(!takes(Filter {
            peer: Some(stranger),
            ..all
        }));
        found.push(takes(Filter { port: wrong, ..all }));
    }
    assert_eq!(found, [false, true, true]);
}

#[derive(Debug)]
struct Tape(Arc<Mutex<Vec<(usize, usize)>>>);

impl Capture for Tape {
    fn frame(&mut self, frame: &SeenFrame<'_>) {
        self.0
            .lock()
            .unwrap()
            .push((frame.bytes.len(), frame.original));
    }
}

#[test]
fn a_snap_keeps_the_first_bytes_and_says_how_many_there_were() {
    let tape = Arc::default();
    let mut captures = Captures::new(1514, 0);
    assert!(captures.is_empty());
    let snap = Some(54);
    let filter = Filter {
        snap,
        ..Filter::default()
    };
    captures.add(1, filter, Box::new(Tape(Arc::clone(&tape))));
    captures.show(Instant::ZERO, Direction::In, &[&[0; 1500]]);
    captures.show(Instant::ZERO, Direction::In, &[&[0; 10], &[0; 30]]);
    assert_eq!(*tape.lock().unwrap(), [(54, 1500), (40, 40)]);
    assert!(captures.remove(2).is_none());
    assert!(captures.remove(1).is_some());
    assert!(captures.is_empty());
}
