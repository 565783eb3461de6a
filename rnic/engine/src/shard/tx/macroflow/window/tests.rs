use super::*;

const LIMIT: usize = 4096;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// All that may be under way goes out and arrives.
fn full_round(window: &mut Window) {
    let room = window.room();
    window.posted(room, at(0));
    window.acknowledged(room, at(0));
}

/// As many are lost of what went out at `sent` as it takes, at most `most`.
fn lose(window: &mut Window, sent: u64, now: u64, most: usize) -> Option<usize> {
    (1..=most).find(|_| window.lost(at(sent), at(now)))
}

#[test]
fn it_grows_only_when_it_is_used_up() {
    let mut window = Window::new(LIMIT);
    for _ in 0..100 {
        window.posted(INITIAL - 1, at(0));
        window.acknowledged(INITIAL - 1, at(0));
    }
    assert_eq!(window.size, INITIAL);
    full_round(&mut window);
    full_round(&mut window);
    assert!(window.size > INITIAL, "{window:?}");
}

#[test]
fn it_grows_as_well_when_it_is_filled_one_by_one() {
    let mut window = Window::new(LIMIT);
    window.posted(INITIAL, at(0));
    for _ in 0..3 * INITIAL {
        window.acknowledged(1, at(0));
        window.posted(window.room(), at(0));
    }
    assert!(window.size > INITIAL + 1, "{window:?}");
}

#[test]
fn it_never_exceeds_the_frames_that_there_are() {
    let mut window = Window::new(LIMIT);
    for _ in 0..100 {
        full_round(&mut window);
    }
    assert_eq!(window.size, LIMIT);
    assert_eq!(Window::new(100).size, 100);
}

#[test]
fn what_was_under_way_together_makes_it_smaller_once() {
    let mut window = Window::new(LIMIT);
    window.posted(INITIAL, at(0));
    assert!(lose(&mut window, 5, 10, INITIAL).is_some());
    let size = window.size;
    assert!(size < INITIAL && size > INITIAL / 2);
    assert_eq!(lose(&mut window, 5, 20, INITIAL), None);
    assert_eq!(lose(&mut window, 10, 20, INITIAL), None);
    assert_eq!(window.size, size);
    assert!(lose(&mut window, 11, 20, INITIAL).is_some());
    assert!(window.size < size);
}

#[test]
fn one_in_fifty_may_be_lost() {
    let mut window = Window::new(LIMIT);
    for round in 0..80 {
        let room = window.room();
        window.posted(room, at(0));
        assert_eq!(lose(&mut window, round, round, room / TOLERANCE), None);
        window.acknowledged(room, at(0));
    }
    assert_eq!(window.size, LIMIT);
}

#[test]
fn it_is_never_less_than_the_least() {
    let mut window = Window::new(LIMIT);
    for round in 1..100 {
        let _ = lose(&mut window, round, round, LIMIT);
    }
    assert_eq!(window.size, LEAST);
}

#[test]
fn it_comes_back_soon_and_is_careful_where_it_lost() {
    let mut window = Window::new(LIMIT);
    while window.size < 1000 {
        full_round(&mut window);
    }
    let before = window.size;
    assert!(lose(&mut window, 5, 10, LIMIT).is_some());
    let mut rounds = 0;
    let mut steps = Vec::new();
    while window.size < before + 1 {
        let size = window.size;
        full_round(&mut window);
        steps.push(window.size - size);
        rounds += 1;
    }
    assert!(rounds < 60, "{rounds} rounds, {steps:?}");
    assert!(steps.ends_with(&[1, 1, 1, 1]), "{steps:?}");
    for _ in 0..80 {
        full_round(&mut window);
    }
    assert_eq!(window.size, LIMIT);
}

#[test]
fn few_connections_take_it_along() {
    let mut window = Window::new(LIMIT);
    window.posted(3000, at(0));
    window.follow();
    assert_eq!(window.size, 3000);
    window.acknowledged(3000, at(0));
    assert!(window.room() >= 3000);
}

/// All that may be under way goes out at `now`, and has arrived after so many nanoseconds.
fn round_of(window: &mut Window, now: &mut u64, took: u64) {
    let room = window.room();
    window.posted(room, at(*now));
    *now += took;
    window.acknowledged(room, at(*now));
}

#[test]
fn it_does_not_grow_where_segments_wait_in_a_queue() {
    let (mut window, mut now) = (Window::new(LIMIT), 0);
    window.posted(1, at(now));
    now += 50_000;
    window.acknowledged(1, at(now));
    while now < 100 * BELIEVED.as_nanos() as u64 {
        // As long as the slowest part of the path takes for all of them.
        let took = 2_000_000 * window.room() as u64;
        round_of(&mut window, &mut now, took);
    }
    assert_eq!(window.size, INITIAL);
}

/// A path of 100 ms whose slowest part takes 100 us for a segment: a thousand fill it, and half as many
/// again is what may wait.
#[test]
fn what_waits_in_a_queue_is_never_taken_for_the_path() {
    let (mut window, mut now) = (Window::new(LIMIT), 0);
    let round = |window: &mut Window, now: &mut u64| {
        let took = (100_000 * window.room() as u64).max(100_000_000);
        round_of(window, now, took);
    };
    while now < 100 * BELIEVED.as_nanos() as u64 {
        round(&mut window, &mut now);
    }
    let most = 1500 + 1500 / GROWTH;
    assert!((1000..=most).contains(&window.size), "{window:?}");
}

#[test]
fn it_grows_on_a_long_path_and_soon_on_one_that_has_become_longer() {
    let (mut window, mut now) = (Window::new(LIMIT), 0);
    while window.size < 1000 {
        round_of(&mut window, &mut now, 10_000_000);
    }
    let size = window.size;
    let changed = now;
    while window.size == size {
        round_of(&mut window, &mut now, 40_000_000);
    }
    let stood = Duration::from_nanos(now - changed);
    assert!(stood > Duration::from_secs(1), "{stood:?}");
    assert!(stood < BELIEVED + Duration::from_secs(1), "{stood:?}");
}

/// Two rounds of half of the window each time: not even a tenth of a percent of a path of 1 ms.
#[test]
fn to_measure_the_path_takes_two_rounds_of_half_of_the_window() {
    let (mut window, mut now) = (Window::new(LIMIT), 0);
    let (mut whole, mut half) = (0, 0);
    let size = loop {
        round_of(&mut window, &mut now, 1_000_000);
        if window.size == LIMIT {
            break window.size;
        }
    };
    // Each longer than the one before, by so little that it is still the same path.
    let mut took = 1_000_000;
    while now < 10 * BELIEVED.as_nanos() as u64 {
        match window.room() {
            room if room == size => whole += 1,
            room if room == size / 2 => half += 1,
            other => panic!("{other} of {size}"),
        }
        took += 1;
        round_of(&mut window, &mut now, took);
    }
    assert!(half > 0 && half <= 2 * 10, "{half} of {whole}");
}
