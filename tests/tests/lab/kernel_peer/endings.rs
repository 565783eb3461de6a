//! How connections with a kernel peer end: in order, in the middle of something, and for a reason.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use rnic::{AcceptOptions, DisconnectReason, MpaOptions, RemoteMemory, WcStatus, WorkRequest};
use rnic_tests::lab::Family;
use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::{Endpoint, LIMIT};
use rustix::net::sockopt::set_socket_linger;

use super::bench::{Bench, Initiator, Terms};
use super::exchange::{ours, theirs};
use super::peer::{Cut, End, Peer};
use super::wire::{self, CRC, Header, REPLY_KEY, REQUEST_KEY, ReadRequest, StartFrame};

const SIZE: usize = 1 << 20;
const REMOTE: RemoteMemory = RemoteMemory {
    stag: 7,
    addr: 0,
    len: u64::MAX,
};
/// The environment variable that tells the process that gets killed where to connect.
const VICTIM_CONNECTS_TO: &str = "KERNEL_PEER_CONNECTS_TO";

/// A connection and a receive that nothing will come for.
fn waiting(bench: &Bench, family: Family) -> (Peer, Endpoint) {
    let terms = Terms {
        family,
        ..Terms::new(Initiator::Peer, 2)
    };
    let (mut peer, end) = bench.connected(terms, 8 * SIZE);
    peer.cut = Cut::Together;
    theirs(&mut peer, &end, 1000);
    end.post_recv(99, 0..64);
    (peer, end)
}

/// The end of the connection was this, the receive was flushed, and the RNIC serves on.
#[track_caller]
fn ended(bench: &mut Bench, end: &Endpoint, reason: DisconnectReason) {
    assert_eq!(end.ending(), reason);
    flushed(end, 99);
    bench.daemon.assert_alive();
    let (mut peer, end) = bench.connected(Terms::new(Initiator::Us, 2), 4096);
    ours(&mut peer, &end, 2000);
}

#[track_caller]
fn flushed(end: &Endpoint, wr_id: u64) {
    let completion = end.completion();
    let found = (completion.wr_id, completion.status);
    assert_eq!(found, (wr_id, WcStatus::WorkRequestFlushed));
}

#[test]
fn a_kernel_peers_fin_between_messages_is_a_graceful_end() {
    let mut bench = Bench::new("kernel-fin");
    for family in Family::ALL {
        let (mut peer, end) = waiting(&bench, family);
        peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(peer.take_end(), End::Fin);
        ended(&mut bench, &end, DisconnectReason::Graceful);
    }
}

#[test]
fn our_disconnect_sends_everything_and_then_fin() {
    let bench = Bench::new("kernel-our-fin");
    for family in Family::ALL {
        let (mut peer, end) = waiting(&bench, family);
        let bytes = Pattern::bytes(3, 8 * SIZE);
        end.region.write(0, &bytes).unwrap();
        end.post(WorkRequest::write(1, &[end.element(0..8 * SIZE)], REMOTE));
        thread::scope(|scope| {
            scope.spawn(|| end.qp.disconnect().wait(LIMIT).unwrap());
            assert!(peer.take_tagged(wire::WRITE, REMOTE.stag, 0) == bytes);
            assert_eq!(peer.take_end(), End::Fin);
            drop(peer);
        });
    }
}

#[test]
fn a_kernel_peers_fin_inside_of_a_message_or_an_fpdu_is_told_apart_from_a_graceful_end() {
    let mut bench = Bench::new("kernel-early-fin");
    let bytes = Pattern::bytes(1, SIZE);
    for cut_behind in [2, 700, 1460, 1461, 20_000] {
        let (mut peer, end) = waiting(&bench, Family::V4);
        let fpdus = peer.tagged(wire::WRITE, end.region.stag(), end.region.addr(), &bytes);
        peer.write(&fpdus.concat()[..cut_behind]);
        drop(peer);
        ended(&mut bench, &end, DisconnectReason::PeerClosed);
    }
}

#[test]
fn a_kernel_peers_reset_in_its_own_transfer_is_a_reset() {
    let mut bench = Bench::new("kernel-rst-in");
    let bytes = Pattern::bytes(1, 4 * SIZE);
    for family in Family::ALL {
        let (mut peer, end) = waiting(&bench, family);
        peer.rdma_write(end.region.stag(), end.region.addr(), &bytes);
        let fpdus = peer.tagged(wire::WRITE, end.region.stag(), end.region.addr(), &bytes);
        peer.write(&fpdus.concat()[..SIZE / 2 + 1]);
        reset(peer);
        ended(&mut bench, &end, DisconnectReason::Reset);
    }
}

