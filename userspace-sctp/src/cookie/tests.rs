use crate::addresses::Others;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use userspace_net::Instant;

use super::{ForeignCookie, LEN, Returned, Secret, State, Tags};
use crate::tsn::Tsn;

const MADE: Instant = Instant::from_nanos(1_000_000_000_000);
const LIFESPAN: Duration = Duration::from_secs(60);

fn end(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn state() -> State {
    State {
        made: MADE,
        lifespan: LIFESPAN,
        local: end("198.18.0.1:7471"),
        remote: end("198.18.0.2:40000"),
        others: Others::default(),
        tags: Tags {
            local: 1,
            remote: u32::MAX,
        },
        tie: None,
        local_tsn: Tsn(7),
        remote_tsn: Tsn(u32::MAX),
        window: 1 << 20,
        outbound_streams: 16,
        inbound_streams: 8,
        adaptation: Some(1),
    }
}

fn check(cookie: &[u8], now: Instant) -> Result<Returned, ForeignCookie> {
    let State { local, remote, .. } = state();
    Secret::new([7; 16]).check(cookie, now, local, remote)
}

#[test]
fn a_cookie_brings_back_all_that_went_into_it() {
    let secret = Secret::new([7; 16]);
    let tie = NonZeroU64::new(u64::MAX - 1);
    for state in [
        state(),
        State {
            tie,
            adaptation: None,
            ..state()
        },
        State {
            adaptation: Some(0),
            ..state()
        },
        State {
            local: end("[2001:db8::1]:1"),
            remote: end("[2001:db8::2]:65535"),
            ..state()
        },
    ] {
        let cookie = secret.bake(&state);
        let found = secret.check(&cookie, MADE, state.local, state.remote);
        assert_eq!(found, Ok(Returned { state, late: None }));
    }
}

#[test]
fn no_bit_of_a_cookie_can_be_changed() {
    let cookie = Secret::new([7; 16]).bake(&state());
    let state = state();
    assert_eq!(check(&cookie, MADE), Ok(Returned { state, late: None }));
    for bit in 0..LEN * 8 {
        let mut changed = cookie;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(check(&changed, MADE), Err(ForeignCookie), "bit {bit}");
    }
    for len in 0..LEN {
        assert_eq!(
            check(&cookie[..len], MADE),
            Err(ForeignCookie),
            "{len} bytes"
        );
    }
    let longer = [&cookie[..], &[0]].concat();
    assert_eq!(check(&longer, MADE), Err(ForeignCookie));
}

#[test]
fn a_cookie_of_another_secret_or_for_other_ends_is_foreign() {
    let cookie = Secret::new([8; 16]).bake(&state());
    assert_eq!(check(&cookie, MADE), Err(ForeignCookie));
    let secret = Secret::new([7; 16]);
    let cookie = secret.bake(&state());
    let State { local, remote, .. } = state();
    for (local, remote) in [
        (local, end("198.18.0.3:40000")),
        (local, end("198.18.0.2:40001")),
        (end("198.18.0.1:7472"), remote),
        (end("198.18.0.9:7471"), remote),
        (remote, local),
    ] {
        let found = secret.check(&cookie, MADE, local, remote);
        assert_eq!(found, Err(ForeignCookie), "{local} {remote}");
    }
}

/// RFC 9260 section 5.1.3: another key each hour. That of the hour before is still good.
#[test]
fn a_cookie_outlives_one_renewal_of_the_secret() {
    const HOUR: Duration = Duration::from_secs(3600);
    let secret = Secret::new([7; 16]);
    let begin = Instant::from_nanos(HOUR.as_nanos() as u64 * 5);
    let State { local, remote, .. } = state();
    let bake = |made| secret.bake(&State { made, ..state() });
    let is_ours = |cookie: &[u8], now| secret.check(cookie, now, local, remote).is_ok();
    let cookie = bake(begin);
    let moment = Duration::from_nanos(1);
    assert!(is_ours(&cookie, begin + (2 * HOUR - moment)));
    assert!(!is_ours(&cookie, begin + 2 * HOUR));
    // The MAC under the key of one hour is not that of the next.
    let later = bake(begin + HOUR);
    let mut mixed = later;
    mixed[LEN - 16..].copy_from_slice(&cookie[LEN - 16..]);
    assert!(is_ours(&later, begin + HOUR) && !is_ours(&mixed, begin + HOUR));
    // Of a stack whose clock was read a moment later.
    assert!(is_ours(&later, begin + (HOUR - moment)));
}

/// RFC 9260 section 5.1.5, step 4.
#[test]
fn a_cookie_that_is_too_old_says_by_how_much() {
    let cookie = Secret::new([7; 16]).bake(&state());
    let state = state();
    let found = check(&cookie, MADE + LIFESPAN);
    assert_eq!(found, Ok(Returned { state, late: None }));
    let late = Some(Duration::from_micros(5));
    let found = check(&cookie, MADE + LIFESPAN + Duration::from_micros(5));
    assert_eq!(found, Ok(Returned { state, late }));
}
