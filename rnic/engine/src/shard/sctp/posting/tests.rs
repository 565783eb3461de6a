//! What a session may post, with others on its association.

use rnic_proto::enhanced::{ReadDepths, RtrSet};
use rnic_proto::mpa::marker::Markers;
use rnic_proto::sctp::{Control, Function, Session};
use rnic_xsk::{ChunkSize, FramePool};
use userspace_sctp::{AssocId, Config, Ends, Route};

use super::*;
use crate::shard::config::ShardConfig;

const NOW: Instant = Instant::from_nanos(1_000_000);

/// Packets of one side that go to the other now.
fn carry<A: AsRef<[u8]>, B: AsRef<[u8]>>(from: &mut Stack<A>, to: &mut Stack<B>) {
    let mut out = [0; 1500];
    while let Some(sent) = from.poll_transmit(NOW, &mut out) {
        let Ends { local, remote } = sent.ends;
        let bytes = &out[..sent.len];
        to.receive(NOW, remote.ip(), local.ip(), None, bytes, |_, _| {});
    }
}

/// An association with a peer that takes it, and acknowledges nothing.
fn established() -> (Sctp, AssocId) {
    let ends = Ends {
        local: "198.18.0.1:1000".parse().unwrap(),
        remote: "198.18.0.2:7174".parse().unwrap(),
    };
    let mut sctp = Sctp::new(&ShardConfig::default(), NOW);
    let config = Config {
        adaptation: Some(rnic_proto::sctp::ADAPTATION_DDP),
        ..Config::default()
    };
    let mut peer: Stack<Vec<u8>> = Stack::new(config, [1; 16], NOW);
    peer.listen(ends.remote).unwrap();
    let id = sctp.stack.connect(NOW, Route { ends, udp: None }).unwrap();
    for _ in 0..2 {
        carry(&mut sctp.stack, &mut peer);
        carry(&mut peer, &mut sctp.stack);
    }
    assert!(sctp.stack.takes_messages(id));
    (sctp, id)
}

/// A session that the peer has asked for, and that was accepted.
fn add(sctp: &mut Sctp, assoc: AssocId, stream: u16) -> ConnId {
    let mut session = Session::passive();
    let initiate = Control {
        function: Function::Initiate,
        enhanced: None,
        private_data: b"",
    };
    session.on_control(&initiate).unwrap();
    session
        .accept(ReadDepths::default(), RtrSet::default(), b"")
        .unwrap();
    let added = sctp.sessions.add(assoc, Some(stream), session);
    added.expect("a place").id
}

/// Posts as many segments of so many bytes as there is room for.
fn fill(sctp: &mut Sctp, id: ConnId, (umem, pool): (&Umem, &mut FramePool), len: usize) -> usize {
    let mut count = 0;
    loop {
        let mut posting = sctp.posting(id, umem, NOW).expect("a session");
        if posting.send_capacity().room < len {
            return count;
        }
        let mut frame = pool.alloc().expect("a frame");
        frame.set_len(len);
        let ulpdu_len = (len - SSN_LEN) as u16;
        umem.bytes_mut(&mut frame)[..SSN_LEN].copy_from_slice(&ulpdu_len.to_be_bytes());
        posting.send(frame).unwrap();
        count += 1;
    }
}

#[test]
fn a_session_that_is_alone_has_twice_the_congestion_window() {
    let (mut sctp, assoc) = established();
    let id = add(&mut sctp, assoc, 0);
    let cwnd = sctp.stack.info(assoc).unwrap().cwnd;
    let room = 2 * cwnd + sctp.stack.message_max(assoc);
    let (umem, mut pool) = Umem::heap(64, ChunkSize::for_mtu(1500).unwrap());
    let posting = sctp.posting(id, &umem, NOW).unwrap();
    assert_eq!(posting.send_capacity().room, room);
    fill(&mut sctp, id, (&umem, &mut pool), 1000);
    let posting = sctp.posting(id, &umem, NOW).unwrap();
    assert_eq!(posting.send_capacity().room, room % 1000);
}

/// Segments leave the chunks alone that control messages may need. A session that finds none is heard of again when one
/// is acknowledged.
#[test]
fn segments_leave_chunks_for_control_messages() {
    let (mut sctp, assoc) = established();
    let (umem, mut pool) = Umem::heap(1024, ChunkSize::for_mtu(1500).unwrap());
    let [first, other] = [0, 1].map(|stream| add(&mut sctp, assoc, stream));
    let posted = fill(&mut sctp, first, (&umem, &mut pool), 20);
    assert_eq!(posted, SEGMENT_CHUNKS);
    assert_eq!(sctp.stack.room(assoc), CONTROL_CHUNKS);
    let posting = sctp.posting(other, &umem, NOW).unwrap();
    assert_eq!(posting.send_capacity().room, 0);
    assert_eq!(sctp.sessions.next_heard(), None);
    sctp.sessions.acknowledged(first, 20);
    let heard: Vec<_> = std::iter::from_fn(|| sctp.sessions.next_heard()).collect();
    assert_eq!(heard, [first, other]);
}

#[test]
fn the_largest_segment_leaves_room_for_a_sack() {
    // Packets of 1500 bytes over IPv4 and IPv6, and of the least MTU.
    for message_max in [1500 - 48, 1500 - 68, 576 - 48] {
        let mulpdu = fpdu::mulpdu(mss(message_max), Markers::Off);
        let left = message_max - SSN_LEN - mulpdu;
        assert!(
            (SACK_LEN..SACK_LEN + 4).contains(&left),
            "{left} of {message_max}"
        );
    }
}
