//! Explicit congestion notification (RFC 3168), also as DCTCP wants it (RFC 8257).

use userspace_net::Ecn;
use userspace_tcp::{Config, CongestionControl, Event, Flags, Options};

use crate::script::*;

const ECE: Flags = Flags::ECE;
const CWR: Flags = Flags::CWR;
const SYN: Flags = Flags::SYN;

fn ecn() -> Config {
    Config {
        ecn: true,
        ..plain()
    }
}

fn dctcp() -> Config {
    Config {
        congestion: CongestionControl::Dctcp,
        ..plain()
    }
}

/// Opened by us; the peer has agreed to ECN.
fn active(config: Config) -> Script {
    let mut script = Script::new(config);
    script.connect();
    assert_eq!(script.one().flags, SYN | ECE | CWR);
    let options = Options {
        mss: Some(1460),
        ..Options::default()
    };
    script.give_options(SYN | ACK | ECE, 0, 1, 0, options);
    assert_eq!(script.events(), [Event::Established]);
    assert_eq!(script.one().flags, ACK);
    assert!(script.info().ecn);
    script
}

/// A segment of 1000 bytes from the peer in a packet with this ECN field.
fn give_marked(script: &mut Script, seq: i64, ecn: Ecn) {
    script.peer_ecn = ecn;
    script.give(ACK, seq, 1, 1000);
    script.peer_ecn = Ecn::NotEct;
}

#[test]
fn without_the_wish_for_it_nothing_speaks_of_ecn() {
    let mut script = Script::new(plain());
    script.connect();
    assert_eq!(script.one().flags, SYN);
    // An answer to what was not asked.
    script.give(SYN | ACK | ECE, 0, 1, 0);
    script.one();
    script.send(500).unwrap();
    assert_eq!(script.one().ecn, Ecn::NotEct);
    let mut script = Script::new(plain());
    script.stack.listen(local(), 1).unwrap();
    script.give(SYN | ECE | CWR, 0, 0, 0);
    assert_eq!(script.one().flags, SYN | ACK);
}

#[test]
fn a_syn_that_offers_ecn_is_answered_with_ece_alone() {
    let mut script = Script::new(ecn());
    script.stack.listen(local(), 1).unwrap();
    script.give(SYN | ECE | CWR, 0, 0, 0);
    let syn_ack = script.one();
    assert_eq!((syn_ack.flags, syn_ack.ecn), (SYN | ACK | ECE, Ecn::NotEct));
    script.give(ACK, 1, 1, 0);
    script.events();
    assert!(script.info().ecn);
}

#[test]
fn a_syn_with_one_of_the_flags_offers_nothing() {
    for flag in [ECE, CWR] {
        let mut script = Script::new(ecn());
        script.stack.listen(local(), 1).unwrap();
        script.give(SYN | flag, 0, 0, 0);
        assert_eq!(script.one().flags, SYN | ACK);
    }
}

#[test]
fn an_answer_without_ece_or_with_both_flags_is_a_no() {
    for flags in [SYN | ACK, SYN | ACK | CWR, SYN | ACK | ECE | CWR] {
        let mut script = Script::new(ecn());
        script.connect();
        script.one();
        script.give(flags, 0, 1, 0);
        script.one();
        script.events();
        assert!(!script.info().ecn, "{flags:?}");
        script.send(500).unwrap();
        assert_eq!(script.one().ecn, Ecn::NotEct);
    }
}

/// Section 6.1.1.1. The answer to the first SYN may still come: then marks are echoed, but nothing
/// is sent as ECN-capable.
#[test]
fn a_lost_syn_is_sent_again_without_the_offer() {
    let mut script = Script::new(ecn());
    script.connect();
    script.one();
    script.wait_for_timer();
    assert_eq!(script.one().flags, SYN);
    script.give(SYN | ACK | ECE, 0, 1, 0);
    script.one();
    script.events();
    script.send(500).unwrap();
    assert_eq!((script.one().ecn, script.info().ecn), (Ecn::NotEct, false));
    give_marked(&mut script, 1, Ecn::Ce);
    assert_eq!(script.one().flags, ACK | ECE);
}

