//! Where data goes when an address of the peer does not answer (RFC 9260 sections 6.4 and 8.2, RFC 7829).

use std::time::Duration;

use userspace_sctp::chunk::Chunk;
use userspace_sctp::{Config, Event, Failure};

use crate::paths::{config, heartbeat, paths, second, two, two_with};
use crate::script::{Script, Sent, WINDOW, data, remote};

/// A path is left only when it is down.
fn patient() -> Config {
    Config {
        potentially_failed_max_retrans: 5,
        ..config()
    }
}

/// RFC9260-6.4-1, RFC9260-6.4-6, RFC9260-6.3.3-1, RFC9260-7.2: what timed out goes elsewhere, new data does not.
#[test]
fn what_timed_out_goes_to_another_address() {
    let (mut script, id) = two_with(patient());
    script.post(id, 100);
    assert_eq!(script.one().to, remote());
    while script.info(id).errors == 0 {
        script.wait();
    }
    let sent = script.one();
    assert_eq!((sent.to, sent.data(script.tsn)), (second(), vec![0]));
    script.post(id, 200);
    let sent = script.one();
    assert_eq!((sent.to, sent.data(script.tsn)), (remote(), vec![1]));
    let [first, other] = paths(&script, id)[..] else {
        panic!("two paths");
    };
    assert_eq!((first.errors, other.errors), (1, 0));
    assert_eq!((first.flight, other.flight), (216, 116));
    // One that is lost there comes back, as soon as the window of the first path takes it.
    let mut is_back = false;
    for _ in 0..4 {
        script.wait();
        let sent = script.sent();
        let came_back = |sent: &Sent| sent.to == remote() && sent.data(script.tsn).contains(&0);
        is_back |= sent.iter().any(came_back);
    }
    assert!(is_back);
    script.sack(2, WINDOW, &[]);
    assert_eq!(script.info(id).errors, 0);
    assert_eq!(script.info(id).flight, 0);
}

/// RFC9260-6.4-7.
#[test]
fn what_is_reported_missing_goes_to_the_same_address() {
    let (mut script, id) = two();
    script.post_all(id, 6, 1000);
    script.sent();
    for last in 2..5 {
        script.sack(0, WINDOW, &[[0, 2, 0, last]]);
    }
    let sent = script.sent();
    let again = sent
        .iter()
        .find(|sent| sent.data(script.tsn).contains(&0))
        .unwrap();
    assert_eq!(again.to, remote());
}

/// RFC9260-6.4.1-1, RFC9260-8.2-2, RFC9260-8.2-3, RFC9260-8.2-5: the second address takes over, and the first comes back.
#[test]
fn data_goes_elsewhere_while_the_primary_path_is_down() {
    let (mut script, id) = two_with(patient());
    let mut count = 0;
    let mut events = Vec::new();
    // Only the second address answers.
    while events.is_empty() {
        script.post(id, 100);
        count += 1;
        let mut is_done = false;
        while !is_done {
            for sent in script.sent() {
                if sent.to == second() && !sent.data(script.tsn).is_empty() {
                    is_done = true;
                }
            }
            if !is_done {
                script.wait();
            }
        }
        script.sack(count, WINDOW, &[]);
        events.extend(std::iter::from_fn(|| script.stack.poll_event()).map(|(_, event)| event));
        assert!(count < 20);
    }
    let remote_down = Event::PathDown {
        remote: remote().ip(),
    };
    assert_eq!(events, [remote_down]);
    assert_eq!(count, 6);
    // No timeout is needed any more.
    script.post(id, 100);
    assert_eq!(script.one().to, second());
    script.sack(count + 1, WINDOW, &[]);
    // RFC9260-8.3-6: the first is still probed.
    let mut probe = None;
    while probe.is_none() {
        script.wait();
        for sent in script.sent() {
            match sent.to == remote() {
                true => probe = Some(heartbeat(&sent)),
                false => script.peer_from(second(), &[Chunk::HeartbeatAck(&heartbeat(&sent))]),
            }
        }
    }
    script.peer(&[Chunk::HeartbeatAck(&probe.unwrap())]);
    let up = Event::PathUp {
        remote: remote().ip(),
    };
    assert_eq!(script.event(), up);
    script.post(id, 100);
    assert_eq!(script.one().to, remote());
}

/// RFC 7829 section 3.2: one timeout, and new data goes elsewhere; heartbeats, one a timeout, find out when the first
/// address is back.
#[test]
fn data_leaves_an_address_with_the_first_timeout() {
    let (mut script, id) = two();
    script.post(id, 100);
    assert_eq!(script.one().to, remote());
    while script.info(id).errors == 0 {
        script.wait();
    }
    let sent = script.sent();
    let [probe, again] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(probe.to, remote());
    heartbeat(probe);
    assert_eq!((again.to, again.data(script.tsn)), (second(), vec![0]));
    script.sack(1, WINDOW, &[]);
    for number in 1..4 {
        script.post(id, 100);
        let sent = script.one();
        assert_eq!((sent.to, sent.data(script.tsn)), (second(), vec![number]));
        script.sack(number + 1, WINDOW, &[]);
    }
    let mut probes = Vec::new();
    while paths(&script, id)[0].errors < 5 {
        script.wait();
        let now = script.now;
        // The second address is idle.
        let to_first = script.sent().into_iter().filter(|sent| sent.to == remote());
        probes.extend(to_first.map(|sent| (now, sent)));
    }
    let gaps = probes
        .windows(2)
        .map(|two| two[1].0.saturating_duration_since(two[0].0));
    let gaps: Vec<u64> = gaps.map(|gap| gap.as_secs()).collect();
    assert_eq!(gaps, [4, 8, 16]);
    assert_eq!(script.info(id).errors, 0, "no errors of the association");

    script.peer(&[Chunk::HeartbeatAck(&heartbeat(&probes.pop().unwrap().1))]);
    script.post(id, 100);
    assert_eq!(script.one().to, remote());
}

