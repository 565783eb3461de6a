use std::time::Duration;

use super::*;

#[test]
fn a_burst_then_the_rate() {
    let mut limit = RateLimit::new(100);
    let mut now = Instant::ZERO + Duration::from_secs(5);
    assert_eq!((0..50).filter(|_| limit.permit(now)).count(), 10);
    now += Duration::from_millis(30);
    assert_eq!((0..50).filter(|_| limit.permit(now)).count(), 3);
}

#[test]
fn zero_permits_nothing() {
    assert!(!RateLimit::new(0).permit(Instant::ZERO));
}