#[test]
fn a_peer_that_takes_its_offer_back_gets_none() {
    let mut script = Script::new(ecn());
    script.stack.listen(local(), 1).unwrap();
    script.give(SYN | ECE | CWR, 0, 0, 0);
    assert_eq!(script.one().flags, SYN | ACK | ECE);
    script.give(SYN, 0, 0, 0);
    assert_eq!(script.one().flags, SYN | ACK);
    script.give(ACK, 1, 1, 0);
    script.events();
    assert!(!script.info().ecn);
    give_marked(&mut script, 1, Ecn::Ce);
    script.wait_for_timer();
    assert_eq!(script.one().flags, ACK);
}

#[test]
fn a_simultaneous_open_agrees_too() {
    let mut script = Script::new(ecn());
    script.connect();
    script.one();
    script.give(SYN | ECE | CWR, 0, 0, 0);
    assert_eq!(script.one().flags, SYN | ACK | ECE);
    script.give(SYN | ACK | ECE, 0, 1, 0);
    script.events();
    assert!(script.info().ecn);
}

/// Sections 6.1.2, 6.1.4 and 6.1.5.
#[test]
fn only_segments_sent_for_the_first_time_are_ecn_capable() {
    let mut script = active(ecn());
    script.send(500).unwrap();
    assert_eq!(script.one().ecn, Ecn::Ect0);
    script.wait_for_timer();
    let again = script.out();
    assert!(again.iter().all(|out| out.ecn == Ecn::NotEct), "{again:?}");
    script.give(ACK, 1, 501, 1000);
    script.wait_for_timer();
    assert_eq!(script.one().ecn, Ecn::NotEct);
    script.close();
    assert_eq!(script.one().ecn, Ecn::NotEct);
}

/// Section 6.1.3.
#[test]
fn a_mark_is_echoed_until_the_peer_has_reduced_its_window() {
    let mut script = active(ecn());
    give_marked(&mut script, 1, Ecn::Ect0);
    assert_eq!(script.out(), []);
    give_marked(&mut script, 1001, Ecn::Ce);
    assert_eq!(script.one().flags, ACK | ECE);
    for seq in [2001, 3001] {
        give_marked(&mut script, seq, Ecn::Ect0);
        script.wait_for_timer();
        assert_eq!(script.one().flags, ACK | ECE);
    }
    script.send(10).unwrap();
    assert_eq!(script.one().flags, ACK | Flags::PSH | ECE);
    script.give(ACK | CWR, 4001, 11, 1000);
    assert_eq!(script.one().flags, ACK);
    // CWR counts before the mark of the same packet.
    script.peer_ecn = Ecn::Ce;
    script.give(ACK | CWR, 5001, 11, 1000);
    assert_eq!(script.one().flags, ACK | ECE);
    assert_eq!(script.info().counters.marked_in, 2);
}

/// Sections 6.1.5 and 6.1.6.
#[test]
fn marks_outside_the_window_and_on_empty_segments_are_ignored() {
    let mut script = active(Config {
        receive_window: 3000,
        ..ecn()
    });
    script.give(ACK, 1, 1, 1000);
    script.wait_for_timer();
    script.one();
    give_marked(&mut script, 1, Ecn::Ce);
    assert_eq!(script.one().flags, ACK);
    script.peer_ecn = Ecn::Ce;
    script.give(ACK, 1001, 1, 0);
    script.peer_ecn = Ecn::NotEct;
    script.give(ACK, 1001, 1, 1000);
    script.give(ACK, 2001, 1, 1000);
    script.out();
    // The window is full.
    give_marked(&mut script, 3001, Ecn::Ce);
    assert_eq!(script.one().flags, ACK);
}

