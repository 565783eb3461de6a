use std::collections::HashSet;

use etherparse::SlicedPacket;
use etherparse::defrag::IpDefragPool;
use userspace_net::{Ecn, FourTuple};

use super::*;
use crate::Path;
use crate::tests::{frame_with, path, tuple};

/// Every fragment of a frame, each in a buffer of its own.
pub(crate) fn cut(frame: &[u8], path: &Path, mtu: u32, id: u32) -> Vec<Vec<u8>> {
    let mut fragments = Fragments::new(frame, path.link_len(), mtu, id).unwrap();
    let mut all = Vec::new();
    loop {
        let left = fragments.left();
        let mut out = vec![0; 2000];
        let Some(len) = fragments.write_next(&mut out) else {
            assert_eq!(left, 0);
            return all;
        };
        assert_eq!(fragments.left(), left - 1);
        out.truncate(len);
        all.push(out);
    }
}

pub(crate) fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn layouts() -> impl Iterator<Item = (Path, FourTuple)> {
    [
        (false, None),
        (false, Some(5)),
        (true, None),
        (true, Some(7)),
    ]
    .into_iter()
    .map(|(v6, vlan)| (path(vlan), tuple(v6)))
}

#[test]
fn an_independent_reassembly_gets_the_segment_back() {
    for (path, tuple) in layouts() {
        for (len, mtu) in [
            (1400, 1300),
            (3000, 1280),
            (3000, 1283),
            (1300, 1280),
            (3700, 1500),
        ] {
            let frame = frame_with(&path, &tuple, Ecn::Ect0, &payload(len));
            let fragments = cut(&frame, &path, mtu, 0x1234_5678);
            assert!(fragments.len() > 1);
            let mut pool = IpDefragPool::<(), ()>::new();
            let mut whole = None;
            for fragment in fragments.iter().rev() {
                assert!(whole.is_none());
                assert!(fragment.len() - path.link_len() <= mtu as usize);
                let sliced = SlicedPacket::from_ethernet(fragment).unwrap();
                whole = pool.process_sliced_packet(&sliced, (), ()).unwrap();
            }
            let segment = &frame[path.headers_len(tuple.remote.addr)..];
            assert_eq!(whole.unwrap().payload, segment, "{len} bytes, MTU {mtu}");
        }
    }
}

#[test]
fn headers_say_what_fragments_are() {
    for (path, tuple) in layouts() {
        let frame = frame_with(&path, &tuple, Ecn::Ect1, &payload(3000));
        let fragments = cut(&frame, &path, 1400, 0xabcd_ef01);
        let (last, others) = fragments.split_last().unwrap();
        let mut offset = 0;
        for fragment in &fragments {
            assert_eq!(fragment[..path.link_len()], frame[..path.link_len()]);
            let ip = &fragment[path.link_len()..];
            let (field, data) = if tuple.remote.addr.is_ipv4() {
                assert_eq!(ip[1], Ecn::Ect1.bits());
                assert_eq!(ip[4..6], [0xef, 0x01]);
                assert_eq!(checksum::sum(&ip[..20]).folded(), 0xffff);
                let field = u16::from_be_bytes([ip[6], ip[7]]);
                assert_eq!(field & 0x4000, 0, "Don't Fragment");
                (((field & 0x1fff) * 8, field & 0x2000 != 0), &ip[20..])
            } else {
                assert_eq!(ip[1], Ecn::Ect1.bits() << 4);
                assert_eq!(ip[44..48], [0xab, 0xcd, 0xef, 0x01]);
                let field = u16::from_be_bytes([ip[42], ip[43]]);
                ((field & 0xfff8, field & 1 != 0), &ip[48..])
            };
            assert_eq!(field, (offset as u16, fragment != last));
            offset += data.len();
        }
        assert!(
            others
                .iter()
                .all(|fragment| fragment.len() == others[0].len())
        );
        // The largest multiple of eight that the MTU allows.
        let headers = if tuple.remote.addr.is_ipv4() { 20 } else { 48 };
        let data = others[0].len() - path.link_len() - headers;
        assert!(data % 8 == 0 && data + headers + 8 > 1400);
    }
}

#[test]
fn a_packet_that_fits_is_not_cut() {
    for (path, tuple) in layouts() {
        let frame = frame_with(&path, &tuple, Ecn::NotEct, &payload(1400));
        let packet = (frame.len() - path.link_len()) as u32;
        assert!(Fragments::new(&frame, path.link_len(), packet, 1).is_none());
        assert!(Fragments::new(&frame, path.link_len(), packet - 1, 1).is_some());
    }
}

#[test]
fn no_mtu_is_too_small() {
    for (path, tuple) in layouts() {
        let frame = frame_with(&path, &tuple, Ecn::NotEct, &payload(1400));
        for mtu in 0..100 {
            let least = if tuple.remote.addr.is_ipv4() {
                68
            } else {
                1280
            };
            let fragments = cut(&frame, &path, mtu, 1);
            assert!(fragments[0].len() - path.link_len() <= least.max(mtu as usize));
        }
    }
}

#[test]
fn what_is_no_packet_or_finds_no_room_is_refused() {
    let (path, tuple) = layouts().next().unwrap();
    let frame = frame_with(&path, &tuple, Ecn::NotEct, &payload(1400));
    assert!(Fragments::new(&frame[..33], 14, 68, 1).is_none());
    assert!(Fragments::new(&frame[..14], 14, 68, 1).is_none());
    assert!(Fragments::new(&frame, 0, 68, 1).is_none());
    assert!(Fragments::new(&frame, usize::MAX, 68, 1).is_none());
    let mut fragments = Fragments::new(&frame, 14, 576, 1).unwrap();
    for room in [0, 14, 33, 34, 500] {
        assert_eq!(fragments.write_next(&mut vec![0; room]), None);
    }
    assert_eq!(fragments.write_next(&mut [0; 600]), Some(14 + 20 + 552));
}

#[test]
fn identifications_do_not_repeat_soon_nor_tell_of_each_other() {
    let mut identification = Identification::new([7; 16]);
    let (a, b) = (tuple(false), tuple(true));
    let mut short = HashSet::new();
    for _ in 0..1 << 16 {
        let id = identification.next(a.local.addr, a.remote.addr);
        assert!(short.insert(id as u16));
    }
    let here = identification.next(a.local.addr, a.remote.addr);
    let back = identification.next(a.remote.addr, a.local.addr);
    let other = identification.next(b.local.addr, b.remote.addr);
    assert!(back.wrapping_sub(here) > 100 && other.wrapping_sub(here) > 100);
    let mut again = Identification::new([8; 16]);
    assert_ne!(
        again.next(a.local.addr, a.remote.addr),
        here.wrapping_sub(1 << 16)
    );
}
