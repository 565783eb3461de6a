use super::*;
use crate::linksim::Impairments;

fn settings(pairs: &[&str]) -> Settings {
    let mut settings = Settings::default();
    settings.apply(&Impairments::from_pairs(pairs.iter().copied()).unwrap());
    settings
}

fn leaves(passage: Passage) -> Duration {
    match passage {
        Passage::Through { leaves, .. } => leaves,
        Passage::Full => panic!("the queue is full"),
    }
}

#[test]
fn packets_leave_one_after_the_other_at_the_rate_of_the_wire() {
    let settings = settings(&["rate=100Mbit", "overhead=24", "queue=none"]);
    let mut bottleneck = Bottleneck::default();
    let start = Duration::from_secs(1);
    // 1226 + 24 bytes are 10,000 bits: 100 us.
    for n in 1..=50 {
        let leaves = leaves(bottleneck.offer(start, 1226, &settings));
        assert_eq!(leaves - start, Duration::from_micros(100 * n));
    }
    let (packets, bytes) = bottleneck.queued(start + Duration::from_micros(100 * 48));
    assert_eq!((packets, bytes), (2, 2 * 1226));
    let later = start + Duration::from_secs(1);
    assert_eq!(
        leaves(bottleneck.offer(later, 1226, &settings)) - later,
        Duration::from_micros(100)
    );
}

#[test]
fn nanoseconds_that_do_not_divide_are_not_lost() {
    let settings = settings(&["rate=7Gbit", "overhead=24", "queue=none"]);
    let mut bottleneck = Bottleneck::default();
    let mut last = Duration::ZERO;
    for _ in 0..7_000_000 {
        last = leaves(bottleneck.offer(last, 60, &settings));
        bottleneck.free_at = last;
    }
    // 84 bytes are 96 ns at 7 Gbit/s.
    assert_eq!(last, Duration::from_nanos(96 * 7_000_000));
}

#[test]
fn what_does_not_fit_the_queue_is_refused() {
    for (limit, fits) in [("10p", 10), ("10KB", 10)] {
        let pair = format!("queue={limit}");
        let settings = settings(&["rate=1Mbit", &pair]);
        let mut bottleneck = Bottleneck::default();
        for _ in 0..fits {
            leaves(bottleneck.offer(Duration::ZERO, 1024, &settings));
        }
        let full = bottleneck.offer(Duration::ZERO, 1024, &settings);
        assert_eq!(full, Passage::Full);
    }
}

#[test]
fn packets_above_the_threshold_are_marked() {
    let settings = settings(&["rate=1Mbit", "ecn=3p"]);
    let mut bottleneck = Bottleneck::default();
    let marks: Vec<bool> = (0..6)
        .map(
            |_| match bottleneck.offer(Duration::ZERO, 1000, &settings) {
                Passage::Through { mark, .. } => mark,
                Passage::Full => panic!("the queue is full"),
            },
        )
        .collect();
    assert_eq!(marks, [false, false, false, false, true, true]);
}
