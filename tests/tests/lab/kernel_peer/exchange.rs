//! Every kind of message in each direction, with all bytes compared.

use rnic::{RemoteMemory, WcStatus, WorkRequest, WrOpcode};
use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::Endpoint;

use super::peer::Peer;
use super::wire::{self, ReadRequest};

/// Where the peer has its memory, as far as we are told: nothing but numbers to it.
const PEER_STAG: u32 = 0xfeed_1234;
const PEER_TO: u64 = 0xffff_0000_1234_5679;

/// Takes the next completion, which must be this one.
#[track_caller]
pub fn completed(end: &Endpoint, wr_id: u64, opcode: WrOpcode) -> rnic::WorkCompletion {
    let completion = end.completion();
    let found = (completion.wr_id, completion.status, completion.opcode);
    assert_eq!(found, (wr_id, WcStatus::Success, opcode));
    completion
}

/// The peer Sends, Writes and Reads a message of so many bytes.
pub fn theirs(peer: &mut Peer, end: &Endpoint, size: usize) {
    let bytes = Pattern::bytes(1, size);
    end.post_recv(1, 0..size);
    peer.send(&bytes);
    let received = completed(end, 1, WrOpcode::Recv);
    assert_eq!(
        (received.byte_len as usize, received.solicited),
        (size, false)
    );
    assert!(end.region.to_vec(0..size).unwrap() == bytes, "Send {size}");

    let bytes = Pattern::bytes(2, size);
    end.post_recv(2, 0..0);
    let fpdus = [
        peer.tagged(wire::WRITE, end.region.stag(), end.region.addr(), &bytes),
        peer.untagged(wire::SEND_SOLICITED, 0, &[]),
    ];
    peer.put(&fpdus.concat());
    assert!(completed(end, 2, WrOpcode::Recv).solicited);
    assert!(end.region.to_vec(0..size).unwrap() == bytes, "Write {size}");

    // As many as the peer may have outstanding, the last of them the whole.
    let requests = [size / 3, 0, size / 2, size].map(|size| ReadRequest {
        sink_stag: PEER_STAG,
        sink_to: PEER_TO,
        size: u32::try_from(size).unwrap(),
        source_stag: end.region.stag(),
        source_to: end.region.addr(),
    });
    requests
        .iter()
        .for_each(|request| peer.read_request(request));
    for request in requests {
        let response = peer.take_tagged(wire::READ_RESPONSE, PEER_STAG, PEER_TO);
        assert!(response == bytes[..request.size as usize], "Read {size}");
    }
}

/// We Send, Write and Read a message of so many bytes.
pub fn ours(peer: &mut Peer, end: &Endpoint, size: usize) {
    let bytes = Pattern::bytes(3, size);
    end.region.write(0, &bytes).unwrap();
    let element = [end.element(0..size)];
    let remote = RemoteMemory {
        stag: PEER_STAG,
        addr: PEER_TO,
        len: size as u64,
    };
    end.post(WorkRequest::send(3, &element));
    end.post(WorkRequest::write(4, &element, remote));
    end.post(WorkRequest::send(5, &element).solicited());
    end.post(WorkRequest::send_with_invalidate(6, &element, PEER_STAG));
    assert!(peer.take_send(wire::SEND) == (bytes.clone(), 0));
    assert!(peer.take_tagged(wire::WRITE, PEER_STAG, PEER_TO) == bytes);
    assert!(peer.take_send(wire::SEND_SOLICITED) == (bytes.clone(), 0));
    assert!(peer.take_send(wire::SEND_INVALIDATE) == (bytes, PEER_STAG));
    for (wr_id, opcode) in [
        (3, WrOpcode::Send),
        (4, WrOpcode::Write),
        (5, WrOpcode::Send),
        (6, WrOpcode::SendInvalidate),
    ] {
        let _ = completed(end, wr_id, opcode);
    }

    // Two outstanding, answered with one stream of FPDUs.
    let bytes = Pattern::bytes(4, size);
    let half = size / 2;
    end.post(WorkRequest::read(7, &[end.element(0..half)], remote));
    let rest = [end.element(half..size)];
    end.post(WorkRequest::read(8, &rest, remote.offset(half as u64)));
    let mut fpdus = Vec::new();
    for (at, length) in [(0, half), (half, size - half)] {
        let request = peer.take_read_request();
        let from = (request.source_stag, request.source_to);
        assert_eq!(from, (PEER_STAG, PEER_TO + at as u64));
        assert_eq!(request.size as usize, length);
        let (stag, to) = (request.sink_stag, request.sink_to);
        let part = &bytes[at..at + length];
        fpdus.extend(peer.tagged(wire::READ_RESPONSE, stag, to, part));
    }
    peer.put(&fpdus);
    for (wr_id, length) in [(7, half), (8, size - half)] {
        let read = completed(end, wr_id, WrOpcode::Read);
        assert_eq!(read.byte_len as usize, length);
    }
    assert!(end.region.to_vec(0..size).unwrap() == bytes, "Read {size}");
}
