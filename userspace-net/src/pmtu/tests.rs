use super::*;

const START: Instant = Instant::from_nanos(1);
const SETTINGS: Settings = Settings {
    min_v4: 552,
    probing: true,
};
const MINUTE: Duration = Duration::from_secs(60);

fn path() -> PathMtu {
    PathMtu::new(SETTINGS, 9000, true)
}

/// A probe goes out and arrives if it has at most `passes` bytes; its size.
fn probe(path: &mut PathMtu, now: Instant, passes: u32) -> Option<u32> {
    path.progress(now, true);
    let size = path.postable();
    if size == path.plpmtu() {
        return None;
    }
    path.posted(100, 100 + u64::from(size), size);
    assert_eq!(path.postable(), path.plpmtu(), "one at a time");
    assert!(path.is_probe(100));
    if size <= passes {
        path.probe_arrived(now);
    } else {
        path.probe_lost(now, true);
    }
    Some(size)
}

/// Probes until there is nothing to probe; all sizes.
fn search(path: &mut PathMtu, now: Instant, passes: u32) -> Vec<u32> {
    std::iter::from_fn(|| probe(path, now, passes)).collect()
}

fn too_big(path: &mut PathMtu, mtu: u32, size: u32) -> Option<(bool, bool)> {
    let too_big = path.too_big(START, mtu, size, false)?;
    Some((too_big.narrower, too_big.changed))
}

#[test]
fn at_first_the_path_takes_what_the_link_takes() {
    let mut path = path();
    assert_eq!((path.plpmtu(), path.postable()), (9000, 9000));
    assert_eq!(path.fragment_to(9000), None);
    assert_eq!(search(&mut path, START + 1000 * MINUTE, 9000), []);
}

#[test]
fn what_a_router_names_counts_if_it_is_less_than_what_it_dropped() {
    let mut path = path();
    assert_eq!(too_big(&mut path, 9000, 9000), None);
    assert_eq!(too_big(&mut path, 67, 9000), None);
    assert_eq!(too_big(&mut path, 1400, 1400), None);
    assert_eq!(too_big(&mut path, 1400, 9000), Some((true, true)));
    assert_eq!(path.plpmtu(), 1400);
    // The others of the same flight.
    assert_eq!(too_big(&mut path, 1400, 9000), Some((false, false)));
    assert_eq!(path.fragment_to(1401), Some(1400));
    assert_eq!(too_big(&mut path, 1300, 1400), Some((true, true)));
}

#[test]
fn a_router_that_names_nothing_means_the_next_plateau() {
    let mut path = path();
    assert_eq!(too_big(&mut path, 0, 9000), Some((true, true)));
    assert_eq!(path.plpmtu(), 8166);
    too_big(&mut path, 0, 1500);
    assert_eq!(path.plpmtu(), 1492);
}

#[test]
fn segments_have_a_least_size_and_fragments_have_less() {
    let mut path = path();
    too_big(&mut path, 400, 9000);
    assert_eq!((path.plpmtu(), path.fragment_to(552)), (552, Some(400)));
    assert_eq!(too_big(&mut path, 300, 552), Some((true, false)));
    assert_eq!(
        (path.fragment_to(301), path.fragment_to(300)),
        (Some(300), None)
    );
}

#[test]
fn no_ipv6_path_is_narrower_than_1280() {
    let mut path = PathMtu::new(SETTINGS, 1500, false);
    assert_eq!(too_big(&mut path, 1279, 1500), None);
    assert_eq!(too_big(&mut path, 0, 1500), None);
    assert_eq!(too_big(&mut path, 1280, 1500), Some((true, true)));
}

#[test]
fn two_timeouts_of_a_large_packet_are_a_black_hole() {
    let mut path = path();
    assert!(!path.timed_out(9000, false));
    path.progress(START, true);
    assert!(!path.timed_out(9000, false));
    assert!(path.timed_out(9000, false));
    assert_eq!((path.plpmtu(), path.fragment_to(9000)), (1200, Some(1200)));
    // Narrower still.
    assert!(!path.timed_out(9000, false));
    assert!(path.timed_out(9000, false));
    assert_eq!(path.plpmtu(), 552);
    for _ in 0..10 {
        assert!(!path.timed_out(9000, false));
    }
}

#[test]
fn what_passes_from_others_takes_four_timeouts_to_be_a_black_hole() {
    let mut path = path();
    for _ in 0..3 {
        assert!(!path.timed_out(9000, true));
    }
    assert!(path.timed_out(9000, true));
    assert_eq!(path.plpmtu(), 1200);
}

