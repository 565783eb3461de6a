use super::*;

fn frame(bytes: &[u8]) -> SeenFrame<'_> {
    SeenFrame {
        unix_ns: 1,
        direction: Direction::Out,
        bytes,
        original: bytes.len(),
    }
}

/// Keeps the lengths of frames, and what was lost when each came and at the end.
#[derive(Debug, Default)]
struct Notes(Vec<(usize, u64)>, Option<(u64, u64)>);

impl Sink for Notes {
    fn frame(&mut self, captured: &Captured, lost: u64) -> std::io::Result<()> {
        self.0.push((captured.bytes.len(), lost));
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn end(&mut self, counts: &Counts) -> std::io::Result<()> {
        self.1 = Some((counts.taken(), counts.lost()));
        Ok(())
    }
}

#[test]
fn what_finds_no_buffer_is_lost_and_counted_and_the_rest_is_written() {
    let (mut tap, queue) = queue(2, 64);
    for len in 1..=5 {
        tap.frame(&frame(&[0; 64][..len]));
    }
    drop(tap);
    let mut notes = Notes::default();
    queue.write_to(&mut notes).unwrap();
    assert_eq!(notes.0, [(1, 3), (2, 3)]);
    assert_eq!(notes.1, Some((2, 3)));
}

#[test]
fn buffers_go_round_without_growing() {
    let (mut tap, queue) = queue(2, 64);
    for _ in 0..100 {
        tap.frame(&frame(&[7; 64]));
        let captured = queue.full.try_recv().unwrap();
        assert_eq!(captured.bytes, [7; 64]);
        assert_eq!(captured.bytes.capacity(), 64);
        queue.empty.try_send(captured).unwrap();
    }
    assert_eq!((queue.counts.taken(), queue.counts.lost()), (100, 0));
}

#[test]
fn a_tap_whose_thread_has_ended_loses_and_counts() {
    let (mut tap, queue) = queue(2, 64);
    let counts = queue.counts().clone();
    drop(queue);
    for _ in 0..3 {
        tap.frame(&frame(&[0; 60]));
    }
    assert_eq!((counts.taken(), counts.lost()), (0, 3));
}
