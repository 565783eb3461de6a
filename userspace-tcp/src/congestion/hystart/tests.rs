use super::*;

const MSS: u64 = 1000;

struct Path {
    hystart: HyStart,
    una: Position,
    over: bool,
}

impl Path {
    fn new() -> Self {
        Self {
            hystart: HyStart::new(),
            una: 0,
            over: false,
        }
    }

    /// One round of `segments`, each a sample of `rtt`; how much the window grew.
    fn round(&mut self, segments: u64, rtt: Duration) -> u64 {
        let next = self.una + 2 * segments * MSS;
        let mut grown = 0;
        for _ in 0..segments {
            self.una += MSS;
            match self.hystart.acknowledged(MSS, Some(rtt), self.una, next) {
                Growth::By(bytes) => grown += bytes,
                Growth::Last(bytes) => {
                    grown += bytes;
                    self.over = true;
                }
            }
        }
        // The next round is judged when something behind this one is acknowledged.
        self.hystart.round_end = self.una;
        grown
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn steady_round_trips_let_it_double() {
    let mut path = Path::new();
    for _ in 0..20 {
        assert_eq!(path.round(20, ms(50)), 20 * MSS);
    }
    assert!(!path.over);
}

#[test]
fn an_eighth_more_is_longer_and_quarters_the_growth() {
    let mut path = Path::new();
    path.round(20, ms(50));
    path.round(20, ms(50));
    assert_eq!(
        path.round(20, ms(56)),
        20 * MSS,
        "6 ms are less than an eighth"
    );
    let grown = path.round(20, ms(63));
    // The first sample still belongs to the round before, and seven are too few to judge.
    assert_eq!(grown, 8 * MSS + 12 * (MSS / 4));
}

#[test]
fn four_milliseconds_at_least_and_sixteen_at_most_count_as_longer() {
    for (base, not_yet, longer) in [(1, 4, 5), (300, 315, 316)] {
        for (then, slow) in [(not_yet, false), (longer, true)] {
            let mut path = Path::new();
            path.round(20, ms(base));
            path.round(20, ms(base));
            let grown = path.round(20, ms(then));
            assert_eq!(grown < 20 * MSS, slow, "{base} {then}");
        }
    }
}

#[test]
fn slow_start_ends_after_five_rounds_of_delay() {
    let mut path = Path::new();
    path.round(20, ms(50));
    path.round(20, ms(50));
    let mut rounds = 0;
    while !path.over {
        path.round(20, ms(70));
        rounds += 1;
    }
    assert!((5..=6).contains(&rounds), "{rounds}");
}

#[test]
fn it_goes_on_when_round_trips_become_short_again() {
    let mut path = Path::new();
    path.round(20, ms(50));
    path.round(20, ms(50));
    path.round(20, ms(70));
    path.round(20, ms(70));
    path.round(20, ms(50));
    assert_eq!(path.round(20, ms(50)), 20 * MSS);
    for _ in 0..10 {
        path.round(20, ms(50));
    }
    assert!(!path.over);
}

#[test]
fn without_samples_nothing_is_judged() {
    let mut hystart = HyStart::new();
    for i in 1..1000 {
        let growth = hystart.acknowledged(MSS, None, i * MSS, (i + 10) * MSS);
        assert_eq!(growth, Growth::By(MSS));
    }
}
