use super::*;

/// A whole observation window, `marked` of its ten segments with ECE.
fn window(dctcp: &mut Dctcp, una: &mut Position, marked: u64) {
    for i in 0..10 {
        *una += 1000;
        // All of the next window was sent when its first byte is acknowledged.
        dctcp.observe(1000, i < marked, *una, *una + 9000);
    }
}

fn settled(alpha: f64) -> (Dctcp, Position) {
    let mut dctcp = Dctcp::new();
    dctcp.observe(1000, true, 1000, 10_000);
    assert_eq!(dctcp.alpha, 1.0, "it begins with the worst");
    dctcp.alpha = alpha;
    let mut una = 1000;
    // Up to the window's end without a mark: one step of the series.
    for _ in 0..9 {
        una += 1000;
        dctcp.observe(1000, false, una, una + 9000);
    }
    assert_eq!(dctcp.alpha, alpha);
    (dctcp, una)
}

#[test]
fn alpha_decays_by_a_sixteenth_in_each_window_without_marks() {
    let (mut dctcp, mut una) = settled(1.0);
    let mut alpha = 1.0;
    for _ in 0..50 {
        window(&mut dctcp, &mut una, 0);
        alpha *= 15.0 / 16.0;
        assert!(
            (dctcp.alpha - alpha).abs() < 1e-12,
            "{} {alpha}",
            dctcp.alpha
        );
    }
    for _ in 0..1000 {
        window(&mut dctcp, &mut una, 0);
    }
    assert!(dctcp.alpha < 1e-6, "it reaches zero");
}

#[test]
fn alpha_goes_to_the_share_of_marked_bytes() {
    let (mut dctcp, mut una) = settled(0.0);
    // The first observation ends with the first segment behind the window's end.
    window(&mut dctcp, &mut una, 10);
    window(&mut dctcp, &mut una, 10);
    let one = dctcp.alpha;
    assert!((0.05..0.125).contains(&one), "{one}");
    for _ in 0..200 {
        window(&mut dctcp, &mut una, 3);
    }
    assert!((dctcp.alpha - 0.3).abs() < 1e-3, "{}", dctcp.alpha);
}

#[test]
fn the_window_shrinks_by_half_of_alpha() {
    for (alpha, left) in [
        (1.0, 50_000),
        (0.5, 75_000),
        (0.0625, 96_875),
        (0.0, 100_000),
    ] {
        let dctcp = Dctcp {
            alpha,
            ..Dctcp::new()
        };
        assert_eq!(dctcp.marked(100_000), left);
    }
}

#[test]
fn no_count_of_bytes_is_too_great() {
    let mut dctcp = Dctcp::new();
    dctcp.observe(u64::MAX, true, 0, u64::MAX);
    dctcp.observe(u64::MAX, true, u64::MAX, u64::MAX);
    assert_eq!(dctcp.alpha, 1.0);
    assert_eq!(dctcp.marked(u64::MAX), 1 << 63);
}
