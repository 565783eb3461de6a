//! The size of packets (RFC 9260 section 7.3), found out by RFC 8899 with PAD chunks (RFC 4820).

use std::time::Duration;

use userspace_sctp::chunk::Chunk;
use userspace_sctp::{AssocId, Config, Event, IcmpError, IcmpQuote};

use crate::script::{PEERS_TAG, Script, Sent, WINDOW, data, ends};

/// A message that fills a packet of 1500 bytes, and one of 1200.
const FULL: usize = 1500 - 20 - 12 - 16;
const BASE: usize = 1200 - 20 - 12 - 16;

/// What the probe's HEARTBEAT says.
fn probed(sent: &Sent) -> Vec<u8> {
    assert_eq!((sent.bytes.len() % 4, sent.fragment_to), (0, None));
    let chunks = sent.chunks();
    let [Chunk::Heartbeat(info), Chunk::Pad { .. }] = chunks[..] else {
        panic!("{chunks:?}");
    };
    info.to_vec()
}

/// Two timeouts of a full packet are over, the data went in fragments, and is acknowledged: a probe of the old size is
/// out.
fn after_black_hole() -> (Script, AssocId, Sent) {
    let (mut script, id) = Script::established(Config {
        heartbeat_interval: None,
        ..Config::default()
    });
    script.post(id, FULL);
    for _ in 0..2 {
        let sent = script.one();
        assert_eq!((sent.bytes.len(), sent.fragment_to), (1480, None));
        script.no_event();
        script.wait();
    }
    assert_eq!(script.event(), Event::MtuChanged { message_max: BASE });
    let sent = script.one();
    assert_eq!((sent.bytes.len(), sent.fragment_to), (1480, Some(1200)));
    assert_eq!(sent.data(script.tsn), [0]);
    script.sack(1, WINDOW, &[]);
    let probe = script.one();
    (script, id, probe)
}

/// RFC9260-7.3-1, RFC9260-6.9-7.
#[test]
fn full_packets_that_vanish_make_packets_smaller_and_a_probe_finds_the_old_size() {
    let (mut script, id, probe) = after_black_hole();
    assert_eq!(script.info(id).mtu, 1200);
    assert_eq!(probe.bytes.len(), 1480);
    script.peer(&[Chunk::HeartbeatAck(&probed(&probe))]);
    assert_eq!(script.event(), Event::MtuChanged { message_max: FULL });
    assert_eq!(script.info(id).mtu, 1500);
    script.nothing();
    script.post(id, FULL);
    let sent = script.one();
    assert_eq!((sent.bytes.len(), sent.fragment_to), (1480, None));
}

/// RFC9260-7.3-1: the search goes on between what passes and what does not.
#[test]
fn a_lost_probe_is_no_error_and_a_smaller_one_follows() {
    let (mut script, id, mut probe) = after_black_hole();
    let before = script.info(id);
    let mut sizes = Vec::new();
    for _ in 0..30 {
        sizes.push(probe.bytes.len() + 20);
        if sizes.last() <= Some(&1400) {
            script.peer(&[Chunk::HeartbeatAck(&probed(&probe))]);
        } else {
            script.now += Duration::from_secs(20);
            script.stack.advance(script.now);
        }
        script.post(id, 10);
        let mut sent = script.sent();
        script.sack(sizes.len() as u32 + 1, WINDOW, &[]);
        sent.extend(script.sent());
        let Some(next) = sent.into_iter().find(|sent| sent.bytes.len() > 100) else {
            break;
        };
        probe = next;
    }
    let after = script.info(id);
    assert_eq!((after.errors, after.ssthresh), (0, before.ssthresh));
    assert_eq!(after.mtu, 1400, "{sizes:?}");
    assert!(sizes.len() <= 12, "{sizes:?}");
    assert_eq!(script.stack.message_max(id), 1400 - 20 - 12 - 16);
}

