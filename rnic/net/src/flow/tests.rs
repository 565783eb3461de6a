use userspace_net::Ecn;

use super::*;
use crate::fragment::tests::{cut, payload};
use crate::tests::{frame_with, path, tuple};

#[test]
fn a_segment_and_each_of_its_fragments_tell_their_ends_and_the_first_its_ports() {
    for (v6, vlan) in [
        (false, None),
        (false, Some(5)),
        (true, None),
        (true, Some(7)),
    ] {
        let (path, tuple) = (path(vlan), tuple(v6));
        let frame = frame_with(&path, &tuple, Ecn::NotEct, &payload(3000));
        let expected = Flow {
            protocol: Protocol::Tcp,
            source: tuple.local.addr,
            destination: tuple.remote.addr,
            ports: Some((tuple.local.port, tuple.remote.port)),
            is_fragment: false,
        };
        assert_eq!(flow(&frame, frame.len()), Some(expected));
        for (number, fragment) in cut(&frame, &path, 1280, 1).iter().enumerate() {
            let ports = expected.ports.filter(|_| number == 0);
            let expected = Flow {
                ports,
                is_fragment: true,
                ..expected
            };
            assert_eq!(flow(fragment, fragment.len()), Some(expected));
        }
    }
}

#[test]
fn what_is_cut_short_or_of_another_protocol_is_of_no_flow() {
    for v6 in [false, true] {
        let whole = frame_with(&path(None), &tuple(v6), Ecn::NotEct, &payload(10));
        for len in 0..whole.len() {
            assert_eq!(flow(&whole[..len], len), None, "{len}");
        }
        let mut esp = whole.clone();
        let at = if v6 { 14 + 6 } else { 14 + 9 };
        esp[at] = 50;
        assert_eq!(flow(&esp, esp.len()), None);
    }
}

/// As a jumbo frame is received in several chunks.
#[test]
fn the_first_part_of_a_frame_tells_its_flow() {
    for v6 in [false, true] {
        let whole = frame_with(&path(None), &tuple(v6), Ecn::NotEct, &payload(8000));
        let expected = flow(&whole, whole.len());
        assert!(expected.is_some_and(|flow| flow.ports.is_some()));
        assert_eq!(flow(&whole[..1800], whole.len()), expected);
        assert_eq!(flow(&whole[..1800], 1800), None, "cut short");
    }
}
