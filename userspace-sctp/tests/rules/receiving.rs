use userspace_sctp::Config;
use userspace_sctp::cause::Cause;
use userspace_sctp::chunk::{Chunk, Data, GapBlock, Report};
use userspace_sctp::inbound::reassembly::FRAGMENTS_MAX;

use crate::script::{PEERS_TSN, Script, Sent, data, micros, millis};

/// What a SACK says: chunks up to the cumulative TSN, window, blocks, duplicates.
fn sack(sent: &Sent) -> (u32, u32, Vec<(u16, u16)>, usize) {
    let chunks = sent.chunks();
    let found = chunks.iter().find_map(|chunk| match chunk {
        Chunk::Sack(sack) => Some(*sack),
        _ => None,
    });
    let found = found.unwrap_or_else(|| panic!("no SACK: {chunks:?}"));
    let pair = |block: GapBlock| (block.start, block.end);
    (
        found.cumulative.next().since(PEERS_TSN),
        found.window,
        found.blocks().map(pair).collect(),
        found.duplicates().count(),
    )
}

/// The exception to RFC9260-6.2-8: as in TCP, SACKs wait where they would be many.
#[test]
fn in_a_fast_stream_a_sack_waits_for_company() {
    let (mut script, _) = Script::established(Config::default());
    let mut numbers = 0..;
    let mut packets = |script: &mut Script, count| {
        for number in numbers.by_ref().take(count) {
            script.peer(&[Chunk::Data(data(number, b"a"))]);
        }
    };
    // What is counted is the time before: eight packets in some 30 microseconds.
    packets(&mut script, 9);
    script.sent();
    script.wait_for(micros(31));
    packets(&mut script, 63);
    script.nothing();
    packets(&mut script, 1);
    assert_eq!(sack(&script.one()).0, 9 + 64);
    packets(&mut script, 2);
    script.nothing();
    assert_eq!(script.wait(), micros(30));
    assert_eq!(sack(&script.one()).0, 9 + 64 + 2);
    // Long behind it, each second packet is acknowledged again.
    script.wait_for(millis(1));
    packets(&mut script, 2);
    assert_eq!(sack(&script.one()).0, 9 + 64 + 4);
}

/// RFC9260-6.2-2, RFC9260-6.2-4, RFC9260-6.2-5, RFC9260-6.2-11, RFC9260-6.2-25.
#[test]
fn a_closed_window_takes_what_fills_gaps_and_opens_when_messages_are_consumed() {
    let (mut script, id) = Script::established(Config {
        receive_window: 2_000,
        ..Config::default()
    });
    let payload = [b'x'; 1000];
    script.peer(&[Chunk::Data(data(0, &payload))]);
    assert_eq!(sack(&script.one()).1, 1_000);
    script.peer(&[Chunk::Data(data(2, &payload))]);
    assert_eq!(sack(&script.one()).1, 0);
    script.peer(&[Chunk::Data(data(3, &payload))]);
    let (cumulative, window, blocks, _) = sack(&script.one());
    assert_eq!((cumulative, window, blocks), (1, 0, vec![(2, 2)]));
    script.peer(&[Chunk::Data(data(1, &payload))]);
    assert_eq!(sack(&script.one()).0, 3);
    assert_eq!(script.shown.len(), 3);
    script.stack.consumed(script.now, id, 1_000);
    script.nothing();
    script.stack.consumed(script.now, id, 1_000);
    assert_eq!(sack(&script.one()).1, 1_000);
}

/// RFC 9260 section 3.3.10.6: the whole chunk, or as much of it as a packet has room for.
#[test]
fn unknown_chunks_of_any_length_are_reported() {
    for len in [4, 6, 252, 253, 256, 1000, 1300, 1452] {
        let (mut script, _) = Script::established(Config::default());
        let mut whole = vec![7; len];
        whole[..4].copy_from_slice(&[0xff, 0, (len >> 8) as u8, len as u8]);
        let unknown = Chunk::Unknown {
            report: Report::SkipAndReport,
            whole: &whole,
        };
        script.peer(&[unknown]);
        let sent = script.one();
        let Chunk::Error(found) = sent.only() else {
            panic!("{len}: {sent:?}");
        };
        let found: Vec<_> = found.iter().collect();
        let [Cause::UnrecognizedChunk(quoted)] = found[..] else {
            panic!("{len}: {found:?}");
        };
        assert!(whole.starts_with(quoted), "{len}");
        assert!(quoted.len() >= len.min(1300), "{len}: {}", quoted.len());
    }
}

/// The bound of what fills gaps: another window.
#[test]
fn gaps_are_filled_within_another_window() {
    let (mut script, id) = Script::established(Config {
        receive_window: 1_500,
        ..Config::default()
    });
    let payload = [b'x'; 1000];
    for number in [9, 8, 7, 6, 5, 4] {
        script.peer(&[Chunk::Data(data(number, &payload))]);
        script.sent();
    }
    assert_eq!(script.info(id).held, 3_000);
    script.stack.consumed(script.now, id, 3_000);
    script.sent();
    script.peer(&[Chunk::Data(data(6, &payload))]);
    assert_eq!(script.shown.len(), 4, "it was not acknowledged");
}

/// RFC9260-6.2-4: without a gap, too, where a SACK would else wait for another packet.
#[test]
fn what_a_closed_window_refuses_is_told_at_once() {
    let part = Data {
        end: false,
        ..data(2, b"x")
    };
    for refused in [data(2, b"x"), part] {
        let (mut script, id) = Script::established(Config {
            receive_window: 2_000,
            ..Config::default()
        });
        let payload = [b'x'; 1000];
        script.peer(&[Chunk::Data(data(0, &payload))]);
        script.sent();
        script.peer(&[Chunk::Data(data(1, &payload))]);
        script.nothing();
        script.wait();
        assert_eq!(sack(&script.one()), (2, 0, vec![], 0));
        for _ in 0..3 {
            script.peer(&[Chunk::Data(refused)]);
            assert_eq!(sack(&script.one()), (2, 0, vec![], 0));
        }
        assert_eq!((script.shown.len(), script.info(id).held), (2, 2_000));
    }
}

/// RFC9260-6.2-4: fragments that are not kept, too.
#[test]
fn a_fragment_beyond_the_bound_is_told_at_once() {
    let (mut script, _) = Script::established(Config::default());
    let bound = FRAGMENTS_MAX as u32;
    let part = |number| {
        Chunk::Data(Data {
            begin: number == 0,
            end: false,
            ..data(number, b"x")
        })
    };
    for number in 0..bound {
        script.peer(&[part(number)]);
    }
    // What waits has gone, and the next packet alone would wait.
    script.wait_for(millis(1000));
    script.sent();
    for number in [bound, bound + 1, bound] {
        script.peer(&[part(number)]);
        let (cumulative, _, blocks, _) = sack(&script.one());
        assert_eq!((cumulative, blocks.len()), (bound, 0), "{number}");
    }
}
