//! The MPA start-up in both roles, both revisions and all flags.

use std::thread;
use std::time::{Duration, Instant};

use rnic::{AcceptOptions, ConnectOptions, Error, MpaOptions, WorkRequest};
use rnic_tests::lab::Family;
use rnic_tests::pattern::Pattern;
use rnic_tests::verbs::{Endpoint, LIMIT};

use super::bench::{Bench, Initiator, Terms};
use super::exchange::{ours, theirs};
use super::peer::{End, Peer, is_indication};
use super::wire::{CRC, ENHANCED, REJECTED, REPLY_KEY, REQUEST_KEY, StartFrame, enhanced};

#[test]
fn both_roles_agree_with_a_kernel_peer_on_revision_crc_depths_and_indication() {
    let bench = Bench::new("kernel-startup");
    for family in Family::ALL {
        for terms in Terms::all() {
            let terms = Terms { family, ..terms };
            println!("{terms:?}");
            let (mut peer, end) = bench.connected(terms, 4096);
            // Without an indication the initiator has to send first.
            if terms.initiator == Initiator::Us {
                ours(&mut peer, &end, 3000);
            }
            theirs(&mut peer, &end, 3000);
            ours(&mut peer, &end, 3000);
        }
    }
}

#[test]
fn private_data_of_every_length_passes_between_kernel_and_rnic() {
    let bench = Bench::new("kernel-private");
    for initiator in [Initiator::Peer, Initiator::Us] {
        for (revision, most) in [(1, 512), (2, 508)] {
            for length in [1, 256, most] {
                let (asks, answers) = (Pattern::bytes(1, length), Pattern::bytes(2, length));
                let end = Endpoint::new(&bench.daemon, 64);
                let terms = Terms::new(initiator, revision);
                bench.start(&terms, &end, [&asks, &answers]);
            }
        }
    }
}

#[test]
fn a_start_up_frame_in_pieces_is_put_together() {
    let bench = Bench::new("kernel-pieces");
    let end = Endpoint::new(&bench.daemon, 4096);
    let listener = bench.listener(&end, Family::V4);
    thread::scope(|scope| {
        scope.spawn(|| {
            let request = listener.accept().wait(LIMIT).unwrap();
            assert_eq!(request.private_data(), b"in pieces");
            request
                .accept(
                    &end.qp,
                    AcceptOptions::default().private_data(b"as a whole"),
                )
                .wait(LIMIT)
                .unwrap();
        });
        let mut peer = Peer::new(bench.dial(listener.local_addr()));
        let request = StartFrame {
            flags: CRC,
            revision: 1,
            private_data: b"in pieces".to_vec(),
        };
        for byte in request.encode(REQUEST_KEY) {
            peer.write(&[byte]);
            thread::sleep(Duration::from_millis(2));
        }
        let reply = peer.start_frame(REPLY_KEY);
        assert_eq!(reply.private_data, b"as a whole");
    });
}

#[test]
fn our_rejection_reaches_a_kernel_peer_with_private_data_and_fin() {
    let bench = Bench::new("kernel-rejected");
    let end = Endpoint::new(&bench.daemon, 64);
    for (revision, flags, words) in [(1, 0, &[][..]), (2, ENHANCED, &enhanced(8, 4, &[])[..])] {
        let listener = bench.listener(&end, Family::V4);
        thread::scope(|scope| {
            let reject = || {
                let request = listener.accept().wait(LIMIT).unwrap();
                request.reject(b"not today").unwrap();
            };
            scope.spawn(reject);
            let mut peer = Peer::new(bench.dial(listener.local_addr()));
            let request = StartFrame {
                flags,
                revision,
                private_data: words.to_vec(),
            };
            peer.write(&request.encode(REQUEST_KEY));
            let reply = peer.start_frame(REPLY_KEY);
            assert_eq!(reply.flags & REJECTED, REJECTED);
            assert_eq!(
                (reply.revision, reply.split().2),
                (revision, &b"not today"[..])
            );
            // Nothing is left to be said: the RNIC closes, whatever the peer does.
            let since = Instant::now();
            assert_eq!(peer.take_end(), End::Fin);
            let took = since.elapsed();
            assert!(took < Duration::from_secs(5), "closed after {took:?}");
        });
    }
}

#[test]
fn a_kernel_peers_rejection_reaches_our_program_with_private_data() {
    let bench = Bench::new("kernel-rejects");
    for (revision, flags, words) in [(1, 0, &[][..]), (2, ENHANCED, &enhanced(8, 4, &[])[..])] {
        let said = [words, b"not today"].concat();
        match answered(&bench, revision, flags | REJECTED, said) {
            Error::Rejected { private_data, .. } => assert_eq!(private_data, b"not today"),
            other => panic!("not rejected: {other}"),
        }
    }
}

#[test]
fn our_indication_is_repeated_to_a_responder_that_stays_quiet_and_to_no_other() {
    let bench = Bench::new("kernel-quiet");
    for quiet in [true, false] {
        let (mut peer, end) = bench.connected(Terms::new(Initiator::Us, 2), 64);
        if !quiet {
            peer.rdma_write(0, 0, &[]);
        }
        let mut repeated = 0;
        if quiet {
            while repeated < 3 && is_indication(&peer.any_message().unwrap()) {
                repeated += 1;
            }
        } else {
            thread::sleep(Duration::from_millis(1500));
        }
        end.post(WorkRequest::send(1, &[]));
        while is_indication(&peer.any_message().unwrap()) {
            repeated += 1;
        }
        // The other's first bytes may take longer than the first two intervals, of 10 and 100 ms.
        let expected = if quiet { 3..=3 } else { 0..=2 };
        assert!(
            expected.contains(&repeated),
            "quiet: {quiet}, {repeated} times"
        );
    }
}

/// What becomes of our connecting when the peer replies so.
fn answered(bench: &Bench, revision: u8, flags: u8, private_data: Vec<u8>) -> Error {
    let end = Endpoint::new(&bench.daemon, 64);
    let (listener, at) = bench.kernel_listener(Family::V4);
    let reply = StartFrame {
        flags,
        revision,
        private_data,
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let (stream, _) = listener.accept().unwrap();
            let mut peer = Peer::new(stream);
            let _ = peer.start_frame(REQUEST_KEY);
            peer.write(&reply.encode(REPLY_KEY));
            let _ = peer.take_end();
        });
        let options = ConnectOptions::default().mpa(MpaOptions {
            revision,
            ..MpaOptions::default()
        });
        end.qp
            .connect(at, options)
            .wait(Duration::from_secs(10))
            .expect_err("not to be accepted")
    })
}
