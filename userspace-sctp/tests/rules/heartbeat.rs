use std::time::Duration;

use userspace_sctp::chunk::Chunk;
use userspace_sctp::{Config, Event, Failure};

use crate::script::{Script, millis};

/// The next heartbeat: what it says.
fn heartbeat(script: &mut Script) -> Vec<u8> {
    // A deadline that was moved is looked at when it was at first.
    let mut sent = script.sent();
    while sent.is_empty() {
        script.wait();
        sent = script.sent();
    }
    assert_eq!(sent.len(), 1, "{sent:?}");
    let sent = sent.remove(0);
    let Chunk::Heartbeat(info) = sent.only() else {
        panic!("{sent:?}");
    };
    info.to_vec()
}

/// RFC9260-8.3-1, RFC9260-8.3-13, RFC9260-8.3-14, RFC9260-3.3.5-3.
#[test]
fn an_idle_path_is_probed_and_measured() {
    let (mut script, id) = Script::established(Config::default());
    let mut last = Vec::new();
    for _ in 0..3 {
        let before = script.now;
        let info = heartbeat(&mut script);
        let period = script.now.saturating_duration_since(before);
        let around = millis(30_500)..=millis(31_500);
        assert!(around.contains(&period), "{period:?}");
        assert_ne!(info.get(4..12), last.get(4..12), "the nonce");
        script.now += millis(80);
        script.peer(&[Chunk::HeartbeatAck(&info)]);
        last = info;
    }
    assert!(script.info(id).srtt.is_some_and(|srtt| srtt > millis(20)));
    assert_eq!(script.info(id).errors, 0);
}

/// RFC9260-8.3-4, RFC9260-8.1-1, RFC9260-8.3-5.
#[test]
fn a_peer_that_does_not_answer_heartbeats_is_given_up() {
    let (mut script, _) = Script::established(Config::default());
    let mut heartbeats = 0;
    let mut events = Vec::new();
    while script.stack.next_deadline().is_some() {
        script.wait();
        heartbeats += script.sent().len();
        events.extend(std::iter::from_fn(|| script.stack.poll_event()).map(|(_, event)| event));
    }
    assert_eq!(heartbeats, 11);
    let failed = Event::Failed(Failure::Unreachable);
    assert_eq!(
        events,
        [
            Event::PathDown {
                remote: crate::script::remote().ip()
            },
            failed
        ]
    );
}

/// RFC9260-8.3-8, RFC9260-8.3-12, and only an answer to what was sent.
#[test]
fn a_late_answer_clears_the_errors_and_a_forged_one_does_not() {
    let (mut script, id) = Script::established(Config::default());
    let info = heartbeat(&mut script);
    while script.info(id).errors == 0 {
        script.wait();
    }
    assert_eq!(script.info(id).errors, 1);
    let mut forged = info.clone();
    forged[9] ^= 1;
    script.peer(&[Chunk::HeartbeatAck(&forged)]);
    assert_eq!(script.info(id).errors, 1);
    script.peer(&[Chunk::HeartbeatAck(&info)]);
    assert_eq!(script.info(id).errors, 0);
}

/// RFC9260-8.3-3, RFC9260-8.3-9, RFC9260-3.3.6-2: up to our SHUTDOWN.
#[test]
fn heartbeats_are_answered_with_what_they_say() {
    let info = [0, 1, 0, 9, 1, 2, 3, 4, 5];
    let mut script = Script::new(Config::default());
    script.connect();
    script.peer(&[Chunk::Heartbeat(&info)]);
    script.nothing();
    script.init_ack();
    script.peer(&[Chunk::Heartbeat(&info)]);
    assert_eq!(script.one().only(), Chunk::HeartbeatAck(&info));
    let (mut script, id) = Script::established(Config::default());
    let whole = [7; 1464];
    script.peer(&[Chunk::Heartbeat(&whole)]);
    assert_eq!(script.one().only(), Chunk::HeartbeatAck(&whole));
    script.stack.close(script.now, id);
    script.sent();
    script.peer(&[Chunk::Heartbeat(&info)]);
    script.nothing();
}

/// RFC9260-8.3-2.
#[test]
fn none_is_sent_while_data_probes_the_path_or_after_a_shutdown() {
    let (mut script, id) = Script::established(Config::default());
    script.stack.close(script.now, id);
    let mut sent = Vec::new();
    for _ in 0..5 {
        script.wait_for(Duration::from_secs(10));
        sent.extend(script.sent());
    }
    let is_shutdown = |chunk: &Chunk<'_>| matches!(chunk, Chunk::Shutdown { .. });
    assert!(sent.iter().all(|sent| is_shutdown(&sent.only())));
}

/// RFC9260-8.3-14: an unanswered one doubles the timeout.
#[test]
fn a_heartbeat_that_is_not_answered_doubles_the_timeout() {
    let (mut script, id) = Script::established(Config::default());
    for expected in [1, 2, 4, 8] {
        assert_eq!(script.info(id).rto, Duration::from_secs(expected));
        heartbeat(&mut script);
        let sent = script.now;
        while script.info(id).rto == Duration::from_secs(expected) {
            script.wait();
        }
        assert_eq!(
            script.now.saturating_duration_since(sent),
            Duration::from_secs(expected)
        );
    }
}

/// RFC9260-8.3-10, RFC9260-8.3-11.
#[test]
fn a_path_that_was_down_is_up_with_the_answer_to_a_heartbeat() {
    let (mut script, id) = Script::established(Config::default());
    while script.info(id).errors < 6 {
        heartbeat(&mut script);
        let errors = script.info(id).errors;
        while script.info(id).errors == errors {
            script.wait();
        }
    }
    let remote = crate::script::remote().ip();
    assert_eq!(script.event(), Event::PathDown { remote });
    let info = heartbeat(&mut script);
    script.peer(&[Chunk::HeartbeatAck(&info)]);
    assert_eq!(script.event(), Event::PathUp { remote });
    assert_eq!(script.info(id).errors, 0);
}

/// RFC9260-8.3-14: the jitter is half the RTO each way, and as good as even.
#[test]
fn heartbeats_are_spread_over_one_timeout() {
    let (mut script, id) = Script::established(Config::default());
    let mut eighths = [0; 8];
    for _ in 0..160 {
        let before = script.now;
        let info = heartbeat(&mut script);
        let period = script.now.saturating_duration_since(before);
        let rto = script.info(id).rto;
        let beyond = period.checked_sub(Duration::from_secs(30) + rto / 2);
        let beyond = beyond.unwrap_or_else(|| panic!("{period:?}"));
        eighths[(beyond.as_nanos() * 8 / rto.as_nanos()) as usize] += 1;
        script.peer(&[Chunk::HeartbeatAck(&info)]);
    }
    assert!(
        eighths.iter().all(|count| (5..40).contains(count)),
        "{eighths:?}"
    );
}

/// RFC9260-8.1-1: once, although the timeouts of its data and of a heartbeat are found expired together.
#[test]
fn a_peer_whose_timeouts_expire_together_is_given_up_once() {
    let (mut script, id) = Script::established(Config {
        association_max_retrans: 0,
        ..Config::default()
    });
    heartbeat(&mut script);
    script.post(id, 100);
    script.one();
    script.now += Duration::from_secs(60);
    script.stack.advance(script.now);
    assert_eq!(script.event(), Event::Failed(Failure::Unreachable));
    assert_eq!(script.stack.info(id), None);
    script.nothing();
}
