use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::*;

pub(super) struct End {
    pub(super) port: InternalPort,
    pub(super) pool: FramePool,
}

impl End {
    pub(super) fn send(&mut self, bytes: &[u8]) {
        let mut frame = self.pool.alloc_for(bytes.len()).unwrap();
        let umem = self.port.umem().clone();
        umem.bytes_mut(&mut frame)[..bytes.len()].copy_from_slice(bytes);
        frame.set_len(bytes.len());
        self.port.transmit(frame, bytes[0].into()).unwrap();
        self.port.flush().unwrap();
    }

    pub(super) fn complete(&mut self) -> usize {
        let mut count = 0;
        while let Some((frame, cookie)) = self.port.completed() {
            assert_eq!(self.port.umem().bytes(&frame)[0], cookie as u8);
            self.pool.free(frame);
            count += 1;
        }
        count
    }

    /// What there is to receive, by frame.
    pub(super) fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while self.port.receive(&mut self.pool, &mut packets, 64) > 0 {}
        let umem = self.port.umem().clone();
        let bytes = packets.into_iter().map(|packet| {
            let bytes = packet.slices(&umem).collect::<Vec<_>>().concat();
            self.pool.free_packet(packet);
            bytes
        });
        bytes.collect()
    }

    /// Sleeps as a shard does; false when nothing wakes it for so long.
    fn sleep(&mut self, timeout: Duration) -> bool {
        self.port.prepare_sleep(&mut self.pool);
        let fd = self.port.poll_fd().unwrap();
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).unwrap();
        rustix::event::poll(&mut fds, Some(&timeout)).unwrap() > 0
    }
}

pub(super) fn link((a, b): (ChunkSize, ChunkSize), frames: u32, depth: u32) -> [End; 2] {
    let (umem_a, pool_a) = Umem::heap(frames, a);
    let (umem_b, pool_b) = Umem::heap(frames, b);
    let (port_a, port_b) = InternalPort::pair(&umem_a, &umem_b, depth).unwrap();
    [(port_a, pool_a), (port_b, pool_b)].map(|(port, pool)| End { port, pool })
}

pub(super) const SMALL: (ChunkSize, ChunkSize) = (ChunkSize::Bytes2048, ChunkSize::Bytes2048);

#[test]
fn frames_arrive_in_order_with_their_bytes_and_come_back_with_their_cookies() {
    let [mut a, mut b] = link(SMALL, 32, 8);
    for round in 0..50_u8 {
        let sent: Vec<_> = (0..5_u8)
            .map(|number| vec![round * 5 + number; 60 + usize::from(number)])
            .collect();
        sent.iter().for_each(|bytes| a.send(bytes));
        assert_eq!(a.complete(), 5);
        assert_eq!(b.receive(), sent);
        b.send(&[round; 1792]);
        assert_eq!(b.complete(), 1);
        assert_eq!(a.receive(), [vec![round; 1792]]);
    }
    assert_eq!((a.pool.available(), b.pool.available()), (32, 32));
    let (a, b) = (a.port.statistics(), b.port.statistics());
    assert_eq!((a.transmitted, a.completed, b.received), (250, 250, 250));
    assert_eq!((a.send_dropped, b.receive_no_frame), (0, 0));
}

#[test]
fn nothing_leaves_before_flush() {
    let [mut a, mut b] = link(SMALL, 8, 8);
    let mut frame = a.pool.alloc().unwrap();
    frame.set_len(60);
    a.port.transmit(frame, 0).unwrap();
    assert_eq!((a.port.unsent(), b.receive().len()), (1, 0));
    a.port.flush().unwrap();
    assert_eq!((a.port.unsent(), b.receive().len()), (0, 1));
}

/// Its sender may be as fast as it is, and it has others to look at.
#[test]
fn a_look_without_free_frames_is_as_bounded_as_any() {
    let [mut a, mut b] = link(SMALL, 8, 8);
    (0..6).for_each(|number| a.send(&[number; 60]));
    let kept: Vec<_> = std::iter::from_fn(|| b.pool.alloc()).collect();
    let mut packets = Vec::new();
    assert_eq!(b.port.receive(&mut b.pool, &mut packets, 4), 0);
    assert_eq!(b.port.statistics().receive_no_frame, 4);
    kept.into_iter().for_each(|frame| b.pool.free(frame));
    assert_eq!(b.receive(), [[4; 60], [5; 60]]);
}

