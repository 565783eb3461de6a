//! AF_XDP ports on both ends of a veth pair.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

#[path = "../../../../ebpf/tests/common/mod.rs"]
mod common;
mod end;
mod super_packets;

use std::os::fd::AsRawFd;
use std::time::Instant;

use common::{LEFT, LEFT_V4, RIGHT, RIGHT_V4, VethPair, without_privilege};
use end::{End, PATIENCE, segment, steering};
use rnic_xsk::{
    BusyPoll, ChunkSize, CopyMode, HugePages, Port, PortStatistics, Umem, UmemConfig, XskError,
    XskPort, XskPortConfig,
};

/// What no link does, and the kernel refuses.
fn faults(port: &PortStatistics) -> u64 {
    port.bad_receive_descriptors
        + port.bad_receive_chains
        + port.bad_completions
        + port.kernel_rx_invalid
        + port.kernel_tx_invalid
}

#[test]
fn frames_arrive_whole_and_in_order_both_ways() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = (End::left(&pair, 1), End::right(&pair, 1));
    let (left_frames, right_frames) = (left.pool.available(), right.pool.available());
    for round in 0..20 {
        let sizes = [0, 1, 6, 1000, 1460];
        let frame = |to_right, n: u32| segment(to_right, round * 100 + n, sizes[n as usize % 5]);
        let to_right: Vec<_> = (0..100).map(|n| frame(true, n)).collect();
        let to_left: Vec<_> = (0..100).map(|n| frame(false, n)).collect();
        to_right.iter().for_each(|bytes| left.send(0, bytes));
        left.flush(0);
        to_left.iter().for_each(|bytes| right.send(0, bytes));
        right.flush(0);
        assert_eq!(right.receive(0, 100), to_right);
        assert_eq!(left.receive(0, 100), to_left);
        left.reclaim();
        right.reclaim();
    }
    let statistics = left.ports[0].statistics();
    assert_eq!((statistics.transmitted, statistics.completed), (2000, 2000));
    assert_eq!(statistics.received, 2000);
    assert_eq!(faults(&statistics), 0, "{statistics:?}");
    // Every frame is back, but for those that wait for reception again.
    let near = |now: usize, before: usize| (before.abs_diff(now)) < 16;
    assert!(
        near(left.pool.available(), left_frames),
        "{}",
        left.pool.available()
    );
    assert!(
        near(right.pool.available(), right_frames),
        "{}",
        right.pool.available()
    );
}

#[test]
fn a_flush_sends_more_than_the_kernel_takes_in_one_call() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = (End::left(&pair, 1), End::right(&pair, 1));
    let frames: Vec<_> = (0..200).map(|n| segment(true, n, 100)).collect();
    frames.iter().for_each(|bytes| left.send(0, bytes));
    left.flush(0);
    assert_eq!(right.receive(0, 200), frames);
    assert!(left.ports[0].statistics().send_calls >= 200 / 32);
}

/// Packets one by one go round in few frames, and all frames are there for what comes while the receiver
/// sleeps, or once more has come at a time.
#[test]
fn few_frames_wait_for_packets_one_by_one_and_all_for_bursts() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = (End::left(&pair, 1), End::right(&pair, 1));
    let free = right.pool.available();
    let mut number = 0;
    let mut burst = |count: u32| -> Vec<_> {
        let frames = (number..number + count).map(|n| segment(true, n, 100));
        number += count;
        frames.collect()
    };
    let mut one_by_one = |left: &mut End, right: &mut End| {
        for _ in 0..2000 {
            let frames = burst(1);
            left.send(0, &frames[0]);
            left.flush(0);
            assert_eq!(right.receive(0, 1), frames);
            left.reclaim();
        }
        burst(200)
    };
    let frames = one_by_one(&mut left, &mut right);
    assert!(right.pool.available() > free + 256, "few are out");
    right.ports[0].prepare_sleep(&mut right.pool);
    assert_eq!(right.pool.available(), free, "all are out again");
    frames.iter().for_each(|bytes| left.send(0, bytes));
    left.flush(0);
    assert_eq!(right.receive(0, 200), frames);
    left.reclaim();

    let frames = one_by_one(&mut left, &mut right);
    assert!(right.pool.available() > free + 256, "few are out");
    // As many as are there for sure, and the rest once they have been seen.
    for frames in [&frames[..32], &frames[32..]] {
        frames.iter().for_each(|bytes| left.send(0, bytes));
        left.flush(0);
        assert_eq!(right.receive(0, frames.len()), frames);
        left.reclaim();
    }
    let statistics = right.ports[0].statistics();
    assert_eq!(statistics.kernel_fill_ring_empty, 0);
}

