//! Bytes through Linux's TCP and ours, however they are cut and however slowly they are read.

use std::thread;
use std::time::{Duration, Instant};

use rnic::{RemoteMemory, WorkRequest, WrOpcode};
use rnic_tests::lab::Family;
use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::Endpoint;

use super::bench::{Bench, Initiator, Terms};
use super::exchange::{completed, ours, theirs};
use super::peer::{Cut, Peer};
use super::wire;

/// Bytes of a long transfer, and of each message of those that we send.
const LARGE: usize = 64 << 20;
const MESSAGE: usize = 1 << 20;
const REMOTE: RemoteMemory = RemoteMemory {
    stag: 0x0102_0304,
    addr: 0x1000,
    len: LARGE as u64,
};

#[test]
fn fpdus_arrive_however_the_stream_is_cut() {
    let bench = Bench::new("kernel-cut");
    for (family, crc, markers) in [
        (Family::V4, true, false),
        (Family::V6, false, false),
        (Family::V4, true, true),
    ] {
        for cut in [
            Cut::Each,
            Cut::Together,
            Cut::CrcApart,
            Cut::Pieces(3),
            Cut::Pieces(50),
            Cut::Pieces(3000),
        ] {
            // The least ULPDU that carries a byte, odd ones, and one of many segments.
            for mulpdu in [19, 57, 1441, 9000, 65_535] {
                let terms = Terms {
                    family,
                    crc: (crc, crc),
                    markers: (markers, markers),
                    ..Terms::new(Initiator::Peer, 2)
                };
                let (mut peer, end) = bench.connected(terms, 1 << 17);
                // A Marker can't point further back.
                let mulpdu = if markers { mulpdu.min(64_768) } else { mulpdu };
                (peer.cut, peer.mulpdu) = (cut, mulpdu);
                let small = mulpdu < 100 || cut == Cut::Pieces(3);
                let largest = if small { 600 } else { 100_000 };
                for size in [0, 1, 2, 3, 4, 5, 300, largest] {
                    theirs(&mut peer, &end, size);
                    ours(&mut peer, &end, size);
                }
            }
        }
    }
}

#[test]
fn a_long_write_of_a_kernel_peer_arrives_whole() {
    let bench = Bench::new("kernel-long-in");
    for family in Family::ALL {
        let terms = Terms {
            family,
            ..Terms::new(Initiator::Peer, 2)
        };
        let (mut peer, end) = bench.connected(terms, LARGE);
        peer.cut = Cut::Together;
        write_in(&mut peer, &end);
    }
}

/// The peer Writes [`LARGE`] bytes and says so by a Send.
fn write_in(peer: &mut Peer, end: &Endpoint) {
    let bytes = Pattern::bytes(5, LARGE);
    end.post_recv(1, 0..0);
    let (stag, base) = (end.region.stag(), end.region.addr());
    for (index, part) in bytes.chunks(MESSAGE).enumerate() {
        peer.rdma_write(stag, base + (index * MESSAGE) as u64, part);
    }
    peer.send(&[]);
    let _ = completed(end, 1, WrOpcode::Recv);
    assert!(end.content() == bytes, "the Writes changed on their way");
}

#[test]
fn a_long_write_to_a_kernel_peer_arrives_whole() {
    let bench = Bench::new("kernel-long-out");
    for family in Family::ALL {
        let terms = Terms {
            family,
            ..Terms::new(Initiator::Us, 2)
        };
        let (mut peer, end) = bench.connected(terms, LARGE);
        write_out(&mut peer, &end, LARGE, |_| {});
    }
}

/// We Write so many bytes; the peer compares them as they come, after `pause` before each message.
fn write_out(peer: &mut Peer, end: &Endpoint, length: usize, pause: impl Fn(usize)) {
    let bytes = Pattern::bytes(6, length);
    end.region.write(0, &bytes).unwrap();
    let parts = bytes.chunks(MESSAGE).enumerate();
    for (index, part) in parts.clone() {
        let at = index * MESSAGE;
        let element = [end.element(at..at + part.len())];
        let remote = REMOTE.offset(at as u64);
        end.post(WorkRequest::write(index as u64, &element, remote));
    }
    for (index, part) in parts {
        pause(index);
        let to = REMOTE.addr + (index * MESSAGE) as u64;
        let got = peer.take_tagged(wire::WRITE, REMOTE.stag, to);
        assert!(got == part, "message {index} changed on its way");
        let _ = completed(end, index as u64, WrOpcode::Write);
    }
}

#[test]
fn large_frames_pass_in_both_directions() {
    const LENGTH: usize = 4 << 20;
    let bench = Bench::of_mtu("kernel-jumbo", 9000);
    for (family, markers) in [(Family::V4, false), (Family::V6, false), (Family::V4, true)] {
        let terms = Terms {
            family,
            markers: (markers, markers),
            ..Terms::new(Initiator::Peer, 2)
        };
        let (mut peer, end) = bench.connected(terms, LENGTH);
        peer.largest = 8960;
        for (cut, mulpdu) in [
            (Cut::Together, 8000),
            (Cut::Each, 8900),
            (Cut::Together, 57),
        ] {
            (peer.cut, peer.mulpdu) = (cut, mulpdu);
            let largest = if mulpdu < 100 { 20_000 } else { LENGTH };
            for size in [0, 1, 3700, 8800, largest] {
                theirs(&mut peer, &end, size);
                ours(&mut peer, &end, size);
            }
        }
    }
}