/// RFC 8899 section 4.3: where large packets get lost, small ones that pass are no sign that all is well.
#[test]
fn heartbeats_that_pass_do_not_hide_that_data_is_too_large() {
    let (mut script, id) = two();
    script.post(id, 1400);
    let mut tries = 0;
    let end = script.now + Duration::from_secs(60);
    while script.now < end {
        for sent in script.sent() {
            if sent.data(script.tsn).is_empty() {
                let info = heartbeat(&sent);
                script.peer_from(sent.to, &[Chunk::HeartbeatAck(&info)]);
            } else if sent.fragment_to.is_some() {
                assert!((3..10).contains(&tries), "{tries}");
                return;
            } else {
                tries += 1;
            }
        }
        script.wait();
    }
    panic!("{tries} packets were too large");
}

/// RFC 7829 section 3.2, RFC9260-6.3.3-2: where each has failed, the one that has failed the least is tried, and each
/// has a timeout of its own. Heartbeats double it, too.
#[test]
fn where_no_address_answers_the_one_with_the_fewest_errors_is_tried() {
    let (mut script, id) = two();
    script.post(id, 100);
    let begin = script.now;
    let mut tried = Vec::new();
    while tried.len() < 6 {
        for sent in script.sent() {
            if !sent.data(script.tsn).is_empty() {
                let after = script.now.saturating_duration_since(begin);
                tried.push((sent.to, after.as_secs()));
            }
        }
        script.wait();
    }
    let expected = [0, 1, 2, 4, 8, 16].into_iter().enumerate();
    let expected = expected.map(|(number, at)| ([remote(), second()][number % 2], at));
    assert_eq!(tried, expected.collect::<Vec<_>>());
}

/// RFC9260-7.2-3, RFC9260-7.2.1-9.
#[test]
fn the_window_of_the_address_that_data_went_to_changes() {
    let (mut script, id) = two();
    script.post(id, 100);
    script.sent();
    while script.info(id).errors == 0 {
        script.wait();
    }
    let windows = |script: &Script| -> Vec<usize> {
        let all = paths(script, id).into_iter();
        all.map(|path| path.cwnd).collect()
    };
    let [one_packet, initial] = windows(&script)[..] else {
        panic!("two paths");
    };
    assert!(
        one_packet < 1500 && initial > 4000,
        "{one_packet} {initial}"
    );
    script.sent();
    script.post_all(id, 6, 1400);
    assert!(script.sent().iter().all(|sent| sent.to == second()));
    script.sack(4, WINDOW, &[]);
    let after = windows(&script);
    assert_eq!(after[0], one_packet);
    assert!(after[1] > initial, "{after:?}");
}

/// Heartbeats that are answered clear the errors of the association (RFC9260-8.1-6), and do not keep one whose data
/// never arrives.
#[test]
fn a_peer_that_answers_heartbeats_and_takes_no_data_is_given_up() {
    let config = Config {
        user_timeout: Some(Duration::from_secs(60)),
        ..config()
    };
    let (mut script, id) = two_with(config);
    let begin = script.now;
    script.post(id, 100);
    let end = script.now + Duration::from_secs(600);
    while script.now < end && script.stack.info(id).is_some() {
        for sent in script.sent() {
            if sent.data(script.tsn).is_empty() && script.stack.info(id).is_some() {
                let info = heartbeat(&sent);
                script.peer_from(sent.to, &[Chunk::HeartbeatAck(&info)]);
            }
        }
        script.wait();
    }
    let events = std::iter::from_fn(|| script.stack.poll_event());
    let mut events = events.map(|(_, event)| event);
    assert!(events.any(|event| event == Event::Failed(Failure::Unreachable)));
    let after = script.now.saturating_duration_since(begin);
    assert_eq!(after.as_secs(), 60);
}

/// RFC9260-8.1-1: errors of all addresses together end the association.
#[test]
fn a_peer_that_answers_nowhere_is_given_up() {
    let (mut script, id) = two();
    script.post(id, 100);
    let mut to = [0, 0];
    loop {
        for sent in script.sent() {
            to[usize::from(sent.to == second())] += 1;
        }
        let events = std::iter::from_fn(|| script.stack.poll_event());
        if events
            .into_iter()
            .any(|(_, event)| matches!(event, Event::Failed(_)))
        {
            break;
        }
        script.wait();
    }
    assert!(to[0] >= 5 && to[1] >= 5, "{to:?}");
    assert_eq!(script.stack.info(id), None);
    script.peer_from(second(), &[Chunk::Data(data(0, &[1]))]);
    assert!(matches!(
        script.one().only(),
        Chunk::Abort {
            reflected: true,
            ..
        }
    ));
}

/// RFC9260-6.4-6: a SHUTDOWN that is not answered goes elsewhere.
#[test]
fn a_shutdown_is_sent_to_each_address() {
    let (mut script, id) = two();
    script.stack.close(script.now, id);
    let mut to = Vec::new();
    for _ in 0..4 {
        let sent = script.one();
        assert!(matches!(sent.only(), Chunk::Shutdown { .. }));
        to.push(sent.to);
        while !script.stack.wants_transmit() {
            script.wait();
        }
    }
    assert!(to[0] != to[1] && to[0] == to[2] && to[1] == to[3], "{to:?}");
}
