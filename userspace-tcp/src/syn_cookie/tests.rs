use std::net::Ipv4Addr;

use userspace_net::Endpoint;

use super::*;

const IRS: SeqNum = SeqNum(u32::MAX);
const START: Instant = Instant::from_nanos(1_000_000_000_000);

fn tuple(port: u16) -> FourTuple {
    let end = |last, port| Endpoint::new(Ipv4Addr::new(198, 18, 0, last).into(), port);
    FourTuple::new(end(1, 7000), end(2, port))
}

fn secret() -> Secret {
    Secret::new([7; 16])
}

fn bake(options: Options, ecn: bool) -> Cookie {
    let setup = if ecn {
        Flags::ECE | Flags::CWR
    } else {
        Flags::default()
    };
    let syn = TcpHeader {
        seq: IRS,
        flags: Flags::SYN | setup,
        options,
        ..TcpHeader::default()
    };
    let mss = options.mss.unwrap_or(536);
    Cookie::bake(&secret(), &Config::default(), START, &tuple(1), &syn, mss)
}

fn with_timestamps(clock: u32) -> Options {
    Options {
        timestamps: Some(Timestamps {
            value: clock,
            echo: 0,
        }),
        ..Options::default()
    }
}

/// The ACK of an honest peer, whose clock has gone on to 77. Ours showed `clock`.
fn ack(cookie: &Cookie, clock: u32) -> TcpHeader {
    let mut syn_ack = TcpHeader::default();
    syn_ack.options.timestamps = cookie.syn.options.timestamps;
    if let Some(timestamps) = &mut syn_ack.options.timestamps {
        timestamps.value = clock;
    }
    cookie.mark(&mut syn_ack);
    let echoed = syn_ack.options.timestamps.map(|ours| Timestamps {
        value: 77,
        echo: ours.value,
    });
    TcpHeader {
        seq: IRS.add(1),
        ack: cookie.sequence.add(1),
        flags: Flags::ACK,
        options: Options {
            timestamps: echoed,
            ..Options::default()
        },
        ..TcpHeader::default()
    }
}

fn check_at(after: Duration, tuple: &FourTuple, ack: &TcpHeader) -> Option<TcpHeader> {
    check(&secret(), &Config::default(), START + after, tuple, ack)
}

#[test]
fn with_timestamps_the_ack_brings_back_all_that_the_syn_offered() {
    for shift in (0..=14).map(Some).chain([None]) {
        for (sack, ecn) in [(false, false), (true, false), (false, true), (true, true)] {
            let options = Options {
                mss: Some(1460),
                window_scale: shift,
                sack_permitted: sack,
                ..with_timestamps(33)
            };
            let cookie = bake(options, ecn);
            let syn = check_at(Duration::ZERO, &tuple(1), &ack(&cookie, 1_000_000)).unwrap();
            let timestamps = with_timestamps(77).timestamps;
            assert_eq!(syn.seq, IRS);
            assert_eq!(
                syn.options.timestamps.map(|t| t.value),
                timestamps.map(|t| t.value)
            );
            let expected = Options {
                timestamps: syn.options.timestamps,
                ..options
            };
            assert_eq!(syn.options, expected);
            assert_eq!(syn.flags.contains(Flags::ECE | Flags::CWR), ecn);
        }
    }
}

#[test]
fn without_timestamps_only_the_mss_survives_and_nothing_else_is_answered() {
    let options = Options {
        mss: Some(9000),
        window_scale: Some(7),
        sack_permitted: true,
        ..Options::default()
    };
    let cookie = bake(options, true);
    let only_mss = Options {
        mss: Some(8960),
        ..Options::default()
    };
    assert_eq!(
        (cookie.syn.options, cookie.syn.flags),
        (only_mss, Flags::SYN)
    );
    let syn = check_at(Duration::ZERO, &tuple(1), &ack(&cookie, 0));
    assert_eq!(syn, Some(cookie.syn));
}

#[test]
fn the_mss_is_never_more_than_the_peer_announced() {
    for (announced, kept) in [
        (1, 88),
        (536, 536),
        (1459, 1440),
        (1460, 1460),
        (9000, 8960),
    ] {
        let options = Options {
            mss: Some(announced),
            ..Options::default()
        };
        assert_eq!(bake(options, false).syn.options.mss, Some(kept));
    }
}

#[test]
fn our_timestamp_shows_no_time_to_come_and_hardly_the_past() {
    for clock in [0, 5, 63, 64, 1_000_000, u32::MAX] {
        let cookie = bake(with_timestamps(1), false);
        let echo = ack(&cookie, clock).options.timestamps.unwrap().echo;
        assert!(clock.wrapping_sub(echo) < 64, "{clock} {echo}");
    }
}

#[test]
fn a_cookie_is_good_for_its_flow_its_sequence_numbers_and_two_minutes() {
    let cookie = bake(with_timestamps(1), false);
    let good = ack(&cookie, 1000);
    let seconds = Duration::from_secs;
    assert!(check_at(seconds(60), &tuple(1), &good).is_some());
    assert!(check_at(seconds(128), &tuple(1), &good).is_none());
    assert!(check_at(seconds(4 * 64), &tuple(1), &good).is_none());
    assert!(check_at(Duration::ZERO, &tuple(2), &good).is_none());
    for bit in 0..32 {
        let ack = TcpHeader {
            ack: SeqNum(good.ack.0 ^ (1 << bit)),
            ..good
        };
        assert!(check_at(Duration::ZERO, &tuple(1), &ack).is_none());
        let seq = TcpHeader {
            seq: SeqNum(good.seq.0 ^ (1 << bit)),
            ..good
        };
        assert!(check_at(Duration::ZERO, &tuple(1), &seq).is_none());
    }
    let mut offers_more = good;
    if let Some(timestamps) = &mut offers_more.options.timestamps {
        timestamps.echo ^= 1;
    }
    assert!(check_at(Duration::ZERO, &tuple(1), &offers_more).is_none());
    let other = Secret::new([8; 16]);
    assert!(check(&other, &Config::default(), START, &tuple(1), &good).is_none());
}