/// A port hands descriptors over in batches of 64 before it is flushed.
#[test]
fn a_flush_sends_whatever_the_last_batch_has() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = (End::left(&pair, 1), End::right(&pair, 1));
    for count in [1, 63, 64, 65, 128] {
        let frames: Vec<_> = (0..count).map(|n| segment(true, n, 100)).collect();
        frames.iter().for_each(|bytes| left.send(0, bytes));
        left.flush(0);
        assert_eq!(right.receive(0, count as usize), frames);
        assert_eq!(left.ports[0].unsent(), 0);
        left.reclaim();
    }
    let before = left.ports[0].statistics().send_calls;
    left.flush(0);
    let after = left.ports[0].statistics().send_calls;
    assert_eq!(after, before, "nothing is left to be sent");
}

#[test]
fn two_queues_share_one_umem_and_each_keeps_its_frames() {
    let pair = VethPair::new(2, 2);
    let (mut left, mut right) = (End::left(&pair, 2), End::right(&pair, 2));
    let frames = |queue: u32| -> Vec<_> {
        (0..150)
            .map(|n| segment(true, queue * 1000 + n, 700))
            .collect()
    };
    let (first, second) = (frames(0), frames(1));
    for (a, b) in first.iter().zip(&second) {
        left.send(0, a);
        left.send(1, b);
    }
    left.flush(0);
    left.flush(1);
    // What is sent on a queue of a veth arrives on the same queue of its peer.
    assert_eq!(right.receive(0, 150), first);
    assert_eq!(right.receive(1, 150), second);
}

#[test]
fn one_umem_serves_both_ends_in_two_namespaces() {
    let pair = VethPair::new(1, 1);
    pair.enter_left();
    let (umem, mut pool) = Umem::new(&UmemConfig::default()).unwrap();
    let mut sender = XskPort::open(&umem, XskPortConfig::new(LEFT, 0)).unwrap();
    pair.enter_right();
    let mut receiver = XskPort::open(&umem, XskPortConfig::new(RIGHT, 0)).unwrap();
    let mut steering = steering(RIGHT, RIGHT_V4);
    steering.set_queue(0, 0, receiver.fd()).unwrap();
    receiver.refill(&mut pool);

    let bytes = segment(true, 1, 1000);
    let mut frame = pool.alloc().unwrap();
    umem.bytes_mut(&mut frame)[..bytes.len()].copy_from_slice(&bytes);
    frame.set_len(bytes.len());
    sender.transmit(frame, 9).unwrap();
    sender.flush().unwrap();
    let mut out = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while receiver.receive(&mut pool, &mut out, 1) == 0 {
        assert!(Instant::now() < deadline, "the frame does not come");
    }
    assert_eq!(umem.bytes(out[0].first()), bytes);
    // A received frame can be sent on as it is.
    let frame = out.remove(0).into_frame(&umem, &mut pool).unwrap();
    sender.transmit(frame, 10).unwrap();
    sender.flush().unwrap();
    while receiver.receive(&mut pool, &mut out, 1) == 0 {
        assert!(Instant::now() < deadline, "the frame does not come again");
    }
    assert_eq!(umem.bytes(out[0].first()), bytes);
}

