use std::time::Duration;

use userspace_sctp::cause::Cause;
use userspace_sctp::chunk::Chunk;
use userspace_sctp::{Config, Event, Failure};

use crate::script::{PEERS_TAG, Script};

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