#[test]
fn a_receiver_that_does_not_look_never_holds_its_sender_up() {
    let [mut a, mut b] = link(SMALL, 8, 4);
    for number in 0..20 {
        assert_eq!(a.port.transmit_room(), 4);
        a.send(&[number; 60]);
        assert_eq!(a.complete(), 1);
    }
    assert_eq!(a.port.statistics().send_dropped, 16);
    let first: Vec<_> = (0..4).map(|number| vec![number; 60]).collect();
    assert_eq!(b.receive(), first);
    // And the link is as good as new.
    a.send(&[77; 60]);
    assert_eq!(b.receive(), [[77; 60]]);
    assert_eq!(a.complete(), 1);
    drop(b);
    for number in 0..20 {
        a.send(&[number; 60]);
        assert_eq!(a.complete(), 1, "its other end is gone");
    }
}

#[test]
fn a_receiver_without_free_frames_loses_what_comes_and_nothing_else() {
    let [mut a, mut b] = link((ChunkSize::Bytes2048, ChunkSize::TwoOf4096), 8, 8);
    let held: Vec<_> = std::iter::from_fn(|| b.pool.alloc()).collect();
    a.send(&[1; 60]);
    assert!(b.receive().is_empty());
    assert_eq!(b.port.statistics().receive_no_frame, 1);
    held.into_iter().for_each(|frame| b.pool.free(frame));
    a.send(&[2; 60]);
    assert_eq!(b.receive(), [[2; 60]]);
}

#[test]
fn the_smaller_frames_say_how_large_a_frame_may_be() {
    let wide = ChunkSize::ThreeOf4096;
    for (chunks, most) in [
        ((ChunkSize::Bytes2048, wide), 1792),
        ((wide, ChunkSize::Bytes4096), 3840),
        ((wide, wide), 11_520),
    ] {
        let [mut a, mut b] = link(chunks, 16, 4);
        assert_eq!(
            (a.port.frame_capacity(), b.port.frame_capacity()),
            (most, most)
        );
        let bytes: Vec<u8> = (0..most).map(|at| (at % 251) as u8).collect();
        a.send(&bytes);
        assert_eq!(b.receive(), [&bytes[..]]);
        b.send(&bytes);
        assert_eq!(a.receive(), [&bytes[..]]);
        if chunks.0 == wide && most < 11_520 {
            a.send(&vec![0; most + 1]);
            assert_eq!(a.port.statistics().send_dropped, 1);
            assert!(b.receive().is_empty());
        }
    }
}

#[test]
fn a_receiver_that_is_about_to_sleep_misses_nothing_and_sleeps_when_there_is_nothing() {
    let [mut a, mut b] = link(SMALL, 8, 8);
    let (long, short) = (Duration::from_secs(10), Duration::from_millis(20));
    assert!(!b.sleep(short), "nothing came");
    assert_eq!(a.port.statistics().send_calls, 0);
    a.send(&[1; 60]);
    assert_eq!(
        a.port.statistics().send_calls,
        1,
        "it had said that it sleeps"
    );
    assert!(b.sleep(long));
    assert_eq!(b.receive().len(), 1);
    // Awake it costs no call.
    a.send(&[2; 60]);
    assert_eq!(a.port.statistics().send_calls, 1);
    assert!(b.sleep(long), "what came before it slept");
    assert_eq!(b.receive().len(), 1);
    assert!(!b.sleep(short), "and what woke it once wakes it no more");
}

/// Each end sleeps whenever there is nothing, as many times as there are rounds.
#[test]
fn no_wake_up_is_lost_between_two_threads() {
    const ROUNDS: u32 = 20_000;
    let [mut a, mut b] = link(SMALL, 64, 16);
    let bounce = |end: &mut End, begins: bool| {
        let mut received = 0;
        if begins {
            end.send(&[0; 60]);
        }
        while received < ROUNDS {
            let came = end.receive().len() as u32;
            received += came;
            for _ in 0..came {
                end.send(&[1; 60]);
                end.complete();
            }
            if came == 0 {
                assert!(
                    end.sleep(Duration::from_secs(10)),
                    "a wake-up was lost after {received}"
                );
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| bounce(&mut a, true));
        scope.spawn(|| bounce(&mut b, false));
    });
}