#[test]
fn the_socket_is_readable_when_there_is_something_to_receive() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = (End::left(&pair, 1), End::right(&pair, 1));
    assert!(!right.poll_readable(0, 20));
    left.send(0, &segment(true, 1, 10));
    left.flush(0);
    assert!(right.poll_readable(0, 30_000));
    right.receive(0, 1);
    assert!(!right.poll_readable(0, 20));
}

#[test]
fn large_frames_fit_large_chunks() {
    let pair = VethPair::new(1, 1);
    pair.ip_left(&["link", "set", "dev", LEFT, "mtu", "3500"]);
    pair.ip_right(&["link", "set", "dev", RIGHT, "mtu", "3500"]);
    let config = UmemConfig {
        chunk: ChunkSize::for_mtu(3500).unwrap(),
        ..UmemConfig::default()
    };
    pair.enter_left();
    let mut left = End::open(LEFT, LEFT_V4, 1, &config);
    pair.enter_right();
    let mut right = End::open(RIGHT, RIGHT_V4, 1, &config);
    let frames: Vec<_> = (0..50).map(|n| segment(true, n, 3460)).collect();
    frames.iter().for_each(|bytes| left.send(0, bytes));
    left.flush(0);
    assert_eq!(right.receive(0, 50), frames);
}

/// Both ends of a pair with an MTU of 9000.
fn jumbo_ends(pair: &VethPair) -> (End, End) {
    pair.ip_left(&["link", "set", "dev", LEFT, "mtu", "9000"]);
    pair.ip_right(&["link", "set", "dev", RIGHT, "mtu", "9000"]);
    let config = UmemConfig {
        chunk: ChunkSize::for_mtu(9000).unwrap(),
        ..UmemConfig::default()
    };
    pair.enter_left();
    let left = End::open(LEFT, LEFT_V4, 1, &config);
    pair.enter_right();
    (left, End::open(RIGHT, RIGHT_V4, 1, &config))
}

#[test]
fn frames_of_several_chunks_arrive_whole_and_in_order_both_ways() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = jumbo_ends(&pair);
    let free = (left.pool.free_chunks(), right.pool.free_chunks());
    for round in 0..10 {
        let sizes = [8960, 0, 3786, 3787, 8959, 100, 7626, 7627];
        let frame = |to_right, n: u32| segment(to_right, round * 100 + n, sizes[n as usize % 8]);
        // So many that a send of 32 descriptors ends within a frame, and fewer than veth's ring.
        let to_right: Vec<_> = (0..60).map(|n| frame(true, n)).collect();
        let to_left: Vec<_> = (0..60).map(|n| frame(false, n)).collect();
        to_right.iter().for_each(|bytes| left.send(0, bytes));
        left.flush(0);
        to_left.iter().for_each(|bytes| right.send(0, bytes));
        right.flush(0);
        assert_eq!(right.receive(0, 60), to_right);
        assert_eq!(left.receive(0, 60), to_left);
        left.reclaim();
        right.reclaim();
    }
    for (end, before) in [(&left, free.0), (&right, free.1)] {
        let statistics = end.ports[0].statistics();
        assert_eq!((statistics.transmitted, statistics.completed), (600, 600));
        assert_eq!(statistics.received, 600);
        assert_eq!(faults(&statistics), 0, "{statistics:?}");
        let now = end.pool.free_chunks();
        assert!(
            before.abs_diff(now) < 16,
            "{before} free chunks, then {now}"
        );
    }
}

