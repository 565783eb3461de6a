use std::time::Duration;

use userspace_sctp::cause::{Cause, Causes};
use userspace_sctp::chunk::Chunk;
use userspace_sctp::{Config, Event, Failure, State};

use crate::script::{PEERS_TAG, Script, WINDOW, causes, remote};

fn shutdown(script: &Script, acknowledged: u32) -> Chunk<'static> {
    let cumulative = script.tsn.plus(acknowledged).previous();
    Chunk::Shutdown { cumulative }
}

/// RFC9260-9.2-12 to RFC9260-9.2-14: whatever the peer sends.
#[test]
fn a_shutdown_is_over_after_five_times_the_longest_timeout() {
    let (mut script, id) = Script::established(Config::default());
    script.stack.close(script.now, id);
    script.sent();
    let begun = script.now;
    let mut sent = Vec::new();
    while script.stack.info(id).is_some() {
        script.peer(&[Chunk::Heartbeat(b"still here")]);
        script.wait();
        sent = script.sent();
    }
    assert_eq!(
        script.now.saturating_duration_since(begun),
        Duration::from_secs(300)
    );
    let abort = sent.iter().any(|sent| {
        let chunks = sent.chunks();
        matches!(chunks.last(), Some(Chunk::Abort { .. }))
    });
    assert!(abort);
    assert_eq!(script.event(), Event::Failed(Failure::ShutdownTimedOut));
}

/// RFC9260-9.1-1 to RFC9260-9.1-3, RFC9260-3.3.7-2.
#[test]
fn an_abort_tells_the_reason_and_gives_buffers_back() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, 100);
    assert!(script.stack.abort(script.now, id, b"enough"));
    let sent = script.one();
    assert_eq!(sent.abort(), (false, Some(Cause::UserInitiated(b"enough"))));
    assert_eq!((sent.chunks().len(), sent.tag()), (1, PEERS_TAG));
    assert!(script.stack.poll_released().is_some());
    script.no_event();
    assert!(!script.stack.abort(script.now, id, b""));
}

/// RFC9260-8.5.1-6, RFC9260-8.5.1-7, RFC9260-9.1-4 to RFC9260-9.1-7.
#[test]
fn an_abort_counts_with_the_right_tag_only() {
    let causes = causes(&[Cause::UserInitiated(b"no more")]);
    for (own, reflected, counts) in [
        (true, false, true),
        (true, true, false),
        (false, false, false),
        (false, true, true),
    ] {
        let (mut script, id) = Script::established(Config::default());
        let tag = if own { script.tag } else { PEERS_TAG };
        let abort = Chunk::Abort {
            reflected,
            causes: Causes::new(&causes),
        };
        script.peer_with(tag, remote(), &[abort]);
        script.nothing();
        assert_eq!(script.stack.info(id).is_none(), counts);
        if counts {
            let Event::Aborted(cause) = script.event() else {
                panic!("no abort");
            };
            assert_eq!((cause.code, cause.reason()), (Some(12), &b"no more"[..]));
        }
    }
}

/// RFC9260-8.5.1-10, RFC9260-9.2-20, RFC9260-5.2.5-1, RFC9260-9.2-26, RFC9260-8.5.1-12, RFC9260-9.2-25.
#[test]
fn chunks_of_another_state_are_ignored() {
    let (mut script, id) = Script::established(Config::default());
    for chunk in [
        Chunk::ShutdownComplete { reflected: false },
        Chunk::ShutdownAck,
        Chunk::CookieAck,
    ] {
        script.peer(&[chunk]);
        script.nothing();
        assert_eq!(script.state(id), State::Established);
    }
    let mut script = Script::new(Config::default());
    let id = script.connect();
    script.init_ack();
    script.peer(&[shutdown(&script, 0)]);
    script.nothing();
    script.peer(&[Chunk::ShutdownAck]);
    let sent = script.one();
    assert_eq!(sent.only(), Chunk::ShutdownComplete { reflected: true });
    assert_eq!(sent.tag(), script.tag);
    assert_eq!(script.state(id), State::CookieEchoed);
}

/// Something late has met nobody, and the answer has overtaken the SHUTDOWN COMPLETE.
#[test]
fn a_peer_that_knows_nothing_any_more_has_ended_in_peace() {
    let (mut script, _) = Script::established(Config::default());
    script.peer(&[shutdown(&script, 0)]);
    assert_eq!(script.event(), Event::PeerClosed);
    script.sent();
    let abort = Chunk::Abort {
        reflected: true,
        causes: Causes::default(),
    };
    script.peer_with(PEERS_TAG, remote(), &[abort]);
    assert_eq!(script.event(), Event::Closed);
}

#[test]
fn an_association_that_is_not_established_is_gone_at_once() {
    let mut script = Script::new(Config::default());
    let id = script.connect();
    script.stack.close(script.now, id);
    script.nothing();
    assert_eq!(script.stack.info(id), None);
    let id = script.connect();
    script.init_ack();
    script.stack.close(script.now, id);
    assert_eq!(script.one().abort().1.unwrap().code(), Some(12));
    script.no_event();
}

/// RFC9260-9.2-8.
#[test]
fn after_the_peers_shutdown_a_close_changes_nothing() {
    let (mut script, id) = Script::established(Config::default());
    script.post(id, 100);
    script.post(id, 100);
    script.sent();
    script.peer(&[shutdown(&script, 0)]);
    assert_eq!(script.event(), Event::PeerClosed);
    script.stack.close(script.now, id);
    script.nothing();
    assert_eq!(script.state(id), State::ShutdownReceived);
    script.peer(&[shutdown(&script, 1)]);
    assert_eq!(script.info(id).flight, 116);
    script.peer(&[shutdown(&script, 2)]);
    assert_eq!(script.one().only(), Chunk::ShutdownAck);
}

/// RFC9260-6-8, RFC9260-6-6, RFC9260-9.2-26: one that counted would end the association.
#[test]
fn a_sack_or_shutdown_of_another_state_is_ignored() {
    let mut script = Script::new(Config::default());
    let id = script.connect();
    for _ in 0..2 {
        script.sack(9, WINDOW, &[]);
        script.peer(&[shutdown(&script, 9)]);
        script.nothing();
        script.no_event();
        if script.state(id) == State::CookieWait {
            script.init_ack();
        }
    }
    assert_eq!(script.state(id), State::CookieEchoed);
    let (mut script, id) = Script::established(Config::default());
    script.stack.close(script.now, id);
    script.sent();
    script.sack(9, WINDOW, &[]);
    script.nothing();
    assert_eq!(script.state(id), State::ShutdownSent);
}

/// RFC9260-3.3.7-3, RFC9260-8.5.1-6: with either tag.
#[test]
fn an_abort_counts_behind_other_chunks() {
    for reflected in [false, true] {
        let (mut script, id) = Script::established(Config::default());
        let tag = if reflected { PEERS_TAG } else { script.tag };
        let causes = Causes::default();
        let abort = Chunk::Abort { reflected, causes };
        let error = Chunk::Error(Causes::default());
        script.peer_with(tag, remote(), &[error, abort]);
        script.nothing();
        assert!(matches!(script.event(), Event::Aborted(_)));
        assert_eq!(script.stack.info(id), None);
    }
}