/// Section 6.1.2: once for each window, and told by CWR on the next new segment.
#[test]
fn an_echo_reduces_the_window_once() {
    let mut script = active(ecn());
    script.send_thousands(10);
    let before = script.info().cwnd;
    script.give(ACK | ECE, 1, 1001, 0);
    script.give(ACK | ECE, 1, 2001, 0);
    script.give(ACK | ECE, 1, 9001, 0);
    let info = script.info();
    assert!(info.ssthresh < before && info.counters.ecn_reductions == 1);
    assert_eq!(info.counters.retransmits, 0);
    script.send(500).unwrap();
    script.send(500).unwrap();
    let flags: Vec<_> = script
        .out()
        .iter()
        .map(|out| out.flags.contains(CWR))
        .collect();
    assert_eq!(flags, [true, false]);
}

#[test]
fn an_echo_from_a_peer_that_has_not_agreed_means_nothing() {
    let mut script = Script::active(plain());
    script.send_thousands(10);
    let before = script.info();
    script.give(ACK | ECE, 1, 2001, 0);
    let after = script.info();
    assert!(after.cwnd > before.cwnd && after.counters.ecn_reductions == 0);
}

/// RFC 8257 section 3.6.
#[test]
fn the_syn_of_dctcp_is_ecn_capable() {
    let mut script = Script::new(dctcp());
    script.connect();
    let syn = script.one();
    assert_eq!((syn.flags, syn.ecn), (SYN | ECE | CWR, Ecn::Ect0));
    script.wait_for_timer();
    assert_eq!((script.one().ecn, script.info().ecn), (Ecn::NotEct, false));
    for (flags, ecn) in [(SYN | ECE | CWR, Ecn::Ect0), (SYN, Ecn::NotEct)] {
        let mut script = Script::new(dctcp());
        script.stack.listen(local(), 1).unwrap();
        script.give(flags, 0, 0, 0);
        assert_eq!(script.one().ecn, ecn);
    }
}

/// RFC 8257 section 3.2.
#[test]
fn dctcp_hears_of_each_change_at_once() {
    let mut script = active(dctcp());
    let mut seq = 1;
    let mut give = |script: &mut Script, ecn| {
        give_marked(script, seq, ecn);
        seq += 1000;
        let out = script.out();
        out.iter()
            .map(|out| (out.ack, out.flags))
            .collect::<Vec<_>>()
    };
    assert_eq!(give(&mut script, Ecn::Ect0), []);
    // Two: what came before the change, and what changed.
    let expected = [(1001, ACK), (2001, ACK | ECE)];
    assert_eq!(give(&mut script, Ecn::Ce), expected);
    assert_eq!(give(&mut script, Ecn::Ce), []);
    assert_eq!(give(&mut script, Ecn::Ce), [(4001, ACK | ECE)]);
    assert_eq!(give(&mut script, Ecn::Ect0), [(5001, ACK)]);
    // CWR ends nothing here.
    assert_eq!(give(&mut script, Ecn::Ce), [(6001, ACK | ECE)]);
    script.give(ACK | CWR, 6001, 1, 0);
    assert_eq!(give(&mut script, Ecn::Ce), []);
    script.wait_for_timer();
    assert_eq!(script.one().flags, ACK | ECE);
}

#[test]
fn dctcp_hears_of_changes_that_came_in_one_batch() {
    let mut script = active(dctcp());
    for (i, ecn) in [Ecn::Ect0, Ecn::Ce, Ecn::Ce, Ecn::Ect0, Ecn::Ce]
        .iter()
        .enumerate()
    {
        give_marked(&mut script, 1 + 1000 * i as i64, *ecn);
    }
    let out = script.out();
    let acks: Vec<_> = out.iter().map(|out| (out.ack, out.flags)).collect();
    let expected = [
        (1001, ACK),
        (3001, ACK | ECE),
        (4001, ACK),
        (5001, ACK | ECE),
    ];
    assert_eq!(acks, expected);
}