#[test]
fn a_small_packet_that_times_out_says_nothing_about_the_path() {
    let mut path = path();
    for _ in 0..10 {
        assert!(!path.timed_out(552, false));
    }
    assert_eq!(path.plpmtu(), 9000);
    path.progress(START, true);
    // Not so small: a very narrow path.
    for _ in 0..3 {
        assert!(!path.timed_out(1200, false));
    }
    assert!(path.timed_out(1200, false));
    assert_eq!(path.plpmtu(), 552);
}

#[test]
fn behind_an_outage_one_probe_brings_the_old_size_back() {
    let mut path = path();
    path.timed_out(9000, false);
    path.timed_out(9000, false);
    assert_eq!(search(&mut path, START, 9000), [9000]);
    assert_eq!(path.plpmtu(), 9000);
}

#[test]
fn behind_a_black_hole_the_search_finds_what_passes() {
    let mut path = path();
    path.timed_out(9000, false);
    path.timed_out(9000, false);
    let sizes = search(&mut path, START, 1500);
    assert_eq!(
        sizes,
        [
            9000, 1500, 6000, 6000, 6000, 3000, 3000, 3000, 2002, 2002, 2002
        ]
    );
    assert_eq!(path.plpmtu(), 1500);
    // Not every few seconds.
    assert_eq!(search(&mut path, START + 4 * MINUTE, 9000), []);
    assert_eq!(search(&mut path, START + 5 * MINUTE, 9000), [9000]);
    assert_eq!(search(&mut path, START + 100 * MINUTE, 9000), []);
}

#[test]
fn what_a_router_named_is_doubted_after_ten_minutes() {
    let mut path = path();
    too_big(&mut path, 1400, 9000);
    assert_eq!(search(&mut path, START + 9 * MINUTE, 9000), []);
    path.progress(START + 10 * MINUTE, true);
    assert_eq!(path.postable(), 9000);
    path.posted(1, 8949, 9000);
    // It is so still; now the router names what passes by the probe.
    let answer = path.too_big(START + 10 * MINUTE, 4000, 9000, true).unwrap();
    assert_eq!((answer.narrower, answer.changed), (false, false));
    assert_eq!(search(&mut path, START + 10 * MINUTE, 4000), [4000]);
    assert_eq!(path.plpmtu(), 4000);
}

#[test]
fn a_probe_that_is_lost_among_others_is_sent_again() {
    let mut path = path();
    too_big(&mut path, 1400, 9000);
    let later = START + 10 * MINUTE;
    for _ in 0..10 {
        path.progress(later, true);
        assert_eq!(path.postable(), 9000);
        path.posted(1, 8949, 9000);
        path.probe_lost(later, false);
    }
}

#[test]
fn no_probe_in_a_storm() {
    let mut path = path();
    too_big(&mut path, 1400, 9000);
    let later = START + 10 * MINUTE;
    path.progress(later, true);
    path.progress(later, false);
    assert_eq!(path.postable(), 1400);
}

#[test]
fn a_segment_smaller_than_the_probe_that_is_wanted_may_be_one() {
    let mut path = path();
    too_big(&mut path, 1400, 9000);
    let later = START + 10 * MINUTE;
    path.progress(later, true);
    path.posted(1, 1349, 1400);
    assert_eq!(path.postable(), 9000, "that was none");
    path.posted(1349, 3297, 2000);
    assert!(path.probe_arrived(later));
    assert_eq!(path.plpmtu(), 2000);
    assert_eq!(
        search(&mut path, later, 8800),
        [6000, 8900, 8900, 8900, 8166]
    );
    assert_eq!(path.plpmtu(), 8166);
}

#[test]
fn without_probing_a_router_is_asked_again_and_timeouts_mean_nothing() {
    let settings = Settings {
        probing: false,
        ..SETTINGS
    };
    let mut path = PathMtu::new(settings, 9000, true);
    for _ in 0..5 {
        assert!(!path.timed_out(9000, false));
    }
    too_big(&mut path, 1400, 9000);
    assert!(!path.progress(START + 9 * MINUTE, true));
    assert!(path.progress(START + 10 * MINUTE, true));
    assert_eq!((path.plpmtu(), path.postable()), (9000, 9000));
}

#[test]
fn a_narrow_first_link_has_nothing_to_fall_back_to() {
    let mut path = PathMtu::new(SETTINGS, 400, true);
    assert_eq!((path.plpmtu(), path.fragment_to(400)), (400, None));
    for _ in 0..5 {
        assert!(!path.timed_out(400, false));
    }
    assert_eq!(too_big(&mut path, 300, 400), Some((true, false)));
}

#[test]
fn the_size_of_the_first_link_is_tried_though_it_is_unusual() {
    let mut path = PathMtu::new(SETTINGS, 1475, true);
    too_big(&mut path, 1000, 1475);
    let later = START + 10 * MINUTE;
    path.progress(later, true);
    path.posted(1, 1421, 1472);
    path.probe_arrived(later);
    assert_eq!(search(&mut path, later, 9000), [1475]);
}
