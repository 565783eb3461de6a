use super::*;

const IDLE: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_peer_is_asked_once_in_each_idle_time_of_silence() {
    let mut quiet = Quiet::new();
    let begin = quiet.since;
    let asked = |quiet: &mut Quiet, after| quiet.has_lasted(IDLE, begin + after * SECOND);
    assert!(!asked(&mut quiet, 4));
    assert!(asked(&mut quiet, 5));
    assert!(!asked(&mut quiet, 6) && !asked(&mut quiet, 9));
    assert!(asked(&mut quiet, 10));
}

#[test]
fn what_completes_begins_the_idle_time_anew() {
    let mut quiet = Quiet::new();
    let begin = quiet.since;
    quiet.broken = true;
    assert!(!quiet.has_lasted(IDLE, begin + 6 * SECOND));
    assert!(!quiet.has_lasted(IDLE, begin + 10 * SECOND));
    assert!(quiet.has_lasted(IDLE, begin + 11 * SECOND));
}