#[test]
fn a_veth_as_it_comes_carries_what_its_kernel_leaves_to_it() {
    const LENGTH: usize = 1 << 20;
    for mode in ["super-packets", "native"] {
        let bench = Bench::with_offloads(&format!("kernel-{mode}"), mode);
        let counted = |name| bench.daemon.counter(name);
        for (family, markers) in [(Family::V4, false), (Family::V6, false), (Family::V4, true)] {
            for initiator in [Initiator::Peer, Initiator::Us] {
                let terms = Terms {
                    family,
                    markers: (markers, markers),
                    ..Terms::new(initiator, 2)
                };
                let (mut peer, end) = bench.connected(terms, LENGTH);
                for (cut, mulpdu) in [(Cut::Together, 1400), (Cut::Pieces(3000), 57)] {
                    (peer.cut, peer.mulpdu) = (cut, mulpdu);
                    let largest = if mulpdu < 100 { 100_000 } else { LENGTH };
                    for size in [0, 1, 3700, largest] {
                        theirs(&mut peer, &end, size);
                        ours(&mut peer, &end, size);
                    }
                }
            }
        }
        assert!(counted("rx_partial_checksums") > 0, "{mode}");
        assert_eq!(counted("rx_bad_tcp_checksum"), 0, "{mode}");
        let supers = mode == "super-packets";
        assert_eq!(counted("port0_chains_received") > 0, supers, "{mode}");
        assert_eq!(counted("port0_super_packets_sent") > 0, supers, "{mode}");
        assert_eq!(counted("port0_bad_receive_chains"), 0, "{mode}");
    }
}

#[test]
fn a_long_read_passes_in_both_directions() {
    const LENGTH: usize = 16 << 20;
    let bench = Bench::new("kernel-long-read");
    let (mut peer, end) = bench.connected(Terms::new(Initiator::Peer, 2), LENGTH);
    peer.cut = Cut::Together;
    theirs(&mut peer, &end, LENGTH);
    ours(&mut peer, &end, LENGTH);
}

#[test]
fn long_transfers_pass_in_both_directions_at_once() {
    const LENGTH: usize = 16 << 20;
    let bench = Bench::new("kernel-both-ways");
    let (mut peer, end) = bench.connected(Terms::new(Initiator::Peer, 1), 2 * LENGTH);
    peer.cut = Cut::Together;
    let (in_bytes, out_bytes) = (Pattern::bytes(7, LENGTH), Pattern::bytes(8, LENGTH));
    end.region.write(LENGTH, &out_bytes).unwrap();
    end.post_recv(1, 0..0);
    // A revision 1 responder waits for the initiator's first FPDU.
    let (stag, base) = (end.region.stag(), end.region.addr());
    let writes = peer.tagged(wire::WRITE, stag, base, &in_bytes);
    let mut writer = Peer::new(peer.stream.try_clone().unwrap());
    writer.cut = Cut::Pieces(20_000);
    thread::scope(|scope| {
        scope.spawn(move || writer.put(&writes));
        end.post(WorkRequest::write(
            2,
            &[end.element(LENGTH..2 * LENGTH)],
            REMOTE,
        ));
        let got = peer.take_tagged(wire::WRITE, REMOTE.stag, REMOTE.addr);
        assert!(got == out_bytes, "what we sent changed on its way");
    });
    let _ = completed(&end, 2, WrOpcode::Write);
    peer.send(&[]);
    let _ = completed(&end, 1, WrOpcode::Recv);
    let got = end.region.to_vec(0..LENGTH).unwrap();
    assert!(got == in_bytes, "what the peer sent changed on its way");
}

#[test]
fn a_peer_that_stops_reading_gets_the_rest_when_it_goes_on() {
    const LENGTH: usize = 6 << 20;
    let bench = Bench::new("kernel-zero-window");
    for family in Family::ALL {
        // The window of such a buffer closes long before a message is through.
        let (mut peer, end) = bench.connected(slow(family, 64 << 10), LENGTH);
        write_out(&mut peer, &end, LENGTH, |index| {
            if index % 3 == 0 {
                thread::sleep(Duration::from_millis(1200));
            }
        });
    }
}

#[test]
fn a_peer_with_a_small_receive_buffer_gets_everything() {
    let bench = Bench::new("kernel-small-buffer");
    for (buffer, length) in [(16 << 10, 4 << 20), (6 << 10, 1 << 20)] {
        let (mut peer, end) = bench.connected(slow(Family::V4, buffer), length);
        write_out(&mut peer, &end, length, |_| {});
    }
}

#[test]
fn a_peer_whose_window_is_smaller_than_a_segment_gets_everything() {
    const LENGTH: usize = 65_536;
    let bench = Bench::new("kernel-tiny-buffer");
    // The first is as small as Linux makes it.
    for buffer in [1, 1000, 2000] {
        for family in Family::ALL {
            let begin = Instant::now();
            let (mut peer, end) = bench.connected(slow(family, buffer), LENGTH);
            write_out(&mut peer, &end, LENGTH, |_| {});
            // A stall for each FPDU would take minutes.
            let took = begin.elapsed();
            assert!(
                took < Duration::from_secs(20),
                "{buffer} bytes, {family:?}: {took:?}"
            );
        }
    }
}

fn slow(family: Family, receive_buffer: usize) -> Terms {
    Terms {
        family,
        receive_buffer: Some(receive_buffer),
        ..Terms::new(Initiator::Us, 2)
    }
}