#[test]
fn a_kernel_peers_reset_in_our_transfer_is_a_reset() {
    let mut bench = Bench::new("kernel-rst-out");
    for family in Family::ALL {
        for with_linger in [false, true] {
            let (mut peer, end) = waiting(&bench, family);
            let element = [end.element(0..8 * SIZE)];
            for wr_id in [1, 2] {
                end.post(WorkRequest::write(wr_id, &element, REMOTE));
            }
            // Some segments in, the rest on the way or not yet sent.
            let mut some = vec![0; 100_000];
            std::io::Read::read_exact(&mut peer.stream, &mut some).unwrap();
            if with_linger {
                reset(peer);
            } else {
                // Linux answers so too when a socket with unread bytes is closed.
                drop(peer);
            }
            assert_eq!(end.ending(), DisconnectReason::Reset);
            let mut ends = [1, 2, 99].map(|_| end.completion());
            ends.sort_by_key(|completion| completion.wr_id);
            for (completion, wr_id) in ends.iter().zip([1, 2, 99]) {
                let found = (completion.wr_id, completion.status);
                assert_eq!(found, (wr_id, WcStatus::WorkRequestFlushed));
            }
            bench.daemon.assert_alive();
        }
    }
    let (mut peer, end) = bench.connected(Terms::new(Initiator::Us, 2), 4096);
    ours(&mut peer, &end, 2000);
}

