//! The path's MTU: by ICMP (RFC 1191, RFC 8201, RFC 5927) and by probing (RFC 4821, RFC 8899). A
//! segment that was posted is never cut: it goes out as IP fragments.

use std::time::Duration;

use userspace_tcp::{Config, Event, Flags};

use crate::script::*;

const MINUTE: Duration = Duration::from_secs(60);

fn with_sack() -> Config {
    Config {
        sack: true,
        ..plain()
    }
}

/// Posts and sends `count` segments of 1460 bytes.
fn send_large(script: &mut Script, count: usize) -> Vec<Out> {
    for _ in 0..count {
        script.send(1460).unwrap();
    }
    script.out()
}

/// The peer has all that was sent.
fn give_ack(script: &mut Script) {
    let sent = script.info().counters.bytes_out;
    script.give(ACK, 1, sent as i64 + 1, 0);
}

/// An established connection that has fallen to 1200 bytes, with everything acknowledged.
fn fallen(config: Config) -> Script {
    let mut script = Script::active(config);
    send_large(&mut script, 1);
    while script.mss() == 1460 {
        script.wait_for_timer();
        script.out();
    }
    script.events();
    script.give(ACK, 1, 1461, 0);
    script
}

/// Sends small segments, each acknowledged, until the window is open for a probe.
fn until_calm(script: &mut Script) {
    for _ in 0..20 {
        if script.mss() > script.info().mss {
            return;
        }
        for _ in 0..4 {
            script.send(1000).unwrap();
        }
        while script.stack.queued_segments(script.conn()) > 0 {
            assert!(script.out().iter().all(|out| out.fragment_to.is_none()));
            give_ack(script);
        }
    }
    panic!("no probe is wanted");
}

/// RFC 4821 section 7.6.2: its loss is no sign of congestion.
#[test]
fn a_larger_segment_that_is_lost_goes_out_again_as_fragments() {
    let mut script = fallen(with_sack());
    until_calm(&mut script);
    script.send(1460).unwrap();
    let probe = script.one();
    let seq = probe.seq as u32;
    for _ in 0..4 {
        script.send(1000).unwrap();
    }
    let behind = 1000 * script.out().len() as u32;
    assert!(behind > 0);
    let before = script.info();
    script.give_sack(i64::from(seq), &[(seq + 1460, seq + 1460 + behind)]);
    let again = script.out().swap_remove(0);
    assert_eq!((again.seq, again.len), (probe.seq, 1460));
    assert_eq!(again.fragment_to, Some(1200));
    let info = script.info();
    assert_eq!(info.cwnd, before.cwnd);
    assert_eq!(
        info.counters.fast_recoveries,
        before.counters.fast_recoveries
    );
    give_ack(&mut script);
    assert_eq!((script.info().mss, script.events()), (1160, vec![]));
    // Less than before.
    until_calm(&mut script);
    assert!((1161..1460).contains(&script.mss()), "{}", script.mss());
}

#[test]
fn a_larger_segment_that_is_lost_alone_costs_no_congestion_window() {
    for config in [plain(), with_sack()] {
        let mut script = fallen(config);
        until_calm(&mut script);
        script.send(1460).unwrap();
        script.one();
        let before = script.info();
        let start = script.now;
        let again = loop {
            script.wait_for_timer();
            if let Some(again) = script.next_out() {
                break again;
            }
            assert!(script.now < start + 2 * SEC);
        };
        assert_eq!((again.len, again.fragment_to), (1460, Some(1200)));
        give_ack(&mut script);
        let info = script.info();
        assert!(info.cwnd >= before.cwnd, "{} {}", info.cwnd, before.cwnd);
        assert_eq!(info.counters.timeouts, before.counters.timeouts);
    }
}

#[test]
fn a_router_that_names_the_size_by_a_probe_saves_the_search() {
    let mut script = fallen(with_sack());
    until_calm(&mut script);
    script.send(1460).unwrap();
    let seq = script.one().seq as u32;
    assert!(script.too_big(seq, 1380));
    let again = script.one();
    assert_eq!((again.len, again.fragment_to), (1460, Some(1200)));
    give_ack(&mut script);
    assert_eq!(script.events(), []);
    until_calm(&mut script);
    assert_eq!(script.mss(), 1340);
    script.send(1340).unwrap();
    script.one();
    give_ack(&mut script);
    assert_eq!(script.events(), [Event::MssChanged { mss: 1340 }]);
}

/// RFC 1191 section 6.3, RFC 8201 section 4.
#[test]
fn ten_minutes_after_a_router_named_a_size_a_larger_one_is_tried() {
    let mut script = Script::active(with_sack());
    send_large(&mut script, 1);
    assert!(script.too_big(1, 1400));
    script.out();
    give_ack(&mut script);
    script.wait(10 * MINUTE - SEC);
    for _ in 0..10 {
        script.send(1000).unwrap();
        script.out();
        give_ack(&mut script);
    }
    assert_eq!(script.mss(), 1360);
    script.wait(SEC);
    until_calm(&mut script);
    assert_eq!((script.mss(), script.info().mss), (1460, 1360));
}

/// Two connections to one host: what is lost of one of them while the other's segments of the same
/// size arrive was not too large.
#[test]
fn what_passes_from_another_connection_is_not_lost_for_its_size() {
    for passes in [false, true] {
        let mut script = Script::active(plain());
        let mut other = (script.conn, script.tuple, script.iss);
        let mut change = |script: &mut Script| {
            let ours = (script.conn, script.tuple, script.iss);
            (script.conn, script.tuple, script.iss) = std::mem::replace(&mut other, ours);
        };
        script.tuple.local.port += 1;
        script.connect();
        let syn = script.one();
        script.give_options(Flags::SYN | ACK, 0, 1, 0, syn.options);
        assert_eq!(script.events(), [Event::Established]);
        script.out();
        assert_eq!(send_large(&mut script, 1).len(), 1);
        for timeout in 1..=4 {
            script.wait_for_timer();
            let narrower = Event::MssChanged { mss: 1160 };
            let black_hole = timeout == if passes { 4 } else { 2 };
            let told = script.events().contains(&narrower);
            assert_eq!(told, black_hole, "timeout {timeout}, passes: {passes}");
            assert_eq!(script.out().len(), 1);
            if black_hole {
                break;
            }
            change(&mut script);
            if passes {
                assert_eq!(send_large(&mut script, 1).len(), 1);
                give_ack(&mut script);
            }
            change(&mut script);
        }
    }
}