#[test]
fn a_full_ring_takes_all_of_a_frame_or_none_and_a_sent_frame_is_as_it_was() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = jumbo_ends(&pair);
    let mut taken = Vec::new();
    let refused = loop {
        let number = taken.len() as u32;
        let bytes = segment(true, number, 8960);
        let mut frame = left.pool.alloc_for(bytes.len()).unwrap();
        left.umem.bytes_mut(&mut frame)[..bytes.len()].copy_from_slice(&bytes);
        frame.set_len(bytes.len());
        match left.ports[0].transmit(frame, u64::from(number)) {
            Ok(()) => taken.push(bytes),
            Err(frame) => break frame,
        }
    };
    assert_eq!(taken.len(), 512 / 3, "three descriptors each");
    assert_eq!(left.umem.bytes(&refused), segment(true, 170, 8960));
    left.pool.free(refused);
    assert_eq!(left.ports[0].transmit_room(), 0);
    // The receiver's fill ring has no more chunks than for as many, so none is lost.
    left.flush(0);
    assert_eq!(right.receive(0, taken.len()), taken);
    let mut back = 0;
    let deadline = Instant::now() + PATIENCE;
    while back < taken.len() {
        assert!(
            Instant::now() < deadline,
            "{back} of {} are back",
            taken.len()
        );
        let Some((frame, cookie)) = left.ports[0].completed() else {
            continue;
        };
        assert_eq!(left.umem.bytes(&frame), taken[cookie as usize]);
        left.pool.free(frame);
        back += 1;
    }
    assert_eq!(left.ports[0].transmit_room(), 512 / 3);
}

#[test]
fn busy_polling_and_ordinary_pages_can_be_asked_for() {
    let pair = VethPair::new(1, 1);
    pair.enter_left();
    let config = UmemConfig {
        huge_pages: HugePages::Never,
        ..UmemConfig::default()
    };
    let (umem, _pool) = Umem::new(&config).unwrap();
    assert_eq!(umem.pages(), rnic_xsk::PageKind::Ordinary);
    let busy_poll = Some(BusyPoll {
        microseconds: 20,
        budget: 16,
    });
    let config = XskPortConfig {
        busy_poll,
        ..XskPortConfig::new(LEFT, 0)
    };
    let port = XskPort::open(&umem, config).unwrap();
    assert!(!port.is_zero_copy());
    assert!(port.fd().as_raw_fd() >= 0);
}