/// Closes with RST.
fn reset(peer: Peer) {
    set_socket_linger(&peer.stream, Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_kernel_peers_process_killed_in_mid_transfer_ends_the_connection() {
    let mut bench = Bench::new("kernel-killed");
    let end = Endpoint::new(&bench.daemon, SIZE);
    let listener = bench.listener(&end, Family::V4);
    // This same program, running the test below.
    let program = std::env::current_exe().unwrap();
    let test = [
        "--exact",
        "kernel_peer::endings::the_process_that_gets_killed",
        "--ignored",
    ];
    let variable = format!("{VICTIM_CONNECTS_TO}={}", listener.local_addr());
    let command = bench.kernel.namespace.command("env").arg(variable);
    let mut victim = command.arg(program).args(test).spawn();
    let request = listener.accept().wait(LIMIT).unwrap();
    let options = AcceptOptions::default()
        .private_data(end.remote().to_bytes().to_vec())
        .mpa(MpaOptions {
            revision: 1,
            ..MpaOptions::default()
        });
    end.post_recv(1, 0..0);
    end.post_recv(99, 0..0);
    request
        .accept(&end.qp, options)
        .wait(Duration::from_secs(10))
        .unwrap();
    // It has Sent once all of the region is Written.
    assert_eq!(end.completion().status, WcStatus::Success);
    assert!(end.holds(1));
    assert!(victim.running(), "{}", victim.stdout());
    victim.kill();
    let reason = end.ending();
    // FIN or RST, as its kernel sees fit, in the middle of something or not.
    assert!(
        matches!(
            reason,
            DisconnectReason::PeerClosed | DisconnectReason::Reset | DisconnectReason::Graceful
        ),
        "{reason:?}"
    );
    flushed(&end, 99);
    bench.daemon.assert_alive();
}

#[test]
#[ignore = "a process for the test above, which runs it by itself"]
fn the_process_that_gets_killed() {
    let Ok(address) = std::env::var(VICTIM_CONNECTS_TO) else {
        return; // Somebody runs all ignored tests.
    };
    let address: SocketAddr = address.parse().unwrap();
    let mut peer = Peer::new(std::net::TcpStream::connect(address).unwrap());
    let request = StartFrame {
        flags: CRC,
        revision: 1,
        private_data: Vec::new(),
    };
    peer.write(&request.encode(REQUEST_KEY));
    let reply = peer.start_frame(REPLY_KEY).private_data;
    let memory = RemoteMemory::from_bytes(reply.try_into().unwrap());
    let bytes = Pattern::bytes(1, usize::try_from(memory.len).unwrap());
    peer.cut = Cut::Together;
    peer.rdma_write(memory.stag, memory.addr, &bytes);
    peer.send(&[]);
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        peer.rdma_write(memory.stag, memory.addr, &bytes);
    }
}

#[test]
fn what_a_peer_does_wrong_is_named_in_a_terminate_and_then_fin_follows() {
    let mut bench = Bench::new("kernel-terminate");
    let wrong = 0xdead_0000;
    // What is done, the control bytes (RFC 5040 section 4.8), and the bytes of the headers that
    // come back: none, DDP's, or DDP's and RDMAP's.
    type Wrong = fn(&mut Peer, &Endpoint, u32) -> Vec<u8>;
    let cases: [(&str, Wrong, [u8; 2], usize); 8] = [
        (
            "Write to an unknown STag",
            |peer, end, wrong| {
                peer.tagged(wire::WRITE, wrong, end.region.addr(), &[1; 9])
                    .concat()
            },
            [0x11, 0x00],
            14,
        ),
        (
            "Write beyond the end",
            |peer, end, _| {
                let to = end.region.addr() + end.region.len() as u64 - 8;
                peer.tagged(wire::WRITE, end.region.stag(), to, &[1; 9])
                    .concat()
            },
            [0x11, 0x01],
            14,
        ),
        (
            "Read of an unknown STag",
            |peer, end, wrong| request(peer, wrong, end.region.addr()),
            [0x01, 0x00],
            18 + 28,
        ),
        (
            "Read beyond the end",
            |peer, end, _| {
                let to = end.region.addr() + end.region.len() as u64 - 8;
                request(peer, end.region.stag(), to)
            },
            [0x01, 0x01],
            18 + 28,
        ),
        (
            "Send longer than the receive",
            |peer, _, _| peer.untagged(wire::SEND, 0, &[1; 65]).concat(),
            [0x12, 0x05],
            18,
        ),
        (
            "Send without a receive",
            |peer, end, _| {
                peer.send(&[]);
                assert_eq!(end.completion().status, WcStatus::Success);
                peer.untagged(wire::SEND, 0, &[]).concat()
            },
            [0x12, 0x02],
            18,
        ),
        (
            "an opcode that does not exist",
            |peer, end, _| {
                peer.tagged(15, end.region.stag(), end.region.addr(), &[1; 9])
                    .concat()
            },
            [0x02, 0x06],
            14,
        ),
        (
            "a wrong CRC",
            |peer, end, _| {
                let (stag, to) = (end.region.stag(), end.region.addr());
                let mut fpdu = peer.tagged(wire::WRITE, stag, to, &[1; 9]).concat();
                fpdu[20] ^= 1;
                fpdu
            },
            [0x20, 0x02],
            0,
        ),
    ];
    for (what, make, control, headers) in cases {
        let (mut peer, end) = waiting(&bench, Family::V4);
        let before = end.content();
        let fpdu = make(&mut peer, &end, wrong);
        peer.write(&fpdu);
        let terminate = peer.take_terminate();
        println!("{what}: {terminate:02x?}");
        assert_eq!(terminate[..2], control, "{what}");
        let flags = match headers {
            0 => 0,
            14 | 18 => 0xc0,
            _ => 0xe0,
        };
        assert_eq!(terminate[2..4], [flags, 0], "{what}");
        if headers > 0 {
            // The ULPDU's length, and its headers as they were sent.
            assert_eq!(terminate[4..], fpdu[..2 + headers], "{what}");
        }
        assert_eq!(peer.take_end(), End::Fin, "{what}");
        drop(peer);
        let control = u16::from_be_bytes(control);
        assert_eq!(
            end.ending(),
            DisconnectReason::TerminateSent { control },
            "{what}"
        );
        assert!(end.content() == before, "{what} changed the memory");
        bench.daemon.assert_alive();
    }
}

/// The FPDU of an RDMA Read Request of 9 bytes.
fn request(peer: &mut Peer, source_stag: u32, source_to: u64) -> Vec<u8> {
    let request = ReadRequest {
        sink_stag: 1,
        sink_to: 2,
        size: 9,
        source_stag,
        source_to,
    };
    peer.read_request_fpdu(&request)
}

#[test]
fn a_kernel_peers_terminate_reaches_our_program() {
    let mut bench = Bench::new("kernel-terminates");
    let (mut peer, end) = waiting(&bench, Family::V4);
    end.post(WorkRequest::write(1, &[end.element(0..9)], REMOTE));
    let _ = peer.take_tagged(wire::WRITE, REMOTE.stag, 0);
    let _ = end.completion();
    // An unknown STag; the length of our segment and its header: tagged, last, version 1, Write.
    let mut bytes = vec![0x11, 0x00, 0xc0, 0x00, 0, 23, 0xc1, 0x40];
    bytes.extend(REMOTE.stag.to_be_bytes());
    bytes.extend(REMOTE.addr.to_be_bytes());
    let header = Header::Untagged {
        last: true,
        opcode: wire::TERMINATE,
        invalidate: 0,
        qn: wire::TERMINATE_QUEUE,
        msn: 1,
        mo: 0,
    };
    peer.put(&[wire::fpdu(&header, &bytes, true)]);
    assert_eq!(peer.take_end(), End::Fin);
    drop(peer);
    ended(
        &mut bench,
        &end,
        DisconnectReason::TerminateReceived { control: 0x1100 },
    );
}