/// RFC9260-10-6 to RFC9260-10-10.
#[test]
fn a_router_that_finds_a_probe_too_big_ends_the_search_below_it() {
    let (mut script, id, _) = after_black_hole();
    let quote = IcmpQuote {
        ends: ends(),
        tag: PEERS_TAG,
        init_tag: None,
    };
    let too_big = IcmpError::PacketTooBig { mtu: 1300 };
    assert!(script.stack.icmp(script.now, &quote, too_big));
    assert_eq!(script.info(id).mtu, 1200);
    script.post(id, 10);
    script.sent();
    script.sack(2, WINDOW, &[]);
    let probe = script.one();
    assert!(probe.bytes.len() + 20 <= 1300, "{}", probe.bytes.len());
    let absurd = IcmpError::PacketTooBig { mtu: 2000 };
    assert!(!script.stack.icmp(script.now, &quote, absurd));
}

/// RFC9260-6.9-7: what a router has dropped goes again at once, in fragments.
#[test]
fn data_that_a_router_finds_too_big_goes_again_without_a_timeout() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, FULL);
    script.post(id, 100);
    assert_eq!(script.sent().len(), 2);
    let quote = IcmpQuote {
        ends: ends(),
        tag: PEERS_TAG,
        init_tag: None,
    };
    let too_big = IcmpError::PacketTooBig { mtu: 1400 };
    assert!(script.stack.icmp(script.now, &quote, too_big));
    let sent = script.one();
    assert_eq!(sent.data(script.tsn), [0]);
    assert_eq!(sent.fragment_to, Some(1400));
}

/// A path that loses even packets of 1200 bytes gets smaller ones.
#[test]
fn timeouts_go_on_down_to_what_every_host_takes() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, FULL);
    let mut sizes = Vec::new();
    while script.info(id).errors < 6 {
        sizes.extend(script.sent().iter().map(|sent| sent.fragment_to));
        script.wait();
    }
    let expected = [None, None, Some(1200), Some(1200), Some(576), Some(576)];
    assert_eq!(sizes, expected);
}

/// RFC9260-6.1: a closed window that is probed blames no path.
#[test]
fn a_closed_window_makes_no_packet_smaller() {
    let (mut script, id) = Script::established(Config::default());
    script.sack(0, 0, &[]);
    script.post(id, FULL);
    for _ in 0..5 {
        script.wait();
        script.sent();
        script.sack(0, 0, &[]);
    }
    assert_eq!(script.info(id).mtu, 1500);
}

/// Without probing only routers make packets smaller.
#[test]
fn probing_can_be_turned_off() {
    let (mut script, id) = Script::established(Config {
        path_mtu_probing: false,
        ..Config::default()
    });
    script.post(id, FULL);
    for _ in 0..5 {
        assert_eq!(script.one().fragment_to, None);
        script.wait();
    }
    assert_eq!(script.info(id).mtu, 1500);
}

/// RFC 4820 section 3.
#[test]
fn padding_is_passed_over() {
    let (mut script, _) = Script::established(Config::default());
    script.peer(&[
        Chunk::Pad { len: 333 },
        Chunk::Data(data(0, &[5])),
        Chunk::Pad { len: 0 },
    ]);
    assert_eq!(script.shown, [5]);
    script.no_event();
}

/// RFC9260-6.1: a SHUTDOWN does not say that the probe of a closed window arrived.
#[test]
fn probes_that_only_a_shutdown_answers_are_errors() {
    let (mut script, id) = Script::established(Config::default());
    script.sack(0, 0, &[]);
    script.post(id, FULL);
    let cumulative = script.tsn.previous();
    script.wait();
    for expected in 0..4 {
        script.sent();
        script.peer(&[Chunk::Shutdown { cumulative }]);
        assert_eq!(script.info(id).errors, expected);
        script.wait();
    }
    assert_eq!(script.info(id).mtu, 576);
}