#[test]
fn wrong_places_are_named_errors() {
    let pair = VethPair::new(1, 2);
    pair.enter_left();
    let (umem, _pool) = Umem::new(&UmemConfig::default()).unwrap();
    let open = |config| XskPort::open(&umem, config).unwrap_err();

    for name in ["nosuch0", RIGHT, ""] {
        let error = open(XskPortConfig::new(name, 0));
        assert!(
            matches!(error, XskError::UnknownInterface { .. }),
            "{name}: {error}"
        );
        assert!(
            error
                .to_string()
                .contains(&format!("interface {name}, queue 0")),
            "{error}"
        );
    }
    let error = open(XskPortConfig::new(LEFT, 7));
    assert!(
        matches!(
            error,
            XskError::NoSuchQueue {
                available: Some(1),
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains("interface left, queue 7"),
        "{error}"
    );
    let error = open(XskPortConfig {
        rx_ring: 100,
        ..XskPortConfig::new(LEFT, 0)
    });
    assert!(matches!(error, XskError::Invalid { .. }), "{error}");
    let zero_copy = CopyMode::ZeroCopy;
    let error = open(XskPortConfig {
        copy_mode: zero_copy,
        ..XskPortConfig::new(LEFT, 0)
    });
    assert!(matches!(error, XskError::NotSupported { .. }), "{error}");
    let (heap, _pool) = Umem::heap(16, ChunkSize::Bytes2048);
    let error = XskPort::open(&heap, XskPortConfig::new(LEFT, 0)).unwrap_err();
    assert!(matches!(error, XskError::Invalid { .. }), "{error}");

    // After all that the UMEM is as good as new.
    XskPort::open(&umem, XskPortConfig::new(LEFT, 0)).unwrap();
}

#[test]
fn a_queue_that_another_socket_has_is_a_named_error_and_free_again_after_it() {
    let pair = VethPair::new(1, 1);
    pair.enter_left();
    let (umem, _pool) = Umem::new(&UmemConfig::default()).unwrap();
    let port = XskPort::open(&umem, XskPortConfig::new(LEFT, 0)).unwrap();
    let (other, _pool) = Umem::new(&UmemConfig::default()).unwrap();
    let error = XskPort::open(&other, XskPortConfig::new(LEFT, 0)).unwrap_err();
    assert!(matches!(error, XskError::Busy { .. }), "{error}");
    let error = XskPort::open(&umem, XskPortConfig::new(LEFT, 0)).unwrap_err();
    assert!(matches!(error, XskError::Busy { .. }), "{error}");
    drop((port, umem));
    XskPort::open(&other, XskPortConfig::new(LEFT, 0)).unwrap();
}

#[test]
fn a_umem_is_bound_first_where_it_was_made_and_not_again_after_its_ports() {
    let pair = VethPair::new(1, 1);
    pair.enter_left();
    let (umem, _pool) = Umem::new(&UmemConfig::default()).unwrap();
    pair.enter_right();
    let error = XskPort::open(&umem, XskPortConfig::new(RIGHT, 0)).unwrap_err();
    assert!(error.to_string().contains("namespace"), "{error}");
    pair.enter_left();
    drop(XskPort::open(&umem, XskPortConfig::new(LEFT, 0)).unwrap());
    let error = XskPort::open(&umem, XskPortConfig::new(LEFT, 0)).unwrap_err();
    assert!(error.to_string().contains("new UMEM"), "{error}");
}

#[test]
fn missing_privilege_is_named() {
    let pair = VethPair::new(1, 1);
    pair.enter_left();
    let error = without_privilege(|| Umem::new(&UmemConfig::default()).unwrap_err());
    assert!(matches!(error, XskError::NoPrivilege { .. }), "{error}");
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
}

/// What a socket of an interface that is down keeps can be sent otherwise.
#[test]
fn a_frame_that_was_given_to_send_can_be_copied_until_it_is_done() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = jumbo_ends(&pair);
    pair.ip_left(&["link", "set", "dev", LEFT, "down"]);
    let sizes = [10, 3786, 3787, 8960];
    let all: Vec<_> = (0..)
        .zip(sizes)
        .map(|(n, size)| segment(true, n, size))
        .collect();
    let mut places = Vec::new();
    for bytes in &all {
        let mut frame = left.pool.alloc_for(bytes.len()).unwrap();
        left.umem.bytes_mut(&mut frame)[..bytes.len()].copy_from_slice(bytes);
        frame.set_len(bytes.len());
        places.push(frame.index());
        assert_eq!(
            left.ports[0].copy_transmitted(frame.index(), &mut left.pool),
            None
        );
        let cookie = frame.index() as u64;
        left.ports[0].transmit(frame, cookie).unwrap();
    }
    left.ports[0].flush().unwrap_err();
    for (place, bytes) in places.iter().zip(&all) {
        let copy = left.ports[0]
            .copy_transmitted(*place, &mut left.pool)
            .unwrap();
        assert_eq!(left.umem.bytes(&copy), bytes);
        left.pool.free(copy);
    }
    assert_eq!(
        left.ports[0].copy_transmitted(1 << 20, &mut left.pool),
        None
    );
    pair.ip_left(&["link", "set", "dev", LEFT, "up"]);
    left.flush(0);
    assert_eq!(right.receive(0, all.len()), all, "they are as they were");
    left.reclaim();
    assert_eq!(
        left.ports[0].copy_transmitted(places[0], &mut left.pool),
        None
    );
}

#[test]
fn an_interface_that_goes_down_is_a_named_error_and_works_again_when_up() {
    let pair = VethPair::new(1, 1);
    let (mut left, mut right) = (End::left(&pair, 1), End::right(&pair, 1));
    pair.ip_left(&["link", "set", "dev", LEFT, "down"]);
    left.send(0, &segment(true, 1, 10));
    let error = left.ports[0].flush().unwrap_err();
    assert!(matches!(error, XskError::Down { .. }), "{error}");
    pair.ip_left(&["link", "set", "dev", LEFT, "up"]);
    left.send(0, &segment(true, 2, 10));
    left.flush(0);
    let frames = right.receive(0, 2);
    assert_eq!(frames[1], segment(true, 2, 10));
}
